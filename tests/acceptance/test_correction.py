"""The law of X_corr against the logistic law, the paper's own construction, and draws."""

import math

import numba
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, ndtr

from pymc_austerity.acceptance.barker import Correction, correction, draw_correction
from tests.kernels.engines import ScriptedRng
from tests.statistical.errors import p_of_counts

LOGISTIC_VARIANCE = math.pi**2 / 3
DENSE = np.linspace(-45.0, 45.0, 9001)


def masses(law):
    return np.diff(law.cumulative, prepend=0.0)


def error(values, masses, sigma, x=DENSE):
    """Equation 14: largest distance of the distribution function of X_norm + X_corr from the logistic."""
    return np.abs(ndtr((x[:, None] - values) / sigma) @ masses - expit(x)).max()


@numba.njit
def compiled_draws(law, rng, n):
    draws = np.empty(n)
    for i in range(n):
        draws[i] = draw_correction(law, rng)
    return draws


# The law --------------------------------------------------------------------------------------------


def test_with_the_normal_variable_it_is_logistic():
    law = correction()
    assert error(law.values, masses(law), 1.0) < 1e-7


def test_it_is_a_symmetric_law_with_the_missing_variance():
    law = correction()
    p = masses(law)
    assert p.min() > 0
    assert law.cumulative[-1] == 1.0
    assert np.all(np.diff(law.values) > 0)
    np.testing.assert_array_equal(law.values, -law.values[::-1])
    np.testing.assert_allclose(p, p[::-1], rtol=0, atol=1e-15)
    assert p @ law.values**2 == pytest.approx(LOGISTIC_VARIANCE - 1.0, abs=1e-5)


def test_the_values_lie_on_a_grid():
    steps = np.diff(correction().values) / 0.25
    np.testing.assert_allclose(steps, np.round(steps), rtol=1e-9)


def test_the_law_is_kept():
    assert correction() is correction()


# The paper's construction ---------------------------------------------------------------------------


def ridge(sigma, penalty, reach, n=4000, cells=None):
    """Masses by equation 15, negative ones included.

    With n = 4000 cells M has 16001 x 8001 elements. With spacing h = V / n and masses u = h c, both sums of
    squares are integrals: |M u - v|^2 + lambda |u|^2 = (1 / h) (int (Phi * c - S)^2 + lambda h^2 int c^2).
    So with m cells, still much narrower than sigma, lambda (m / n)^2 gives the same density.
    """
    m = cells or 10 * reach
    values = reach / m * np.arange(-m, m + 1)
    x = reach / m * np.arange(-2 * m, 2 * m + 1)
    M = ndtr((x[:, None] - values) / sigma)
    penalties = penalty * (m / n) ** 2 * np.eye(2 * m + 1)
    return values, np.linalg.solve(M.T @ M + penalties, M.T @ expit(x))


def clipped(masses):
    positive = np.maximum(masses, 0.0)
    return positive / positive.sum()


def test_coarser_cells_with_a_smaller_penalty_give_the_same_ridge_solution():
    fine = error(*ridge(0.9, 1.0, 20, n=400, cells=400), 0.9)
    assert error(*ridge(0.9, 1.0, 20, n=400, cells=200), 0.9) == pytest.approx(fine, rel=1e-3)
    assert error(*ridge(0.9, 1.0, 20, n=200, cells=200), 0.9) > 1.5 * fine


@pytest.mark.parametrize(("sigma", "penalty", "printed"), [(0.9, 1.0, 1.0e-4), (0.8, 0.03, 5.0e-6)])
def test_table_1(sigma, penalty, printed):
    # The table does not state V: 32 to 36 give its numbers, before masses are clipped.
    values, u = ridge(sigma, penalty, 34)
    assert u.sum() == pytest.approx(1.0, abs=1e-9)
    assert u.min() < 0
    assert error(values, u, sigma) == pytest.approx(printed, rel=0.1)


@pytest.mark.parametrize("penalty", [10.0, 1.0, 0.1, 0.01])
def test_clipping_negative_masses_costs_more_than_it_should_at_sigma_1(penalty):
    values, u = ridge(1.0, penalty, 35)
    p = clipped(u)
    assert 5e-4 < error(values, p, 1.0) < 2e-3
    assert 1.02 < p @ values**2 / (LOGISTIC_VARIANCE - 1.0) < 1.14
    law = correction()
    assert 1000 * error(law.values, masses(law), 1.0) < error(values, p, 1.0)


# Draws ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uniform", "expected"),
    [(0.0, -1.0), (0.2499, -1.0), (0.25, 0.0), (0.7499, 0.0), (0.75, 1.0), (1 - 2**-53, 1.0)],
)
def test_inversion(uniform, expected):
    law = Correction(np.array([-1.0, 0.0, 1.0]), np.array([0.25, 0.75, 1.0]))
    assert draw_correction(law, ScriptedRng([uniform])) == expected
    assert draw_correction(correction(), ScriptedRng([1 - 2**-53])) == correction().values[-1]


def test_values_are_drawn_with_their_masses():
    law, n = correction(), 100_000
    draws = compiled_draws(law, np.random.default_rng(5), n)
    p = masses(law)
    counts = np.bincount(np.searchsorted(law.values, draws), minlength=len(p))
    frequent = p > 10 / n  # the others count as one
    assert (
        p_of_counts(np.r_[counts[frequent], counts[~frequent].sum()], np.r_[p[frequent], p[~frequent].sum()])
        > 1e-3
    )


def p_of_sum(sigma, n=200_000):
    """Kolmogorov-Smirnov test of N(0, sigma^2) + X_corr against the logistic law."""
    rng = np.random.default_rng(6)
    draws = compiled_draws(correction(), rng, n) + sigma * rng.standard_normal(n)
    return stats.kstest(draws, stats.logistic.cdf).pvalue


def test_draws_with_normal_noise_are_logistic():
    assert p_of_sum(1.0) > 1e-3


@pytest.mark.parametrize("sigma", [0.9, 1.1])
def test_noise_of_another_variance_is_found_out(sigma):
    assert p_of_sum(sigma) < 1e-6
