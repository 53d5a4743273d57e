"""What nodes of a field decide on, against the density of the chain; and bounds against remainders."""

import numpy as np
import pytest

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.fields import decisions, moves, state, tree
from pymc_austerity.mode.fields.draws import height_of
from tests.mode.fields.fields import MODELS, arrays_of, fitted

add_quadratic, add_rows = entry(moves.add_quadratic), entry(decisions.add_rows)
write_levels = entry(decisions.write_levels)
deciding, write_state = entry(tree.deciding), entry(state.write_state)
log_marginal = entry(state.log_marginal)
_OF_ROWS = [name for name in MODELS if name != "normal_rows"]


def two_states(name, level, *, reads_all=True, planted=lambda arrays: arrays, size=1.0):
    """Two states that differ in eps of the nodes of one depth, on both sides of the room."""
    one = fitted(name)
    arrays = planted(arrays_of(one, reads_all=reads_all))
    features, room = one.field.values.features(one.fit.theta), arrays.room
    rng = np.random.default_rng(4)
    eps = rng.standard_normal((2, room.eps.shape[1]))
    eps[1] = eps[0] + size * (eps[1] - eps[0])
    kept = arrays.tree.depth[arrays.tree.node_of] != level
    eps[1, kept] = eps[0, kept]
    heights = [height_of(arrays, features, own) for own in eps]
    for side in range(2):
        log_marginal(arrays, features, side)
        room.eps[side] = eps[side]
        write_state(arrays, features, side)
    deciding(arrays.tree, level, room.deciding)
    room.base[:] = 0.0
    write_levels(arrays.bounds, room.d[0], room.levels[0])
    return arrays, heights


@pytest.mark.parametrize("name", _OF_ROWS)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_nodes_decide_on_is_the_change_of_the_density(name, level):
    """The sum over nodes of what all rows say is the difference of log densities."""
    one = fitted(name)
    if level > one.field.layout.tree.depth.max():
        level = int(one.field.layout.tree.depth.max())
    arrays, heights = two_states(name, level)
    add_quadratic(arrays, 0)
    add_rows(np.random.default_rng(1), arrays, 0, 1.0, np.zeros(4))
    own = arrays.tree.depth == level
    assert not np.any(arrays.room.base[~own])
    np.testing.assert_allclose(arrays.room.base.sum(), heights[1] - heights[0], rtol=1e-9, atol=1e-8)


def acceptance(name, level, *, forth=True, n=4000, planted=lambda arrays: arrays):
    """Mean acceptance of a move of one node of a depth, decided by rows that are drawn."""
    arrays, _ = two_states(name, level, reads_all=False, planted=planted, size=1.0)
    node = int(np.flatnonzero(arrays.tree.depth == level)[0])
    arrays.bounds.always[:] = 0
    rng, now = np.random.default_rng(5), 0 if forth else 1
    write_levels(arrays.bounds, arrays.room.d[now], arrays.room.levels[now])
    total, counts = np.empty(n), np.zeros(4)
    for k in range(n):
        arrays.room.base[:] = 0.0
        add_quadratic(arrays, now)
        add_rows(rng, arrays, now, 1.0, counts)
        total[k] = min(1.0, np.exp(arrays.room.base[node]))
    return total, counts, arrays, node


def _flat_bounds(arrays):
    """A planted fault: bounds divided by 30."""
    own = arrays.bounds
    return arrays._replace(bounds=own._replace(cumulative=own.cumulative / 30.0, totals=own.totals / 30.0))


@pytest.mark.parametrize("name", ["nested_slopes", "walk", "smooth"])
@pytest.mark.parametrize("level", [0, 1])
def test_acceptance_by_drawn_rows_is_reversible(name, level):
    """a(x, y) / a(y, x) is the ratio of densities of the node, and no bound is violated."""
    forth, counts, arrays, node = acceptance(name, level)
    assert counts[0] > counts[1]  # some rows are drawn
    back, _, _, _ = acceptance(name, level, forth=False)
    whole, _ = two_states(name, level)
    add_quadratic(whole, 0)
    add_rows(np.random.default_rng(1), whole, 0, 1.0, np.zeros(4))
    expected = whole.room.base[node]
    ratio = np.log(forth.mean() / back.mean())
    error = np.hypot(forth.std() / forth.mean(), back.std() / back.mean()) / np.sqrt(len(forth))
    assert abs(ratio - expected) < 4.0 * error + 1e-6
    assert arrays.violations[0] == 0


def test_planted_bounds_are_found():
    """A planted fault: bounds that are too small are counted in debug runs, and an error in others."""
    _, _, arrays, _ = acceptance("nested_slopes", 0, n=200, planted=_flat_bounds)
    assert arrays.violations[0] > 0
    with pytest.raises(decisions.FieldBoundError):
        acceptance("nested_slopes", 0, n=200, planted=lambda a: _flat_bounds(a)._replace(debug=False))
