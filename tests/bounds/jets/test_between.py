"""Derivatives of log(Phi(s + w) - Phi(s)) by both over boxes, beside 60 digits and more."""

import math

import numpy as np
import pytest
from numba import njit

from pymc_austerity import compilation
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import node, predictor
from pymc_austerity.bounds.jets import between
from pymc_austerity.bounds.jets.codes import LARGEST_ORDER
from pymc_austerity.bounds.jets.tape import multi_indices
from tests.bounds.jets.exact_functions import taylor_of_two

N = LARGEST_ORDER
INDICES = multi_indices(2, N)
# Both tails, far out as well, widths from tiny to large, and where the rule of integration changes.
POINTS = [
    (s, w)
    for s in (0.0, 0.3, 3.0, 10.0, 30.0, 100.0, -0.5, -3.0, -8.0, -30.0)
    for w in (1e-9, 1e-3, 0.5, 1.0, 3.0, 5.0, 15.0, 40.0, 100.0)
] + [(-3.99, 7.98), (-2.83, 5.65), (8.0, 0.98), (0.0, 4.0), (-9.99, 19.98), (49.0, 1.0), (1e3, 1e-5)]


@compilation.entry
def _derivatives(s, w, s_reach, w_reach, n, middle, radius):
    """What compiled code alone calls."""
    between.between_derivatives(s, w, s_reach, w_reach, n, middle, radius)


def enclosures(s, w, s_reach=0.0, w_reach=0.0, n=N, derivatives=_derivatives):
    """Midpoints and radii, in the order of the indices."""
    middle, radius = np.empty((2, (n + 1) * (n + 2) // 2))
    derivatives(s, w, s_reach, w_reach, n, middle, radius)
    return middle, radius


def boxes(rng, n):
    """Boxes of all sizes: along s, along w, and along both."""
    for k in range(n):
        w = 10.0 ** rng.uniform(-3.0, 1.3)
        s = rng.choice([2.0 * rng.normal(), 10.0 * rng.normal(), -w * rng.random()])
        reach = 10.0 ** rng.uniform(-3.0, 0.7), w * 10.0 ** rng.uniform(-4.0, -0.1)
        yield s, w, 0.0 if k % 5 == 0 else reach[0], 0.0 if k % 5 == 1 else reach[1]


def outside(box, rng, derivatives=_derivatives):
    """Derivatives at points and corners of a box that are not in their enclosures."""
    s, w, s_reach, w_reach = box
    middle, radius = enclosures(*box, derivatives=derivatives)
    wrong = []
    for _ in range(3):
        a, b = (rng.choice([-1.0, 1.0, rng.uniform(-1.0, 1.0)]) for _ in range(2))
        exact = taylor_of_two(s + a * s_reach, w + b * w_reach, N)
        for k, index in enumerate(INDICES):
            # The point itself is rounded.
            if abs(exact[index] - middle[k]) > radius[k] * (1.0 + 1e-12) + 1e-14 * abs(exact[index]):
                wrong.append((box, index, float(exact[index]), middle[k], radius[k]))
    return wrong


def test_enclosures_contain_all_derivatives():
    rng = np.random.default_rng(1)
    wrong = [one for box in boxes(rng, 120) for one in outside(box, rng)]
    assert not wrong, wrong[:5]


def test_enclosures_of_points_are_right_and_tight():
    """Errors are relative to 1 / w^j for derivative j by w, where that is large; values are NumPy's."""
    for s, w in POINTS:
        middle, radius = enclosures(s, w)
        exact = taylor_of_two(s, w, N)
        for k, (i, j) in enumerate(INDICES):
            assert abs(exact[i, j] - middle[k]) <= radius[k], (s, w, i, j)
            size = max(abs(float(exact[i, j])), min(w, 1.0) ** -j)
            assert radius[k] <= 3e-11 * size, (s, w, i, j)
        expression = node("log_ndtr_between", (predictor(0), predictor(1)))
        value = evaluate(expression, np.array([[s], [w]]), [])[0]
        assert value == pytest.approx(float(exact[0, 0]), rel=1e-10, abs=1e-14)
        for n in range(N):
            np.testing.assert_array_equal(enclosures(s, w, n=n)[0], middle[: (n + 1) * (n + 2) // 2])


def test_ranges_of_what_is_monotone_are_exact():
    """Of the value, and of the derivatives by s, once and twice, and by w."""
    rng = np.random.default_rng(2)
    for s, w, s_reach, w_reach in boxes(rng, 20):
        middle, radius = enclosures(s, w, s_reach, w_reach)
        grid = [
            enclosures(x, y, n=2)[0]
            for x in np.linspace(s - s_reach, s + s_reach, 41)
            for y in np.linspace(w - w_reach, w + w_reach, 11)
        ]
        least, largest = np.min(grid, axis=0), np.max(grid, axis=0)
        slack = 1e-10 * (1.0 + np.abs(grid).max(axis=0)) + 0.002 * (largest - least)
        for k in (0, 1, 2, 3):
            assert middle[k] + radius[k] <= largest[k] + slack[k], (s, w, s_reach, w_reach, k)
            assert middle[k] - radius[k] >= least[k] - slack[k], (s, w, s_reach, w_reach, k)


def test_third_derivatives_by_the_end_are_bounded_however_large_the_box():
    """By what they are for log Phi, and by powers of the width; those by the width are of its order."""
    for w in (0.01, 0.5, 1.0, 3.0, 10.0):
        middle, radius = enclosures(0.0, w, 20.0, 0.2 * w)
        largest = np.abs(middle) + radius
        assert largest[INDICES.index((3, 0))] * 6.0 <= min(0.31, 0.049 * (1.2 * w) ** 3)
        assert largest[INDICES.index((0, 2))] * 2.0 <= 1.01 * (1.0 + (0.8 * w) ** -2)


def test_the_largest_cumulants():
    """On a grid, and by the limits of small and of large widths, which are far from the bounds."""
    found = np.zeros(3)
    for w in np.concatenate([np.linspace(0.5, 6.0, 23), [8.0, 12.0]]):
        for s in np.linspace(-0.5 * w, 4.0, 40):
            middle, _ = enclosures(s, w)
            own = np.abs([middle[INDICES.index((k, 0))] * math.factorial(k) for k in (3, 4, 5)])
            found = np.maximum(found, own)
    assert np.all(found <= [0.296, 0.38, 0.42])
    assert np.all(found >= [0.29, 0.37, 0.40])


@pytest.mark.full_size("26 million boxes, of which each is cut until the bounds hold in it")
def test_the_largest_cumulants_are_proved(monkeypatch):
    for name in ("_MOST_K3", "_MOST_K4", "_MOST_K5"):
        monkeypatch.setattr(between, name, math.inf)
    places = tuple(INDICES.index((k, 0)) for k in (3, 4, 5))

    @njit(error_model="numpy")
    def holds(limits, smallest):
        middle, radius, boxes = np.empty(len(INDICES)), np.empty(len(INDICES)), np.empty((1000, 4))
        for number in range(126):
            low = 1.4 + 0.1 * number
            boxes[0], n = (-0.5 * (low + 0.1), 6.0, low, low + 0.1), 1
            while n:
                n -= 1
                a, b, c, d = boxes[n]
                wide = 0.5 * (b - a) * (1.0 + 1e-9), 0.5 * (d - c) * (1.0 + 1e-9)
                between.between_derivatives(0.5 * (a + b), 0.5 * (c + d), *wide, N, middle, radius)
                holds_here = True
                for k in range(3):
                    largest = abs(middle[places[k]]) + radius[places[k]]
                    holds_here &= math.gamma(k + 4.0) * largest <= limits[k]
                if not holds_here:
                    if b - a < smallest:
                        return False
                    if b - a > d - c:
                        boxes[n], boxes[n + 1] = (a, 0.5 * (a + b), c, d), (0.5 * (a + b), b, c, d)
                    else:
                        boxes[n], boxes[n + 1] = (a, b, c, 0.5 * (c + d)), (a, b, 0.5 * (c + d), d)
                    n += 2
        return True

    assert holds(np.array([0.3, 0.4, 0.6]), 1e-7)
    # Limits that are reached are not proved.
    assert not holds(np.array([0.29, 0.4, 0.6]), 1e-4)


@pytest.mark.parametrize(
    ("s", "w", "w_reach"),
    [(0.0, 0.0, 0.0), (0.0, 1.0, 1.0), (0.0, -1.0, 0.0), (math.inf, 1.0, 0.0), (math.nan, 1.0, 0.0),
     (0.0, math.nan, 0.0), (0.0, math.inf, 0.0), (0.0, 1.0, math.inf)],
)  # fmt: skip
def test_nothing_is_known_where_the_width_may_be_zero(s, w, w_reach):
    middle, radius = enclosures(s, w, 0.1, w_reach)
    assert np.all(radius == math.inf)
    assert np.all(middle == 0.0)


def test_what_overflows_is_not_known():
    """Nothing is not a number, and what is finite is right."""
    for s, w in ((0.0, 1e-300), (-1e5, 1e-200), (1e200, 1.0), (3.0, 1e300), (-1e8, 1e8)):
        middle, radius = enclosures(s, w, 1e-3 * abs(s), 1e-3 * w)
        assert np.isfinite(middle).all()
        assert np.all(radius >= 0.0)
    assert np.all(enclosures(1e200, 1.0, 1.0)[1] == math.inf)
