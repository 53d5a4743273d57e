"""Steps with control variates where posteriors are not normal, against plain numpy.

References are importance sampling from a multivariate t at the mode with the likelihood of all data, or
quadrature; nothing of the package is used for them.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit, gammaln, logsumexp

import pymc_austerity as pma
from pymc_austerity.acceptance import Exact
from tests.statistical.errors import LIMIT
from tests.statistical.references import (
    Moments,
    chain,
    columns,
    distances,
    fit_normal,
    in_chunks,
    logistic_data,
    logistic_density,
    logistic_model,
    moments,
    normal_prior,
    weigh,
)

slow = pytest.mark.slow("20,000 draws, and a reference of its own")
full_size = pytest.mark.full_size("more rows, or draws, of a case that is shown with fewer")


# Comparison -------------------------------------------------------------------------------------------


def check(found, reference, tolerance, *, least):
    """Means within `tolerance` standard deviations, where both sides have so many effective draws."""
    assert found.ess.min() >= least
    assert reference.ess.min() >= least
    assert np.abs((found.mean - reference.mean) / reference.sd).max() < tolerance


def check_both(found, reference, *, tolerance=0.03, errors=3.5, least=36_000):
    """Means and log sds within a tolerance and some standard errors."""
    assert found.ess.min() >= least
    assert reference.ess.min() >= least
    error = np.hypot(found.mean_error, reference.mean_error) / reference.sd
    apart = np.abs(found.mean - reference.mean) / reference.sd
    assert np.all(apart <= tolerance + errors * error)
    error = np.hypot(found.sd_error / found.sd, reference.sd_error / reference.sd)
    assert np.all(np.abs(np.log(found.sd / reference.sd)) <= tolerance + errors * error)


def by_austerity(model, draws, *, seed=1, exact_rows=None, start=None, steps_per_draw=1, **maps):
    taylor = pma.Taylor() if exact_rows is None else pma.Taylor(exact_rows=exact_rows)
    step = pma.AusterityMH(model=model, control_variate=taylor, steps_per_draw=steps_per_draw)
    return moments(columns(chain(model, step, draws, seed=seed, start=start), **maps))


@slow
def test_the_two_references_agree():
    """Importance sampling, and the exact test on all data."""
    X, y = logistic_data(1000)
    density, model = logistic_density(X, y), logistic_model(X, y)
    step = pma.MetropolisHastings(model=model, acceptance=Exact(), proposal=pma.Laplace())
    found = moments(columns(chain(model, step, 20_000, seed=10), beta=None))
    reference = weigh(density, fit_normal(density, np.zeros(10)), 20_000)
    assert min(found.ess.min(), reference.ess.min()) > 10_000
    assert distances(found, reference).max() < LIMIT


# Few positives, and rare features ---------------------------------------------------------------------


def levels(rng, shape):
    """Covariates of two levels, so that there are few distinct rows."""
    return rng.choice([-1.0, 1.0], size=shape)


def normals(rng, shape):
    return rng.normal(size=shape)


def students(rng, shape):
    return rng.standard_t(3, size=shape)


def responses(rng, X, beta):
    return (rng.random(len(X)) < expit(X @ beta)).astype(float)


def few_positives(covariates, n, n_dim=10, seed=2):
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), covariates(rng, (n, n_dim - 1))]
    return X, responses(rng, X, np.r_[-4.8, np.full(n_dim - 1, 0.2)])


@pytest.mark.parametrize(
    ("covariates", "n", "n_draws", "tolerance", "least"),
    [
        pytest.param(levels, 50_000, 25_000, 0.05, 12_000, marks=slow),
        pytest.param(levels, 100_000, 150_000, 0.02, 80_000, marks=full_size),
        pytest.param(normals, 100_000, 150_000, 0.02, 80_000, marks=full_size),
    ],
)
def test_few_positives(covariates, n, n_draws, tolerance, least):
    X, y = few_positives(covariates, n)
    assert 0.008 < y.mean() < 0.014
    density = logistic_density(X, y)
    fit = fit_normal(density, np.r_[-4.8, np.zeros(9)])
    reference = weigh(density, fit, 10_000)
    # The check can tell a posterior from its normal approximation.
    assert np.abs((reference.mean - fit.mode) / reference.sd).max() > 0.1
    check(by_austerity(logistic_model(X, y), n_draws, beta=None), reference, tolerance, least=least)


RARE = 20


def rare_feature(covariates, n, seed=3):
    """The last column is 1 in a few rows, all with y = 1."""
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), covariates(rng, (n, 3)), np.zeros(n)]
    y = responses(rng, X, np.array([0.3, 0.5, -0.5, 0.2, 0.0]))
    some = rng.choice(n, RARE, replace=False)
    X[some, -1], y[some] = 1.0, 1.0
    return X, y


@full_size
@pytest.mark.parametrize(
    ("make", "n_dim", "start"),
    [(lambda: few_positives(levels, 100_000), 10, -4.8), (lambda: rare_feature(levels, 100_000), 5, 0.0)],
    ids=["few positives", "rare feature"],
)
def test_tuna(make, n_dim, start):
    """There is no error to tolerate, whatever the rows are."""
    X, y = make()
    density, model = logistic_density(X, y), logistic_model(X, y)
    reference = weigh(density, fit_normal(density, np.r_[start, np.zeros(n_dim - 1)]), 40_000)
    # Independent draws miss the long tail of a rare feature.
    proposal = pma.Laplace(kind="pcn", rho=0.7, mix=0.3)
    step = pma.TunaMH(model=model, steps_per_draw=10, threshold=100, proposal=proposal)
    idata = chain(model, step, 100_000, seed=1)
    found = moments(columns(idata, beta=None))
    assert min(found.ess.min(), reference.ess.min()) >= 36_000
    assert distances(found, reference).max() < LIMIT


RARE_CASES = pytest.mark.parametrize(
    ("covariates", "n"),
    [
        (levels, 10_000),
        pytest.param(normals, 10_000, marks=full_size),
        pytest.param(levels, 100_000, marks=full_size),
    ],
)


def rare_reference(X, y):
    density = logistic_density(X, y)
    fit = fit_normal(density, np.zeros(5))
    reference = weigh(density, fit, 40_000 if len(y) < 20_000 else 10_000)
    assert np.abs((reference.mean - fit.mode) / reference.sd).max() > 0.08
    return reference


@RARE_CASES
def test_rare_feature(covariates, n):
    X, y = rare_feature(covariates, n)
    found = by_austerity(logistic_model(X, y), 40_000, beta=None)
    check(found, rare_reference(X, y), 0.03, least=13_000)


@RARE_CASES
def test_rare_feature_without_a_stratum_is_silently_wrong(covariates, n):
    """Planted fault: no exact rows."""
    X, y = rare_feature(covariates, n)
    found = by_austerity(logistic_model(X, y), 12_000, exact_rows=0, beta=None)
    reference = rare_reference(X, y)
    z = (found.mean - reference.mean) / np.hypot(found.mean_error, reference.mean_error)
    assert abs(z[-1]) > 1.5 * LIMIT


# Regressions ------------------------------------------------------------------------------------------


def grouped(X, y):
    """Distinct rows, how often they occur, and their sums of y."""
    rows, group = np.unique(X, axis=0, return_inverse=True)
    return rows, np.bincount(group).astype(float), np.bincount(group, weights=y)


def poisson_density(X, y):
    rows, counts, _ = grouped(X, y)
    slope = X.T @ y

    def some(beta):
        return beta @ slope - np.exp(beta @ rows.T) @ counts + normal_prior(beta)

    return lambda beta: in_chunks(some, beta, len(rows))


def negative_binomial_density(X, y):
    """Of beta and log alpha, alpha ~ Gamma(2, 1)."""
    rows, counts, sums = grouped(X, y)
    slope = X.T @ y
    values, times = np.unique(y, return_counts=True)

    def some(q):
        beta, log_alpha = q[:, :-1], q[:, -1]
        alpha = np.exp(log_alpha)[:, None]
        log_total = np.log(np.exp(beta @ rows.T) + alpha)
        result = beta @ slope - log_total @ sums - alpha[:, 0] * (log_total @ counts)
        result += (gammaln(values + alpha) - gammaln(alpha)) @ times + len(y) * alpha[:, 0] * log_alpha
        return result + normal_prior(beta) + 2 * log_alpha - alpha[:, 0]

    return lambda q: in_chunks(some, q, len(rows))


NU = 4.0


def student_density(X, y):
    """Of beta and log sigma, sigma ~ HalfNormal(2)."""

    def some(q):
        beta, log_sigma = q[:, :-1], q[:, -1]
        sigma = np.exp(log_sigma)
        residuals = (y - beta @ X.T) / sigma[:, None]
        result = -0.5 * (NU + 1) * np.log1p(residuals**2 / NU).sum(axis=1) - len(y) * log_sigma
        return result + normal_prior(beta) + log_sigma - sigma**2 / 8

    return lambda q: in_chunks(some, q, len(y))


def logistic(rng, X):
    y = responses(rng, X, np.linspace(-0.6, 0.6, X.shape[1]))
    return logistic_model(X, y), logistic_density(X, y), {"beta": None}


def poisson(rng, X):
    y = rng.poisson(np.exp(X @ np.r_[-4.0, np.linspace(-0.3, 0.3, X.shape[1] - 1)])).astype(float)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=X.shape[1])
        pm.Poisson("y", pm.math.exp(X @ beta), observed=y)
    return model, poisson_density(X, y), {"beta": None}


def negative_binomial(rng, X):
    mu = np.exp(X @ np.r_[-2.5, np.linspace(-0.3, 0.3, X.shape[1] - 1)])
    y = rng.poisson(mu * rng.gamma(0.5, 1 / 0.5, len(X))).astype(float)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=X.shape[1])
        alpha = pm.Gamma("alpha", 2, 1)
        pm.NegativeBinomial("y", mu=pm.math.exp(X @ beta), alpha=alpha, observed=y)
    return model, negative_binomial_density(X, y), {"beta": None, "alpha": np.log}


def student(rng, X):
    y = X @ np.linspace(-0.6, 0.6, X.shape[1]) + 0.7 * rng.standard_t(NU, len(X))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=X.shape[1])
        sigma = pm.HalfNormal("sigma", 2)
        pm.StudentT("y", nu=NU, mu=X @ beta, sigma=sigma, observed=y)
    return model, student_density(X, y), {"beta": None, "sigma": np.log}


@pytest.mark.parametrize(
    ("make", "covariates", "n"),
    [
        pytest.param(logistic, students, 2000, marks=slow),
        pytest.param(poisson, levels, 10_000, marks=slow),
        pytest.param(negative_binomial, levels, 5000, marks=slow),
        pytest.param(student, normals, 2000, marks=slow),
        pytest.param(logistic, students, 100_000, marks=full_size),
        pytest.param(poisson, normals, 10_000, marks=full_size),
        pytest.param(negative_binomial, normals, 10_000, marks=full_size),
        pytest.param(student, students, 10_000, marks=full_size),
    ],
)
def test_regression(make, covariates, n):
    rng = np.random.default_rng(4)
    scale = 0.3 if make in (poisson, negative_binomial) else 1.0
    X = np.c_[np.ones(n), scale * covariates(rng, (n, 4))]
    model, density, maps = make(rng, X)
    reference = weigh(density, fit_normal(density, np.zeros(X.shape[1] + len(maps) - 1)), 20_000)
    check_both(by_austerity(model, 25_000, **maps), reference, least=9000)


# Two levels -------------------------------------------------------------------------------------------


def grid_moments(log_weight, axes, first, second):
    """Moments of variables on a grid, and of others with these conditional means and mean squares."""
    w = np.exp(log_weight - log_weight.max())
    w /= w.sum()
    means, squares = [], []
    for k, axis in enumerate(axes):
        law = w.sum(axis=tuple(j for j in range(w.ndim) if j != k))
        assert max(law[0], law[-1]) < 1e-9
        means.append(law @ axis)
        squares.append(law @ axis**2)
    means = np.r_[np.tensordot(w, first, w.ndim), means]
    sd = np.sqrt(np.r_[np.tensordot(w, second, w.ndim), squares] - means**2)
    none = np.zeros(len(means))
    return Moments(means, none, sd, none, none + np.inf)


MU, LOG_TAU = np.linspace(-3.0, 3.5, 91), np.linspace(-4.5, 2.0, 91)


def hyperprior(mu, log_tau):
    """mu ~ N(0, 1), tau ~ HalfNormal(1)."""
    return -0.5 * mu**2 - 0.5 * np.exp(2 * log_tau) + log_tau


def two_levels_bernoulli(rng, group, effects):
    """Given mu and tau the effects are independent, and each is summed over a grid."""
    y = responses(rng, effects[group][:, None], np.ones(1))
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 1), pm.HalfNormal("tau", 1)
        a = pm.Normal("a", mu, tau, shape=len(effects))
        pm.Bernoulli("y", logit_p=a[group], observed=y)
    n, ones = np.bincount(group), np.bincount(group, weights=y)
    nodes = np.linspace(-6, 6, 1201)
    log_lik = np.outer(nodes, ones) - np.outer(np.log1p(np.exp(nodes)), n)
    top = log_lik.max(axis=0)
    likelihood = np.exp(log_lik - top)
    mu, log_tau = np.meshgrid(MU, LOG_TAU, indexing="ij")
    prior = np.exp(-0.5 * ((nodes - mu[..., None]) / np.exp(log_tau)[..., None]) ** 2 - log_tau[..., None])
    total = prior @ likelihood
    log_weight = hyperprior(mu, log_tau) + np.log(total).sum(axis=-1)
    first, second = (
        prior @ (nodes[:, None] * likelihood) / total,
        prior @ (nodes[:, None] ** 2 * likelihood) / total,
    )
    reference = grid_moments(log_weight, (MU, LOG_TAU), first, second)
    return model, reference, {"a": None, "mu": None, "tau": np.log}


@pytest.mark.parametrize(
    ("n_groups", "n_rows", "draws", "least"),
    [
        pytest.param(10, 150, 20_000, 5000, marks=slow),
        pytest.param(50, 200, 100_000, 36_000, marks=full_size),
    ],
)
def test_two_levels(n_groups, n_rows, draws, least):
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(n_groups), n_rows)
    model, reference, maps = two_levels_bernoulli(rng, group, rng.normal(0.3, 0.6, n_groups))
    check_both(by_austerity(model, draws, seed=6, **maps), reference, least=least)


# Hierarchical prior of coefficients -------------------------------------------------------------------

GRID = np.linspace(-4.0, 2.5, 401)  # of log tau


def log_joint(beta):
    """Log prior of beta, and log tau ~ log HalfNormal(1), at all points of the grid."""
    square = (beta**2).sum(axis=1)[:, None]
    return -beta.shape[1] * GRID - 0.5 * square * np.exp(-2 * GRID) - 0.5 * np.exp(2 * GRID) + GRID


def log_tau_given(beta):
    """Mean and mean square of log tau."""
    joint = log_joint(beta)
    w = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    return np.c_[w @ GRID], np.c_[w @ GRID**2]


@cache
def hierarchical(n, n_dim=10):
    """Model and reference, with tau summed over a grid."""
    rng = np.random.default_rng(7)
    X = np.c_[np.ones(n), rng.normal(size=(n, n_dim - 1))]
    truth = 0.5 * rng.normal(size=n_dim)
    y = responses(rng, X, truth)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        beta = pm.Normal("beta", 0, tau, shape=n_dim)
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    flat = logistic_density(X, y)

    def density(beta):
        return flat(beta) - normal_prior(beta) + logsumexp(log_joint(beta), axis=1)

    n_draws = 20_000 if n < 100_000 else 1000
    return model, weigh(density, fit_normal(density, truth), n_draws, hidden=log_tau_given)


HIERARCHICAL = {"beta": None, "tau": np.log}


@pytest.mark.parametrize(
    ("n", "draws", "least"),
    [
        pytest.param(2000, 20_000, 8000, marks=slow),
        pytest.param(10_000, 80_000, 36_000, marks=full_size),
        pytest.param(1_000_000, 80_000, 36_000, marks=full_size),
    ],
)
def test_hierarchical_prior_in_one_block(n, draws, least):
    model, reference = hierarchical(n)
    check_both(by_austerity(model, draws, **HIERARCHICAL), reference, least=least)


@pytest.mark.parametrize(
    ("nuts", "n", "draws", "least"),
    [
        pytest.param(pm.NUTS, 2000, 6000, 1500, marks=slow),
        pytest.param(pma.restricted_nuts, 10_000, 120_000, 36_000, marks=full_size),
    ],
)
def test_hierarchical_prior_beside_nuts(nuts, n, draws, least):
    model, reference = hierarchical(n)
    step = [
        pma.AusterityMH([model["beta"]], control_variate=pma.Taylor(), steps_per_draw=3, model=model),
        nuts([model["tau"]], model=model),
    ]
    idata = chain(model, step, draws, seed=8, tune=1000)
    check_both(moments(columns(idata, **HIERARCHICAL)), reference, least=least)
