"""TunaMH against importance sampling with the whole likelihood: no error at all, at any N."""

import math
from functools import cache
from itertools import product

import numba
import numpy as np
import pymc as pm
import pytest
from scipy.special import expit, logit, logsumexp

from pymc_austerity import Laplace, RandomWalk, Surrogate, TunaMH
from pymc_austerity.proposals.surrogate import SurrogateState
from tests.sampling import sampled
from tests.statistical.references import (
    Moments,
    chain,
    columns,
    distances,
    fit_normal,
    mean_of,
    moments,
    normal_prior,
    weigh,
)

PRIOR_SD = 2.0
LIMIT = 4.0  # standard errors, for the largest of some twenty figures


def make(n, dim, intercept, seed=1):
    """A logistic regression with an intercept."""
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), rng.normal(size=(n, dim - 1))]
    beta = np.r_[intercept, rng.normal(0, 0.5, dim - 1)]
    y = (rng.random(n) < expit(X @ beta)).astype(int)
    return X, y


PROBLEMS = {
    "300": lambda: make(300, 3, 0.3),
    "1000": lambda: make(1000, 4, 0.3),
    "3000 rare": lambda: make(3000, 3, -4.6, seed=3),
}


@cache
def data(name):
    return PROBLEMS[name]()


def model_of(name):
    X, y = data(name)
    with pm.Model() as model:
        b = pm.Normal("b", 0, PRIOR_SD, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=X @ b, observed=y)
    return model


# The reference -----------------------------------------------------------------------------------


@numba.njit(fastmath=True)
def log_likelihoods(draws, signed):
    result = np.zeros(draws.shape[0])
    for k in range(draws.shape[0]):
        total, product = 0.0, 1.0  # one logarithm for many rows
        for i in range(signed.shape[0]):
            eta = 0.0
            for j in range(signed.shape[1]):
                eta += signed[i, j] * draws[k, j]
            total += min(eta, 0.0)
            product *= 1.0 + math.exp(-abs(eta))
            if product > 1e200:  # far from overflow
                total, product = total - math.log(product), 1.0
        result[k] = total - math.log(product)
    return result


def density_of(X, y):
    signed = X * (2 * y - 1)[:, None]
    return lambda b: log_likelihoods(np.ascontiguousarray(b), signed) + normal_prior(b, PRIOR_SD)


@cache
def fit(name):
    X, y = data(name)
    return fit_normal(density_of(X, y), np.r_[logit(y.mean()), np.zeros(X.shape[1] - 1)])


@cache
def reference(name):
    """Moments by importance sampling from a t at the mode."""
    X, y = data(name)
    found = weigh(density_of(X, y), fit(name), 40_000, seed=7)
    print(name, f"reference: ESS {found.ess.min():.3g}")
    return found


def worst(draws, name):
    return distances(moments(draws), reference(name)).max()


def sample(model, n, *, seed=1, **options):
    with model:
        step = TunaMH(threshold=100, **options)
        idata = sampled(n, step, tune=200, chains=1, random_seed=seed)
    return idata.posterior["b"].values[0], idata.sample_stats, step


# Exactness ---------------------------------------------------------------------------------------


def proposals(name):
    walk = RandomWalk(cov=2.38**2 / len(fit(name).mode) * fit(name).cov)
    return {
        "independence": (Laplace(mix=0), 2),
        "pcn": (Laplace(kind="pcn", rho=0.5, mix=0), 8),
        "walk": (walk, 40),
        "surrogate": (Surrogate(n_inner=2), 2),
    }


PROPOSALS, SETS = ("independence", "pcn", "walk", "surrogate"), ("300", "1000", "3000 rare")
# Each proposal and each set of data once; all others, and more draws, at full size.
SHOWN = [("300", "independence"), ("300", "walk"), ("1000", "pcn"), ("3000 rare", "surrogate")]


@pytest.mark.parametrize(
    ("name", "proposal", "n"),
    [
        *(pytest.param(*case, 20_000, marks=pytest.mark.slow("20,000 draws")) for case in SHOWN),
        *(
            pytest.param(*case, 150_000, marks=pytest.mark.full_size("150,000 draws"))
            for case in product(SETS, PROPOSALS)
        ),
    ],
)
def test_posterior_is_exact(name, proposal, n):
    given, steps = proposals(name)[proposal]
    draws, stats, _ = sample(
        model_of(name), n, proposal=given, steps_per_draw=steps, switch_above=np.inf, debug=True
    )
    found = moments(draws)
    z_means, z_sds = distances(found, reference(name))
    print(name, proposal, f"ESS {found.ess.min():.0f}, {float(stats.n_used.mean()):.1f} rows")
    print(f"z of means {z_means.max():.2f}, of sds {z_sds.max():.2f}")
    assert found.ess.min() >= 2 * n / 3
    assert reference(name).ess.min() >= 1e5
    assert max(z_means.max(), z_sds.max()) < LIMIT
    assert float(stats.bound_violations.sum()) == float(stats.exhausted.sum()) == 0


@pytest.mark.slow("the reference is a sum over 40,000 draws and all rows")
@pytest.mark.parametrize("name", ["300", "1000", "3000 rare"])
def test_an_always_accepting_kernel_is_noticed(name):
    """Planted fault: draws of the normal approximation."""
    rng = np.random.default_rng(2)
    assert worst(rng.multivariate_normal(*fit(name), 40_000), name) > 2 * LIMIT


# What it costs -----------------------------------------------------------------------------------


@pytest.mark.slow("a hundred thousand rows")
@pytest.mark.parametrize(
    ("n", "most", "least"),
    [
        (10_000, 10, 0.80),
        (100_000, 3, 0.88),
        pytest.param(1_000_000, 1, 0.88, marks=pytest.mark.full_size("a million rows")),
    ],
)
def test_fewer_rows_the_more_there_are(n, most, least):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 10))
    y = (rng.random(n) < expit(X @ rng.normal(0, 10**-0.5, 10))).astype(int)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=10)
        pm.Bernoulli("y", logit_p=X @ b, observed=y)
    draws, stats, step = sample(model, 6000, proposal=Laplace(mix=0))
    ess = moments(draws).ess.min() / 6000
    rows = float(stats.n_used.mean())
    print(f"N = {n:,}: {rows:.3g} rows (predicted {step.prediction.terms:.3g}), ESS {ess:.3f}")
    assert rows <= most
    assert ess >= least
    mixed, mixed_stats, _ = sample(model, 6000)
    ess = moments(mixed).ess.min() / 6000
    print(f"default mix: {float(mixed_stats.n_used.mean()):.3g} rows, ESS {ess:.3f}")
    assert float(mixed_stats.n_used.mean()) <= 5 * most
    assert ess >= 0.65


# Priors ------------------------------------------------------------------------------------------

COLUMNS = 4
CENTRES = np.linspace(-9, 9, 361)  # of log scales


def log_likelihood():
    """A thousand rows, and a function of coefficients."""
    rng = np.random.default_rng(6)
    X = np.c_[np.ones(1000), rng.normal(size=(1000, COLUMNS - 1))]
    y = (rng.random(1000) < expit(X @ [0.4, 0.6, 0.5, 0.5])).astype(int)
    return X, y, lambda b: log_likelihoods(np.ascontiguousarray(b), X * (2 * y - 1)[:, None])


def student_prior():
    b = pm.StudentT("b", nu=3, mu=0, sigma=0.2, shape=COLUMNS)
    return b, lambda b: -2 * np.log1p((b / 0.2) ** 2 / 3).sum(axis=1), None, {"b": None}


def laplace_prior():
    b = pm.math.concatenate([[pm.Normal("first", 0, 1)], pm.Laplace("b", 0, 0.1, shape=COLUMNS - 1)])
    maps = {"first": None, "b": None}
    return b, lambda b: -0.5 * b[:, 0] ** 2 - np.abs(b[:, 1:]).sum(axis=1) / 0.1, None, maps


def horseshoe_prior():
    """Each coefficient has a scale of its own, with a Cauchy prior, which the reference sums over.

    No coefficient may be zero: scales near zero are a funnel, where `Surrogate` mixes slowly.
    """
    scale = pm.HalfCauchy("scale", 1, shape=COLUMNS)
    b = pm.Normal("b", 0, 0.2 * scale, shape=COLUMNS)

    def joint(b):
        return -0.5 * (b[..., None] / 0.2) ** 2 * np.exp(-2 * CENTRES) - np.log1p(np.exp(2 * CENTRES))

    def hidden(b):
        w = np.exp(joint(b))
        w /= w.sum(axis=-1, keepdims=True)
        return w @ CENTRES, w @ CENTRES**2

    return b, lambda b: logsumexp(joint(b), axis=-1).sum(axis=1), hidden, {"b": None, "scale": np.log}


@pytest.mark.slow("12,000 draws of eight transitions")
@pytest.mark.parametrize("prior", [student_prior, laplace_prior, horseshoe_prior])
def test_priors(prior):
    """Planted fault: draws from another prior."""
    X, y, likelihood = log_likelihood()
    with pm.Model() as model:
        b, log_prior, hidden, maps = prior()
        pm.Bernoulli("y", logit_p=X @ b, observed=y)
        step = TunaMH(steps_per_draw=8, debug=True)
    assert isinstance(step.proposal_state, SurrogateState) == (hidden is not None)

    def density(b):
        parts = np.array_split(b, max(1, len(b) // 500))
        return likelihood(b) + np.concatenate([log_prior(part) for part in parts])

    fit = fit_normal(density, np.full(COLUMNS, 0.3))
    reference = weigh(density, fit, 20_000, hidden=hidden)
    idata = chain(model, step, 12_000, seed=4, tune=1000)
    found = moments(columns(idata, **maps))
    apart = distances(found, reference)
    print(prior.__name__, f"ESS {found.ess.min():.0f}, {reference.ess.min():.0f}, z {apart.max():.2f}")
    print(f"{mean_of(idata, 'n_used'):.3g} rows, acceptance {mean_of(idata, 'acceptance_rate'):.3f}")
    assert min(found.ess.min(), reference.ess.min()) >= 3500
    assert apart.max() < LIMIT

    # The same table notices another prior.
    def other(b):
        return likelihood(b) - 0.5 * (b**2).sum(axis=1)

    coefficients = Moments(*(part[:COLUMNS] for part in found))
    assert distances(coefficients, weigh(other, fit_normal(other, fit.mode), 20_000))[0].max() > 2 * LIMIT
