"""The c_i of rows: beside dense sampling, and remainders at the border of their range.

Those of one predictor are compared with a search in many digits in `tests.bounds.test_search`.
"""

import itertools
import math

import numpy as np
import pytest
from numpy.polynomial import chebyshev

from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.jets import efforts
from pymc_austerity.bounds.jets.derivative_norms import Effort, covering, derivative_norms, midpoints
from pymc_austerity.bounds.jets.efforts import row_bounds
from pymc_austerity.bounds.jets.machine import LANES, Block, Box, run, slots_for
from pymc_austerity.bounds.jets.ranges import WORK
from pymc_austerity.bounds.jets.tape import multi_indices, tape_of
from pymc_austerity.bounds.row_function import RowFunction
from tests.bounds.jets.likelihoods import LIKELIHOODS, rows

D = 10
RADIUS = math.sqrt(D) + 3.0
SIZES = (1e4, 1e5, 1e6)


@pytest.fixture(autouse=True)
def work_of_large_data(monkeypatch):
    """As much for a few rows as a few of many rows get."""
    monkeypatch.setattr(efforts, "_MOST_FOR_A_ROW", (1e5,))


def bounds_of(likelihood, eta, directions, data, degree, radii=(RADIUS,)):
    """c_i at all radii, with the efforts that pay, and how loose the first are."""
    function = RowFunction(
        name="y",
        n_rows=len(eta),
        n_dim=directions.shape[2],
        n_predictors=likelihood.n_predictors,
        rows=lambda positions: np.empty(0),
        data=lambda positions: data[:, positions],
        form=likelihood.expression,
        others=(),
        offset_fixed=True,
    )

    def sample(positions):
        return eta[positions], directions[positions], data[:, positions]

    found = row_bounds(function, degree, np.array(radii), sample)
    return found(eta, directions, data), found.looseness


def test_a_linear_term_has_no_remainder():
    likelihood, rng = LIKELIHOODS["normal"], np.random.default_rng(14)
    c, _ = bounds_of(likelihood, *rows(likelihood, rng, 20, D, 1e4), 3, (RADIUS, math.inf))
    assert np.all(c < 1e-9)


# Sampling


def coefficients(expression, eta, data, order, factor=None):
    """Taylor coefficients of rows, and their radii: each (n, m). Derivatives are by eta, or by z with L."""
    m, p = eta.shape
    tape, work = tape_of(expression, p, order), np.empty(WORK)
    slots, box = slots_for(tape), Box(np.zeros(p), np.zeros(p), 1.0)
    found = np.empty((2, tape.n_coefficients, m))
    unit = np.repeat(np.eye(p)[None], m, axis=0) if factor is None else factor
    for start in range(0, m, LANES):
        rows = np.minimum(np.arange(start, start + LANES), m - 1)
        block = Block(
            np.ascontiguousarray(eta[rows].T),
            np.ascontiguousarray(np.moveaxis(unit[rows], 0, -1)),
            np.ascontiguousarray(data[:, rows]),
        )
        run(tape, block, box, slots, work)
        last = min(start + LANES, m)
        for which, numbers in enumerate((slots.middle, slots.radius)):
            found[which, :, start:last] = numbers[tape.root, : tape.n_coefficients, : last - start]
    return found[0], found[1]


def sampled(likelihood, eta, directions, data, degree, radius, rng):
    """The largest |T_z[x, ..., x]| of many z and x, for every row: from below."""
    p = eta.shape[1]
    factor = np.linalg.cholesky(np.einsum("mpd,mqd->mpq", directions, directions))
    alphas = multi_indices(p, degree)
    own = [k for k, index in enumerate(alphas) if sum(index) == degree]
    x = rng.normal(size=(300, p))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    monomials = math.factorial(degree) * np.prod(x[:, None, :] ** np.array(alphas)[own], axis=2)
    best = np.zeros(len(eta))
    for number in range(25):
        z = rng.normal(size=(len(eta), p))
        z *= radius * (1.0 if number % 2 else rng.random()) / np.linalg.norm(z, axis=1, keepdims=True)
        at = eta + np.einsum("mpq,mq->mp", factor, z)
        c, _ = coefficients(likelihood.expression, at, data, degree, factor)
        best = np.maximum(best, np.abs(monomials @ c[own]).max(axis=0))
    return best


@pytest.mark.parametrize("degree", [2, 3])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_no_sampled_derivative_is_above_its_bound(name, degree):
    likelihood, rng = LIKELIHOODS[name], np.random.default_rng(15)
    for n in (1e3, 1e5):
        eta, directions, data = rows(likelihood, rng, 16, D, n)
        below = sampled(likelihood, eta, directions, data, degree, RADIUS, rng)
        p = likelihood.n_predictors
        cuts = (3,) + (1,) * (p - 1)
        tried = ((0, (1,) * p), (1, (2,) * p), (2, (1,) * p), (2, cuts)) if p < 4 else ((1, cuts),)
        for effort in itertools.starmap(Effort, tried):
            tape = tape_of(likelihood.expression, p, degree + effort.extra)
            c = derivative_norms(tape, eta, directions, data, RADIUS, degree, effort)
            assert np.all(below <= c * (1.0 + 1e-9) + 1e-12), (n, effort)


def test_bounds_grow_with_the_radius_and_infinite_radii_are_allowed():
    rng = np.random.default_rng(16)
    for name in ("logistic", "categorical", "student t"):
        likelihood = LIKELIHOODS[name]
        radii = (0.5 * RADIUS, RADIUS, 4.0 * RADIUS, math.inf)
        c, _ = bounds_of(likelihood, *rows(likelihood, rng, 40, D, 1e4), 3, radii)
        assert np.all(np.diff(c.sum(axis=1)) >= -1e-12)
        assert not np.isnan(c).any()
    # All derivatives of the logistic are bounded.
    likelihood = LIKELIHOODS["logistic"]
    assert np.all(np.isfinite(bounds_of(likelihood, *rows(likelihood, rng, 40, D, 1e4), 3, (math.inf,))[0]))


def test_predictors_that_are_multiples_of_each_other():
    """Rows for which V V' is singular, and rows of zeros."""
    likelihood, rng = LIKELIHOODS["normal, free scale"], np.random.default_rng(17)
    eta, directions, data = rows(likelihood, rng, 32, D, 1e4)
    directions[:16, 1] = -2.0 * directions[:16, 0]
    directions[16:24, 0] = 0.0
    directions[24:28, 1] = 0.0
    directions[28:] = 0.0
    c, _ = bounds_of(likelihood, eta, directions, data, 3)
    exact = remainders_over_distance(likelihood, eta, directions, data, c[0], 2, rng, 40)
    assert np.all(np.isfinite(c))
    assert np.all(c[0, 28:] == 0.0)
    assert exact <= 1.0


def test_parts_of_the_box_cover_the_ball():
    rng = np.random.default_rng(18)
    for parts in ((1,), (5,), (1, 2), (3, 4), (4, 1), (2, 1, 3), (2, 2, 2)):
        p = len(parts)
        z = rng.normal(size=(4000, p))
        z *= 2.0 * rng.random((4000, 1)) ** (1.0 / p) / np.linalg.norm(z, axis=1, keepdims=True)
        gaps = np.abs(z[:, None, :] - midpoints(2.0, parts)) * np.array(parts) / 2.0
        assert np.all(gaps.max(axis=2).min(axis=1) <= 1.0 + 1e-12)


# Remainders


def remainders(expression, eta, directions, data, moves, order):
    """R_i(w_k) for moves (K, m, d), and what rounding may have added: each (K, m)."""
    p = eta.shape[1]
    steps = np.einsum("mpd,kmd->kmp", directions, moves)
    c, radius = coefficients(expression, eta, data, order)
    alphas = np.array(multi_indices(p, order))
    monomials = np.prod(steps[:, :, None, :] ** alphas, axis=3)  # (K, m, n)
    values = np.empty(steps.shape[:2])
    rounding = np.empty(steps.shape[:2])
    for k, step in enumerate(steps):
        moved, moved_radius = coefficients(expression, eta + step, data, 0)
        values[k] = moved[0] - np.einsum("mn,nm->m", monomials[k], c)
        size = np.abs(moved[0]) + np.einsum("mn,nm->m", np.abs(monomials[k]), np.abs(c))
        rounding[k] = moved_radius[0] + np.einsum("mn,nm->m", np.abs(monomials[k]), radius) + 1e-15 * size
    return values, rounding


def distance(w, w_new, order):
    """M of `bounds.remainder` for moves (..., d)."""
    old, new, both = (w**2).sum(-1), (w_new**2).sum(-1), (w * w_new).sum(-1)
    ends = (old ** ((order + 1) / 2) + new ** ((order + 1) / 2)) / math.factorial(order + 1)
    step = np.sqrt(((w_new - w) ** 2).sum(-1))
    return np.minimum(ends, step * ((old + new + both) / 3) ** (order / 2) / math.factorial(order))


def to_the_border(directions, radius, n_moves, rng):
    """Moves of length `radius` along the row's own predictors: (K, m, d)."""
    m, p, _ = directions.shape
    w = np.einsum("kmp,mpd->kmd", rng.normal(size=(n_moves, m, p)), directions)
    return w * (radius * (1.0 - 1e-9) / np.linalg.norm(w, axis=2, keepdims=True))


def remainders_over_distance(likelihood, eta, directions, data, c, order, rng, n_moves):
    """The largest (|R_i(w') - R_i(w)| - rounding) / (c_i M), to the border and between points of it."""
    w = to_the_border(directions[:28] if len(eta) == 32 else directions, RADIUS, n_moves, rng)
    m = w.shape[1]
    eta, directions, data, c = eta[:m], directions[:m], data[:, :m], c[:m]
    value, rounding = remainders(likelihood.expression, eta, directions, data, w, order)
    half = n_moves // 2
    pairs = [
        (np.abs(value) - rounding, distance(np.zeros_like(w), w, order)),
        (
            np.abs(value[:half] - value[half:]) - rounding[:half] - rounding[half:],
            distance(w[:half], w[half:], order),
        ),
    ]
    return max(float((size / (c * far + 1e-300)).max()) for size, far in pairs)


def check_border(name, n, order, n_rows, n_moves):
    """No remainder is above its bound, and bounds that were half as large would be found out.

    In five directions and more, where few moves are near the worst one, those that were a third as large.
    """
    likelihood, rng = LIKELIHOODS[name], np.random.default_rng(19)
    eta, directions, data = rows(likelihood, rng, n_rows, D, n)
    c, looseness = bounds_of(likelihood, eta, directions, data, order + 1)
    largest = remainders_over_distance(likelihood, eta, directions, data, c[0], order, rng, n_moves)
    assert largest <= 1.0
    if name != "normal" or order == 1:
        share = 0.5 if likelihood.n_predictors < 5 else 0.33
        assert largest > (share if n > 1e4 else share / looseness)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_no_remainder_at_the_border_is_above_its_bound(name):
    many = LIKELIHOODS[name].n_predictors > 2
    for n in SIZES:
        check_border(name, n, 2, 24 if many else 60, 20)
    check_border(name, 1e5, 1, 24 if many else 60, 20)


@pytest.mark.full_size("hundreds of thousands of remainders, of which the test above has some")
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_no_remainder_of_many_is_above_its_bound(name):
    for n, order in itertools.product(SIZES, (1, 2)):
        check_border(name, n, order, 1000, 70)


def test_coverings_have_all_alphas():
    """Factors of coefficients are in the order of the tape."""
    for p, degree in itertools.product((1, 2, 3, 4), (2, 3)):
        alphas = [index for index in multi_indices(p, degree) if sum(index) == degree]
        assert list(covering(p, degree).factors) == [math.prod(map(math.factorial, a)) for a in alphas]


# Fourth derivatives, of functions of one predictor: never below the truth, and not far above it

OF_ONE = [name for name, one in LIKELIHOODS.items() if len(one.level) == 1 and name != "normal"]
_DEGREE, _POINTS = 20, 64


def largest_fourth(likelihood, eta, reach, columns):
    """By a polynomial fit of each row over its interval; and what rounding may add to it."""
    nodes, grid = np.cos(np.pi * (np.arange(_POINTS) + 0.5) / _POINTS), np.linspace(-1.0, 1.0, 201)
    found, rounding = np.empty(len(eta)), np.empty(len(eta))
    for i, (center, half) in enumerate(zip(eta, reach, strict=True)):
        own = np.repeat(columns[:, i : i + 1], _POINTS, axis=1)
        values = np.broadcast_to(evaluate(likelihood.expression, [center + half * nodes], own), (_POINTS,))
        fit = chebyshev.chebfit(nodes, values, _DEGREE)
        found[i] = np.abs(chebyshev.chebval(grid, chebyshev.chebder(fit, 4))).max() / half**4
        rounding[i] = 1e-7 * (1.0 + np.abs(values).max()) / half**4
    return found, rounding


@pytest.mark.parametrize("many", [False, True], ids=["jets", "tables"])
@pytest.mark.parametrize("name", OF_ONE)
def test_fourth_derivatives(name, many, monkeypatch):
    likelihood, rng = LIKELIHOODS[name], np.random.default_rng(9)
    eta, directions, columns = rows(likelihood, rng, 300, 3, 400.0)
    if many:
        monkeypatch.setattr(efforts, "_MANY_ROWS", 100)
    length = np.linalg.norm(directions[:, 0], axis=1)
    ours, _ = bounds_of(likelihood, eta, directions, columns, 4, (6.0,))
    data = np.asarray(columns, dtype=float)
    exact, rounding = (one * length**4 for one in largest_fourth(likelihood, eta[:, 0], 6.0 * length, data))
    assert (rounding < 1e-3 * exact.max()).all()
    assert (ours[0] >= exact * (1.0 - 1e-6) - rounding).all()
    assert ours[0].sum() <= 1.15 * exact.sum()


def test_no_program_goes_beyond_the_orders_that_are_known():
    with pytest.raises(ValueError, match="order 6"):
        tape_of(LIKELIHOODS["poisson"].expression, 1, 6)
