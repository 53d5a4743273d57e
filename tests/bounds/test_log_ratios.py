"""Every log ratio is within the range of its certificate, for made-up designs; planted faults are noticed."""

import numpy as np
import pytest

from pymc_austerity.bounds.remainder import certify_remainders, remainder_range
from pymc_austerity.bounds.row_constants import ExpansionCoordinates

from .designs import USUAL, N, states, whitened
from .families import (
    FAMILIES,
    OF_RESIDUALS,
    AllOnes,
    Binomial,
    Cloglog,
    Gamma,
    Huber,
    Laplace,
    Logistic,
    NegativeBinomial,
    Normal,
    Poisson,
    Probit,
    Student,
    log_ratios,
    rounding,
)
from .row_functions import term_of

CASES = [(make, design) for make in FAMILIES for design in USUAL]


def certificate_of(family, rows, center=None):
    V, W = whitened(rows)
    center = np.zeros(rows.shape[1] - 1) if center is None else center
    coordinates = ExpansionCoordinates(0, center, V, W)
    certificate, _ = certify_remainders([term_of(family, rows)], coordinates, 0)
    return certificate


def violations(family, rows, certificate, rng):
    """How often log ratios were further apart than the range, over several pairs of states; and ranges."""
    count, ranges = 0, []
    for q_new, q in states(rng, rows.shape[1] - 1):
        exact = log_ratios(family, rows, q_new, q)
        exact = exact[np.isfinite(exact)]
        ranges.append(remainder_range(certificate, q_new, q))
        count += bool(exact.size and np.ptp(exact) > ranges[-1] + 2 * rounding(family, rows, q_new, q))
    return count, ranges


@pytest.mark.parametrize(("make", "design"), CASES)
@pytest.mark.covering(10)
def test_all_log_ratios_are_within(make, design):
    rng = np.random.default_rng([FAMILIES.index(make), list(USUAL).index(design)])
    family, rows = make(rng), USUAL[design]
    count, ranges = violations(family, rows, certificate_of(family, rows), rng)
    assert count == 0
    assert np.isfinite(ranges[:3]).all()


@pytest.mark.parametrize("make", [c for c in FAMILIES if c is not AllOnes])
def test_largest_log_ratio_is_not_the_range(make):
    """C = max |l_i| in place of the range 2 C is an error of published code."""
    rng = np.random.default_rng(4)
    family, rows = make(rng), np.c_[np.ones(N), np.zeros(N)]
    if make.name in OF_RESIDUALS:
        rows[:, -1] = rng.normal(size=N)
    q_new, q = np.array([0.1]), np.array([0.0])
    exact = log_ratios(family, rows, q_new, q)
    assert np.abs(exact).max() < np.ptp(exact) <= remainder_range(certificate_of(family, rows), q_new, q)


@pytest.mark.parametrize(
    "make",
    [
        Logistic,
        AllOnes,
        Binomial,
        Normal,
        Laplace,
        Huber,
        Student,
        Poisson,
        Probit,
        Cloglog,
        NegativeBinomial,
        Gamma,
    ],
)
def test_planted_fault_is_noticed(make):
    """Of an intercept, near the center, a bound is sharp: smaller by 2 %, it does not hold any more."""
    rng = np.random.default_rng(5)
    family = make(rng)
    rows = np.c_[np.ones(N), np.zeros(N)]
    if make.name in OF_RESIDUALS:
        rows[:, -1] = rng.normal(size=N)
    q_new, q, W = np.array([0.301]), np.array([0.3]), np.full((1, 1), 1000.0)
    certificate, _ = certify_remainders([term_of(family, rows)], ExpansionCoordinates(0, q, 1 / W, W), 0)
    largest = np.abs(log_ratios(family, rows, q_new, q)).max()
    assert largest <= remainder_range(certificate, q_new, q) / 2
    planted = certificate._replace(constants=0.98 * certificate.constants)
    assert largest > remainder_range(planted, q_new, q) / 2


def test_states_that_are_no_numbers_have_an_infinite_range():
    rng = np.random.default_rng(6)
    certificate = certificate_of(Poisson(rng), USUAL["dense"])
    q = np.zeros(5)
    assert remainder_range(certificate, q, q) == 0.0
    assert remainder_range(certificate, q * np.nan, q) == np.inf
    assert remainder_range(certificate, q + 1e4, q) == np.inf
    with np.errstate(invalid="ignore"):
        assert remainder_range(certificate, q + np.inf, q) == np.inf
