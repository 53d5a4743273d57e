"""Changes of remainders are within c_i M for all rows, and rows are drawn in proportion to the c_i."""

import math

import numba
import numpy as np
import pytest

from pymc_austerity.bounds.families.base import TOLERANCE
from pymc_austerity.bounds.row_constants import ExpansionCoordinates
from pymc_austerity.bounds.row_sampler import thinning_of, tier_and_expected

from .families import N, designs, predictor
from .test_alias import recovered
from .test_families import Binomial, Huber, Laplace, Logistic, Normal, Poisson, Student

LONG = np.longdouble
USUAL = {k: v for k, v in designs(np.random.default_rng(1)).items() if k not in ("scales", "zero column")}


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


def remainders(family, rows, centre, order, q):
    x = rows[:, :-1].astype(LONG)
    start, t = x @ centre.astype(LONG) + rows[:, -1], x @ (q.astype(LONG) - centre)
    f, slope, second = derivatives_of(family, start)
    result = derivatives_of(family, start + t)[0] - f - slope * t
    return result - second * t**2 / 2 if order == 2 else result


# Settings ---------------------------------------------------------------------------------------------

MODELS = [Logistic, Binomial, Poisson, Student]


def whitened(rows):
    """V and W of a metric in the span of the rows, about as long as that of a posterior."""
    x = rows[:, :-1]
    _, singular, right = np.linalg.svd(x, full_matrices=False)
    kept = singular > 1e-8 * singular[0]
    scale = singular[kept] / 2
    return right[kept].T / scale, right[kept] * scale[:, None]


def made_of(terms, centre, V, W, order=2, most=np.inf, curvature=None):
    coordinates = ExpansionCoordinates(order, centre, V, W)
    return thinning_of(terms, {}, coordinates, 1e-12, most, curvature or {})


def setting(make, design="dense with offset", order=2, seed=0):
    rng = np.random.default_rng([seed, MODELS.index(make), order])
    family, rows = make(rng), USUAL[design]
    V, W = whitened(rows)
    centre = 0.1 * rng.normal(size=rows.shape[1] - 1)
    thinning = made_of([predictor(rows, family.slope)], centre, V, W, order)
    return rng, family, rows, centre, V, thinning


def pairs(rng, centre, V):
    """Pairs of states near the centre, in the bulk, and far from it, and moves from short to long."""
    d = V.shape[1]
    for away in (0.1, 1.0, 3.0, 12.0):
        for step in (1e-3, 0.3, 2.0, 12.0):
            w = away * rng.normal(size=d)
            yield centre + V @ (w + step * rng.normal(size=d)), centre + V @ w
        yield centre - V @ w, centre + V @ w
        yield centre + 0.0, centre + V @ w


def largest_share(thinning, family, rows, centre, q_new, q, order):
    """The largest |R_i(q') - R_i(q)| / (c_i M) over all rows; zero if there is no bound."""
    tier, expected = tier_and_expected(thinning, q_new, q)
    if not expected < math.inf:
        return 0.0
    change = remainders(family, rows, centre, order, q_new) - remainders(family, rows, centre, order, q)
    bound = thinning.constants[tier] / thinning.totals[tier] * expected
    # States are rounded, too.
    noise = 1e-15 * np.abs([derivatives_of(family, rows @ np.append(x, 1.0)) for x in (q, q_new)]).max()
    assert np.all(np.abs(change[bound == 0.0]) <= noise)
    return float(((np.abs(change) - noise) / np.maximum(bound, 1e-300)).max())


def exact_size(thinning, q_new, q):
    """M in exact arithmetic, nearly, from the formula in `bounds.remainder`."""
    w, w_new = (thinning.whitening.astype(LONG) @ (x - thinning.centre) for x in (q, q_new))
    k = thinning.order
    length, length_new = np.sqrt(w @ w), np.sqrt(w_new @ w_new)
    ends = (length ** (k + 1) + length_new ** (k + 1)) / math.factorial(k + 1)
    mean_square = (w @ w + w @ w_new + w_new @ w_new) / 3
    segment = np.sqrt((w_new - w) @ (w_new - w)) * mean_square ** LONG(k / 2) / math.factorial(k)
    return min(ends, segment), max(length, length_new)


# Bounds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("design", USUAL)
@pytest.mark.parametrize("make", MODELS)
def test_all_changes_are_within(make, design, order):
    rng, family, rows, centre, V, thinning = setting(make, design, order)
    shares, tiers = [], set()
    for q_new, q in pairs(rng, centre, V):
        shares.append(largest_share(thinning, family, rows, centre, q_new, q, order))
        tiers.add(tier_and_expected(thinning, q_new, q)[0])
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
    eye, centre = np.eye(1), np.zeros(1)
    thinning = made_of([predictor(rows, family.slope)], centre, eye, eye, order)
    q_new, q = np.array([1.9]), np.array([-1.9] if order == 2 else [0.1])
    return lambda t: largest_share(t, family, rows, centre, q_new, q, order), thinning


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("make", MODELS)
def test_planted_bug_is_noticed(make, order):
    share, thinning = close(make, order)
    assert 0.75 < share(thinning) <= 1.0
    assert share(thinning._replace(constants=0.75 * thinning.constants)) > 1.0


# Tiers, and numbers of rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("make", MODELS)
def test_a_pair_is_the_same_either_way(make, order):
    """To the last bit: whether a move is decided on all rows must not depend on its direction."""
    rng, _, _, centre, V, thinning = setting(make, order=order)
    compiled = numba.njit(lambda t, a, b: tier_and_expected(t, a, b))
    for _ in range(20):
        for q_new, q in pairs(rng, centre, V):
            there = tier_and_expected(thinning, q_new, q)
            assert there == tier_and_expected(thinning, q, q_new)
            assert compiled(thinning, q_new, q) == compiled(thinning, q, q_new)
            np.testing.assert_allclose(compiled(thinning, q_new, q), there, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("make", MODELS)
def test_number_of_rows(make, order):
    """The tier is that of the state which is further away, and C M rows are expected."""
    rng, _, rows, centre, V, thinning = setting(make, order=order)
    typical = math.sqrt(V.shape[1]) + 3.0
    # Poisson terms have no bound on the whole line.
    last = 8 * typical if make is Poisson else np.inf
    np.testing.assert_array_equal(thinning.radii, [typical, 2 * typical, last])
    for q_new, q in pairs(rng, centre, V):
        size, radius = exact_size(thinning, q_new, q)
        tier, expected = tier_and_expected(thinning, q_new, q)
        assert tier == int(radius > typical) + int(radius > 2 * typical)
        known = float(thinning.totals[tier] * size) if radius <= last else math.inf
        np.testing.assert_allclose(expected, known, rtol=1e-9)
        assert tier_and_expected(thinning, q, q)[1] == 0.0
    np.testing.assert_allclose(thinning.totals, thinning.constants.sum(axis=1))
    assert thinning.constants.shape == (3, len(rows))


def test_tiers_grow_and_reach_to_their_radii():
    _, _, _, centre, V, thinning = setting(Student)
    assert np.all(np.diff(thinning.constants, axis=0) >= 0.0)
    for radius, inside in zip(thinning.radii, (0, 1), strict=False):
        edge = V[:, 0] * radius
        assert tier_and_expected(thinning, centre + edge * (1 - 1e-9), centre)[0] == inside
        assert tier_and_expected(thinning, centre + edge * (1 + 1e-9), centre)[0] == inside + 1
        assert tier_and_expected(thinning, centre, centre - edge * (1 + 1e-9))[0] == inside + 1


@pytest.mark.parametrize("make", MODELS)
def test_tables_draw_in_proportion_to_the_bounds(make):
    _, _, _, _, _, thinning = setting(make)
    for total, constants, table in zip(thinning.totals, thinning.constants, thinning.tables, strict=True):
        if math.isinf(total):
            assert len(table.share) == len(table.other) == 0
        else:
            np.testing.assert_allclose(recovered(table), constants / total, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_nothing_is_known_of_counts_far_away(order):
    _, _, _, centre, V, thinning = setting(Poisson, order=order)
    assert np.all(np.isfinite(thinning.totals))
    near = centre + 7.9 * thinning.radii[0] * V[:, 0]
    assert tier_and_expected(thinning, near, centre)[1] < math.inf
    far = centre + 8.1 * thinning.radii[0] * V[:, 0]
    assert tier_and_expected(thinning, far, centre) == (2, math.inf)
    assert tier_and_expected(thinning, centre, far) == (2, math.inf)
    assert tier_and_expected(thinning, far, far) == (2, math.inf)


def test_numbers_that_overflow():
    """Not finite, or not a number: such a pair is decided on all rows."""
    for make in (Student, Poisson):
        _, _, _, centre, V, thinning = setting(make)
        for far in (1e80 * V[:, 0], np.full(5, np.inf), np.full(5, np.nan)):
            for pair in ((centre + far, centre), (centre, centre + far)):
                with np.errstate(all="ignore"):
                    assert not tier_and_expected(thinning, *pair)[1] <= 1e100


def test_terms_without_remainders():
    rng = np.random.default_rng(4)
    rows, family = USUAL["dense"], Normal(rng)
    V, W = whitened(rows)
    thinning = made_of([predictor(rows, family.slope)], np.zeros(5), V, W)
    np.testing.assert_array_equal(thinning.totals, 0.0)
    assert tier_and_expected(thinning, V[:, 0], V[:, 1])[1] == 0.0
    assert made_of([predictor(rows, family.slope)], np.zeros(5), V, W, order=1).totals[0] > 0.0


def test_rows_of_zeros_are_never_drawn():
    rng = np.random.default_rng(4)
    rows, huber, poisson = USUAL["dense with offset"].copy(), Huber(rng), Poisson(rng)
    rows[::3, :-1] = 0.0
    V, W = whitened(rows)

    def curvature(low, high, positions):
        assert not np.any(np.isnan(low) | np.isnan(high))
        return np.exp(high)  # infinite on the whole line

    for thinning in (
        made_of(
            [predictor(rows, huber.slope)],
            np.zeros(5),
            V,
            W,
            curvature={"y": np.errstate(over="ignore")(curvature)},
        ),
        made_of([predictor(rows, poisson.slope)], np.zeros(5), V, W),
    ):
        np.testing.assert_array_equal(thinning.constants[:, ::3], 0.0)
        assert np.all(thinning.constants[:, 1::3] > 0.0)
        assert np.all(recovered(thinning.tables[0])[::3] == 0.0)


@pytest.mark.parametrize("order", [1, 2])
def test_several_terms_come_one_after_the_other(order):
    rng = np.random.default_rng(5)
    rows, other = USUAL["dense"], USUAL["dense with offset"][:, [1, 0, 2, 4, 3, 5]] / 3
    families = [Logistic(rng), Poisson(rng)]
    V, W = whitened(rows)
    centre = 0.1 * rng.normal(size=5)
    terms = [predictor(r, f.slope) for r, f in zip((rows, other), families, strict=True)]
    both = made_of(terms, centre, V, W, order)
    apart = [made_of([term], centre, V, W, order) for term in terms]
    np.testing.assert_array_equal(both.constants, np.concatenate([t.constants for t in apart], axis=1))
    q, q_new = centre + V @ rng.normal(size=(2, 5, 1))[..., 0].T[:, 0], centre + V @ rng.normal(size=5)
    expected = tier_and_expected(both, q_new, q)[1]
    np.testing.assert_allclose(expected, sum(tier_and_expected(t, q_new, q)[1] for t in apart))


# A user's bounds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
def test_a_users_curvature(order):
    """Huber terms are of no smooth family; whatever the function returns is taken."""
    rng = np.random.default_rng(6)
    rows, family = USUAL["dense with offset"], Huber(rng)
    V, W = whitened(rows)
    centre = 0.1 * rng.normal(size=5)
    asked = []

    def curvature(low, high, positions):
        asked.append((low, high, positions))
        return np.where(high == np.inf, np.inf if order == 1 else 7.0, (high - low) * (1 + positions))

    thinning = made_of([predictor(rows, family.slope)], centre, V, W, order, curvature={"y": curvature})
    length, eta = np.linalg.norm(rows[:, :-1] @ V, axis=1), rows @ np.append(centre, 1.0)
    np.testing.assert_array_equal(np.sort(np.concatenate([p for _, _, p in asked[::4]])), np.arange(N))
    for low, high, positions in asked[::4]:
        reach = length[positions] * thinning.radii[0]
        np.testing.assert_allclose(low, eta[positions] - reach, rtol=1e-12)
        np.testing.assert_allclose(high, eta[positions] + reach, rtol=1e-12)
    for tier in (0, 1, 2)[: 4 - order]:
        k = 2 * length * thinning.radii[tier] * (1 + np.arange(N))
        np.testing.assert_allclose(
            thinning.constants[tier], k * length ** (order + 1) * (1 + TOLERANCE), rtol=1e-12
        )
    if order == 2:  # finite on the whole line
        np.testing.assert_allclose(thinning.constants[2], 7.0 * length**3 * (1 + TOLERANCE))


def test_a_users_curvature_comes_before_the_familys():
    rng = np.random.default_rng(7)
    rows, family = USUAL["dense"], Logistic(rng)
    V, W = whitened(rows)

    def largest(low, high, positions):
        return np.full(len(low), 1 / (6 * math.sqrt(3)))

    terms = [predictor(rows, family.slope)]
    given, known = (made_of(terms, np.zeros(5), V, W, curvature=c) for c in ({"y": largest}, {}))
    np.testing.assert_array_equal(given.constants[0], given.constants[2])
    assert np.all(given.constants[0] >= known.constants[0] * (1 - 1e-9))
    np.testing.assert_allclose(given.constants[2], known.constants[2])


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
    rows, family = USUAL["dense"], Huber(np.random.default_rng(8))
    V, W = whitened(rows)
    with pytest.raises(
        ValueError, match=rf"curvature\['y'\] must return a number >= 0 .* each of the {N} rows"
    ):
        made_of([predictor(rows, family.slope)], np.zeros(5), V, W, curvature={"y": wrong})


def test_without_a_bound_the_term_is_named():
    rng = np.random.default_rng(9)
    rows = USUAL["dense"]
    V, W = whitened(rows)
    for make in (Laplace, Huber):
        with pytest.raises(ValueError, match=f"term 'y' have no known bound.*{make.name}"):
            made_of([predictor(rows, make(rng).slope)], np.zeros(5), V, W)
    with pytest.raises(ValueError, match="term 'y'.*other steps .'u'"):
        made_of(
            [predictor(rows, Logistic(rng).slope, others=("u",))],
            np.zeros(5), V, W, curvature={"y": lambda low, high, positions: np.ones(len(low))},
        )  # fmt: skip
