"""Constants are found where slopes differ by many orders of magnitude, and other forms are noticed."""

import numpy as np
import pytest
from scipy.special import expit

from pymc_austerity.bounds.families import negative_binomial
from pymc_austerity.bounds.families.base import FINE_GRID, GRID
from pymc_austerity.bounds.log_ratio_range import certified_interval, certify

from .families import N, designs, predictor, states
from .test_families import FAMILIES, AllOnes, Binomial, Logistic, NegativeBinomial, Poisson


def counts(rng, exposure, background=0.0):
    """Poisson counts of few events in large exposures: rows, y, f and its slope."""
    rows = np.c_[np.ones(N), 0.3 * rng.normal(size=N), np.zeros(N)]
    truth = np.array([0.5 - np.log(exposure), 0.2])
    y = rng.poisson(exposure * np.exp(rows[:, :2] @ truth)).astype(float)

    def f(eta):
        mean = exposure * np.exp(eta) + background
        return y * np.log(mean) - mean

    def slope(eta, i, point):
        with np.errstate(all="ignore"):
            m = exposure * np.exp(eta)
            return np.where(np.isinf(m), -m, y[i] * m / (m + background) - m)

    return rows, truth, f, slope


@pytest.mark.parametrize("exposure", [1e6, 1e10, 1e13])
def test_counts_in_large_exposures(exposure):
    """Slopes near eta = 0 are of the size of the exposure; the counts, far smaller, matter where data are."""
    rng = np.random.default_rng(6)
    rows, truth, f, slope = counts(rng, exposure)
    made = certify([predictor(rows, slope)], {})
    for _ in range(20):
        q_new, q = truth + 0.3 * rng.normal(size=(2, 2))
        exact = f(rows[:, :2] @ q_new) - f(rows[:, :2] @ q)
        low, high = certified_interval(made.certificates, q_new, q)
        assert low - 1e-9 <= exact.min()
        assert exact.max() <= high + 1e-9


@pytest.mark.parametrize("exposure", [1e2, 1e6, 1e10])
def test_background_of_large_exposures_is_noticed(exposure):
    rows, _, _, slope = counts(np.random.default_rng(7), exposure, background=0.5)
    with pytest.raises(ValueError, match="of no form that is known"):
        certify([predictor(rows, slope)], {})


@pytest.mark.parametrize("grid", [GRID, FINE_GRID])
@pytest.mark.parametrize("shift", [-27.0, -15.0, -3.0, 0.0, 8.0, 20.0, 27.0])
def test_constants_of_negative_binomials(shift, grid):
    """Of few and of many counts, and in all exposures."""
    rng = np.random.default_rng(8)
    alpha, y = 10 ** rng.uniform(-3, 6, N), rng.poisson(2.0, N) * 10.0 ** rng.integers(0, 4, N)
    slopes = y - (y + alpha) * expit(grid[:, None] - shift)
    constants = negative_binomial.identify(grid, slopes)
    np.testing.assert_allclose(constants, np.c_[-alpha, y], rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(constants[y == 0.0, 1], 0.0)


@pytest.mark.parametrize("shift", [-60.0, -40.0, 40.0, 60.0, 130.0])
def test_a_change_between_points_of_the_grid_is_refused(shift):
    slopes = 3.0 - 5.0 * expit(GRID[:, None] - np.array([0.0, shift]))
    assert negative_binomial.identify(GRID, slopes[:, :1]) is not None
    assert negative_binomial.identify(GRID, slopes) is None


def test_negative_binomials_are_not_seen_in_others():
    rng = np.random.default_rng(9)
    for make in FAMILIES:
        slopes = make(rng).slope(FINE_GRID[:, None], np.arange(N), None) * np.ones(N)
        found = negative_binomial.FAMILY.identify(FINE_GRID, slopes)
        assert (found is not None) == (make in (Logistic, AllOnes, Binomial, NegativeBinomial))


def test_gamma_is_poisson_reflected():
    rng = np.random.default_rng(10)
    family, rows = Poisson(rng), designs(rng)["dense with offset"]
    reflected = predictor(rows, lambda eta, i, point: -family.slope(-eta, i, point))
    there = certify([predictor(-rows, family.slope)], {})
    back = certify([reflected], {})
    assert back.families[0].name == "gamma"
    for q_new, q in states(rng, 5):
        expected = certified_interval(there.certificates, q_new, q)
        np.testing.assert_allclose(certified_interval(back.certificates, q_new, q), expected, rtol=1e-9)
