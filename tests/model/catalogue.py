"""Models on which `factorise` is tested.

Each function returns (model, names), names being the variables of a subset to ask for, or None.
`MODELS` holds those that `factorise` splits (`required` names the terms that must be local) and those that
it refuses so far, `REFUSED` those that it must refuse. `catalogue_names.txt` lists all by name, and says how
to add one.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt


@dataclass(frozen=True)
class Entry:
    build: Callable
    required: bool = False
    local: tuple[str, ...] = ()  # names that must be local, when required
    refused_so_far: bool = False  # one that is split, or a new refusal, fails the test
    finite: bool = True  # whether the log density is finite at the initial point
    words: tuple[str, ...] = ()  # regular expressions that the refusal must match

    @property
    def name(self):
        return self.build.__name__


MODELS = []
REFUSED = []


def required(*local):
    def register(build):
        MODELS.append(Entry(build, required=True, local=local))
        return build

    return register


def optional(build):
    MODELS.append(Entry(build))
    return build


def refused_so_far(build):
    MODELS.append(Entry(build, refused_so_far=True))
    return build


def not_finite(build):
    MODELS.append(Entry(build, finite=False))
    return build


def refused(*words):
    def register(build):
        REFUSED.append(Entry(build, words=words))
        return build

    return register


def columns(n, d, seed):
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=(n, d))


# Regressions


@required("y")
def normal():
    y = np.random.default_rng(1).normal(1, 2, size=1500)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        sigma = pm.HalfNormal("sigma", 5)
        pm.Normal("y", mu, sigma, observed=y)
    return model, ["sigma"]


@required("y")
def linear_matmul():
    rng, X = columns(1301, 4, 2)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 5)
        beta = pm.Normal("beta", 0, 1, shape=4)
        sigma = pm.HalfNormal("sigma", 2)
        pm.Normal("y", intercept + X @ beta, sigma, observed=rng.normal(size=1301))
    return model, ["beta"]


@required("y")
def linear_dot():
    rng, X = columns(1302, 3, 3)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        sigma = pm.Exponential("sigma", 1)
        pm.Normal("y", pm.math.dot(X, beta), sigma, observed=rng.normal(size=1302))
    return model, ["beta", "sigma"]


@optional
def sums_of_products():
    rng, X = columns(1400, 2, 4)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 5)
        b = pm.Normal("b", 0, 1)
        c = pm.Normal("c", 0, 1)
        mu = a + b * X[:, 0] + c * X[:, 1] + b * c * X[:, 0] * X[:, 1]
        pm.Normal("y", mu, 0.7, observed=rng.normal(size=1400))
    return model, ["c"]


@optional
def sum_over_columns():
    rng, X = columns(1401, 3, 5)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        pm.Normal("y", (X * beta).sum(axis=1), 1, observed=rng.normal(size=1401))
    return model, None


@optional
def rows_on_the_last_axis():
    rng, X = columns(1402, 3, 6)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        pm.Normal("y", beta @ X.T, 1, observed=rng.normal(size=1402))
    return model, None


@required("y")
def logistic():
    rng, X = columns(1600, 3, 7)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 2)
        beta = pm.Normal("beta", 0, 1, shape=3)
        pm.Bernoulli("y", logit_p=intercept + X @ beta, observed=rng.integers(2, size=1600))
    return model, ["beta"]


@optional
def logistic_invlogit():
    rng, X = columns(1601, 3, 8)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        p = pm.math.invlogit(X @ beta)
        pm.Bernoulli("y", p=p, observed=rng.integers(2, size=1601))
    return model, None


@required("y")
def poisson_offset():
    rng, X = columns(1450, 2, 9)
    exposure = rng.gamma(4, 1, size=1450)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 2)
        beta = pm.Normal("beta", 0, 1, shape=2)
        mu = pm.math.exp(intercept + X @ beta + np.log(exposure))
        pm.Poisson("y", mu, observed=rng.poisson(exposure))
    return model, ["intercept"]


# Data


@required("y")
def pm_data():
    rng, X = columns(1501, 3, 10)
    with pm.Model() as model:
        X = pm.Data("X", X)
        y = pm.Data("y_data", rng.normal(size=1501))
        beta = pm.Normal("beta", 0, 1, shape=3)
        pm.Normal("y", X @ beta, 1, observed=y)
    return model, ["beta"]


@required("y")
def pm_data_shape():
    rng, X = columns(1502, 3, 11)
    with pm.Model() as model:
        X = pm.Data("X", X)
        intercept = pm.Normal("intercept", 0, 1)
        beta = pm.Normal("beta", 0, 1, shape=3)
        eta = intercept + X @ beta
        y = rng.integers(2, size=1502)
        pm.Bernoulli("y", logit_p=eta, shape=X.shape[0], observed=y)
    return model, ["intercept"]


@optional
def pm_data_group_index():
    rng = np.random.default_rng(12)
    with pm.Model() as model:
        group = pm.Data("group", rng.integers(30, size=1503))
        theta = pm.Normal("theta", 0, 1, shape=30)
        pm.Normal("y", theta[group], 1, observed=rng.normal(size=1503))
    return model, ["theta"]


@optional
def fortran_order():
    rng, X = columns(1303, 3, 13)
    X = np.asfortranarray(X)
    with pm.Model() as model:
        X_data = pm.Data("X", X)
        beta = pm.Normal("beta", 0, 1, shape=3)
        gamma = pm.Normal("gamma", 0, 1, shape=3)
        pm.Normal("y", X @ beta + X_data @ gamma, 1, observed=rng.normal(size=1303))
    return model, None


@optional
def single_precision():
    rng, X = columns(1304, 3, 14)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        y = rng.normal(size=1304).astype("float32")
        pm.Normal("y", X.astype("float32") @ beta, 1, observed=y)
    return model, None


@optional
def pandas_inputs():
    rng, X = columns(1305, 3, 15)
    frame = pd.DataFrame(X, columns=list("uvw"), index=np.arange(1305)[::-1])
    y = pd.Series(rng.normal(size=1305), index=frame.index)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1)
        beta = pm.Normal("beta", 0, 1, shape=2)
        mu = pm.math.dot(frame[["u", "v"]], beta) + b * pt.as_tensor(frame["w"])
        pm.Normal("y", mu, 1, observed=y)
    return model, None


@optional
def constant_and_duplicated_columns():
    rng, X = columns(1306, 2, 16)
    X = np.column_stack([np.ones(1306), X, X[:, 0], np.ones(1306)])
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=5)
        pm.Normal("y", X @ beta, 1, observed=np.round(rng.normal(size=1306)))
    return model, None


@optional
def standardised_data():
    rng, X = columns(1307, 1, 17)
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0])
        a = pm.Normal("a", 0, 1)
        b = pm.Normal("b", 0, 1)
        pm.Normal("y", a + b * (x - x.mean()) / x.std(), 1, observed=rng.normal(size=1307))
    return model, ["b"]


@optional
def cumulated_data():
    rng, X = columns(1308, 1, 18)
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0])
        b = pm.Normal("b", 0, 1)
        pm.Normal("y", b * pt.cumsum(x), 5, observed=rng.normal(size=1308))
    return model, None


@optional
def mean_of_data_times_parameter():
    rng, X = columns(1309, 2, 19)
    with pm.Model() as model:
        X = pm.Data("X", X)
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Normal("y", X @ beta - X.mean(axis=0) @ beta, 1, observed=rng.normal(size=1309))
    return model, None


@optional
def number_of_rows_in_the_graph():
    rng, X = columns(1310, 1, 20)
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0])
        a = pm.Normal("a", 0, 1)
        n = x.shape[0]
        pm.Normal("y", a + x / n, pt.sqrt(n / 1000), observed=rng.normal(size=1310))
    return model, None


@optional
def row_number_in_the_graph():
    rng, X = columns(1311, 1, 21)
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0])
        a = pm.Normal("a", 0, 1)
        b = pm.Normal("b", 0, 1)
        t = pt.arange(x.shape[0]) / 1000.0
        pm.Normal("y", a * x + b * t, 1, observed=rng.normal(size=1311))
    return model, None


@optional
def lagged_data():
    rng = np.random.default_rng(22)
    with pm.Model() as model:
        z = pm.Data("z", rng.normal(size=1312))
        rho = pm.Uniform("rho", -1, 1)
        pm.Normal("y", rho * z[:-1], 1, observed=z.eval()[1:])
    return model, None


@optional
def masked_rows():
    rng, X = columns(2400, 1, 23)
    keep = rng.random(2400) < 0.6
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0])
        a = pm.Normal("a", 0, 1)
        mu = (a * x)[keep]
        pm.Normal("y", mu, 1, observed=rng.normal(size=keep.sum()))
    return model, None


# Hierarchical models


@required("y")
def varying_intercepts_centred():
    rng, X = columns(1700, 1, 24)
    g = rng.integers(50, size=1700)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        tau = pm.HalfNormal("tau", 1)
        theta = pm.Normal("theta", mu, tau, shape=50)
        b = pm.Normal("b", 0, 1)
        pm.Normal("y", theta[g] + b * X[:, 0], 1, observed=rng.normal(size=1700))
    return model, ["theta"]


@required("y")
def varying_intercepts_non_centred():
    rng = np.random.default_rng(25)
    g = rng.integers(50, size=1701)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        tau = pm.HalfNormal("tau", 1)
        z = pm.Normal("z", 0, 1, shape=50)
        theta = pm.Deterministic("theta", mu + tau * z)
        pm.Bernoulli("y", logit_p=theta[g], observed=rng.integers(2, size=1701))
    return model, ["mu", "tau"]


@required("theta", "y")
def varying_intercepts_many_groups():
    rng = np.random.default_rng(26)
    g = rng.integers(1500, size=4000)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        tau = pm.HalfNormal("tau", 1)
        theta = pm.Normal("theta", mu, tau, shape=1500)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", theta[g], sigma, observed=rng.normal(size=4000))
    return model, ["mu", "tau"]


@required("y")
def varying_slopes():
    rng, X = columns(1702, 1, 27)
    g = rng.integers(40, size=1702)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=2)
        tau = pm.HalfNormal("tau", 1, shape=2)
        theta = pm.Normal("theta", mu, tau, shape=(40, 2))
        eta = theta[g, 0] + theta[g][:, 1] * X[:, 0]
        pm.Normal("y", eta, 1, observed=rng.normal(size=1702))
    return model, ["theta"]


@optional
def varying_slopes_row_products():
    rng, X = columns(1703, 3, 28)
    g = rng.integers(40, size=1703)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=(40, 3))
        pm.Normal("y", (X * theta[g]).sum(axis=-1), 1, observed=rng.normal(size=1703))
    return model, None


@optional
def nested_groups():
    rng = np.random.default_rng(29)
    g = rng.integers(60, size=1704)
    region = rng.integers(7, size=60)
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0, 1, shape=7)
        theta = pm.Normal("theta", alpha[region], 0.5)
        pm.Normal("y", theta[g] + alpha[region][g], 1, observed=rng.normal(size=1704))
    return model, ["alpha"]


@optional
def zero_sum_groups():
    rng = np.random.default_rng(30)
    g = rng.integers(20, size=1705)
    with pm.Model() as model:
        theta = pm.ZeroSumNormal("theta", 1, shape=20)
        pm.Normal("y", theta[g], 1, observed=rng.normal(size=1705))
    return model, None


@required("theta", "y")
def latents_with_hyperparameters():
    y = np.random.default_rng(31).normal(size=1800)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        tau = pm.HalfNormal("tau", 1)
        theta = pm.Normal("theta", mu, tau, shape=1800)
        pm.Normal("y", theta, 1, observed=y)
    return model, ["mu", "tau"]


@optional
def latents_in_another_order():
    rng = np.random.default_rng(32)
    order = rng.permutation(1801)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        theta = pm.Normal("theta", 0, tau, shape=1801)
        pm.Normal("y", theta[order], 1, observed=rng.normal(size=1801))
    return model, ["theta"]


@optional
def latents_reversed():
    y = np.random.default_rng(33).normal(size=1802)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=1802)
        pm.Normal("y", theta[::-1], 1, observed=y)
    return model, None


@optional
def transformed_latents():
    y = np.random.default_rng(34).poisson(3, size=1803)
    with pm.Model() as model:
        shape = pm.HalfNormal("shape", 3)
        rate = pm.Gamma("rate", shape, 1, shape=1803)
        pm.Poisson("y", rate, observed=y)
    return model, ["shape"]


# Other likelihoods


@required("y")
def negative_binomial():
    rng, X = columns(1550, 2, 35)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        alpha = pm.Exponential("alpha", 1)
        y = rng.poisson(2, size=1550)
        pm.NegativeBinomial("y", mu=pt.exp(X @ beta), alpha=alpha, observed=y)
    return model, ["alpha"]


@required("y")
def student_t():
    rng, X = columns(1551, 2, 36)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        nu = pm.Gamma("nu", 2, 0.1)
        pm.StudentT("y", nu, mu=X @ beta, sigma=sigma, observed=rng.standard_t(4, size=1551))
    return model, ["nu"]


@required("y")
def gamma_log_link():
    rng, X = columns(1552, 2, 37)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        y = rng.gamma(2, 1, size=1552)
        pm.Gamma("y", mu=pt.exp(X @ beta), sigma=sigma, observed=y)
    return model, None


@optional
def exponential():
    rng, X = columns(1553, 2, 38)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Exponential("y", scale=pt.exp(X @ beta), observed=rng.exponential(size=1553))
    return model, None


@optional
def log_normal():
    rng, X = columns(1554, 2, 39)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        pm.LogNormal("y", X @ beta, sigma, observed=rng.lognormal(size=1554))
    return model, None


@optional
def binomial():
    rng, X = columns(1555, 2, 40)
    trials = rng.integers(1, 20, size=1555)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Binomial("y", trials, logit_p=X @ beta, observed=rng.binomial(trials, 0.4))
    return model, None


@optional
def half_normal():
    y = np.abs(np.random.default_rng(41).normal(size=1556))
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        pm.HalfNormal("y", sigma, observed=y)
    return model, None


@optional
def beta_mean_and_sd():
    rng, X = columns(1557, 2, 42)
    with pm.Model() as model:
        coef = pm.Normal("coef", 0, 0.2, shape=2)
        sigma = pm.Uniform("sigma", 0.01, 0.2)
        y = rng.beta(5, 5, size=1557)
        pm.Beta("y", mu=pm.math.invlogit(0.3 * X @ coef), sigma=sigma, observed=y)
    return model, ["sigma"]


@optional
def weibull():
    rng, X = columns(1558, 2, 43)
    with pm.Model() as model:
        coef = pm.Normal("coef", 0, 1, shape=2)
        alpha = pm.HalfNormal("alpha", 2)
        pm.Weibull("y", alpha, pt.exp(X @ coef), observed=rng.weibull(1.5, size=1558))
    return model, None


@optional
def laplace():
    rng, X = columns(1559, 2, 44)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        b = pm.HalfNormal("b", 1)
        pm.Laplace("y", X @ beta, b, observed=rng.laplace(size=1559))
    return model, None


@optional
def beta_binomial():
    rng = np.random.default_rng(45)
    trials = rng.integers(1, 20, size=1560)
    with pm.Model() as model:
        a = pm.HalfNormal("a", 3)
        b = pm.HalfNormal("b", 3)
        pm.BetaBinomial("y", a, b, trials, observed=rng.binomial(trials, 0.4))
    return model, None


@required("y")
def normal_mixture():
    rng = np.random.default_rng(46)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        mu = pm.Normal("mu", [-2, 0, 2], 1)
        sigma = pm.HalfNormal("sigma", 1, shape=3)
        pm.NormalMixture("y", w, mu, sigma, observed=rng.normal(size=1651))
    return model, ["w"]


@optional
def mixture_of_regressions():
    rng, X = columns(1652, 2, 47)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        beta = pm.Normal("beta", [[-1, 0], [0, 1]], 1)
        sigma = pm.HalfNormal("sigma", 1, shape=2)
        parts = [pm.Normal.dist(X @ beta[k], sigma[k]) for k in range(2)]
        pm.Mixture("y", w, parts, observed=rng.normal(size=1652))
    return model, ["beta"]


@optional
def mixture_with_covariate_weights():
    rng, X = columns(1653, 2, 48)
    with pm.Model() as model:
        gamma = pm.Normal("gamma", 0, 1, shape=(2, 3))
        mu = pm.Normal("mu", [-1, 0, 1], 1)
        w = pm.math.softmax(X @ gamma, axis=1)
        pm.NormalMixture("y", w, mu, 1, observed=rng.normal(size=1653))
    return model, None


@optional
def mixture_by_hand():
    rng = np.random.default_rng(49)
    with pm.Model() as model:
        y = pm.Data("y", rng.normal(size=1654))
        w = pm.Beta("w", 2, 2)
        mu = pm.Normal("mu", 0, 1)
        first = pt.log(w) + pm.logp(pm.Normal.dist(mu, 1), y)
        second = pt.log1p(-w) + pm.logp(pm.Normal.dist(0, 3), y)
        pm.Potential("mixture", pm.math.logsumexp([first, second], axis=0).sum())
    return model, None


@required("y")
def categorical():
    rng, X = columns(1655, 3, 50)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=(3, 4))
        pm.Categorical("y", logit_p=X @ beta, observed=rng.integers(4, size=1655))
    return model, None


@optional
def categorical_softmax():
    rng, X = columns(1656, 3, 51)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=(3, 4))
        p = pm.math.softmax(X @ beta, axis=-1)
        pm.Categorical("y", p, observed=rng.integers(4, size=1656))
    return model, None


@optional
def multinomial():
    rng, X = columns(1657, 2, 52)
    counts = rng.multinomial(10, [0.2, 0.3, 0.5], size=1657)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=(2, 3))
        pm.Multinomial("y", 10, pm.math.softmax(X @ beta, axis=-1), observed=counts)
    return model, None


@optional
def ordered_logistic():
    rng, X = columns(1658, 2, 53)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        ordered = pm.distributions.transforms.ordered
        cut = pm.Normal("cut", [-1, 0, 1], 2, transform=ordered, initval=[-1, 0, 1])
        y = rng.integers(4, size=1658)
        pm.OrderedLogistic("y", X @ beta, cut, compute_p=False, observed=y)
    return model, ["cut"]


@optional
def truncated():
    rng, X = columns(1659, 2, 54)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        y = np.abs(rng.normal(size=1659))
        pm.Truncated("y", pm.Normal.dist(X @ beta, sigma), lower=0, observed=y)
    return model, None


@optional
def censored():
    rng, X = columns(1660, 2, 55)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        y = np.clip(rng.normal(size=1660), -1, 1)
        pm.Censored("y", pm.Normal.dist(X @ beta, sigma), lower=-1, upper=1, observed=y)
    return model, None


@optional
def zero_inflated_poisson():
    rng, X = columns(1661, 2, 56)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        psi = pm.Beta("psi", 2, 2)
        y = rng.poisson(1, size=1661) * rng.integers(2, size=1661)
        pm.ZeroInflatedPoisson("y", psi, pt.exp(X @ beta), observed=y)
    return model, ["psi"]


@optional
def custom_dist():
    def logp(value, mu, log_scale):
        z = (value - mu) * pt.exp(-log_scale)
        return -pt.log(pt.cosh(z)) - log_scale

    rng, X = columns(1662, 2, 57)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        log_scale = pm.Normal("log_scale", 0, 1)
        y = rng.normal(size=1662)
        pm.CustomDist("y", X @ beta, log_scale, logp=logp, observed=y)
    return model, None


# Matrices


@optional
def matrix_of_observations():
    rng = np.random.default_rng(58)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=3)
        sigma = pm.HalfNormal("sigma", 1, shape=3)
        pm.Normal("y", mu, sigma, observed=rng.normal(size=(1250, 3)))
    return model, ["sigma"]


@optional
def transposed_matrix_of_observations():
    rng, X = columns(1251, 2, 59)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=(3, 2))
        sigma = pm.HalfNormal("sigma", 1, shape=(3, 1))
        pm.Normal("y", beta @ X.T, sigma, observed=rng.normal(size=(3, 1251)))
    return model, None


@optional
def multivariate_normal_rows():
    rng, X = columns(1252, 2, 60)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=(2, 3))
        sd = pm.Exponential.dist(1, shape=3)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2, sd_dist=sd)
        pm.MvNormal("y", X @ beta, chol=chol, observed=rng.normal(size=(1252, 3)))
    return model, ["chol"]


# Potentials


@required("penalty")
def potential_vector():
    rng, X = columns(1351, 2, 61)
    y = rng.normal(size=1351)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Potential("penalty", -pt.abs(y - X @ beta))
    return model, None


@required("likelihood")
def potential_sum():
    rng, X = columns(1352, 2, 62)
    y = rng.normal(size=1352)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Potential("likelihood", pm.logp(pm.Normal.dist(X @ beta, sigma), y).sum())
    return model, ["beta"]


@required("likelihood")
def potential_difference_of_sums():
    rng, X = columns(1353, 2, 63)
    y = rng.integers(2, size=1353)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        scale = pm.HalfNormal("scale", 1)
        eta = X @ beta
        value = 0.5 * scale * pt.sum(y * eta) - pt.sum(pm.math.log1pexp(eta))
        pm.Potential("likelihood", value)
    return model, None


@required("likelihood")
def potential_with_remainder():
    y = np.random.default_rng(64).normal(size=1354)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        sigma = pm.HalfNormal("sigma", 1)
        squares = pt.sum((y - mu) ** 2)
        pm.Potential("likelihood", -1354 * pt.log(sigma) - 0.5 * squares / sigma**2)
    return model, ["mu"]


@required("likelihood")
def potential_quadratic_form():
    rng, X = columns(1355, 2, 65)
    y = rng.normal(size=1355)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        r = y - X @ beta
        pm.Potential("likelihood", -0.5 * pt.dot(r, r))
    return model, None


@optional
def potential_of_two_lengths():
    rng = np.random.default_rng(66)
    first, second = rng.normal(size=1356), rng.normal(size=1657)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        value = -pt.sum((first - mu) ** 2) - pt.sum(pt.abs(second - mu)) - mu**4
        pm.Potential("likelihood", value)
    return model, None


@optional
def potential_mean():
    y = np.random.default_rng(67).normal(size=1358)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Potential("likelihood", -700 * pt.mean((y - mu) ** 2))
    return model, None


@refused_so_far
def potential_square_of_sum():
    y = np.random.default_rng(68).normal(size=1359)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Potential("likelihood", -((pt.sum(y - mu) / 1000) ** 2))
    return model, None


@optional
def potential_of_differences():
    _, X = columns(1360, 2, 69)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        eta = X @ beta
        pm.Potential("smoothness", -0.5 * pt.sum((eta[1:] - eta[:-1]) ** 2))
    return model, None


@refused_so_far
def potential_matrix_sum_of_columns():
    _, X = columns(1361, 3, 70)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        w = pm.Dirichlet("w", np.ones(3))
        sums = pt.sum(-pt.abs(X - beta), axis=0)
        pm.Potential("likelihood", pt.dot(w, sums))
    return model, None


# Several terms and names


@required("y", "z")
def two_observed():
    rng, X = columns(1204, 2, 71)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        rate = pm.HalfNormal("rate", 1)
        pm.Bernoulli("y", logit_p=X @ beta, observed=rng.integers(2, size=1204))
        pm.Poisson("z", rate * pt.exp(beta[0]), observed=rng.poisson(2, size=2205))
    return model, ["rate"]


@optional
def long_and_short_observed():
    rng = np.random.default_rng(72)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", mu, sigma, observed=rng.normal(size=1205))
        pm.Normal("z", mu, 2, observed=rng.normal(size=7))
        pm.Potential("p", -(mu**2) * sigma)
    return model, ["sigma"]


@required("y")
def dims_and_coords():
    rng, X = columns(1206, 3, 73)
    coords = {"row": np.arange(1206) + 10, "column": list("abc"), "group": list("pqrs")}
    with pm.Model(coords=coords) as model:
        X = pm.Data("X", X, dims=("row", "column"))
        g = pm.Data("g", rng.integers(4, size=1206), dims="row")
        theta = pm.Normal("theta", 0, 1, dims="group")
        beta = pm.Normal("beta", 0, 1, dims="column")
        eta = pm.Deterministic("eta", theta[g] + X @ beta, dims="row")
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", eta, sigma, observed=rng.normal(size=1206), dims="row")
    return model, ["theta", "sigma"]


@optional
def nested_model_names():
    rng = np.random.default_rng(74)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        with pm.Model(name="inner"):
            sigma = pm.HalfNormal("sigma", 1)
            pm.Normal("y", mu, sigma, observed=rng.normal(size=1207))
    return model, ["inner::sigma"]


@optional
def registered_deterministic():
    rng, X = columns(1208, 2, 75)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        eta = pm.Deterministic("eta", X @ beta)
        sd = pm.Deterministic("sd", pt.exp(0.1 * eta))
        pm.Normal("y", eta, sd, observed=rng.normal(size=1208))
    return model, None


@optional
def imputed_missing():
    rng, X = columns(1209, 2, 76)
    y = np.ma.masked_array(rng.normal(size=1209), mask=np.arange(1209) % 250 == 3)
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
        beta = pm.Normal("beta", 0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", X @ beta, sigma, observed=y)
    return model, ["beta"]


@optional
def bounded_priors():
    rng, X = columns(1210, 1, 77)
    with pm.Model() as model:
        a = pm.Uniform("a", -2, 3)
        b = pm.TruncatedNormal("b", 0, 1, lower=-1)
        sigma = pm.Uniform("sigma", 0, 10)
        pm.Normal("y", a + b * X[:, 0], sigma, observed=rng.normal(size=1210))
    return model, ["a"]


# Series


@required("x", "y")
def autoregression_1():
    y = np.random.default_rng(78).normal(size=2000)
    with pm.Model() as model:
        rho = pm.Uniform("rho", -1, 1)
        sigma = pm.HalfNormal("sigma", 1)
        x = pm.AR("x", [rho], sigma, init_dist=pm.Normal.dist(0, 1), shape=2000)
        pm.Normal("y", x, 1, observed=y)
    return model, ["rho", "sigma"]


@required("x", "y")
def autoregression_2():
    y = np.random.default_rng(79).normal(size=2000)
    with pm.Model() as model:
        rho = pm.Normal("rho", 0, 0.3, shape=3)
        start = pm.Normal.dist(0, 10, shape=2)
        x = pm.AR("x", rho, sigma=0.5, constant=True, init_dist=start, shape=2000)
        pm.Normal("y", x, 1, observed=y)
    return model, ["rho"]


@required("x", "y")
def random_walk():
    y = np.random.default_rng(80).normal(size=2000)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        start = pm.Normal.dist(0, 1)
        x = pm.GaussianRandomWalk("x", mu=0.001, sigma=sigma, init_dist=start, shape=2000)
        pm.Normal("y", x, 1, observed=y)
    return model, ["sigma"]


@optional
def random_walk_of_latents_by_hand():
    rng = np.random.default_rng(81)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        x = pm.Normal("x", 0, 1, shape=1211)
        pm.Potential("walk", pm.logp(pm.Normal.dist(0, tau), pt.diff(x)))
        pm.Normal("y", x, 1, observed=rng.normal(size=1211))
    return model, ["tau"]


@optional
def switchpoint():
    t = np.arange(1212)
    with pm.Model() as model:
        tau = pm.DiscreteUniform("tau", 0, 1211)
        a = pm.Exponential("a", 1)
        b = pm.Exponential("b", 1)
        y = np.random.default_rng(82).poisson(1 + (t > 500))
        pm.Poisson("y", pt.switch(t < tau, a, b), observed=y)
    return model, ["tau"]


# Predictors built in the graph


@optional
def polynomial():
    rng, X = columns(1213, 1, 83)
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0])
        beta = pm.Normal("beta", 0, 1, shape=4)
        design = pt.stack([pt.ones_like(x), x, x**2, x**3], axis=1)
        pm.Normal("y", design @ beta, 1, observed=rng.normal(size=1213))
    return model, None


@optional
def hinge():
    rng, X = columns(1214, 1, 84)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=2)
        c = pm.Normal("c", 0, 0.5)
        mu = a[0] + a[1] * pt.maximum(X[:, 0] - c, 0)
        pm.Normal("y", mu, 1, observed=rng.normal(size=1214))
    return model, ["c"]


@optional
def splines_with_moving_knots():
    rng, X = columns(1215, 1, 85)
    with pm.Model() as model:
        knots = pm.Normal("knots", [-1, 0, 1], 0.2)
        coef = pm.Normal("coef", 0, 1, shape=3)
        basis = pt.maximum(X - knots, 0)
        pm.Normal("y", basis @ coef, 1, observed=rng.normal(size=1215))
    return model, None


@optional
def network():
    rng, X = columns(1216, 4, 86)
    with pm.Model() as model:
        W = pm.Normal("W", 0, 1, shape=(4, 5), initval=rng.normal(size=(4, 5)))
        b = pm.Normal("b", 0, 1, shape=5)
        V = pm.Normal("V", 0, 1, shape=(5, 2), initval=rng.normal(size=(5, 2)))
        w = pm.Normal("w", 0, 1, shape=2)
        out = pt.tanh(pt.tanh(X @ W + b) @ V) @ w
        pm.Bernoulli("y", logit_p=out, observed=rng.integers(2, size=1216))
    return model, ["w"]


@optional
def concatenated_data():
    rng = np.random.default_rng(87)
    with pm.Model() as model:
        first = pm.Data("first", rng.normal(size=700))
        second = pm.Data("second", rng.normal(size=1100))
        b = pm.Normal("b", 0, 1)
        x = pt.concatenate([first, second])
        pm.Normal("y", b * x, 1, observed=rng.normal(size=1800))
    return model, None


@optional
def concatenated_predictors():
    rng = np.random.default_rng(88)
    first, second = rng.normal(size=701), rng.normal(size=1102)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        b = pm.Normal("b", 0, 1)
        mu = pt.concatenate([a * first, b * second])
        pm.Normal("y", mu, 1, observed=rng.normal(size=1803))
    return model, ["b"]


@optional
def set_subtensor():
    rng, X = columns(1217, 2, 89)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        a = pm.Normal("a", 0, 1)
        mu = pt.set_subtensor((X @ beta)[100:400], a)
        pm.Normal("y", mu, 1, observed=rng.normal(size=1217))
    return model, None


@optional
def increment_some_rows():
    rng, X = columns(1218, 2, 90)
    some = rng.choice(1218, size=200, replace=False)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        a = pm.Normal("a", 0, 1, shape=200)
        mu = pt.inc_subtensor((X @ beta)[some], a)
        pm.Normal("y", mu, 1, observed=rng.normal(size=1218))
    return model, None


@optional
def repeated_groups():
    rng = np.random.default_rng(91)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=40)
        phi = pm.Normal("phi", 0, 1, shape=30)
        mu = pt.repeat(theta, 30) + pt.tile(phi, 40)
        pm.Normal("y", mu, 1, observed=rng.normal(size=1200))
    return model, None


@optional
def flattened_table():
    rng = np.random.default_rng(92)
    with pm.Model() as model:
        rows = pm.Normal("rows", 0, 1, shape=40)
        cells = pm.Normal("cells", 0, 1, shape=31)
        mu = (rows[:, None] + cells[None, :]).ravel()
        pm.Normal("y", mu, 1, observed=rng.normal(size=1240))
    return model, None


@optional
def reversed_predictor():
    rng, X = columns(1219, 2, 93)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Normal("y", (X @ beta)[::-1], 1, observed=rng.normal(size=1219))
    return model, None


@optional
def square_data_summed_over_rows():
    rng, K = columns(1220, 1220, 94)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 0.1)
        mu = b * pt.as_tensor(K).sum(axis=0)
        pm.Normal("y", mu, 5, observed=rng.normal(size=1220))
    return model, None


@refused_so_far
def normalised_by_the_largest():
    rng, X = columns(1221, 2, 95)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2, initval=[1, 2])
        eta = pt.exp(0.1 * X @ beta)
        pm.Normal("y", eta / eta.max(), 1, observed=rng.normal(size=1221))
    return model, None


@optional
def spectral_gaussian_process():
    rng, X = columns(1222, 1, 96)
    with pm.Model() as model:
        ls = pm.Gamma("ls", 5, 5)
        gp = pm.gp.HSGP(m=[8], c=1.5, cov_func=pm.gp.cov.ExpQuad(1, ls))
        f = gp.prior("f", X=X)
        pm.Normal("y", f, 1, observed=rng.normal(size=1222))
    return model, ["ls"]


# Not finite at the initial point


@not_finite
def observations_out_of_bounds():
    y = np.random.default_rng(97).uniform(0, 3, size=1223)
    with pm.Model() as model:
        upper = pm.HalfNormal("upper", 1)
        pm.Uniform("y", 0, upper, observed=y)
    return model, None


@not_finite
def undefined_rows():
    _, X = columns(1224, 1, 98)
    with pm.Model() as model:
        a = pm.HalfNormal("a", 1)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Potential("p", -pt.sqrt(a + X[:, 0]) / sigma)
    return model, None


@not_finite
def invalid_scales():
    rng, X = columns(1235, 1, 99)
    with pm.Model() as model:
        a = pm.HalfNormal("a", 1)
        sigma = a + 0.5 * X[:, 0]  # negative in some rows
        pm.Normal("y", 0, sigma, observed=rng.normal(size=1235))
    return model, None


@not_finite
def invalid_probabilities():
    rng, X = columns(1236, 1, 100)
    with pm.Model() as model:
        b = pm.HalfNormal("b", 1)
        p = 0.5 + 0.3 * b * X[:, 0]  # outside [0, 1] in some rows
        pm.Bernoulli("y", p, observed=rng.integers(2, size=1236))
    return model, None


# To refuse


@refused(r"\bprocess\b")
def gaussian_process():
    rng, X = columns(1100, 1, 101)
    with pm.Model() as model:
        ls = pm.Gamma("ls", 5, 5)
        gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls))
        gp.marginal_likelihood("process", X, rng.normal(size=1100), sigma=1.0)
    return model, None


@refused(r"\btotal\b", r"cumsum|cumulative|CumOp")
def cumulated_predictor():
    rng, X = columns(1225, 1, 102)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1)
        pm.Normal("total", pt.cumsum(theta * X[:, 0]), 5, observed=rng.normal(size=1225))
    return model, None


@refused(r"\bchoice\b", r"[Ss]oftmax")
def softmax_over_observations():
    rng, X = columns(1226, 2, 103)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        p = pm.math.softmax(X @ beta, axis=0)
        pm.Normal("choice", p, 1, observed=rng.normal(size=1226))
    return model, None


@refused(r"\bfiltered\b", r"[Ss]can")
def recurrence():
    rng, X = columns(1227, 1, 104)
    with pm.Model() as model:
        rho = pm.Uniform("rho", 0, 1)
        state = pytensor.scan(
            lambda x, before, rho: rho * before + x,
            sequences=[pt.as_tensor(X[:, 0])],
            outputs_info=[pt.zeros(())],
            non_sequences=[rho],
            return_updates=False,
        )
        pm.Normal("filtered", state, 1, observed=rng.normal(size=1227))
    return model, None


@refused(r"\bscore\b", r"\b([Mm]ean|[Ss]um|[Ss]td|[Vv]ar)\b")
def standardised_predictor():
    rng, X = columns(1228, 2, 105)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2, initval=[1, 2])
        eta = X @ beta
        mu = (eta - eta.mean()) / eta.std()
        pm.Normal("score", mu, 1, observed=rng.normal(size=1228))
    return model, None


@refused("Minibatch")
def minibatch():
    rng, X = columns(5000, 2, 106)
    with pm.Model() as model:
        X, y = pm.Minibatch(X, rng.normal(size=5000), batch_size=1230)
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Normal("y", X @ beta, 1, observed=y, total_size=5000)
    return model, None


@refused("Minibatch")
def minibatch_in_a_potential():
    rng, X = columns(5000, 2, 112)
    with pm.Model() as model:
        X, y = pm.Minibatch(X, rng.normal(size=5000), batch_size=1237)
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Potential("likelihood", pm.logp(pm.Normal.dist(X @ beta, 1), y))
    return model, None


@refused("total_size")
def total_size():
    rng, X = columns(1231, 2, 107)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Normal("y", X @ beta, 1, observed=rng.normal(size=1231), total_size=5000)
    return model, None


@refused(r"\bfield\b")
def one_multivariate_normal():
    rng = np.random.default_rng(108)
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        cov = scale**2 * np.eye(1050) + 0.1
        pm.MvNormal("field", np.zeros(1050), cov, observed=rng.normal(size=1050))
    return model, None


@refused(r"\branked\b", r"[Ss]ort")
def sorted_predictor():
    rng, X = columns(1232, 2, 109)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Normal("ranked", pt.sort(X @ beta), 1, observed=rng.normal(size=1232))
    return model, None


@refused(r"\bsmooth\b", r"\bDot\b|@|[Mm]atrix|[Mm]atmul|product")
def kernel_times_latents():
    rng, K = columns(1233, 1101, 110)
    with pm.Model() as model:
        w = pm.Normal("w", 0, 0.01, shape=1101)
        pm.Normal("smooth", K @ w, 1, observed=rng.normal(size=1233))
    return model, None


@refused(r"\bpartition\b", r"\b([Ll]og|[Ss]um|[Ee]xp|[Ll]og[Ss]um[Ee]xp)\b")
def partition_function():
    _, X = columns(1234, 1, 111)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1)
        pm.Potential("partition", -pt.log(pt.sum(pt.exp(theta * X[:, 0]))))
    return model, None
