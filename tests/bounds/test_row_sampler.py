"""Changes of remainders are within c_i M for all rows, and rows are drawn in proportion to the c_i."""

import math

import numba
import numpy as np
import pytest

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import constant
from pymc_austerity.bounds.remainder import plain_move
from pymc_austerity.bounds.row_constants import INFLATION

from .designs import USUAL, N, opaque, whitened
from .families import Binomial, Huber, Laplace, Logistic, Normal, Poisson, Student
from .row_functions import logistic, poisson, row_function, term_of
from .row_functions import sampler_of as made_of
from .test_block_table import recovered

LONG = np.longdouble


# Remainders, with formulas of their own in extended precision ---------------------------------------


def log1p_exp(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def derivatives_of(family, eta):
    """f, f' and f'' of all rows."""
    eta = eta.astype(LONG)
    if isinstance(family, Logistic):
        p = 1 / (1 + np.exp(-eta))
        return family.y * eta - log1p_exp(eta), family.y - p, -p * (1 - p)
    if isinstance(family, Binomial):
        p = 1 / (1 + np.exp(-eta))
        return family.y * eta - family.n * log1p_exp(eta), family.y - family.n * p, -family.n * p * (1 - p)
    if isinstance(family, Poisson):
        mean = family.w * np.exp(eta)
        return family.y * eta - mean, family.y - mean, -mean
    a, c = family.nu.astype(LONG) + 1, family.nu.astype(LONG) * family.sigma**2
    whole = c + eta**2
    return -a / 2 * np.log1p(eta**2 / c), -a * eta / whole, -a * (c - eta**2) / whole**2


def remainders(family, rows, center, order, q):
    x = rows[:, :-1].astype(LONG)
    start, t = x @ center.astype(LONG) + rows[:, -1], x @ (q.astype(LONG) - center)
    f, slope, second = derivatives_of(family, start)
    result = derivatives_of(family, start + t)[0] - f - slope * t
    return result - second * t**2 / 2 if order == 2 else result


# Settings ---------------------------------------------------------------------------------------------

MODELS = [Logistic, Binomial, Poisson, Student]


def setting(make, design="dense with offset", order=2, seed=0):
    rng = np.random.default_rng([seed, MODELS.index(make), order])
    family, rows = make(rng), USUAL[design]
    V, W = whitened(rows)
    center = 0.1 * rng.normal(size=rows.shape[1] - 1)
    sampler = made_of([term_of(family, rows)], center, V, W, order)
    return rng, family, rows, center, V, sampler


def pairs(rng, center, V):
    """Pairs of states near the center, in the bulk, and far from it, and moves from short to long."""
    d = V.shape[1]
    for away in (0.1, 1.0, 3.0, 12.0):
        for step in (1e-3, 0.3, 2.0, 12.0):
            w = away * rng.normal(size=d)
            yield center + V @ (w + step * rng.normal(size=d)), center + V @ w
        yield center - V @ w, center + V @ w
        yield center + 0.0, center + V @ w


def largest_share(sampler, family, rows, center, q_new, q, order):
    """The largest |R_i(q') - R_i(q)| / (c_i M) over all rows; zero if there is no bound."""
    tier, expected = plain_move(sampler, q_new, q)
    if not expected < math.inf:
        return 0.0
    change = remainders(family, rows, center, order, q_new) - remainders(family, rows, center, order, q)
    bound = sampler.constants[tier] / sampler.totals[tier] * expected
    # States are rounded, too.
    noise = 1e-15 * np.abs([derivatives_of(family, rows @ np.append(x, 1.0)) for x in (q, q_new)]).max()
    assert np.all(np.abs(change[bound == 0.0]) <= noise)
    return float(((np.abs(change) - noise) / np.maximum(bound, 1e-300)).max())


def exact_size(sampler, q_new, q):
    """M in exact arithmetic, nearly, from the formula in `bounds.remainder`."""
    w, w_new = (sampler.whitening.astype(LONG) @ (x - sampler.center) for x in (q, q_new))
    k = sampler.order
    length, length_new = np.sqrt(w @ w), np.sqrt(w_new @ w_new)
    ends = (length ** (k + 1) + length_new ** (k + 1)) / math.factorial(k + 1)
    mean_square = (w @ w + w @ w_new + w_new @ w_new) / 3
    segment = np.sqrt((w_new - w) @ (w_new - w)) * mean_square ** LONG(k / 2) / math.factorial(k)
    return min(ends, segment), max(length, length_new)


# Bounds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("design", USUAL)
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.covering(6)
def test_all_changes_are_within(make, design, order):
    rng, family, rows, center, V, sampler = setting(make, design, order)
    shares, tiers = [], set()
    for q_new, q in pairs(rng, center, V):
        shares.append(largest_share(sampler, family, rows, center, q_new, q, order))
        tiers.add(plain_move(sampler, q_new, q)[0])
    assert max(shares) <= 1.0
    assert max(shares) > 0.03  # the bounds are of use
    assert tiers == {0, 1, 2}


def close(make, order):
    """Rows of either sign, of equal f and of short v_i: the bounds are nearly sharp."""
    rng = np.random.default_rng(3)
    family = make(rng)
    for values in vars(family).values():
        values[:] = values[0]
    rows = np.c_[np.where(np.arange(N) % 2, 0.02, -0.02), np.ones(N)]
    eye, center = np.eye(1), np.zeros(1)
    sampler = made_of([term_of(family, rows)], center, eye, eye, order)
    q_new, q = np.array([1.9]), np.array([-1.9] if order == 2 else [0.1])
    return lambda t: largest_share(t, family, rows, center, q_new, q, order), sampler


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("make", MODELS)
def test_planted_fault_is_noticed(make, order):
    share, sampler = close(make, order)
    assert 0.75 < share(sampler) <= 1.0
    assert share(sampler._replace(constants=0.75 * sampler.constants)) > 1.0


# Tiers, and numbers of rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.covering(2)
def test_a_pair_is_the_same_either_way(make, order):
    """To the last bit: whether a move is decided on all rows must not depend on its direction."""
    rng, _, _, center, V, sampler = setting(make, order=order)
    compiled = numba.njit(lambda t, a, b: plain_move(t, a, b))
    for _ in range(20):
        for q_new, q in pairs(rng, center, V):
            there = plain_move(sampler, q_new, q)
            assert there == plain_move(sampler, q, q_new)
            assert compiled(sampler, q_new, q) == compiled(sampler, q, q_new)
            np.testing.assert_allclose(compiled(sampler, q_new, q), there, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.covering(7)
def test_number_of_rows(make, order):
    """The tier is that of the state which is further away, and C M rows are expected."""
    rng, _, rows, center, V, sampler = setting(make, order=order)
    typical = math.sqrt(V.shape[1]) + 3.0
    # Logistic terms have a bound on the whole line.
    last = np.inf if make in (Logistic, Binomial) else 8 * typical
    np.testing.assert_array_equal(sampler.radii, [typical, 2 * typical, last])
    for q_new, q in pairs(rng, center, V):
        size, radius = exact_size(sampler, q_new, q)
        tier, expected = plain_move(sampler, q_new, q)
        assert tier == int(radius > typical) + int(radius > 2 * typical)
        known = float(sampler.totals[tier] * size) if radius <= last else math.inf
        np.testing.assert_allclose(expected, known, rtol=1e-9)
        here = exact_size(sampler, q, q)[1]
        assert plain_move(sampler, q, q)[1] == (0.0 if here <= last else math.inf)
    np.testing.assert_allclose(sampler.totals, sampler.constants.sum(axis=1, dtype=float))
    assert sampler.constants.dtype == np.float32  # 12 bytes a row, and the tables of blocks
    assert sampler.constants.shape == (3, len(rows))


def test_tiers_grow_and_reach_to_their_radii():
    _, _, _, center, V, sampler = setting(Binomial)
    assert np.all(sampler.constants[1:] >= sampler.constants[:-1] * (1.0 - 1e-12))
    for radius, inside in zip(sampler.radii, (0, 1), strict=False):
        edge = V[:, 0] * radius
        assert plain_move(sampler, center + edge * (1 - 1e-9), center)[0] == inside
        assert plain_move(sampler, center + edge * (1 + 1e-9), center)[0] == inside + 1
        assert plain_move(sampler, center, center - edge * (1 + 1e-9))[0] == inside + 1


@pytest.mark.parametrize("make", MODELS)
def test_tables_draw_in_proportion_to_the_bounds(make):
    _, _, _, _, _, sampler = setting(make)
    for total, constants, table in zip(sampler.totals, sampler.constants, sampler.tables, strict=True):
        if math.isinf(total):
            assert len(table.blocks.share) == len(table.blocks.other) == 0
        else:
            np.testing.assert_allclose(recovered(table, constants), constants / total, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_nothing_is_known_of_counts_far_away(order):
    _, _, _, center, V, sampler = setting(Poisson, order=order)
    assert np.all(np.isfinite(sampler.totals))
    near = center + 7.9 * sampler.radii[0] * V[:, 0]
    assert plain_move(sampler, near, center)[1] < math.inf
    far = center + 8.1 * sampler.radii[0] * V[:, 0]
    assert plain_move(sampler, far, center) == (2, math.inf)
    assert plain_move(sampler, center, far) == (2, math.inf)
    assert plain_move(sampler, far, far) == (2, math.inf)


def test_terms_without_remainders():
    rng = np.random.default_rng(4)
    rows, family = USUAL["dense"], Normal(rng)
    V, W = whitened(rows)
    sampler = made_of([term_of(family, rows)], np.zeros(5), V, W)
    np.testing.assert_array_equal(sampler.totals, 0.0)
    assert plain_move(sampler, V[:, 0], V[:, 1])[1] == 0.0
    assert made_of([term_of(family, rows)], np.zeros(5), V, W, order=1).totals[0] > 0.0


def test_rows_of_zeros_are_never_drawn():
    rng = np.random.default_rng(4)
    rows, poisson = USUAL["dense with offset"].copy(), Poisson(rng)
    rows[::3, :-1] = 0.0
    V, W = whitened(rows)

    def curvature(low, high, positions):
        assert not np.any(np.isnan(low) | np.isnan(high))
        return np.exp(high)  # infinite on the whole line

    for sampler in (
        made_of(
            [opaque(rows)],
            np.zeros(5),
            V,
            W,
            curvature={"y": np.errstate(over="ignore")(curvature)},
        ),
        made_of([term_of(poisson, rows)], np.zeros(5), V, W),
    ):
        np.testing.assert_array_equal(sampler.constants[:, ::3], 0.0)
        assert np.all(sampler.constants[:, 1::3] > 0.0)
        assert np.all(recovered(sampler.tables[0], sampler.constants[0])[::3] == 0.0)


@pytest.mark.parametrize("order", [1, 2])
def test_several_terms_come_one_after_the_other(order):
    rng = np.random.default_rng(5)
    rows, other = USUAL["dense"], USUAL["dense with offset"][:, [1, 0, 2, 4, 3, 5]] / 3
    families = [Logistic(rng), Poisson(rng)]
    V, W = whitened(rows)
    center = 0.1 * rng.normal(size=5)
    terms = [term_of(f, r) for r, f in zip((rows, other), families, strict=True)]
    both = made_of(terms, center, V, W, order)
    apart = [made_of([term], center, V, W, order) for term in terms]
    of_each = np.concatenate([t.constants for t in apart], axis=1)
    np.testing.assert_allclose(both.constants, of_each, rtol=1e-6)
    q, q_new = center + V @ rng.normal(size=(2, 5, 1))[..., 0].T[:, 0], center + V @ rng.normal(size=5)
    expected = plain_move(both, q_new, q)[1]
    np.testing.assert_allclose(expected, sum(plain_move(t, q_new, q)[1] for t in apart))


# A user's bounds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
def test_a_users_curvature(order):
    """Huber terms are of no smooth family; whatever the function returns is taken."""
    rng = np.random.default_rng(6)
    rows = USUAL["dense with offset"]
    V, W = whitened(rows)
    center = 0.1 * rng.normal(size=5)
    asked = []

    def curvature(low, high, positions):
        asked.append((low, high, positions))
        return np.where(high == np.inf, np.inf if order == 1 else 7.0, (high - low) * (1 + positions))

    sampler = made_of([opaque(rows)], center, V, W, order, curvature={"y": curvature})
    length, eta = np.linalg.norm(rows[:, :-1] @ V, axis=1), rows @ np.append(center, 1.0)
    np.testing.assert_array_equal(np.sort(np.concatenate([p for _, _, p in asked[::4]])), np.arange(N))
    for low, high, positions in asked[::4]:
        reach = length[positions] * sampler.radii[0]
        np.testing.assert_allclose(low, eta[positions] - reach, rtol=1e-12)
        np.testing.assert_allclose(high, eta[positions] + reach, rtol=1e-12)
    for tier in (0, 1, 2)[: 4 - order]:
        k = 2 * length * sampler.radii[tier] * (1 + np.arange(N))
        np.testing.assert_allclose(sampler.constants[tier], k * length ** (order + 1) * INFLATION, rtol=1e-6)
    if order == 2:  # finite on the whole line
        np.testing.assert_allclose(sampler.constants[2], 7.0 * length**3 * INFLATION, rtol=1e-6)


def test_a_users_curvature_comes_before_the_derived_bounds():
    rng = np.random.default_rng(7)
    rows, family = USUAL["dense"], Logistic(rng)
    V, W = whitened(rows)

    def largest(low, high, positions):
        return np.full(len(low), 1 / (6 * math.sqrt(3)))

    terms = [term_of(family, rows)]
    given, known = (made_of(terms, np.zeros(5), V, W, curvature=c) for c in ({"y": largest}, {}))
    of_predictor = made_of([opaque(rows)], np.zeros(5), V, W, curvature={"y": largest})
    np.testing.assert_array_equal(of_predictor.constants, given.constants)
    np.testing.assert_array_equal(given.constants[0], given.constants[2])
    assert np.all(given.constants[0] >= known.constants[0] * (1 - 1e-9))
    np.testing.assert_allclose(given.constants[2], known.constants[2], rtol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda low, high, positions: 1.0,
        lambda low, high, positions: np.ones(len(low) + 1),
        lambda low, high, positions: np.ones((len(low), 1)),
        lambda low, high, positions: np.where(positions == 17, -1e-9, 1.0),
        lambda low, high, positions: np.where(positions == 17, np.nan, 1.0),
    ],
    ids=["number", "length", "matrix", "negative", "nan"],
)
def test_wrong_curvatures_are_refused(wrong):
    rows = USUAL["dense"]
    V, W = whitened(rows)
    with pytest.raises(
        ValueError, match=rf"curvature\['y'\] must return a number >= 0 .* each of the {N} rows"
    ):
        made_of([opaque(rows)], np.zeros(5), V, W, curvature={"y": wrong})


@pytest.mark.parametrize("make", [Laplace, Huber])
def test_a_kink_within_reach_has_no_bound(make):
    """Rows that do not reach it in a tier have none of it there."""
    family, rows = make(np.random.default_rng(9)), USUAL["dense with offset"].copy()
    V, W = whitened(rows)
    length = np.linalg.norm(rows[:, :-1] @ V, axis=1)
    reach = length * (math.sqrt(5) + 3.0)
    kink = 0.0 if make is Laplace else family.k / family.s
    rows[:, -1] = np.where(np.arange(N) % 2, kink + 1.001 * reach, kink + 0.999 * reach)
    sampler = made_of([term_of(family, rows)], np.zeros(5), V, W)
    assert np.all(np.isinf(sampler.constants[0, ::2]))
    np.testing.assert_array_equal(sampler.constants[0, 1::2], 0.0)
    assert np.all(np.isinf(sampler.totals))
    assert plain_move(sampler, V[:, 0], V[:, 1])[1] == np.inf


def test_an_undecided_condition_on_data_of_rows_is_decided_row_by_row():
    """Half of the rows are counts, half are binary; each has the bounds of its own."""
    rng = np.random.default_rng(12)
    rows = USUAL["dense"]
    V, W = whitened(rows)
    counts, binary, which = Poisson(rng), Logistic(rng), (np.arange(N) % 2).astype(float)

    def either(w, y, n, z):
        return forms.select(forms.greater(w, constant(0.0)), poisson(y, n), logistic(z))

    both = row_function(rows, either, [which, counts.y, counts.w, binary.y])
    mixed, ones, zeros = (
        made_of([term], np.zeros(5), V, W).constants[:2]
        for term in (both, term_of(counts, rows), term_of(binary, rows))
    )
    np.testing.assert_allclose(mixed[:, 1::2], ones[:, 1::2], rtol=1e-3)
    np.testing.assert_allclose(mixed[:, ::2], zeros[:, ::2], rtol=1e-3)


@pytest.mark.parametrize("curvature", [{}, {"y": lambda low, high, positions: np.ones(len(low))}])
def test_without_a_bound_the_term_is_named(curvature):
    rng = np.random.default_rng(9)
    rows = USUAL["dense"]
    V, W = whitened(rows)
    with pytest.raises(ValueError, match="term 'y'.*other steps .'u'"):
        made_of([term_of(Logistic(rng), rows, others=("u",))], np.zeros(5), V, W, curvature=curvature)
    with pytest.raises(ValueError, match="term 'y'.*other steps .in its linear predictor"):
        made_of([term_of(Logistic(rng), rows, offset_fixed=False)], np.zeros(5), V, W, curvature=curvature)
