"""What nodes of a field decide on, against the density of the chain; and bounds against remainders."""

import numpy as np
import pytest

from pymc_austerity.acceptance import TTest
from pymc_austerity.bounds.jets.compiled import of_records
from pymc_austerity.kernels.fields import cubic, decisions, matched, moves, row_tests
from pymc_austerity.kernels.fields.state import log_prior_change, pull_on_intercept
from pymc_austerity.kernels.fields.tree import deciding
from pymc_austerity.mode.fields.draws import height_of
from pymc_austerity.step_methods.metropolis.engine.fields import row_tests as rows_of_tests
from tests.mode.fields.fields import TURNS, arrays_of, fitted

_NORMAL = ("normal_rows", "intrinsic", "crossed_normal", "score_differences")
_OF_ROWS = [one for one in TURNS if one[0] not in _NORMAL]


@of_records
def decide(rng, arrays, features, level, now, counts, result):
    """Log ratios of the nodes of a depth, by rows that are drawn anew for each line of `result`.

    One function, since each that Python calls is compiled with all that it calls.
    """
    room = arrays.room
    deciding(arrays.tree, level, room.deciding)
    decisions.write_levels(arrays.bounds, room.d[now], room.levels[now])
    cubic.write_cubics(arrays, now)
    for k in range(result.shape[0]):
        room.base[:] = 0.0
        matched.add_excess(arrays, now, features, features)
        moves.add_quadratic(arrays, now)
        decisions.add_rows(rng, arrays, now, 1.0, counts)
        result[k] = room.base


@of_records
def _written_rates(plan):
    decisions._write_rates(plan, 1.0, 0.0, 0.0, 0.0)


def log_ratios(name, level, *, turn=0, n_depths=1, now=0, n=1, reads_all=True, planted=lambda arrays: arrays):
    """Of all nodes (n, V), between two states that differ in eps of the nodes of a group of depths.

    Also log densities of both, counts, and what the kernel was handed.
    """
    one = fitted(name)
    arrays = arrays_of(one, turn=turn, reads_all=reads_all, planted=planted)
    arrays.violations[:] = 0  # which all arrays of a field share
    room, features = arrays.room, one.field.values.features(one.fit.theta)
    eps = np.random.default_rng(4).standard_normal((2, room.eps.shape[1]))
    depth = arrays.tree.depth[arrays.tree.node_of]
    kept = (depth < level) | (depth >= level + n_depths)
    eps[1, kept] = eps[0, kept]
    heights = np.empty(2)
    for side in (1, 0):
        heights[side] = height_of(arrays, features, eps[side])
        heights[side] -= log_prior_change(arrays, 0, pull_on_intercept(arrays, 0))  # which no row says
        room.d[side], room.z[side] = room.d[0], room.z[0]
    arrays.bounds.always[:] = 0
    result, counts = np.empty((n, len(arrays.tree.depth))), np.zeros(4)
    decide(np.random.default_rng(5), arrays, features, level, now, counts, result)
    return result, heights, counts, arrays


@pytest.mark.parametrize(("name", "turn"), _OF_ROWS)
@pytest.mark.parametrize(("level", "n_depths"), [(0, 1), (1, 1), (2, 1), (1, 3)])
def test_what_nodes_decide_on_is_the_change_of_the_density(name, turn, level, n_depths):
    """The sum over nodes of what all rows say is the difference of log densities."""
    level = min(level, int(fitted(name).field.layouts[turn].tree.depth.max()))
    (found,), heights, _, arrays = log_ratios(name, level, turn=turn, n_depths=n_depths)
    assert not np.any(found[arrays.tree.depth != level])
    np.testing.assert_allclose(found.sum(), heights[1] - heights[0], rtol=1e-9, atol=1e-8)


def _reading_all(arrays):
    return arrays._replace(reads_all=True)


@pytest.mark.parametrize("name", ["nested_slopes", "three_levels", "bym2", "own_scales"])
@pytest.mark.parametrize(("level", "n_depths"), [(0, 1), (1, 1), (1, 3)])
def test_third_order_terms_are_those_of_rows(name, level, n_depths):
    """Sums over cells and what rows say without them are the change of the density together."""
    (found,), heights, _, arrays = log_ratios(
        name, level, n_depths=n_depths, reads_all=False, planted=_reading_all
    )
    assert arrays.bounds.cubic.numbers.any()
    np.testing.assert_allclose(found.sum(), heights[1] - heights[0], rtol=1e-9, atol=1e-8)
    assert abs(arrays.room.cubics[0] - arrays.room.cubics[1]).sum() > 1e-3


def _half_of_third_order(arrays):
    """A planted fault: cells have half of the third-order terms that rows leave out."""
    cubic = arrays.bounds.cubic
    cubic = cubic._replace(numbers=0.5 * cubic.numbers)
    return _reading_all(arrays)._replace(bounds=arrays.bounds._replace(cubic=cubic))


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("nested_slopes", 0),
        ("nested_slopes", 1),
        ("three_levels", 0),
        ("three_levels", 1),
        ("bym2", 0),
        ("own_scales", 0),
        ("own_scales", 1),
    ],
)
def test_planted_third_order_is_found(name, level):
    """A planted fault: what cells have in third-order terms is not what rows leave out."""
    (found,), heights, _, _ = log_ratios(name, level, reads_all=False, planted=_half_of_third_order)
    assert abs(found.sum() - (heights[1] - heights[0])) > 1e-4


@of_records
def decide_by_tests(arrays, tests, features, level, result):
    """Log ratios of the nodes of a depth, by all rows below them as tests read these."""
    room = arrays.room
    deciding(arrays.tree, level, room.deciding)
    room.base[:] = 0.0
    matched.add_excess(arrays, 0, features, features)
    moves.add_quadratic(arrays, 0)
    for v in range(result.shape[0]):
        if room.deciding[v] == v:
            changes = row_tests.total_change(tests.n_rows[v], (arrays, 0, tests.first_row[v]))
            result[v] = room.base[v] + changes


@pytest.mark.parametrize(("name", "turn"), _OF_ROWS[::3])
@pytest.mark.parametrize("level", [0, 1])
def test_what_is_tested_is_the_change_of_the_density(name, turn, level):
    """Nodes that read all rows below them decide on the difference of log densities together."""
    _, heights, _, arrays = log_ratios(name, level, turn=turn)
    features = fitted(name).field.values.features(fitted(name).fit.theta)
    tests, result = rows_of_tests(TTest(0.01), arrays)["tests"], np.zeros(len(arrays.tree.depth))
    decide_by_tests(arrays, tests, features, level, result)
    np.testing.assert_allclose(result.sum(), heights[1] - heights[0], rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(
    "name",
    ["three_levels", "nested_slopes", "one_factor", "survey", "dispersions", "zero_inflated", "choices"],
)
def test_planted_rows_of_other_nodes_are_found(name):
    """A planted fault: nodes are tested on the rows of the next ones."""
    _, heights, _, arrays = log_ratios(name, 1)
    features = fitted(name).field.values.features(fitted(name).fit.theta)
    tests, result = rows_of_tests(TTest(0.01), arrays)["tests"], np.zeros(len(arrays.tree.depth))
    first_row = np.minimum(np.roll(tests.first_row, 1), tests.n_rows[-1] - tests.n_rows)
    decide_by_tests(arrays, tests._replace(first_row=first_row), features, 1, result)
    assert abs(result.sum() - (heights[1] - heights[0])) > 1e-4


def acceptance(name, level, **options):
    """Acceptance of a move of one node of a depth, decided by rows that are drawn, many times."""
    found, _, counts, arrays = log_ratios(name, level, reads_all=False, **{"n": 4000} | options)
    node = int(np.flatnonzero(arrays.tree.depth == level)[0])
    return np.minimum(1.0, np.exp(found[:, node])), counts, arrays, node


def _flat_bounds(arrays):
    """A planted fault: bounds divided by 30."""
    own = arrays.bounds
    return arrays._replace(bounds=own._replace(cumulative=own.cumulative / 30.0, totals=own.totals / 30.0))


@pytest.mark.parametrize(
    ("name", "turn"),
    [
        ("nested_slopes", 0),
        ("walk", 0),
        ("survey", 0),
        ("crossed_slopes", 0),
        ("bradley_terry", 2),
        ("dispersions", 0),
        ("own_scales", 0),
        ("zero_inflated", 0),
        ("choices", 0),
        pytest.param("football", 0, marks=pytest.mark.slow("many rows are drawn")),
    ],
)
@pytest.mark.parametrize("level", [0, 1])
def test_acceptance_by_drawn_rows_is_reversible(name, turn, level):
    """a(x, y) / a(y, x) is the ratio of densities of the node, and no bound is violated."""
    forth, counts, arrays, node = acceptance(name, level, turn=turn)
    assert counts[0] > counts[1]  # some rows are drawn
    back, _, _, _ = acceptance(name, level, turn=turn, now=1)
    expected = log_ratios(name, level, turn=turn)[0][0, node]
    ratio = np.log(forth.mean() / back.mean())
    error = np.hypot(forth.std() / forth.mean(), back.std() / back.mean()) / np.sqrt(len(forth))
    assert abs(ratio - expected) < 4.0 * error + 1e-6
    assert arrays.violations[0] == 0


@pytest.mark.parametrize("size", [0.3, 1.0])
def test_rates_dominate_bounds(size):
    """Sizes of levels and of their changes are drawn, so that any block may be the one that moves most."""
    arrays, rng = arrays_of(fitted("nested_slopes"), reads_all=False), np.random.default_rng(5)
    own, room = arrays.bounds, arrays.room
    cells = np.flatnonzero(np.diff(own.cubic.places) > 0)
    room.deciding[:] = len(arrays.tree.first) - 1
    assert len(cells)
    largest = 0.0
    for _ in range(30):
        x, y = size * np.exp(rng.normal(size=(2, len(own.nodes))))
        z = x * (1.0 + 0.2 * rng.random(len(x)))
        y[rng.random(len(y)) < 0.3] = 0.0
        room.sizes[:] = x, z, y
        _written_rates(arrays)
        for u in cells[room.tiers[cells] < len(own.reaches)]:
            rows, paths = slice(own.cells[u], own.cells[u + 1]), own.paths[u][own.paths[u] >= 0]
            m, tier = own.lengths[rows, : len(paths)], room.tiers[u]
            k = np.diff(own.cumulative[tier, : len(paths), rows.start : rows.stop + 1]).T / m
            h = np.where(np.arange(len(paths)) == 0, room.rates[1, u], room.rates[2, u])
            third, rest = own.cubic.sizes[rows], 1.0 - m[:, 0]
            fourth = k[:, 0] - 0.5 * third * rest**2
            moves, spread = m @ y[paths], m @ x[paths]
            others = spread - m[:, 0] * x[paths[0]]
            bound = fourth * moves * spread**2 * (m @ z[paths])
            of_others = moves - m[:, 0] * y[paths[0]]
            bound += third * others * (0.5 * others * moves + m[:, 0] * x[paths[0]] * of_others)
            rates = (k * m) @ (h * y[paths])
            largest = max(largest, np.max(bound[rates > 0.0] / rates[rates > 0.0], initial=0.0))
    assert 0.9 < largest <= 1.0 + 1e-6  # bounds are sharp


def _short_loose_blocks(arrays):
    """A planted fault: what is held is thought to be near its center."""
    own = arrays.bounds
    lengths = own.loose.lengths / 100.0
    return arrays._replace(bounds=own._replace(loose=own.loose._replace(lengths=lengths)))


def _small_shares(arrays):
    """A planted fault: blocks are thought to be a smaller part of what moves rows."""
    return arrays._replace(bounds=arrays.bounds._replace(shares=arrays.bounds.shares / 3.0))


def _no_third_order_left(arrays):
    """A planted fault: bounds are those of fourth derivatives alone."""
    own = arrays.bounds
    constants = np.diff(own.cumulative, axis=2) / own.lengths.T[None]
    rest = 1.0 - own.lengths.T[0]
    of_blocks = np.where(np.arange(len(own.lengths.T))[:, None] == 0, rest, 2.0 - rest)
    left = constants - 0.5 * own.cubic.sizes * rest * of_blocks
    rates = np.maximum(left, 0.0) * own.lengths.T[None]
    cumulative = np.zeros_like(own.cumulative)
    np.cumsum(rates, axis=2, out=cumulative[:, :, 1:])
    totals = np.add.reduceat(rates, own.cells[:-1], axis=2).transpose(0, 2, 1).copy()
    cubic = own.cubic._replace(sizes=np.zeros_like(own.cubic.sizes))
    return arrays._replace(bounds=own._replace(cumulative=cumulative, totals=totals, cubic=cubic))


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("nested_slopes", _flat_bounds),
        ("nested_slopes", _no_third_order_left),
        ("survey", _flat_bounds),
        ("crossed_slopes", _short_loose_blocks),
        ("nested_slopes", _small_shares),
        ("crossed_slopes", _small_shares),
        ("crossed_slopes", _flat_bounds),
        ("football", _flat_bounds),
        ("choices", _flat_bounds),
        ("dispersions", _flat_bounds),
        ("survey", _small_shares),
        ("dispersions", _small_shares),
        ("zero_inflated", _flat_bounds),
        ("own_scales", _flat_bounds),
        ("three_levels", _flat_bounds),
        ("walk", _flat_bounds),
    ],
)
def test_planted_bounds_are_found(name, planted):
    """A planted fault: bounds that are too small are counted in debug runs, and an error in others."""
    _, _, arrays, _ = acceptance(name, 0, n=2000, planted=planted)
    assert arrays.violations[0] > 0
    with pytest.raises((decisions.FieldBoundError, decisions.FieldRateError)):
        acceptance(name, 0, n=2000, planted=lambda a: planted(a)._replace(debug=False))
