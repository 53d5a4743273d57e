"""Scales that the data do not tell from zero: their whole distribution, against quadrature."""

from functools import cache

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import logsumexp

from pymc_austerity import TunaMH
from tests.sampling import sampled

N, G = 1500, 60
BETA_SD, TAU_SD = 2.0, 1.0
GRID = np.linspace(-18.0, 2.0, 1201)
DRAWS, THIN = 4000, 8
LEVEL = 1e-3


def rows_of():
    """Rows without any effect of groups."""
    rng = np.random.default_rng(4)
    x = np.c_[np.ones(N), rng.normal(size=N)]
    return x, rng.integers(G, size=N), x @ [0.4, -0.2] + rng.normal(size=N)


def log_likelihoods(design, y, of_scale, grid):
    """Of normal residuals of variance one, with the coefficients of a design integrated out.

    `of_scale` gives the prior variances of the coefficients for a log scale on the grid.
    """
    gram, product, found = design.T @ design, design.T @ y, []
    for log_scale in grid:
        roots = np.sqrt(of_scale(log_scale))
        inner, scaled = np.eye(len(roots)) + gram * np.outer(roots, roots), roots * product
        found.append(0.5 * scaled @ np.linalg.solve(inner, scaled) - 0.5 * np.linalg.slogdet(inner)[1])
    return np.array(found)


def distribution(log_p):
    """A distribution function on an even grid, from log densities up to a constant."""
    p = np.exp(log_p - logsumexp(log_p))
    return np.cumsum(p) - 0.5 * p


@cache
def distribution_of_log_tau():
    """Its distribution function on the grid."""
    x, groups, y = rows_of()
    design = np.c_[x, groups[:, None] == np.arange(G)]
    fits = log_likelihoods(design, y, lambda s: np.r_[[BETA_SD**2] * 2, np.full(G, np.exp(2.0 * s))], GRID)
    return distribution(fits + stats.halfnorm.logpdf(np.exp(GRID), scale=TAU_SD) + GRID)


@pytest.fixture(scope="module")
def draws():
    x, groups, y = rows_of()
    with pm.Model():
        beta = pm.Normal("beta", 0.0, BETA_SD, shape=2)
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau", TAU_SD), shape=G)
        pm.Normal("y", x @ beta + u[groups], 1.0, observed=y)
        idata = sampled(DRAWS, TunaMH(threshold=100), tune=100, chains=4, random_seed=3)
    return np.log(idata["posterior"]["tau"].values)


def test_the_scale_of_effects_has_its_distribution(draws):
    thinned = draws[:, ::THIN].ravel()
    assert (thinned < -6.0).sum() > 10  # where a normal fit of log tau has nothing
    cdf = distribution_of_log_tau()
    assert stats.kstest(np.interp(thinned, GRID, cdf), "uniform").pvalue > LEVEL


def test_another_prior_would_be_seen(draws):
    """The planted fault: the Jacobian of the logarithm counts to the power of .8."""
    density = np.diff(distribution_of_log_tau()) * np.exp(-0.2 * GRID[1:])
    cdf = np.append(0.0, np.cumsum(density) / density.sum())
    assert stats.kstest(np.interp(draws[:, ::THIN].ravel(), GRID, cdf), "uniform").pvalue < LEVEL


def test_it_mixes_well(draws):
    """A normal proposal of log tau would hardly reach its tail, and hardly leave it."""
    assert float(az.ess(draws)) > 0.3 * draws.size


# Scales whose prior has much mass below what rounding leaves of effects beside their location.
NEAR_ZERO = np.linspace(-220.0, 2.5, 4451)
PARENTS = np.arange(G) % 30


def near_zero(nested, shape):
    """A model with centred effects whose scale may be 1e-30, and log p of the logarithm of that scale."""
    x, groups, y = rows_of()
    y = y - x @ [0.4, -0.2]
    with pm.Model() as model:
        mu, scale = pm.Normal("mu", 1.0, BETA_SD), pm.Gamma("scale", shape, 1.0)
        if nested:
            v = pm.Normal("v", mu, scale, shape=30)
            u = pm.Normal("u", v[PARENTS], 0.1, shape=G)
        else:
            u = pm.Normal("u", mu, scale, shape=G)
        pm.Normal("y", u[groups], 1.0, observed=y)
    n = 30 if nested else G
    design = np.c_[np.ones(N), (PARENTS[groups] if nested else groups)[:, None] == np.arange(n)]
    fixed = [np.full(G, 0.01)] if nested else []
    if nested:
        design = np.c_[design, groups[:, None] == np.arange(G)]

    def variances(s):
        return np.r_[BETA_SD**2, np.full(n, np.exp(2.0 * s)), *fixed]

    fits = log_likelihoods(design, y - 1.0, variances, NEAR_ZERO)
    return model, distribution(fits + stats.gamma.logpdf(np.exp(NEAR_ZERO), shape) + NEAR_ZERO)


@pytest.mark.filterwarnings("ignore:The step mixes badly")  # of a scale with so long a tail that may be so
@pytest.mark.parametrize(("nested", "shape"), [(False, 0.05), (True, 0.1)])
def test_centred_effects_whose_scale_is_nearly_zero(nested, shape):
    model, cdf = near_zero(nested, shape)
    with model:
        step = TunaMH(threshold=100, steps_per_draw=3, rng=5)
        step.setup_chain(5, 20, DRAWS)
        point, found, stored, again, largest = model.initial_point(), [], None, [], 0.0
        for k in range(DRAWS + 20):
            point, _ = step.step(point)
            found.append(float(point["scale_log__"]))
            largest = max(largest, np.abs(point["u"]).max())
            if stored is None and k > 50 and found[-1] < -45.0:
                stored = k, step.sampling_state, {name: np.copy(value) for name, value in point.items()}
        assert stored is not None
        k, step.sampling_state, point = stored
        for _ in range(20):
            point, _ = step.step(point)
            again.append(float(point["scale_log__"]))
    thinned = np.array(found[20::THIN])
    right = stats.kstest(np.interp(thinned, NEAR_ZERO, cdf), "uniform").pvalue > LEVEL
    assert right
    assert largest < 10.0  # noise over a scale of 1e-30 would give effects of any size
    assert again == found[k + 1 : k + 21]  # a chain that is resumed goes on with the same draws
