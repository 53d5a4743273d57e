"""Priors of effects that are not normal: their densities, draws, and the moves of levels under them."""

import numpy as np
import pytest
from scipy import stats

from pymc_austerity.kernels.plates import moves
from pymc_austerity.kernels.plates.effects_density import (
    LAPLACE,
    LOGISTIC,
    NORMAL,
    STUDENT_T,
    drawn,
    log_excess,
    log_standard,
)
from pymc_austerity.kernels.plates.moves import move_plate, no_state
from pymc_austerity.kernels.plates.records import EffectsDensity
from tests.kernels.plates.cases import DRAWN, OTHER_PRIORS, case_of

STANDARD = {
    (NORMAL, 0.0): stats.norm(),
    (STUDENT_T, 1.0): stats.t(1.0),
    (STUDENT_T, 3.7): stats.t(3.7),
    (LAPLACE, 0.0): stats.laplace(),
    (LOGISTIC, 0.0): stats.logistic(),
}


@pytest.mark.parametrize(("kind", "shape"), STANDARD)
def test_densities_are_those_of_scipy(kind, shape):
    found = [log_standard(kind, shape, x) for x in (-40.0, -1.3, 0.0, 0.2, 5.0)]
    expected = STANDARD[kind, shape].logpdf([-40.0, -1.3, 0.0, 0.2, 5.0])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(("kind", "shape"), STANDARD)
def test_draws_have_the_density(kind, shape):
    density, rng = EffectsDensity(kind, 1.3), np.random.default_rng(2)
    y = np.array([drawn(rng, density, shape) for _ in range(4000)])
    assert stats.kstest(1.3 * y, STANDARD[kind, shape].cdf).pvalue > 1e-3
    assert stats.kstest(y, STANDARD[kind, shape].cdf).pvalue < 1e-6  # the planted fault: without the ratio
    log_density = log_excess(density, shape, y[0]) + stats.norm.logpdf(y[0])
    assert log_density == pytest.approx(STANDARD[kind, shape].logpdf(1.3 * y[0]) + np.log(1.3))


def distribution_function(case, state, g, grid):
    """That of eps_g given theta, for normal residuals, by quadrature on a grid of eps."""
    y = state.shifts[g] + state.roots[g] * grid
    density = np.exp(
        [
            log_excess(case.arrays.effects, state.shape, one) - 0.5 * eps**2
            for one, eps in zip(y, grid, strict=True)
        ]
    )
    cumulative = np.concatenate([[0.0], np.cumsum(np.diff(grid) * (density[1:] + density[:-1]))])
    return cumulative / cumulative[-1]


def p_values(spelling, n=1000, thin=6):
    """Draws of levels at a fixed theta against quadrature, the empty group among them."""
    case, rng = case_of("normal", spelling, 120), np.random.default_rng(3)
    theta, eps = case.draw(rng)
    state = case.state(theta, eps)
    assert case.arrays.bounds.sizes[-1] == 0
    groups = [0, 1, 2, 3, -1]
    found = np.empty((n, len(groups)))
    for row in found:
        for _ in range(thin):
            move_plate(rng, case.arrays, state, DRAWN)
        row[:] = state.eps[groups]
    again = case.state(theta, state.eps.copy())
    np.testing.assert_allclose(state.excesses, again.excesses, atol=1e-12)
    grid = np.sinh(np.linspace(-12.0, 12.0, 20_001))
    values = []
    for column, g in zip(found.T, groups, strict=True):
        share = distribution_function(case, state, g, grid)
        values.append(stats.kstest(np.interp(column, grid, share), "uniform").pvalue)
    return np.array(values)


@pytest.mark.slow("6,000 interpreted sweeps of 30 groups for each prior")
@pytest.mark.parametrize("spelling", OTHER_PRIORS)
def test_levels_have_their_conditional_distribution(spelling):
    assert p_values(spelling).min() > 1e-3


@pytest.mark.slow("6,000 interpreted sweeps of 30 groups")
def test_without_the_excess_they_have_not(monkeypatch):
    """Planted fault: the prior's excess over a normal one is left out."""
    monkeypatch.setattr(moves, "log_excess", lambda density, shape, y: 0.0)
    assert p_values("laplace").min() < 1e-6


def test_a_normal_prior_has_no_excess():
    case = case_of("bernoulli", "centered", 400)
    assert len(no_state(len(case.fit.theta), case.arrays).excesses) == 0
