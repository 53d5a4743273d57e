"""Rows drawn by their bounds, in three ways: the bounds hold, and rows are drawn in proportion to them."""

import math
from functools import cache
from typing import NamedTuple

import numba
import numpy as np
import pytest
from scipy.special import expit

from pymc_austerity.bounds.group_draws import grouped
from pymc_austerity.bounds.remainder import (
    RowDraws,
    RowSampler,
    bounded_terms,
    plain_bounds,
    plain_draws,
    plain_move,
    row_sampler_of,
)
from pymc_austerity.bounds.row_constants import ExpansionCoordinates
from pymc_austerity.bounds.screened_draws import (
    ByteScreen,
    kept_shares,
    mean_share,
    probe_of,
    products,
    screened,
)
from pymc_austerity.bounds.sparsity import coordinate_groups, minimum_degree
from tests.statistical.errors import p_of_counts

from .designs import opaque
from .families import Logistic, Poisson
from .row_functions import location_scale, row_function, term_of
from .test_row_sampler import remainders

N = 400
P_LIMIT = 1e-4
# Longdoubles are rounded to this, of numbers near one.
NOISE = 1e-14


def designs():
    """Designs (N, D + 1) with an offset: of many zeros, and a dense one with a few unlike rows."""
    rng = np.random.default_rng(1)
    factors = [np.eye(k)[rng.integers(k, size=N)] for k in (9, 6, 12)]
    dense = rng.normal(size=(N, 2)) / 2
    slopes = factors[0] * rng.normal(size=(N, 1))
    one = np.ones((N, 1))
    many = rng.normal(size=(N, 12))
    many[3], many[4] = 0.0, np.eye(12)[2]
    many[5] *= 50.0
    several = {
        "factor": [factors[0]],
        "factors": factors,
        "factors and intercept": [one, *factors],
        "factor and dense": [dense, factors[2]],
        "all": [dense, factors[0], one, factors[1], slopes],
        "rows of zeros": [np.where(np.arange(N)[:, None] % 5, np.c_[factors[0], dense], 0.0)],
        "twelve columns": [many],
    }
    return {name: np.c_[np.concatenate(x, axis=1), rng.normal(size=N) / 5] for name, x in several.items()}


DESIGNS = designs()
SPARSE = [name for name in DESIGNS if name != "twelve columns"]
# A way to draw rows, and a design.
CASES = [*(("groups", name) for name in SPARSE), ("screen", "twelve columns"), ("constants", "factor")]


class Setting(NamedTuple):
    """Rows of a family, the c_i of these, and how they are drawn."""

    rng: np.random.Generator
    family: Logistic | Poisson
    rows: np.ndarray
    plain: RowSampler
    draws: RowDraws

    def states(self, w):
        """States (..., D) from whitened displacements (..., d)."""
        return self.plain.center + w @ np.linalg.inv(self.plain.whitening).T

    def move(self, *states):
        return self.draws.move(self.draws.state, *states)

    def bounds(self, move):
        """Bounds of all rows."""
        return self.draws.bounds(self.draws.state, move, np.arange(N))


def coordinates_of(rng, rows):
    """Coordinates about a center in which the posterior is round."""
    x = rows[:, :-1]
    center = 0.3 * rng.normal(size=x.shape[1])
    p = expit(rows @ np.append(center, 1.0))
    W = np.linalg.cholesky(10 * x.T @ (x * (p * (1 - p))[:, None]) + np.eye(x.shape[1])).T
    return ExpansionCoordinates(2, center, np.linalg.inv(W), W)


def setting(way, name, make=Logistic, factor=1.0):
    """Bounds are too small for a `factor` below one."""
    rng = np.random.default_rng([2, list(DESIGNS).index(name)])
    family, rows = make(rng), DESIGNS[name]
    terms, coordinates = [term_of(family, rows)], coordinates_of(rng, rows)
    groups = coordinate_groups(terms, coordinates) if way == "groups" else None
    coordinates = groups.coordinates if groups else coordinates
    plain = row_sampler_of(bounded_terms(terms, coordinates, {}), coordinates, 1e-12, np.inf)
    plain = plain._replace(constants=np.float32(factor) * plain.constants)
    draws = {
        "constants": lambda: plain_draws(plain),
        "groups": lambda: grouped(plain, terms, groups),
        "screen": lambda: screened(plain, terms, coordinates),
    }
    return Setting(rng, family, rows, plain, draws[way]())


def pairs(own):
    """Pairs of states: near and far, short steps and long ones, and along rows."""
    V = np.linalg.inv(own.plain.whitening)
    d = len(V)
    for away in (0.01, 0.1, 1.0, 2.5):
        for step in (1e-6, 1e-3, 0.1, 1.0, 3.0):
            w = away * own.rng.normal(size=d)
            yield own.states(w + step * own.rng.normal(size=d)), own.states(w)
    yield own.states(5.0 * np.eye(d)[0]), own.states(-5.0 * np.eye(d)[1])
    for x in own.rows[own.rng.integers(N, size=30), :-1]:
        v = x @ V
        # Along the signs of a row: all of its groups at once.
        for along in (v, np.sign(v)) if np.any(v) else ():
            w = along / np.linalg.norm(along) * own.plain.radii[0] * (1 - 1e-9)
            for share in (-1.0, 0.0, 0.8):
                yield own.states(w), own.states(share * w)


def shares(own):
    """|R_i(q') - R_i(q)| / b_i of the row where it is largest, of each pair, and the tiers."""
    found, tiers = [], set()
    for states in pairs(own):
        move = own.move(*states)
        there, here = (remainders(own.family, own.rows, own.plain.center, 2, q) for q in states)
        found.append(np.max((np.abs(there - here) - NOISE) / np.maximum(own.bounds(move), 1e-300)))
        tiers.add(move.tier)
    return np.array(found, dtype=float), tiers


@pytest.mark.parametrize(
    ("make", "way", "name"),
    [*((Logistic, *case) for case in CASES), *((Poisson, "groups", name) for name in SPARSE)],
)
@pytest.mark.covering(7)
def test_all_changes_are_within(make, way, name):
    found, tiers = shares(setting(way, name, make))
    assert found.max() <= 1.0
    assert found.max() > 0.1  # the bounds are of use
    assert {0, 1} <= tiers


@pytest.mark.parametrize(
    ("way", "name", "factor"),
    [("groups", "factor", 0.4), ("groups", "factors", 0.4), ("screen", "twelve columns", 1 / 3)],
)
def test_planted_fault_is_noticed(way, name, factor):
    assert shares(setting(way, name, factor=factor))[0].max() > 1.0


@cache
def compiled(move_of, draw):
    """A move, and how often each of all rows is drawn, as compiled code has them."""
    return (
        numba.njit(lambda sampler, q_new, q: move_of(sampler, q_new, q)),
        numba.njit(lambda rng, sampler, move, n: np.bincount(draw(rng, sampler, move, n), minlength=N)),
    )


@pytest.mark.parametrize(("way", "name"), CASES)
def test_moves_are_the_same_either_way_and_compiled(way, name):
    own = setting(way, name)
    compiled_move, _ = compiled(own.draws.move, own.draws.draw)
    for q_new, q in pairs(own):
        there, back = own.move(q_new, q), own.move(q, q_new)
        assert there[:2] == back[:2]
        np.testing.assert_array_equal(own.bounds(there), own.bounds(back))
        same = compiled_move(own.draws.state, q_new, q)
        assert same.tier == there.tier
        np.testing.assert_allclose(same.expected, there.expected, rtol=1e-12)
        total, before = own.bounds(there).sum(), plain_move(own.plain, q_new, q)
        if way == "screen":  # drawn by the c_i
            assert there.tier == before.tier
            np.testing.assert_allclose(there.expected, before.expected, rtol=1e-9)
            assert np.all(own.bounds(there) <= plain_bounds(own.plain, before, np.arange(N)) * (1 + 1e-9))
        else:
            np.testing.assert_allclose(total, there.expected, rtol=1e-6 if way == "constants" else 1e-12)


@pytest.mark.parametrize(("way", "name"), CASES)
def test_numbers_that_overflow(way, name):
    own = setting(way, name)
    center = own.plain.center
    for far in (1e80, np.inf, np.nan):
        with np.errstate(all="ignore"):
            for pair in ((center + far, center), (center, center + far)):
                assert not own.move(*pair).expected <= 1e100
    assert own.move(center, center).expected == 0.0


# Draws ------------------------------------------------------------------------------------------------------


def p_of_draws(own, *, state=None, draw=None, bounds=None):
    """p-value of how often rows are drawn, the rarest of them together, and of how often none is.

    Rows may be drawn from another `state`, in another way, or with other `bounds` than is said.
    """
    move, n = (
        own.move(*own.states(0.7 * np.random.default_rng(5).normal(size=(2, len(own.plain.whitening))))),
        400_000,
    )
    state, draw, bounds = state or own.draws.state, draw or own.draws.draw, bounds or own.draws.bounds
    _, counted = compiled(own.draws.move, draw)
    counts = counted(np.random.default_rng(6), state, move, n)
    p = bounds(own.draws.state, move, np.arange(N)) / move.expected
    order = np.argsort(p)
    rare = int(np.searchsorted(np.cumsum(p[order]), 0.01 * p.sum())) + 1
    seen, p = (np.add.reduceat(x[order], np.r_[0, rare:N]) for x in (counts, p))
    if p.sum() < 0.999:
        seen, p = np.append(seen, n - seen.sum()), np.append(p, 1.0 - p.sum())
    return p_of_counts(seen, p)


@pytest.mark.parametrize(("way", "name"), CASES)
def test_rows_are_drawn_in_proportion_to_their_bounds(way, name):
    assert p_of_draws(setting(way, name)) > P_LIMIT


@pytest.mark.parametrize("bug", ["sums of another group", "lengths reversed", "rows shifted by one"])
def test_planted_faults_of_groups_are_noticed(bug):
    own = setting("groups", "all")
    tables = own.draws.state.tables
    wrong = {
        "sums of another group": tables._replace(sums=np.roll(tables.sums, 1, axis=1)),
        "lengths reversed": tables._replace(lengths=tables.lengths[::-1].copy()),
        "rows shifted by one": tables._replace(rows=np.roll(tables.rows, 1)),
    }
    assert p_of_draws(own, state=own.draws.state._replace(tables=wrong[bug])) < P_LIMIT


@pytest.mark.parametrize("bug", ["all pass", "plain bounds"])
def test_planted_faults_of_a_screen_are_noticed(bug):
    own, plain = setting("screen", "twelve columns"), plain_draws(None)
    wrong = {"draw": plain.draw} if bug == "all pass" else {"bounds": plain.bounds}
    assert p_of_draws(own, **wrong) < P_LIMIT


@pytest.mark.parametrize(("way", "name"), [("groups", "all"), *CASES[-2:]])
def test_interpreted_and_compiled_draws_are_identical(way, name):
    own = setting(way, name)
    move = own.move(own.plain.center + 0.1, own.plain.center - 0.1)
    ours, theirs = np.random.default_rng(6), np.random.default_rng(6)
    drawn = np.bincount(own.draws.draw(ours, own.draws.state, move, 300), minlength=N)
    _, counted = compiled(own.draws.move, own.draws.draw)
    np.testing.assert_array_equal(drawn, counted(theirs, own.draws.state, move, 300))
    assert ours.random() == theirs.random()


# Groups -----------------------------------------------------------------------------------------------------


def test_a_row_of_one_group_reaches_its_bound():
    """A factor alone: |t| = |v||w| at once, to either side, and the bound by groups is that of the row."""
    own = setting("groups", "factor")
    center = own.plain.center
    step = np.where(np.arange(len(center)) == np.flatnonzero(own.rows[0, :-1])[0], 0.5, 0.0)
    for sign in (1, -1):
        pair = (center + sign * step, center)
        move, before = own.move(*pair), plain_move(own.plain, *pair)
        by_row = plain_bounds(own.plain, before, np.arange(1))
        np.testing.assert_allclose(own.bounds(move)[:1], by_row, rtol=1e-5)
        assert move.expected < 0.2 * before.expected


@pytest.mark.parametrize("name", SPARSE)
def test_there_are_fewer_rows_for_typical_moves(name):
    own = setting("groups", name)
    states = own.states(own.rng.normal(size=(100, 2, len(own.plain.center))))
    near = states[:, 0] + 0.1 * (states[:, 1] - states[:, 0])
    steps = zip(near, states[:, 0], strict=True)
    fewer, short = (np.mean([own.move(*pair).expected for pair in some]) for some in (states, steps))
    assert fewer < 0.7 * np.mean([plain_move(own.plain, *pair).expected for pair in states])
    assert short < 0.3 * fewer  # the bound along the segment


def test_the_largest_factor_comes_first():
    rng = np.random.default_rng(7)
    x = np.concatenate([np.eye(k)[rng.integers(k, size=2000)] for k in (5, 12, 7)], axis=1)
    shuffled = rng.permutation(24)
    order = minimum_degree((x.T @ x != 0.0)[np.ix_(shuffled, shuffled)])
    assert set(shuffled[order[:11]]) < set(range(5, 17))
    assert sorted(order) == list(range(24))


def test_where_groups_are_not_known_or_no_gain():
    rows = DESIGNS["factors"]
    family, coordinates = Logistic(np.random.default_rng(2)), coordinates_of(np.random.default_rng(3), rows)
    term, d = term_of(family, rows), rows.shape[1] - 1
    assert coordinate_groups([term], coordinates._replace(order=1)) is None
    assert coordinate_groups([opaque(rows)], coordinates) is not None
    dense = np.random.default_rng(8).normal(size=rows.shape)
    assert coordinate_groups([term_of(family, dense)], coordinates) is None
    two = row_function(np.stack([rows, rows], axis=1), location_scale, np.ones((3, N)), name="two")
    assert two.n_predictors == 2
    assert coordinate_groups([two], coordinates) is None
    assert coordinate_groups([term, two], coordinates) is None
    assert coordinate_groups([term], coordinates._replace(whitening=np.ones((d, d)))) is None


def test_bounds_that_are_infinite_are_decided_on_all_rows():
    own = setting("groups", "factors")
    constants, term = own.plain.constants.copy(), term_of(own.family, own.rows)
    constants[2, 17] = math.inf
    V = np.linalg.inv(own.plain.whitening)
    groups = coordinate_groups([term], ExpansionCoordinates(2, own.plain.center, V, own.plain.whitening))
    own = own._replace(draws=grouped(own.plain._replace(constants=constants), [term], groups))
    center = own.plain.center
    far = own.move(own.states(3 * own.plain.radii[0] * np.eye(len(V))[0]), center)
    assert far.tier == 2
    assert not far.expected < math.inf
    assert own.move(center + 0.01, center).expected < math.inf


# A screen ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def screen():
    return setting("screen", "twelve columns")


def true_products(own, w):
    v = own.rows[:, :-1] @ np.linalg.inv(own.plain.whitening)
    length = np.linalg.norm(v, axis=1)
    return np.abs(v @ w) / np.where(length > 0.0, length, 1.0)


def test_products_are_certified(screen):
    """Never below |u_i . w|, and above it by less than a tenth of |w|."""
    rng = np.random.default_rng(2)
    for scale in (1e-8, 1.0, 1e8):
        for w in [*scale * rng.normal(size=(30, 12)), *scale * np.eye(12), np.zeros(12)]:
            expected, probes = true_products(screen, w), (probe_of(w), probe_of(-w))
            found = np.array([products(screen.draws.state.screen, *probes, i) for i in range(N)])
            np.testing.assert_array_equal(found[:, 0], found[:, 1])
            assert np.all(found[:, 0] >= expected * (1 - 1e-12))
            assert np.all(found[:, 0] <= expected + 0.1 * np.linalg.norm(w))


@pytest.mark.parametrize("part", ["numbers of rows", "error of the state"])
def test_errors_that_are_forgotten_are_noticed(screen, part):
    own, worst = screen.draws.state.screen, math.inf
    own = own._replace(numbers=own.numbers * np.float32([1.0, 0.0]))
    for w in np.random.default_rng(3).normal(size=(30, 12)):
        probe = probe_of(w)
        if part == "error of the state":  # as coarse as a row
            coarse = np.abs(w).max() / 20
            probe = probe._replace(integers=np.rint(w / coarse).astype(np.int16), step=coarse, error=0.0)
        found = np.array([products(own, probe, probe, i)[0] for i in range(N)])
        worst = min(worst, (found - true_products(screen, w)).min())
    assert worst < -1e-4


def test_the_share_that_passes(screen):
    move = screen.move(*screen.states(0.7 * np.random.default_rng(5).normal(size=(2, 12))))
    share = mean_share(screen.draws.state, move, np.arange(N))
    assert 0.01 < share < 0.9
    np.testing.assert_allclose(share, screen.bounds(move).sum() / move.expected, rtol=1e-6)


def test_products_of_many_coordinates_fit():
    """The largest bytes and integers, in a thousand dimensions."""
    d = 1000
    numbers = np.float32([[1.0 / math.sqrt(d) / 127 * (1 + 1e-7), 0.0]])
    own = ByteScreen(np.eye(d), np.full((1, d), 127, np.int8), numbers)
    for sign in (1.0, -1.0):
        found = products(own, probe_of(sign * np.ones(d)), probe_of(np.ones(d)), 0)
        np.testing.assert_allclose(found, math.sqrt(d), rtol=1e-3)
    assert np.all(kept_shares(own, np.ones(d), np.ones(d), 1.0, np.zeros(1, np.int64)) == 1.0)
