"""The moves of a sweep: theta with the root, then the nodes below, by groups of depths.

A node at the top of a group proposes its eps with those below that are in the group; what is further below
moves along, and the rows below decide. Given theta and all other eps the target is a product over the nodes
at the top: |eps|^2 is a sum, and a row belongs to one path from a node to the root. So all of them are moved
at once, and each decides for itself. Where effects pull on the prior of an intercept, they decide one after
the other, by a number that all of them share.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.fields.cubic import settle_cubics
from pymc_austerity.kernels.fields.decisions import add_rows
from pymc_austerity.kernels.fields.matched import add_excess
from pymc_austerity.kernels.fields.records import FieldArrays
from pymc_austerity.kernels.fields.state import log_prior_change, pull_on_intercept, write_state
from pymc_austerity.kernels.fields.tree import deciding
from pymc_austerity.target import Matrix, Vector

# How much a walk of eps, to a normal variable about the old one, is correlated to it.
_CORRELATION = 0.85


class Decisions(NamedTuple):
    """How rows decide on what was proposed, where `room.base` are the log ratios of all else."""

    numbers: Any  # What it needs besides, or 0
    root: Callable[..., bool]  # (rng, plan, numbers, now, counts): whether theta with the root moves
    nodes: Callable[..., None]  # (rng, plan, numbers, now, k, pull, counts): writes `room.accepted`


@jitable
def root_by_drawn_rows(
    rng: np.random.Generator, plan: FieldArrays, numbers: int, now: int, counts: Vector
) -> bool:
    """Decide exactly on theta with the root."""
    if plan.has_remainders:
        add_rows(rng, plan, now, plan.schedule.kappas[0], counts)
    return bool(-rng.standard_exponential() < plan.room.base[-1])


@jitable
def nodes_by_drawn_rows(
    rng: np.random.Generator, plan: FieldArrays, numbers: int, now: int, k: int, pull: float, counts: Vector
) -> None:
    """Decide exactly on nodes that propose; `pull` is pulls . z, in `room.moved` are its changes by nodes."""
    if plan.has_remainders:
        add_rows(rng, plan, now, plan.schedule.kappas[k + 1], counts)
    room, intercept = plan.room, plan.prior.intercept
    own, base, accepted, moved = room.deciding, room.base, room.accepted, room.moved
    for v in range(own.shape[0]):
        if own[v] == v:
            ratio = base[v]
            if intercept >= 0:  # what the others have decided counts: one after the other
                ratio += log_prior_change(plan, now, pull + moved[v]) - log_prior_change(plan, now, pull)
            accepted[v] = ratio >= 0.0 or -rng.standard_exponential() < ratio
            if accepted[v]:
                pull += moved[v]


@jitable
def move_root(
    rng: np.random.Generator,
    plan: FieldArrays,
    now: int,
    old: Vector,
    features: Vector,
    base: float,
    decisions: Decisions,
    counts: Vector,
    of_eps: Matrix,
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
    is_walk = plan.has_remainders and rng.random() < plan.schedule.walks
    base += _propose(rng, is_walk, plan.widths[root], room.eps[now, first:last], room.eps[new, first:last])
    if not is_walk:
        _note_eps(plan, room.eps[new], first, last, plan.widths[root : root + 1], of_eps)
    write_state(plan, features, new)
    for side, sign in ((new, 1.0), (now, -1.0)):
        base += sign * log_prior_change(plan, side, pull_on_intercept(plan, side))
    room.deciding[:] = root
    room.base[root] = base
    add_excess(plan, now, old, features)
    add_quadratic(plan, now)
    return decisions.root(rng, plan, decisions.numbers, now, counts)


@jitable
def _propose(rng: np.random.Generator, is_walk: bool, width: float, old: Vector, new: Vector) -> float:
    """New eps of a node, near the old ones or drawn anew; the log ratio of N(0, 1) and of proposals."""
    if is_walk:
        rest = math.sqrt(1.0 - _CORRELATION * _CORRELATION)
        for j in range(old.shape[0]):
            new[j] = _CORRELATION * old[j] + rest * rng.standard_normal()
        return 0.0
    total = 0.0
    for j in range(old.shape[0]):
        new[j] = width * rng.standard_normal()
        total += old[j] * old[j] - new[j] * new[j]
    return (0.5 - 0.5 / (width * width)) * total


@jitable
def _note_eps(plan: FieldArrays, eps: Vector, first: int, last: int, widths: Vector, of_eps: Matrix) -> None:
    """Write the deviations of eps that were drawn anew, of one node or a run, by coordinates."""
    for j in range(first, last):
        width = widths[(j - first) % widths.shape[0]]
        k = plan.coordinates[j]
        of_eps[0, k], of_eps[1, k] = eps[j], eps[j] * eps[j] - width * width


@jitable
def _propose_run(
    rng: np.random.Generator, is_walk: bool, widths: Vector, old: Vector, new: Vector, ratios: Vector
) -> None:
    """New eps of nodes of one variable, as `_propose` does; their log ratios."""
    rest = math.sqrt(1.0 - _CORRELATION * _CORRELATION)
    for k in range(old.shape[0]):
        new[k] = rng.standard_normal()
    for k in range(old.shape[0]):
        if is_walk:
            new[k], ratios[k] = _CORRELATION * old[k] + rest * new[k], 0.0
        else:
            new[k] *= widths[k]
            ratios[k] = (0.5 - 0.5 / (widths[k] * widths[k])) * (old[k] * old[k] - new[k] * new[k])


@jitable
def move_group(
    rng: np.random.Generator,
    plan: FieldArrays,
    now: int,
    features: Vector,
    k: int,
    decisions: Decisions,
    counts: Vector,
    of_eps: Matrix,
) -> None:
    """Propose eps of all nodes of a group of depths, and let each at its top decide."""
    room, tree, depths = plan.room, plan.tree, plan.schedule.depths
    deciding(tree, depths[k], room.deciding)
    room.base[:] = 0.0
    _move_below(rng, plan, now, depths[k + 1], of_eps)
    _write_d(plan, now)
    add_excess(plan, now, features, features)
    add_quadratic(plan, now)
    decisions.nodes(rng, plan, decisions.numbers, now, k, _moved_pulls(plan, now), counts)
    _settle(plan, now, k)


@jitable
def _move_below(rng: np.random.Generator, plan: FieldArrays, now: int, stop: int, of_eps: Matrix) -> None:
    """Write z of the other side: L' dz = d eps, of which nodes above depth `stop` have new eps."""
    room, tree, new = plan.room, plan.tree, 1 - now
    is_walk = plan.has_remainders and rng.random() < plan.schedule.walks
    front, own, base, widths = room.fronts[now], room.deciding, room.base, plan.widths
    firsts, sizes, starts, below, fronts = tree.first, tree.size, tree.starts, tree.below, tree.fronts
    depth, run, v = tree.depth, tree.run, firsts.shape[0]
    while v > 0:
        v -= 1
        while v > 0 and run[v] > 0 and run[v - 1] == run[v] + 1:
            v -= 1
        n, q, f, g = max(int(run[v]), 1), int(sizes[v]), firsts[v], own[v]
        last = f + n * q
        change = room.work[1, f:last]
        if g < 0:
            change[:] = 0.0
            continue
        start, o = starts[v], fronts[v]
        r = 0 if g == v else starts[v + 1] - start  # what is above does not move
        old, eps = room.eps[now, f:last], room.eps[new, f:last]
        if depth[v] < stop:
            if n == 1:
                base[g] += _propose(rng, is_walk, float(widths[v]), old, eps)
            elif g == v:  # nodes of a run decide each for itself, or with one that is above all of them
                _propose_run(rng, is_walk, widths[v : v + n], old, eps, base[v : v + n])
            else:
                _propose_run(rng, is_walk, widths[v : v + n], old, eps, change)
                base[g] += change.sum()
            for j in range(n * q):
                change[j] = eps[j] - old[j]
            if not is_walk:
                _note_eps(plan, room.eps[new], int(f), int(last), widths[v : v + n], of_eps)
        else:
            eps[:] = old
            change[:] = 0.0
        if n > 1:
            for i in range(r):
                row, above = front[o + (1 + i) * n : o + (2 + i) * n], room.work[1, below[start + i]]
                for k in range(n):
                    change[k] -= row[k] * above
            pivots = front[o : o + n]
            for k in range(n):
                change[k] /= pivots[k]
        else:
            for j in range(q - 1, -1, -1):
                t = change[j]
                for i in range(j + 1, q):
                    t -= front[o + i * q + j] * change[i]
                for i in range(r):
                    t -= front[o + (q + i) * q + j] * room.work[1, below[start + i]]
                change[j] = t / front[o + j * q + j]
        z, z_new = room.z[now, f:last], room.z[new, f:last]
        for j in range(n * q):
            z_new[j] = z[j] + change[j]


@jitable
def _moved_pulls(plan: FieldArrays, now: int) -> float:
    """Pulls . z, and its changes by nodes in `room.moved`."""
    room, columns = plan.room, plan.prior.pulls.columns
    if plan.prior.intercept < 0:
        return 0.0
    moved, own, node_of = room.moved, room.deciding, plan.tree.node_of
    pulls, change = room.pulls[now], room.work[1]
    moved[:] = 0.0
    for k in range(columns.shape[0]):
        g = own[node_of[columns[k]]]
        if g >= 0:
            moved[g] += pulls[k] * change[columns[k]]
    return pull_on_intercept(plan, now)


@jitable
def _write_d(plan: FieldArrays, now: int) -> None:
    """Write d of the other side, of the elements that move."""
    room = plan.room
    change, elements, d = room.work[1], room.elements[now], room.d[1 - now]
    rows, columns = plan.prior.map.rows, plan.prior.map.columns
    d[:] = room.d[now]
    for k in range(rows.shape[0]):
        d[rows[k]] += elements[k] * change[columns[k]]


@jitable
def _settle(plan: FieldArrays, now: int, k: int) -> None:
    """Take over what was accepted, and count it: a node that never moves must show by what is below it."""
    room, first, size, new = plan.room, plan.tree.first, plan.tree.size, 1 - now
    own, accepted, tally = room.deciding, room.accepted, room.tally
    eps, z, d = room.eps[now], room.z[now], room.d[now]
    eps2, z2, d2 = room.eps[new], room.z[new], room.d[new]
    n_proposed, n_moved = 0, 0
    for v in range(first.shape[0]):
        g = own[v]
        if g < 0:
            continue
        n_proposed += size[v]
        if accepted[g]:
            n_moved += size[v]
            for j in range(first[v], first[v] + size[v]):
                eps[j] = eps2[j]
                z[j] = z2[j]
    tally[0, k] += n_proposed
    tally[1, k] += n_moved
    nodes = plan.sums.of_elements
    for p in range(nodes.shape[0]):
        g = own[nodes[p]]
        if g >= 0 and accepted[g]:
            d[p] = d2[p]
    if not plan.has_remainders:
        return
    settle_cubics(plan, now)
    nodes_of_blocks, blocks = plan.bounds.nodes, plan.bounds.blocks
    levels, levels2 = room.levels[now], room.levels[new]
    for b in range(nodes_of_blocks.shape[0]):
        g = own[nodes_of_blocks[b]]
        if g >= 0 and accepted[g]:
            for k in range(blocks[b], blocks[b + 1]):
                levels[k] = levels2[k]


@jitable
def add_quadratic(plan: FieldArrays, now: int) -> None:
    """Add the change of Taylor's polynomial less V, by the nodes that decide."""
    room, sums, new = plan.room, plan.sums, 1 - now
    if not plan.has_remainders:
        return
    d, d2, base, own = room.d[now], room.d[new], room.base, room.deciding
    first, second, of_pairs, of_elements = sums.first, sums.second, sums.of_pairs, sums.of_elements
    hessian, gradient, n_dense = sums.hessian_change, sums.gradient_change, plan.rows.design.n_dense
    n = d.shape[0] - n_dense
    n_pairs = first.shape[0] - n * n_dense - n_dense * (n_dense + 1) // 2
    for h in range(n_pairs):
        value, g = hessian[h], own[of_pairs[h]]
        if g >= 0 and value != 0.0:
            i, j = first[h], second[h]
            base[g] -= (0.5 if i == j else 1.0) * value * (d2[i] * d2[j] - d[i] * d[j])
    dense, dense2 = d[n:], d2[n:]
    before, after = np.zeros(n), np.zeros(n)
    for j in range(n_dense):
        one, two, at = dense[j], dense2[j], n_pairs + j * n
        own_hessian = hessian[at : at + n]
        for p in range(n):
            before[p] += own_hessian[p] * one
            after[p] += own_hessian[p] * two
    for p in range(n):
        g = own[of_elements[p]]
        if g >= 0:
            base[g] += gradient[p] * (d2[p] - d[p]) - (d2[p] * after[p] - d[p] * before[p])
    at = n_pairs + n * n_dense
    for j in range(n_dense):
        g, total = own[of_elements[n + j]], gradient[n + j] * (dense2[j] - dense[j])
        for k in range(j + 1):
            value = (0.5 if k == j else 1.0) * hessian[at + k]
            total -= value * (dense2[j] * dense2[k] - dense[j] * dense[k])
        at += j + 1
        if g >= 0:
            base[g] += total
