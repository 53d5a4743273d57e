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
    "1e5 rare": lambda: make(100_000, 5, -4.8, seed=4),
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
        idata = pm.sample(
            n, tune=200, chains=1, cores=1, step=step, random_seed=seed, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
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


@pytest.mark.slow("20,000 draws")
def test_posterior_of_a_thousand_rows():
    draws, stats, _ = sample(model_of("1000"), 20_000, proposal=Laplace(mix=0.1), switch_above=np.inf)
    assert worst(draws, "1000") < LIMIT
    assert float(stats.bound_violations.sum()) == 0
    assert float(stats.exhausted.sum()) == 0


PROPOSALS, SETS = ("independence", "pcn", "walk", "surrogate"), ("300", "1000", "3000 rare")
# Each proposal and each set of data once; all others, and more draws, at full size.
SHOWN = [("300", "independence"), ("300", "walk"), ("1000", "pcn"), ("3000 rare", "surrogate")]


@pytest.mark.parametrize(
    ("name", "proposal", "n"),
    [
        *(pytest.param(*case, 60_000, marks=pytest.mark.slow("60,000 draws")) for case in SHOWN),
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
    assert float(stats.bound_violations.sum()) == 0


@pytest.mark.slow("the reference is a sum over 40,000 draws and all rows")
@pytest.mark.parametrize("name", ["300", "1000", "3000 rare"])
def test_an_always_accepting_kernel_is_noticed(name):
    rng = np.random.default_rng(2)
    assert worst(rng.multivariate_normal(*fit(name), 60_000), name) > 2 * LIMIT


@pytest.mark.full_size("500,000 draws of 100,000 rows")
def test_few_positives():
    name = "1e5 rare"
    draws, _, _ = sample(model_of(name), 500_000, steps_per_draw=3, proposal=Laplace(mix=0))
    found, expected = moments(draws), reference(name)
    shift = np.abs(found.mean - expected.mean) / expected.sd
    shift_error = np.hypot(found.mean_error, expected.mean_error) / expected.sd
    print(name, f"ESS {found.ess.min():.0f}, shift {shift.max():.4f}, error {shift_error.max():.4f}")
    mode = np.abs(fit(name).mode - expected.mean) / expected.sd
    print(f"Laplace {mode.max():.3f}")
    assert min(found.ess.min(), expected.ess.min()) >= 3e5
    assert np.all(shift <= 0.01 + 3.5 * shift_error)
    assert mode.max() > 0.05


# Log odds that a rare feature adds, for sums.
EFFECTS = np.linspace(-1, 14, 301)


def rare_feature(n=100_000, n_rare=20):
    """The last column is 1 in twenty rows, all with label 1: only the prior bounds its coefficient.

    Other covariates are -1, 0 or 1, so that the likelihood is that of 54 kinds of rows.
    """
    rng = np.random.default_rng(5)
    X = np.c_[np.ones(n), rng.integers(-1, 2, (n, 3)), np.zeros(n)]
    X[:n_rare, 4] = 1.0
    y = (rng.random(n) < expit(X @ [0.3, 0.5, -0.5, 0.3, 0.0])).astype(int)
    y[:n_rare] = 1
    return X, y


def without_rare_coefficient(X, y):
    """Log density of the other coefficients, and moments of the rare one given these."""
    signed = X[:, :4] * (2 * y - 1)[:, None]
    rare = X[:, 4] == 1.0
    rows, counts = np.unique(signed[~rare], axis=0, return_counts=True)
    few, times = np.unique(signed[rare], axis=0, return_counts=True)

    def joint(b):
        """Of the rare coefficient, on the grid."""
        eta = (b @ few.T)[:, None, :] + EFFECTS[:, None]
        return -np.log1p(np.exp(-eta)) @ times - EFFECTS**2 / (2 * PRIOR_SD**2)

    def density(b):
        sums = [logsumexp(joint(part), axis=1) for part in np.array_split(b, max(1, len(b) // 1000))]
        common = -np.log1p(np.exp(-(b @ rows.T))) @ counts - (b**2).sum(axis=1) / (2 * PRIOR_SD**2)
        return common + np.concatenate(sums)

    def hidden(b):
        parts = []
        for part in np.array_split(b, max(1, len(b) // 1000)):
            p = joint(part)
            p = np.exp(p - logsumexp(p, axis=1, keepdims=True))
            parts.append(np.stack([p @ EFFECTS, p @ EFFECTS**2]))
        first, second = np.concatenate(parts, axis=1)
        return first[:, None], second[:, None]

    return density, hidden


@pytest.mark.full_size("500,000 draws, and a reference of 400,000")
def test_rare_feature():
    X, y = rare_feature()
    density, hidden = without_rare_coefficient(X, y)
    expected = weigh(density, fit_normal(density, np.zeros(4)), 400_000, hidden=hidden)
    with pm.Model() as model:
        b = pm.Normal("b", 0, PRIOR_SD, shape=5)
        pm.Bernoulli("y", logit_p=X @ b, observed=y)
    proposal = Laplace(kind="pcn", rho=0.7, mix=0.3)  # independent draws miss the long tail of the rare one
    draws, stats, _ = sample(model, 500_000, steps_per_draw=10, proposal=proposal)
    found = moments(draws)
    error = np.hypot(found.mean_error, expected.mean_error) / expected.sd
    shift = np.abs(found.mean - expected.mean) / expected.sd
    print(
        f"rare feature: ESS {found.ess.min():.0f}, {expected.ess.min():.0f}, {stats.n_used.mean():.3g} rows"
    )
    print(f"shift {shift.max():.4f}, error {error.max():.4f}, z {distances(found, expected).max():.2f}")
    off = np.abs(fit_normal(density_of(X, y), np.zeros(5)).mode - expected.mean) / expected.sd
    print(f"Laplace {off.max():.3f}")
    assert min(found.ess.min(), expected.ess.min()) >= 3e5
    assert np.all(shift <= 0.01 + 3.5 * error)
    assert distances(found, expected).max() < LIMIT
    assert off.max() > 0.2
    assert float(stats.bound_violations.sum()) == 0


# What it costs -----------------------------------------------------------------------------------


@pytest.mark.slow("a million rows")
@pytest.mark.parametrize(
    ("n", "most", "least"), [(10_000, 10, 0.80), (100_000, 3, 0.88), (1_000_000, 1, 0.88)]
)
def test_fewer_rows_the_more_there_are(n, most, least):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 10))
    y = (rng.random(n) < expit(X @ rng.normal(0, 10**-0.5, 10))).astype(int)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=10)
        pm.Bernoulli("y", logit_p=X @ b, observed=y)
    draws, stats, step = sample(model, 40_000, proposal=Laplace(mix=0))
    ess = moments(draws).ess.min() / 40_000
    rows = float(stats.n_used.mean())
    print(f"N = {n:,}: {rows:.3g} rows (predicted {step.prediction.terms:.3g}), ESS {ess:.3f}")
    assert rows <= most
    assert ess >= least
    mixed, mixed_stats, _ = sample(model, 40_000)
    ess = moments(mixed).ess.min() / 40_000
    print(f"default mix: {float(mixed_stats.n_used.mean()):.3g} rows, ESS {ess:.3f}")
    assert float(mixed_stats.n_used.mean()) <= 5 * most
    assert ess >= 0.65


# Priors ------------------------------------------------------------------------------------------

COLUMNS = 4
CENTRES = np.linspace(-9, 9, 361)  # of log scales
# Centres of the triangles that a triangle is cut into.
_UP = [(a + 1 / 3, b + 1 / 3) for a in range(30) for b in range(30 - a)]
_DOWN = [(a + 2 / 3, b + 2 / 3) for a in range(29) for b in range(29 - a)]
SIMPLEX = np.array([(a, b, 30 - a - b) for a, b in _UP + _DOWN]) / 30


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


def simplex_prior():
    """Three of the coefficients are near weights that sum to one."""
    w = pm.Dirichlet("w", np.ones(3))
    b = pm.math.concatenate([[pm.Normal("first", 0, 1)], pm.Normal("b", w, 0.1, shape=3)])

    def joint(b):
        return -0.5 * (((b[:, None, 1:] - SIMPLEX) / 0.1) ** 2).sum(axis=-1)

    def hidden(b):
        p = np.exp(joint(b) - logsumexp(joint(b), axis=1, keepdims=True))
        return p @ SIMPLEX, p @ SIMPLEX**2

    maps = {"first": None, "b": None, "w": None}
    return b, lambda b: -0.5 * b[:, 0] ** 2 + logsumexp(joint(b), axis=1), hidden, maps


@pytest.mark.slow("150,000 draws")
@pytest.mark.parametrize(
    "prior",
    [
        student_prior,
        laplace_prior,
        horseshoe_prior,
        pytest.param(simplex_prior, marks=pytest.mark.full_size("minutes of a mixture over the simplex")),
    ],
)
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
    idata = chain(model, step, 25_000, seed=4, tune=1000)
    found = moments(columns(idata, **maps))
    apart = distances(found, reference)
    print(prior.__name__, f"ESS {found.ess.min():.0f}, {reference.ess.min():.0f}, z {apart.max():.2f}")
    print(f"{mean_of(idata, 'n_used'):.3g} rows, acceptance {mean_of(idata, 'acceptance_rate'):.3f}")
    assert min(found.ess.min(), reference.ess.min()) >= 7000
    assert apart.max() < LIMIT
    assert mean_of(idata, "bound_violations") == 0.0

    # The same table notices another prior.
    def other(b):
        return likelihood(b) - 0.5 * (b**2).sum(axis=1)

    coefficients = Moments(*(part[:COLUMNS] for part in found))
    assert distances(coefficients, weigh(other, fit_normal(other, fit.mode), 20_000))[0].max() > 2 * LIMIT


# Many dimensions ---------------------------------------------------------------------------------


@pytest.mark.full_size("100,000 rows in 200 dimensions")
def test_two_hundred_dimensions():
    """Thousands of rows are drawn, and few are evaluated."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100_000, 200))
    y = (rng.random(len(X)) < expit(X @ rng.normal(0, 200**-0.5, 200))).astype(int)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=200)
        pm.Bernoulli("y", logit_p=X @ b, observed=y)
    step = TunaMH(model=model)
    print(step.prediction)
    assert 5000 < step.prediction.total * step.prediction.size < 25_000
    assert step.prediction.terms < 300
