"""The Taylor remainders of all rows are within their bounds; those of order zero are log ratios."""

import math

import numba
import numpy as np
import pytest

from pymc_austerity.bounds import row_function as module
from pymc_austerity.bounds.expressions.forms import add, multiply, negative, square
from pymc_austerity.bounds.expressions.node import constant
from pymc_austerity.bounds.remainder import RemainderCertificate, certify_remainders, remainder_range
from pymc_austerity.bounds.row_constants import ExpansionCoordinates

from .curvatures import binomial, poisson
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
from .row_functions import ETA, row_function, term_of

# Families of `families` with enough derivatives.
SMOOTH = [Logistic, AllOnes, Binomial, Normal, Student, Poisson, Probit, Cloglog, NegativeBinomial, Gamma]


def remainders(family, rows, center, order, q):
    """With derivatives by differences, to 1e-7 or so."""
    eta, t, h = rows @ np.append(center, 1.0), rows[:, :-1] @ (q - center), 1e-4
    low, here, high = (family.f(eta + step) for step in (-h, 0.0, h))
    result = family.f(eta + t) - here - (high - low) / (2 * h) * t
    return result if order == 1 else result - (high - 2 * here + low) / h**2 * t**2 / 2


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("make", SMOOTH)
def test_planted_fault_is_noticed(make, order):
    """Rows of either sign, or at right angles, of equal f and of short v_i: the bound is nearly sharp."""
    rng = np.random.default_rng(3)
    family = make(rng)
    for values in vars(family).values():
        values[:] = values[0]
    x = 0.05 * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    rows = np.c_[np.tile(x, (N // 4, 1)), np.ones(N)]
    center, eye = np.zeros(2), np.eye(2)
    coordinates = ExpansionCoordinates(order, center, eye, eye)
    certificate, _ = certify_remainders([term_of(family, rows)], coordinates, 0)
    q, q_new = np.array([2.0, 0.0]), np.array([0.0, 2.0] if order == 1 else [-2.0, 0.0])
    change = remainders(family, rows, center, order, q_new) - remainders(family, rows, center, order, q)
    bound = remainder_range(certificate, q_new, q)
    if make is Normal and order == 2:
        assert bound == 0.0
        return
    assert np.ptp(change) <= bound
    # Of a first-order remainder, f'' of one sign makes half of what is possible.
    planted = certificate._replace(constants=certificate.constants * (0.4 if order == 1 else 0.5))
    assert np.ptp(change) > remainder_range(planted, q_new, q)


def several(monkeypatch, order, n_exact):
    """A certificate of two terms in many chunks, and c_i computed otherwise, (6, 2 N)."""
    monkeypatch.setattr(module, "_LARGEST_CHUNK", 48)
    monkeypatch.setattr(module, "_SMALLEST_CHUNK", 48)
    rng = np.random.default_rng(4)
    rows, other = USUAL["dense with offset"], USUAL["dense with offset"][::-1] * 0.5
    V, W = whitened(rows)
    center = 0.1 * rng.normal(size=5)
    first, second = Binomial(rng), Poisson(rng)
    terms = [term_of(first, rows), term_of(second, other)]
    made = certify_remainders(terms, ExpansionCoordinates(order, center, V, W), n_exact)
    radii = (math.sqrt(5) + 3) * np.array([0.5, 1, 1.5, 2, 4, np.inf])
    c = []
    for curvature, r, columns in (
        (binomial, rows, (first.y, first.n)),
        (poisson, other, (second.y, second.w)),
    ):
        length, eta = np.linalg.norm(r[:, :-1] @ V, axis=1), r @ np.append(center, 1.0)
        k = [curvature(columns, eta - length * x, eta + length * x, order) for x in radii]
        c.append(np.array(k) * length ** (order + 1))
    return made, radii, np.concatenate(c, axis=1)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("n_exact", [0, 1, 60, 2 * N, 3 * N])
def test_exact_rows_are_those_with_the_largest_constants(monkeypatch, order, n_exact):
    (certificate, exact), radii, c = several(monkeypatch, order, n_exact)
    np.testing.assert_array_equal(exact, np.sort(np.argsort(-c[1])[:n_exact]))
    others = np.delete(c, exact, axis=1).max(axis=1, initial=0.0)
    np.testing.assert_allclose(certificate.constants, others, rtol=1e-5)
    np.testing.assert_allclose(certificate.radii, radii)


def test_compiled_as_interpreted(monkeypatch):
    compiled = numba.njit(lambda c, a, b: remainder_range(c, a, b))
    rng = np.random.default_rng(5)
    for order in (1, 2):
        (certificate, _), _, _ = several(monkeypatch, order, 3)
        for scale in (1e-3, 0.1, 1.0, 10.0, 1e60):
            q, q_new = scale * rng.normal(size=(2, 5))
            bound = remainder_range(certificate, q_new, q)
            assert isinstance(compiled(certificate, q_new, q), float)
            np.testing.assert_allclose(compiled(certificate, q_new, q), bound, rtol=1e-10)
            assert compiled(certificate, q, q) == remainder_range(certificate, q, q) == 0.0
        bad = np.full(5, np.nan)
        assert compiled(certificate, bad, q) == compiled(certificate, q, bad) == np.inf
        assert compiled(certificate, q + np.inf, q) == np.inf


def test_range_by_hand():
    """In one dimension, for w = 1 and w' = 3 or -3."""
    one = np.ones((1, 1))
    q = np.array([1.5])
    for order, by_ends, by_segment in (
        (1, (1 + 9) / 2, 2 * math.sqrt((1 + 3 + 9) / 3)),
        (2, (1 + 27) / 6, 2 * (1 + 3 + 9) / 6),
    ):
        certificate = RemainderCertificate(
            order, np.array([0.5]), one, np.array([2.0, 3.5, np.inf]), np.array([1.0, 7.0, np.inf])
        )
        expected = 2 * 7 * min(by_ends, by_segment)
        np.testing.assert_allclose(remainder_range(certificate, np.array([3.5]), q), expected, rtol=1e-5)
        opposite = remainder_range(certificate, np.array([-2.5]), q)
        assert opposite <= 14 * by_ends * (1 + 1e-5)
        assert remainder_range(certificate, np.array([4.5]), q) == np.inf
        assert remainder_range(certificate, np.array([4.5]), np.array([4.5])) == 0.0
        nothing = certificate._replace(constants=np.zeros(3))
        assert remainder_range(nothing, np.array([1e9]), q) == 0.0


def test_rows_of_zeros_have_no_remainder():
    rows = np.zeros((N, 2))
    rows[:, 1] = 800.0  # exp overflows there
    poisson_rows = term_of(Poisson(np.random.default_rng(6)), rows)
    coordinates = ExpansionCoordinates(2, np.zeros(1), np.eye(1), np.eye(1))
    certificate, exact = certify_remainders([poisson_rows], coordinates, 2)
    assert np.all(certificate.constants == 0.0)
    assert len(exact) == 2


def test_refusals_name_the_term():
    rng = np.random.default_rng(7)
    rows = USUAL["dense with offset"]
    V, W = whitened(rows)

    def made(term, directions=V, whitening=W):
        coordinates = ExpansionCoordinates(2, np.zeros(5), directions, whitening)
        certify_remainders([term], coordinates, 3)

    with pytest.raises(ValueError, match="term 'y'.*other steps .'u'"):
        made(term_of(Normal(rng), rows, others=("u",)))
    with pytest.raises(ValueError, match="term 'y'.*other steps"):
        made(term_of(Binomial(rng), rows, offset_fixed=False))
    with pytest.raises(ValueError, match="term 'y' are not in the span"):
        made(term_of(Normal(rng), rows), directions=V[:, :4], whitening=W[:4])
    with pytest.raises(ValueError, match="term 'y' are not finite"):
        made(term_of(Normal(rng), np.where(rows == rows[3, 2], np.inf, rows)))
    made(term_of(Normal(rng), rows))


@pytest.mark.parametrize("make", [Laplace, Huber])
def test_kinks_within_reach_have_no_bound(make):
    """Half of the rows have residuals far from theirs."""
    rows = np.c_[np.ones(N), np.where(np.arange(N) % 2, 1e3, 0.0)]
    family = make(np.random.default_rng(8))
    if make is Huber:
        rows[::2, 1] = (family.k / family.s)[::2]
    coordinates = ExpansionCoordinates(2, np.zeros(1), np.eye(1), np.eye(1))
    certificate, exact = certify_remainders([term_of(family, rows)], coordinates, N // 2)
    np.testing.assert_array_equal(exact, np.arange(0, N, 2))
    np.testing.assert_array_equal(certificate.constants[:-1], 0.0)
    assert certificate.constants[-1] == np.inf


def test_a_rare_row_of_another_form_has_its_own_bound():
    rows, rare = np.c_[np.ones(50_000), np.zeros(50_000)], (np.arange(50_000) == 33_334).astype(float)

    def quartic_if(rare):
        return negative(multiply(square(ETA), add(constant(0.5), multiply(rare, square(ETA)))))

    coordinates = ExpansionCoordinates(2, np.zeros(1), np.eye(1), np.eye(1))
    term = row_function(rows, quartic_if, [rare])
    certificate, exact = certify_remainders([term], coordinates, 1)
    np.testing.assert_array_equal(exact, [33_334])
    np.testing.assert_array_equal(certificate.constants[:-1], 0.0)
    certificate, _ = certify_remainders([term], coordinates, 0)
    np.testing.assert_allclose(certificate.constants[:-1], 24.0 * certificate.radii[:-1], rtol=1e-6)


# Of order zero: every log ratio is within the range of its certificate ------------------------------------

# Of families whose curvature is searched for, which takes seconds, other designs are of full size: what they
# change is the span and the lengths of rows, which all families share.
SEARCHED, ENOUGH = (Huber, Student, Cloglog), ("dense with offset", "heavy tails")
LONG = pytest.mark.full_size("a long search, on a design that other families are tested on")
CASES = [
    pytest.param(make, design, marks=[LONG] if make in SEARCHED and design not in ENOUGH else [])
    for make in FAMILIES
    for design in USUAL
]


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
def test_planted_fault_of_log_ratios_is_noticed(make):
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
