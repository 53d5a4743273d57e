"""Bounds by groups of whitened coordinates hold for all rows, and rows are drawn in proportion to them."""

import math

import numba
import numpy as np
import pytest
from scipy.special import expit

from pymc_austerity.bounds.group_draws import bounds_by_groups, draw_by_groups, grouped, move_by_groups
from pymc_austerity.bounds.remainder import bounded_terms, plain_bounds, plain_move, row_sampler_of
from pymc_austerity.bounds.row_constants import ExpansionCoordinates
from pymc_austerity.bounds.sparsity import coordinate_groups, minimum_degree
from tests.statistical.errors import p_of_counts

from .designs import opaque
from .families import Logistic, Poisson
from .row_functions import location_scale, row_function, term_of
from .test_row_sampler import LONG, remainders

N = 400
P_LIMIT = 1e-4


def designs():
    """Designs (N, D + 1) with many zeros, and an offset."""
    rng = np.random.default_rng(1)
    factors = [np.eye(k)[rng.integers(k, size=N)] for k in (9, 6, 12)]
    dense = rng.normal(size=(N, 2)) / 2
    slopes = factors[0] * rng.normal(size=(N, 1))
    one = np.ones((N, 1))
    several = {
        "factor": [factors[0]],
        "factors": factors,
        "factors and intercept": [one, *factors],
        "factor and dense": [dense, factors[2]],
        "all": [dense, factors[0], one, factors[1], slopes],
        "rows of zeros": [np.where(np.arange(N)[:, None] % 5, np.c_[factors[0], dense], 0.0)],
    }
    return {name: np.c_[np.concatenate(x, axis=1), rng.normal(size=N) / 5] for name, x in several.items()}


DESIGNS = designs()


def setting(name, make=Logistic):
    """A family, rows, a center, and coordinates in which the posterior is round."""
    rng = np.random.default_rng([2, list(DESIGNS).index(name)])
    family, rows = make(rng), DESIGNS[name]
    x = rows[:, :-1]
    center = 0.3 * rng.normal(size=x.shape[1])
    p = expit(rows @ np.append(center, 1.0))
    precision = 10 * x.T @ (x * (p * (1 - p))[:, None]) + np.eye(x.shape[1])
    W = np.linalg.cholesky(precision).T
    return rng, family, rows, center, ExpansionCoordinates(2, center, np.linalg.inv(W), W)


def sampler_for(name, make=Logistic, factor=1.0):
    """A sampler with groups; bounds are too small for a `factor` below one."""
    rng, family, rows, center, coordinates = setting(name, make)
    term = term_of(family, rows)
    groups = coordinate_groups([term], coordinates)
    assert groups is not None
    plain = row_sampler_of(bounded_terms([term], groups.coordinates, {}), groups.coordinates, 1e-12, np.inf)
    plain = plain._replace(constants=np.float32(factor) * plain.constants)
    return rng, family, rows, center, plain, grouped(plain, [term], groups).state


def pairs(rng, plain, rows):
    """Pairs of states: near and far, short steps and long ones, and along rows."""
    d = len(plain.whitening)
    V = np.linalg.inv(plain.whitening)
    for away in (0.1, 1.0, 2.5):
        for step in (1e-3, 0.1, 1.0, 3.0):
            w = away * rng.normal(size=d)
            yield V @ (w + step * rng.normal(size=d)), V @ w
    for x in rows[rng.integers(len(rows), size=30), :-1]:
        v = x @ V
        if np.any(v):
            along = V @ v / np.linalg.norm(v) * plain.radii[0] * (1 - 1e-9)
            yield along, -along
            yield along, 0.0 * along
            yield along, 0.8 * along
            # Along the signs of a row: all of its groups at once.
            signs = V @ np.sign(v) / np.linalg.norm(np.sign(v)) * plain.radii[0] * (1 - 1e-9)
            yield signs, -signs
            yield signs, 0.9 * signs


def shares(name, make=Logistic, factor=1.0):
    """|R_i(q') - R_i(q)| / b_i for all rows, of each pair, and the tiers."""
    rng, family, rows, center, plain, sampler = sampler_for(name, make, factor)
    found, tiers = [], set()
    for new, old in pairs(rng, plain, rows):
        q_new, q = center + new, center + old
        move = move_by_groups(sampler, q_new, q)
        change = remainders(family, rows, center, 2, q_new) - remainders(family, rows, center, 2, q)
        bounds = bounds_by_groups(sampler, move, np.arange(N))
        noise = LONG(1e-15) * 10
        found.append(np.max((np.abs(change) - noise) / np.maximum(bounds, 1e-300)))
        tiers.add(move.tier)
    return np.array(found, dtype=float), tiers


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("make", [Logistic, Poisson])
@pytest.mark.covering(5)
def test_all_changes_are_within(name, make):
    found, tiers = shares(name, make)
    assert found.max() <= 1.0
    assert found.max() > 0.1  # the bounds are of use
    assert {0, 1} <= tiers


@pytest.mark.parametrize("name", ["factor", "factors"])
def test_planted_fault_is_noticed(name):
    assert shares(name, factor=0.4)[0].max() > 1.0


def test_a_row_of_one_group_reaches_its_bound():
    """A factor alone: |t| = |v||w| at once, to either side, and the bound by groups is that of the row."""
    _, _, rows, center, plain, sampler = sampler_for("factor")
    level = np.flatnonzero(rows[0, :-1])[0]
    q = np.where(np.arange(len(center)) == level, 0.5, 0.0) + center
    for sign in (1, -1):
        pair = (center + sign * (q - center), center)
        move, before = move_by_groups(sampler, *pair), plain_move(plain, *pair)
        by_groups = bounds_by_groups(sampler, move, np.arange(1))
        np.testing.assert_allclose(by_groups, plain_bounds(plain, before, np.arange(1)), rtol=1e-5)
        assert move.expected < 0.2 * before.expected


@pytest.mark.parametrize("name", DESIGNS)
def test_there_are_fewer_rows_for_typical_moves(name):
    rng, _, _, center, plain, sampler = sampler_for(name)
    w = rng.normal(size=(100, 2, len(center)))
    states = center + w @ np.linalg.inv(plain.whitening).T
    fewer = np.mean([move_by_groups(sampler, *pair).expected for pair in states])
    more = np.mean([plain_move(plain, *pair).expected for pair in states])
    assert fewer < 0.7 * more
    near = states[:, 0] + 0.1 * (states[:, 1] - states[:, 0])
    steps = zip(near, states[:, 0], strict=True)
    short = np.mean([move_by_groups(sampler, *pair).expected for pair in steps])
    assert short < 0.3 * fewer  # the bound along the segment


compiled_move = numba.njit(lambda s, a, b: move_by_groups(s, a, b))


@pytest.mark.parametrize("name", DESIGNS)
def test_bounds_add_up_and_are_the_same_either_way(name):
    rng, _, rows, center, plain, sampler = sampler_for(name)
    for new, old in pairs(rng, plain, rows):
        q_new, q = center + new, center + old
        there, back = move_by_groups(sampler, q_new, q), move_by_groups(sampler, q, q_new)
        assert there[:2] == back[:2]
        np.testing.assert_array_equal(there.sizes, back.sizes)
        bounds = bounds_by_groups(sampler, there, np.arange(N))
        np.testing.assert_allclose(bounds.sum(), there.expected, rtol=1e-12)
        same = compiled_move(sampler, q_new, q)
        assert same.tier == there.tier
        np.testing.assert_allclose(same.expected, there.expected, rtol=1e-12)


def test_numbers_that_overflow():
    _, _, _, center, _, sampler = sampler_for("factors")
    for far in (1e80, np.inf, np.nan):
        with np.errstate(all="ignore"):
            for pair in ((center + far, center), (center, center + far)):
                assert not move_by_groups(sampler, *pair).expected <= 1e100
    assert move_by_groups(sampler, center, center).expected == 0.0


@numba.njit
def counted(rng, sampler, move, n):
    return np.bincount(draw_by_groups(rng, sampler, move, n), minlength=sampler.constants.shape[1])


def move_and_counts(plain, sampler, drawn_from=None):
    center = sampler.center
    V = np.linalg.inv(plain.whitening)
    w = np.random.default_rng(4).normal(size=(2, len(center)))
    move = move_by_groups(sampler, *(center + w @ V.T))
    bounds = bounds_by_groups(sampler, move, np.arange(N))
    counts = counted(np.random.default_rng(5), drawn_from or sampler, move, 400_000)
    # The rarest rows together, which are drawn often enough.
    order = np.argsort(bounds)
    rare = int(np.searchsorted(np.cumsum(bounds[order]), 0.01 * bounds.sum())) + 1
    starts = np.r_[0, rare:N]
    return p_of_counts(*(np.add.reduceat(x[order], starts) for x in (counts, bounds / bounds.sum())))


@pytest.mark.parametrize("name", DESIGNS)
def test_rows_are_drawn_in_proportion_to_their_bounds(name):
    assert move_and_counts(*sampler_for(name)[-2:]) > P_LIMIT


def test_other_draws_are_noticed():
    """Planted fault: sums of another group; lengths the wrong way round; rows that are shifted by one."""
    plain, sampler = sampler_for("all")[-2:]
    tables = sampler.tables
    wrong = [
        tables._replace(sums=np.roll(tables.sums, 1, axis=1)),
        tables._replace(lengths=tables.lengths[::-1].copy()),
        tables._replace(rows=np.roll(tables.rows, 1)),
    ]
    for one in wrong:
        assert move_and_counts(plain, sampler, sampler._replace(tables=one)) < P_LIMIT


def test_interpreted_and_compiled_draws_are_identical():
    sampler = sampler_for("all")[-1]
    move = move_by_groups(sampler, sampler.center + 0.1, sampler.center - 0.1)
    ours, theirs = np.random.default_rng(6), np.random.default_rng(6)
    drawn = np.bincount(draw_by_groups(ours, sampler, move, 300), minlength=N)
    np.testing.assert_array_equal(drawn, counted(theirs, sampler, move, 300))
    assert ours.random() == theirs.random()


def test_the_largest_factor_comes_first():
    rng = np.random.default_rng(7)
    x = np.concatenate([np.eye(k)[rng.integers(k, size=2000)] for k in (5, 12, 7)], axis=1)
    shuffled = rng.permutation(24)
    order = minimum_degree((x.T @ x != 0.0)[np.ix_(shuffled, shuffled)])
    assert set(shuffled[order[:11]]) < set(range(5, 17))
    assert sorted(order) == list(range(24))


def test_where_groups_are_not_known_or_no_gain():
    _, family, rows, center, coordinates = setting("factors")
    term = term_of(family, rows)
    assert coordinate_groups([term], coordinates._replace(order=1)) is None
    assert coordinate_groups([opaque(rows)], coordinates) is not None
    dense = np.random.default_rng(8).normal(size=rows.shape)
    assert coordinate_groups([term_of(family, dense)], coordinates) is None
    two = row_function(
        np.stack([rows, rows], axis=1), location_scale, [np.ones(N), np.ones(N), np.ones(N)], name="two"
    )
    assert two.n_predictors == 2
    assert coordinate_groups([two], coordinates) is None
    assert coordinate_groups([term, two], coordinates) is None
    d = len(center)
    assert coordinate_groups([term], coordinates._replace(whitening=np.ones((d, d)))) is None


def test_bounds_that_are_infinite_are_decided_on_all_rows():
    _, _, _, center, plain, _ = sampler_for("factors")
    _, family, rows, _, coordinates = setting("factors")
    term = term_of(family, rows)
    groups = coordinate_groups([term], coordinates)
    constants = plain.constants.copy()
    constants[2, 17] = math.inf
    sampler = grouped(plain._replace(constants=constants), [term], groups).state
    far = center + 3 * sampler.radii[0] * np.linalg.inv(plain.whitening)[:, 0]
    assert move_by_groups(sampler, far, center).tier == 2
    assert not move_by_groups(sampler, far, center).expected < math.inf
    assert move_by_groups(sampler, center + 0.01, center).expected < math.inf
