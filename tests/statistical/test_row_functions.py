"""Likelihoods of two to four predictors: draws of TunaMH beside those of the test on all data."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import expit, softmax

from pymc_austerity import Laplace, MetropolisHastings, TunaMH
from tests.sampling import sampled

N, D = 3000, 4
LEVEL = 0.001


def predictor(rng):
    X = np.c_[np.ones(N), rng.normal(size=(N, D - 1))]
    return X, X @ np.r_[0.4, rng.normal(0, 0.3, D - 1)]


def coefficients(n=D):
    return pm.Normal("b", 0, 2, shape=n)


def counts(rng, eta):
    return rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, N))


def negative_binomial(X, eta, rng):
    alpha = pm.HalfNormal("alpha", 3)
    pm.NegativeBinomial("y", mu=pm.math.exp(X @ coefficients()), alpha=alpha, observed=counts(rng, eta))


def zero_inflated_poisson(X, eta, rng):
    y = rng.poisson(np.exp(eta)) * (rng.random(N) < 0.7)
    pm.ZeroInflatedPoisson("y", psi=pm.Beta("psi", 1, 1), mu=pm.math.exp(X @ coefficients()), observed=y)


def zero_inflated_negative_binomial(X, eta, rng):
    y = counts(rng, eta + 1.0) * (rng.random(N) < 0.7)
    psi, alpha = pm.Beta("psi", 4, 2), pm.HalfNormal("alpha", 3)
    mu = pm.math.exp(X @ coefficients())
    pm.ZeroInflatedNegativeBinomial("y", psi=psi, mu=mu, alpha=alpha, observed=y)


def beta(X, eta, rng):
    mu = expit(eta)
    y = np.clip(rng.beta(10 * mu, 10 * (1 - mu)), 1e-6, 1 - 1e-6)
    pm.Beta("y", mu=pm.math.sigmoid(X @ coefficients()), nu=pm.Gamma("nu", 2, 0.1), observed=y)


def gamma(X, eta, rng):
    alpha = pm.HalfNormal("alpha", 3)
    y = rng.gamma(2.0, np.exp(eta) / 2.0)
    pm.Gamma("y", alpha=alpha, beta=alpha / pm.math.exp(X @ coefficients()), observed=y)


def censored_weibull(X, eta, rng):
    time, end = np.exp(eta) * rng.weibull(1.5, N), rng.exponential(3.0, N)
    lifetime = pm.Weibull.dist(alpha=pm.HalfNormal("shape", 2), beta=pm.math.exp(X @ coefficients()))
    pm.Censored("y", lifetime, lower=None, upper=end, observed=np.minimum(time, end))


def ordered_logistic(X, eta, rng):
    cuts = np.array([-1.0, 0.0, 1.0, 2.0])
    y = ((eta + rng.logistic(size=N))[:, None] > cuts).sum(axis=1)
    ordered = pm.distributions.transforms.ordered
    c = pm.Normal("c", 0, 3, shape=4, transform=ordered, initval=cuts)
    pm.OrderedLogistic("y", eta=X[:, 1:] @ coefficients(D - 1), cutpoints=c, observed=y, compute_p=False)


def ordered_probit(X, eta, rng):
    cuts = np.array([-1.0, 0.0, 1.0, 2.0])
    y = ((eta + rng.normal(size=N))[:, None] > cuts).sum(axis=1)
    ordered = pm.distributions.transforms.ordered
    c = pm.Normal("c", 0, 3, shape=4, transform=ordered, initval=cuts)
    pm.OrderedProbit("y", eta=X[:, 1:] @ coefficients(D - 1), cutpoints=c, observed=y, compute_p=False)


def truncated_on_both_sides(X, eta, rng):
    y = stats.truncnorm.rvs(-1.0 - eta, 2.0 - eta, loc=eta, random_state=rng)
    sigma = pm.HalfNormal("sigma", 1)
    pm.TruncatedNormal("y", mu=X @ coefficients(), sigma=sigma, lower=-1.0, upper=2.0, observed=y)


def categorical(X, eta, rng):
    p = softmax(np.c_[np.zeros(N), eta, -eta], axis=1)
    y = (rng.random(N)[:, None] > p.cumsum(axis=1)).sum(axis=1)
    b = pm.Normal("b", 0, 2, shape=(D, 2))
    pm.Categorical("y", logit_p=pt.concatenate([np.zeros((N, 1)), X @ b], axis=1), observed=y)


def student(X, eta, rng):
    sigma, nu = pm.HalfNormal("sigma", 2), pm.Gamma("nu", 2, 0.1)
    pm.StudentT("y", mu=X @ coefficients(), sigma=sigma, nu=nu, observed=eta + rng.standard_t(5, N))


def mixture(X, eta, rng):
    y = np.where(rng.random(N) < 0.6, rng.normal(-1.5, 0.8, N), rng.normal(1.5, 0.8, N))
    w, sigma = pm.Beta("w", 2, 2), pm.HalfNormal("sigma", 2)
    ordered = pm.distributions.transforms.ordered
    mu = pm.Normal("mu", 0, 3, shape=2, transform=ordered, initval=[-1.0, 1.0])
    pm.NormalMixture("y", w=pt.stack([w, 1 - w]), mu=mu, sigma=sigma, observed=y)


OTHERS = pytest.mark.full_size("two long chains for each of the other likelihoods")
LIKELIHOODS = [
    negative_binomial,
    pytest.param(zero_inflated_poisson, marks=OTHERS),
    pytest.param(zero_inflated_negative_binomial, marks=OTHERS),
    pytest.param(beta, marks=OTHERS),
    pytest.param(gamma, marks=OTHERS),
    censored_weibull,
    ordered_logistic,
    ordered_probit,
    pytest.param(truncated_on_both_sides, marks=OTHERS),
    pytest.param(categorical, marks=OTHERS),
    pytest.param(student, marks=OTHERS),
    pytest.param(mixture, marks=OTHERS),
]


def model_of(likelihood):
    rng = np.random.default_rng(5)
    X, eta = predictor(rng)
    with pm.Model() as model:
        likelihood(X, eta, rng)
    return model


def draws(model, step, n):
    idata = sampled(n, step, tune=200, chains=2, random_seed=3, model=model)
    values = [v.values.reshape(*v.shape[:2], -1) for v in idata.posterior.data_vars.values()]
    return np.concatenate(values, axis=-1), idata.sample_stats


def ess(values):
    return np.array([az.ess(values[..., k]) for k in range(values.shape[-1])])


def joint_p_value(a, b):
    """Of the difference of two means, by Hotelling's statistic with the smallest effective sizes."""
    flat_a, flat_b = (x.reshape(-1, x.shape[-1]) for x in (a, b))
    change = flat_a.mean(axis=0) - flat_b.mean(axis=0)
    covariance = np.cov(flat_a.T) / ess(a).min() + np.cov(flat_b.T) / ess(b).min()
    return stats.chi2.sf(change @ np.linalg.solve(covariance, change), len(change))


def sd_z_scores(a, b):
    """Differences of standard deviations in Monte Carlo errors, from draws of squares."""
    squares = [(x - x.mean(axis=(0, 1))) ** 2 for x in (a, b)]
    variance = sum(s.var(axis=(0, 1)) / ess(s) for s in squares)
    return (squares[0].mean(axis=(0, 1)) - squares[1].mean(axis=(0, 1))) / np.sqrt(variance)


@pytest.mark.slow("two long chains for each likelihood")
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_draws_agree_with_those_of_all_data(likelihood):
    model = model_of(likelihood)
    tuna = TunaMH(model=model, switch_above=np.inf, steps_per_draw=10)
    # Most proposals are accepted, all but independent: a draw needs few, each of which reads all data.
    exact = MetropolisHastings(model=model, proposal=Laplace(), steps_per_draw=2)
    ours, found = draws(model, tuna, 2000)
    reference, _ = draws(model, exact, 2000)
    p, z = joint_p_value(ours, reference), sd_z_scores(ours, reference)
    rows = float(found.n_used.mean())
    print(f"{likelihood.__name__}: {rows:.3g} rows (predicted {tuna.prediction.terms:.3g}), p {p:.3g}, "
          f"sds {np.abs(z).max():.2f}, ESS {ess(ours).min():.0f} and {ess(reference).min():.0f}")  # fmt: skip
    assert ess(ours).min() > 500
    assert p > LEVEL
    assert np.all(np.abs(z) < 3.0)
    # The same draws with means moved by a fifth of a standard deviation are told apart.
    assert joint_p_value(ours + 0.2 * ours.std(axis=(0, 1)), reference) < LEVEL
