"""The moves of a sweep: theta with the root, then the nodes below, by groups of depths.

A node at the top of a group proposes its eps with those below that are in the group; what is further below
moves along, and the rows below decide. Given theta and all other eps the target is a product over the nodes
at the top: |eps|^2 is a sum, and a row belongs to one path from a node to the root. So all of them are moved
at once, and each decides for itself. Where effects pull on the prior of an intercept, they decide one after
the other, by a number that all of them share.
"""

import math

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.fields.decisions import add_rows
from pymc_austerity.kernels.fields.matched import add_excess
from pymc_austerity.kernels.fields.records import FieldArrays
from pymc_austerity.kernels.fields.state import log_prior_change, pull_on_intercept, write_state
from pymc_austerity.kernels.fields.tree import deciding
from pymc_austerity.target import Vector

# Share of walks among the proposals for eps of a node: of a normal variable about the old one, to which it
# is correlated so much.
_WALKS, _CORRELATION = 0.1, 0.85


@jitable
def move_root(
    rng: np.random.Generator,
    plan: FieldArrays,
    now: int,
    old: Vector,
    features: Vector,
    base: float,
    counts: Vector,
) -> bool:
    """Decide on theta with the root's eps.

    The other side of the room has L and c of the proposal, `features` are there and `old` ones here, and
    `base` is the log ratio of all but rows and eps.
    """
    room, tree = plan.room, plan.tree
    root, new = tree.first.shape[0] - 1, 1 - now
    room.eps[new] = room.eps[now]
    first = tree.first[root]
    last = first + tree.size[root]
    base += _propose(rng, plan.widths[root], room.eps[now], room.eps[new], first, last)
    write_state(plan, features, new)
    for side, sign in ((new, 1.0), (now, -1.0)):
        base += sign * log_prior_change(plan, side, pull_on_intercept(plan, side))
    room.deciding[:] = root
    room.base[root] = base
    add_excess(plan, now, old, features)
    add_quadratic(plan, now)
    if plan.has_remainders:
        add_rows(rng, plan, now, plan.schedule.kappas[0], counts)
    return bool(math.log(1.0 - rng.random()) < room.base[root])


@jitable
def _propose(
    rng: np.random.Generator, width: float, old: Vector, new: Vector, first: int, last: int
) -> float:
    """New eps of a node, drawn anew or near the old ones; the log ratio of N(0, 1) and of proposals."""
    if rng.random() < _WALKS:
        rest = math.sqrt(1.0 - _CORRELATION * _CORRELATION)
        for j in range(first, last):
            new[j] = _CORRELATION * old[j] + rest * rng.standard_normal()
        return 0.0
    total, share = 0.0, 0.5 - 0.5 / (width * width)
    for j in range(first, last):
        new[j] = width * rng.standard_normal()
        total += share * (old[j] * old[j] - new[j] * new[j])
    return total


@jitable
def move_group(
    rng: np.random.Generator, plan: FieldArrays, now: int, features: Vector, k: int, counts: Vector
) -> None:
    """Propose eps of all nodes of a group of depths, and let each at its top decide."""
    room, tree, depths = plan.room, plan.tree, plan.schedule.depths
    deciding(tree, depths[k], room.deciding)
    room.base[:] = 0.0
    _move_below(rng, plan, now, depths[k + 1])
    _write_d(plan, now)
    add_excess(plan, now, features, features)
    add_quadratic(plan, now)
    if plan.has_remainders:
        add_rows(rng, plan, now, plan.schedule.kappas[k + 1], counts)
    pull = _moved_pulls(plan, now)
    for v in range(tree.first.shape[0]):
        if room.deciding[v] == v:
            base = room.base[v]
            if plan.prior.intercept >= 0:  # what the others have decided counts: one after the other
                base += log_prior_change(plan, now, pull + room.moved[v]) - log_prior_change(plan, now, pull)
            room.accepted[v] = math.log(1.0 - rng.random()) < base
            if room.accepted[v]:
                pull += room.moved[v]
    _settle(plan, now, k)


@jitable
def _move_below(rng: np.random.Generator, plan: FieldArrays, now: int, stop: int) -> None:
    """Write z of the other side: L' dz = d eps, of which nodes above depth `stop` have new eps."""
    room, tree, new = plan.room, plan.tree, 1 - now
    front, change, own, base, widths = room.fronts[now], room.work[1], room.deciding, room.base, plan.widths
    old, eps, z, z_new = room.eps[now], room.eps[new], room.z[now], room.z[new]
    firsts, sizes, starts, below, fronts = tree.first, tree.size, tree.starts, tree.below, tree.fronts
    depth = tree.depth
    for v in range(firsts.shape[0] - 1, -1, -1):
        q, f, g = sizes[v], firsts[v], own[v]
        if g < 0:
            for j in range(f, f + q):
                change[j] = 0.0
            continue
        start, o = starts[v], fronts[v]
        r = 0 if g == v else starts[v + 1] - start  # what is above does not move
        if depth[v] < stop:
            base[g] += _propose(rng, widths[v], old, eps, f, f + q)
            for j in range(f, f + q):
                change[j] = eps[j] - old[j]
        else:
            for j in range(f, f + q):
                eps[j] = old[j]
                change[j] = 0.0
        for j in range(q - 1, -1, -1):
            t = change[f + j]
            for i in range(j + 1, q):
                t -= front[o + i * q + j] * change[f + i]
            for i in range(r):
                t -= front[o + (q + i) * q + j] * change[below[start + i]]
            change[f + j] = t / front[o + j * q + j]
            z_new[f + j] = z[f + j] + change[f + j]


@jitable
def _moved_pulls(plan: FieldArrays, now: int) -> float:
    """Pulls . z, and its changes by nodes in `room.moved`."""
    room, columns = plan.room, plan.prior.pulls.columns
    if plan.prior.intercept < 0:
        return 0.0
    room.moved[:] = 0.0
    for k in range(columns.shape[0]):
        g = room.deciding[plan.tree.node_of[columns[k]]]
        if g >= 0:
            room.moved[g] += room.pulls[now, k] * room.work[1, columns[k]]
    return pull_on_intercept(plan, now)


@jitable
def _write_d(plan: FieldArrays, now: int) -> None:
    """Write d of the other side, of the elements that move."""
    room, own, new = plan.room, plan.prior.map, 1 - now
    change, nodes = room.work[1], plan.sums.of_elements
    room.d[new] = room.d[now]
    for k in range(own.coefficients.shape[0]):
        p = own.rows[k]
        if room.deciding[nodes[p]] >= 0:
            room.d[new, p] += room.elements[now, k] * change[own.columns[k]]


@jitable
def _settle(plan: FieldArrays, now: int, k: int) -> None:
    """Take over what was accepted, and count it: a node that never moves must show by what is below it."""
    room, tree, new = plan.room, plan.tree, 1 - now
    for v in range(tree.first.shape[0]):
        g = room.deciding[v]
        if g >= 0:
            room.tally[0, k] += tree.size[v]
        if g >= 0 and room.accepted[g]:
            room.tally[1, k] += tree.size[v]
            for j in range(tree.first[v], tree.first[v] + tree.size[v]):
                room.eps[now, j] = room.eps[new, j]
                room.z[now, j] = room.z[new, j]
    nodes = plan.sums.of_elements
    for p in range(nodes.shape[0]):
        g = room.deciding[nodes[p]]
        if g >= 0 and room.accepted[g]:
            room.d[now, p] = room.d[new, p]
    bounds = plan.bounds
    for b in range(bounds.nodes.shape[0] if plan.has_remainders else 0):
        g = room.deciding[bounds.nodes[b]]
        if g >= 0 and room.accepted[g]:
            for k in range(bounds.blocks[b], bounds.blocks[b + 1]):
                room.levels[now, k] = room.levels[new, k]


@jitable
def add_quadratic(plan: FieldArrays, now: int) -> None:
    """Add the change of Taylor's polynomial less V, by the nodes that decide."""
    room, sums, new = plan.room, plan.sums, 1 - now
    if not plan.has_remainders:
        return
    d, d2, base, own = room.d[now], room.d[new], room.base, room.deciding
    for p in range(d.shape[0]):
        g = own[sums.of_elements[p]]
        if g >= 0:
            base[g] += sums.gradient_change[p] * (d2[p] - d[p])
    for h in range(sums.first.shape[0]):
        value = sums.hessian_change[h]
        g = own[sums.of_pairs[h]]
        if g >= 0 and value != 0.0:
            i, j = sums.first[h], sums.second[h]
            base[g] -= (0.5 if i == j else 1.0) * value * (d2[i] * d2[j] - d[i] * d[j])
