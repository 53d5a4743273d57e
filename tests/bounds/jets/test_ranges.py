"""Ranges of derivatives of elementary functions over an interval, beside 60 digits."""

import math

import numpy as np
import pytest

from pymc_austerity import compilation
from pymc_austerity.bounds.jets import codes, ranges
from pymc_austerity.bounds.jets.codes import FUNCTIONS, LARGEST_ORDER
from pymc_austerity.bounds.jets.functions import address_of_special
from tests.bounds.jets.exact_functions import taylor

N = LARGEST_ORDER
# That of two arguments which move has tests of its own.
OF_ONE = [op for op in FUNCTIONS if op != "log_ndtr_between"]
# Where most of the interesting arguments are: ends, and points to be near to.
REGIONS = {
    "log": (1e-3, 50.0),
    "log1p": (-0.999, 50.0),
    "reciprocal": (1e-2, 50.0),
    "log1mexp": (-40.0, -1e-3),
    "gammaln": (1e-2, 60.0),
    "digamma": (1e-2, 60.0),
    "erf": (-6.0, 6.0),
    "erfc": (-6.0, 12.0),
    "erfcx": (-5.0, 40.0),
    "log_ndtr": (-40.0, 12.0),
    "rising": (1e-2, 60.0),
    "power": (1e-2, 60.0),
}
COUNTS = (0.0, 1.0, 5.0, 32.0, 33.0, 0.5, 1e-6, 700.0)
DATA = {"rising": COUNTS, "rising_exp": (*COUNTS, 2.5), "power": (0.5, 2.0, 3.0, -1.5, 1.0 + 1e-9)}
# Where derivatives vanish, domains end, series start, and others that were wrong once.
SPECIAL = {
    "sigmoid": (0.0, 1e-10, -1e-10, 1.3169578969248166, 36.0, -700.0, 700.0, -800.0, 1e5),
    "softplus": (0.0, 1e-10, -1e-10, 1.3169578969248166, -700.0, 700.0, -1e5),
    "arctan": (0.0, 1e-8, 0.5773502691896257, 1.0, 1e5, -1e10, 1e160, -1e-310),
    "gammaln": (1e-300, 1e-5, 1.0, 1.4616321449683622, 1.4616321449683624, 2.0, 14.999, 15.0, 1e10, 1e200),
    "digamma": (1e-50, 1e-5, 1.0, 1.4616321449683622, 2.0, 15.0, 1e10),
    "rising_exp": (0.0, -3.0, 10.0, -60.0, 40.0),
    "rising": (1e-8, 0.6180339887498949, 0.618, 1.4616321449683622, 1.0, 1e9),
    "erf": (0.0, 1e-12, 0.7071067811865476, 2.0201828704560856, 26.5, 1e10, -1e170),
    "erfc": (0.0, 0.7071067811865476, 26.5, -20.0, 30.0, 1e6),
    "erfcx": (0.0, 11.999, 12.001, 24.9, -26.0, 1e5, 1e100),
    "log_ndtr": (-1.0, -11.99, -12.01, -25.0, -1e3, 0.0, 8.0, 37.0, 1.0023693422683706, -1e6),
    "log": (1e-300, 1.0, 1.0 + 1e-15, 1e300),
    "log1p": (-1.0 + 1e-15, 1e-300, -1e-20, 1e300),
    "log1mexp": (-1e-300, -1e-10, -0.6931, -0.69, -700.0, -800.0),
    "power": (1e-250, 1e-100, 1e100, 1.0, 1e250),
    "reciprocal": (-1e-5, 1e-200, 1e200, -3.0),
    "exp": (0.0, -745.0, -800.0, 700.0, 1e-300),
    "sin": (0.0, 1e-10, math.pi, 1e8, -1e15),
    "cos": (0.0, 1e-10, math.pi / 2, 1e8),
}


@compilation.entry
def ranges_of(code, low, high, y, n, work, middle, radius, special):
    """What compiled code alone calls."""
    ranges.ranges_of(code, low, high, y, n, work, middle, radius, special)


def enclosures(op, low, high, y=0.0, n=N):
    """Midpoints and radii."""
    work = np.empty(ranges.WORK)
    middle, radius = np.empty(n + 1), np.empty(n + 1)
    code = codes.FUNCTIONS.index(op)
    ranges_of(code, low, high, y, n, work, middle, radius, address_of_special([code]))
    return middle, radius


def intervals(op, rng, n):
    """Intervals of all widths in the region of a function, and near its special points."""
    low, high = REGIONS.get(op, (-30.0, 30.0))
    for _ in range(n):
        width = (high - low) * 10.0 ** rng.uniform(-9.0, 0.0)
        a = rng.uniform(low, high)
        if rng.random() < 0.5 and low > 0.0:
            a = low * (high / low) ** rng.random()
        yield a, min(a + width, high), rng.choice(DATA.get(op, (0.0,)))


def outside(op, x, y, middle, radius, n=N):
    """Derivatives that are not in their enclosures."""
    exact = taylor(op, x, n, y)
    return [
        (op, k, x, y, float(exact[k]), middle[k], radius[k])
        for k in range(n + 1)
        if radius[k] < math.inf and abs(exact[k] - middle[k]) > radius[k]
    ]


@pytest.mark.parametrize("op", OF_ONE)
@pytest.mark.covering(6)
def test_enclosures_contain_all_derivatives(op):
    rng = np.random.default_rng(3)
    wrong = []
    for low, high, y in intervals(op, rng, 40):
        middle, radius = enclosures(op, low, high, y)
        for x in (low, high, rng.uniform(low, high)):
            wrong += outside(op, x, y, middle, radius)
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("op", OF_ONE)
def test_enclosures_of_points_are_right_and_tight(op):
    """At a point an enclosure is as wide as rounding; where derivatives vanish, errors are not relative."""
    rng = np.random.default_rng(4)
    points = [(x, y) for x in SPECIAL[op] for y in DATA.get(op, (0.0,))]
    points += [(a, y) for a, _, y in intervals(op, rng, 30)]
    wrong = []
    for x, y in points:
        middle, radius = enclosures(op, x, x, y)
        wrong += outside(op, x, y, middle, radius)
    assert not wrong, wrong[:5]
    low, high = REGIONS.get(op, (-30.0, 30.0))
    for x in rng.uniform(max(low, -11.0), min(high, 11.0), 30):
        middle, radius = enclosures(op, x, x, 3.0)
        assert np.all(radius <= 1e-6 * np.abs(middle) + 1e-6), (x, middle, radius)


@pytest.mark.parametrize("op", [op for op in OF_ONE if op != "rising_exp"])
def test_ranges_are_exact(op):
    """No wider than what a grid of the interval shows."""
    rng = np.random.default_rng(5)
    for low, high, y in intervals(op, rng, 10):
        middle, radius = enclosures(op, low, high, y)
        if not np.isfinite(radius).all():
            continue
        grid = np.linspace(low, high, 2001)
        values = np.array([enclosures(op, x, x, y)[0] for x in grid])
        least, largest = values.min(axis=0), values.max(axis=0)
        slack = np.array([enclosures(op, x, x, y)[1] for x in (low, high)]).max(axis=0)
        # Of a peak between points of the grid the height is known to the square of their distance.
        spacing = np.abs(np.diff(values, axis=0)).max(axis=0)
        allowed = 8.0 * slack + 1e-9 * np.abs(values).max(axis=0) + 0.3 * spacing
        assert np.all(middle + radius <= largest + allowed), (low, high, y)
        assert np.all(middle - radius >= least - allowed), (low, high, y)


@pytest.mark.parametrize(
    ("op", "low", "high"),
    [
        ("log", 0.0, 1.0),
        ("log", -1.0, 1.0),
        ("log1p", -1.0, 0.0),
        ("reciprocal", -1.0, 1.0),
        ("reciprocal", 0.0, 1.0),
        ("log1mexp", -1.0, 0.0),
        ("gammaln", 0.0, 3.0),
        ("digamma", -0.5, 3.0),
        ("rising", 0.0, 1.0),
        ("power", 0.0, 1.0),
        ("exp", 2.0, 1.0),
        ("exp", math.nan, 1.0),
        ("sigmoid", 0.0, math.nan),
        ("exp", 0.0, 800.0),
    ],
)
def test_nothing_is_known_outside_of_the_domain(op, low, high):
    assert np.all(enclosures(op, low, high, 2.5)[1] == math.inf)


@pytest.mark.parametrize("op", OF_ONE)
def test_infinite_ends(op):
    """Whatever is finite contains the derivatives of all arguments."""
    low, high = ranges.DOMAINS[FUNCTIONS.index(op)]
    for a, b in ((2.0, math.inf), (-math.inf, -2.0), (-math.inf, math.inf)):
        middle, radius = enclosures(op, a, b, 0.5)
        assert not np.isnan(middle).any()
        assert not np.isnan(radius).any()
        for x in (-50.0, -3.0, -2.0, 2.0, 3.0, 50.0):
            if a <= x <= b and low < x < high:
                assert not outside(op, x, 0.5, middle, radius)


@pytest.mark.parametrize("y", [0.0, 1.0, 7.0, 2.5, 32.5])
def test_rising_factorials_of_exponentials(y):
    """Where e^x is below the normal numbers, or its powers are infinite, too."""
    for low in (-745.0, -730.1367, -400.0, -150.0, -3.0, 2.0, 150.0, 400.0, 709.0):
        middle, radius = enclosures("rising_exp", low, low + 0.1, y)
        assert np.isfinite(middle).all()
        assert not np.isnan(radius).any()
        if -731.0 < low < 10.0:  # the exact derivatives of others take long
            assert not outside("rising_exp", low + 0.05, y, middle, radius, 1 if low < -10.0 else N)


@pytest.mark.parametrize("y", [2.0, 7.0, 400.0])
def test_ranges_by_the_logarithm_are_far_narrower_than_by_the_argument(y):
    """Over a fifth on either side, as in composed derivatives; and all beyond the first are bounded."""
    _, radius = enclosures("rising_exp", 2.3, 2.7, y)
    bend = 2.0 * abs(enclosures("rising_exp", 2.5, 2.5, y)[0][2])
    factorials = np.array([math.factorial(k) for k in range(2, N + 1)])
    assert np.all(radius[2:] * factorials < 0.25 * bend)
    assert np.all(np.isfinite(enclosures("rising_exp", -math.inf, math.inf, y)[1][1:]))


@pytest.mark.parametrize("op", ["sigmoid", "softplus", "arctan", "erf", "erfc"])
def test_bounded_derivatives_are_bounded_everywhere(op):
    """Over the whole line."""
    middle, radius = enclosures(op, -math.inf, math.inf)
    assert np.all(np.isfinite(radius[2:]))
    grid = np.linspace(-8.0, 8.0, 2001)
    largest = np.max([np.abs(enclosures(op, x, x)[0]) for x in grid], axis=0)
    np.testing.assert_allclose((np.abs(middle) + radius)[2:], largest[2:], rtol=1e-4)
