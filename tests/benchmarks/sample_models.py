"""Models of the kinds that posteriordb has, for `tests.benchmarks.sample`."""

import numpy as np
import pymc as pm
from scipy.special import expit

from tests.benchmarks.public_fields import radon, stores_and_products, survey, tennis

_SEED = 55


def eight_schools():
    """Effects of coaching in eight schools, not centred."""
    effects, errors = [28, 8, -3, 7, -1, 1, 18, 12], np.array([15, 10, 16, 11, 9, 11, 10, 18])
    with pm.Model() as model:
        theta = pm.Normal("mu", 0, 5) + pm.HalfCauchy("tau", 5) * pm.Normal("z", shape=8)
        pm.Normal("y", theta, errors, observed=effects)
    return model


def children():
    """Test scores of 434 children by their mothers'."""
    rng = np.random.default_rng(_SEED)
    school, score = rng.integers(2, size=434), rng.normal(100, 15, size=434)
    with pm.Model() as model:
        b = pm.Flat("b", shape=4)
        mean = b[0] + b[1] * school + b[2] * score + b[3] * school * score
        y = 10 + 5 * school + 0.8 * score + rng.normal(0, 18, size=434)
        pm.Normal("y", mean, pm.HalfCauchy("sigma", 2.5), observed=y)
    return model


def earnings():
    """Logarithms of 1,192 earnings by height and sex."""
    rng = np.random.default_rng(_SEED)
    male, height = rng.integers(2, size=1192), rng.normal(66.9, 3.8, size=1192)
    with pm.Model() as model:
        b = pm.Flat("b", shape=4)
        mean = b[0] + b[1] * height + b[2] * male + b[3] * height * male
        y = 8 + 0.02 * height + 0.4 * male + 0.9 * rng.normal(size=1192)
        pm.Normal("y", mean, pm.HalfFlat("sigma"), observed=y)
    return model


def autoregression():
    """An autoregression of order five, of 200 values."""
    rng = np.random.default_rng(_SEED)
    y = rng.normal(size=205)
    for t in range(5, 205):
        y[t] += 0.5 * y[t - 1] - 0.3 * y[t - 3]
    lags = np.column_stack([y[5 - k : 205 - k] for k in range(1, 6)])
    with pm.Model() as model:
        mean = pm.Normal("alpha", 0, 10) + pm.math.dot(lags, pm.Normal("beta", 0, 10, shape=5))
        pm.Normal("y", mean, pm.HalfCauchy("sigma", 2.5), observed=y[5:])
    return model


def falcons():
    """Counts of 40 years with an effect of each year."""
    rng, year = np.random.default_rng(_SEED), np.linspace(-1, 1, 40)
    counts = rng.poisson(np.exp(4.3 + 1.2 * year - 0.2 * year**3 + 0.1 * rng.normal(size=40)))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 10, shape=4)
        rate = beta[0] + beta[1] * year + beta[2] * year**2 + beta[3] * year**3
        rate += pm.HalfNormal("sigma", 1) * pm.Normal("z", shape=40)
        pm.Poisson("counts", pm.math.exp(rate), observed=counts)
    return model


def growth():
    """Lengths of 27 animals by age."""
    rng, age = np.random.default_rng(_SEED), np.linspace(1, 31, 27)
    with pm.Model() as model:
        rest = pm.Uniform("lambda", 0.5, 1.0)
        mean = pm.Normal("alpha", 0, 10) - pm.HalfNormal("beta", 10) * rest**age
        y = 2.65 - 0.97 * 0.87**age + 0.1 * rng.normal(size=27)
        pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=y)
    return model


def process():
    """A Gaussian process of 60 values."""
    rng, x = np.random.default_rng(_SEED), np.linspace(-3, 3, 60)
    with pm.Model() as model:
        covariance = pm.HalfNormal("height", 1) ** 2 * pm.gp.cov.ExpQuad(1, pm.Gamma("length", 2, 2))
        of_y = pm.gp.Marginal(cov_func=covariance)
        y = np.sin(2 * x) + 0.3 * rng.normal(size=60)
        of_y.marginal_likelihood("y", X=x[:, None], y=y, sigma=pm.HalfNormal("sigma"))
    return model


def mixture():
    """A mixture of two normal distributions, of 1,000 values."""
    rng = np.random.default_rng(_SEED)
    y = np.where(rng.random(1000) < 0.36, rng.normal(-2.7, 1.0, 1000), rng.normal(2.9, 1.0, 1000))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2, shape=2, transform=pm.distributions.transforms.ordered, initval=[-1, 1])
        share = pm.Beta("share", 5, 5)
        parts = pm.Normal.dist(mu, pm.HalfNormal("sigma", 2, shape=2))
        pm.Mixture("y", pm.math.stack([share, 1 - share]), parts, observed=y)
    return model


def volatility():
    """Stochastic volatility of 500 returns."""
    rng, h = np.random.default_rng(_SEED), np.zeros(500)
    for t in range(1, 500):
        h[t] = 0.95 * h[t - 1] + 0.25 * rng.normal()
    with pm.Model() as model:
        rho, sd = pm.Uniform("rho", -1, 1), pm.HalfNormal("sd")
        h_t = pm.AR("h", [rho], sigma=sd, init_dist=pm.Normal.dist(), shape=500)
        sd_t = pm.math.exp(0.5 * (pm.Normal("mu", 0, 5) + h_t))
        pm.Normal("y", 0, sd_t, observed=rng.normal(0, np.exp(h / 2)))
    return model


def diamonds():
    """Prices of 5,000 diamonds by 24 columns that are nearly collinear."""
    rng = np.random.default_rng(_SEED)
    x = rng.normal(size=(5000, 1)) + 0.1 * rng.normal(size=(5000, 24))
    y = 8 + x @ rng.normal(0, 0.3, size=24) + 0.3 * rng.normal(size=5000)
    with pm.Model() as model:
        mean = pm.StudentT("level", 3, mu=8, sigma=10) + pm.math.dot(x, pm.Normal("b", shape=24))
        pm.Normal("y", mean, pm.HalfStudentT("sigma", 3, 10), observed=y)
    return model


def answers():
    """Answers of 300 people to 30 questions: an item response model."""
    rng = np.random.default_rng(_SEED)
    person, item = np.divmod(np.arange(9000), 30)
    with pm.Model() as model:
        ability = pm.Normal("ability", shape=300)
        difficulty = pm.Normal("mean") + pm.HalfNormal("spread") * pm.Normal("z", shape=30)
        right = rng.random(9000) < expit(rng.normal(size=300)[person] - rng.normal(size=30)[item])
        pm.Bernoulli("right", logit_p=ability[person] - difficulty[item], observed=right)
    return model


HIERARCHIES = {
    "radon": lambda: radon(12_500),
    "survey": lambda: survey(4_000),
    "tennis": lambda: tennis(10_000),
    "stores and products": lambda: stores_and_products(10_000),
    "answers": answers,
}
OTHERS = {
    one.__name__.replace("_", " "): one
    for one in (
        eight_schools, children, earnings, autoregression, falcons,
        growth, process, mixture, volatility, diamonds,
    )
}  # fmt: skip
