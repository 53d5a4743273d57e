"""The coordinates of a chain on a field: z given theta, with the likelihood's quadratic.

With V = g . d - d' H d / 2, d = x - x*, x = b + C z and P = R + C' H C = L L',

    L' z = c + eps,  L c = C' (g + H (x* - b)),
    log p(theta, eps) = log p^(theta) - |eps|^2 / 2 + [sum of l_i - V](x),
    log p^(theta) = log prior(theta) - log |L| + |c|^2 / 2 + V at z = 0.

Nothing is divided by a scale, and nothing is neglected. eps of a node moves z of this node and of those
below.

A prior of areas may hold the sum of its effects near zero, which couples all of them. Rows do not see what is
the same for all effects if they have an intercept: that takes it up. So the tree has an intercept z_b of its
own and no sum. The model's standardised intercept is z_b - pulls . z, and what its prior says of it besides
z_b^2 / 2 is a number for each state (`log_prior_change`), which moves weigh beside the rows.
"""

import math

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.fields.records import Elements, FieldArrays, Prior, Runs, Sums
from pymc_austerity.kernels.fields.tree import backward, factorise, forward
from pymc_austerity.target import Matrix, Vector


@jitable
def write_elements(elements: Elements, features: Vector, result: Vector) -> None:
    """Elements of a matrix at theta."""
    coefficients, factors = elements.coefficients, elements.factors
    for k in range(coefficients.shape[0]):
        value = coefficients[k]
        for j in range(factors.shape[1]):
            value *= features[factors[k, j]]
        result[k] = value


@jitable
def write_precision(
    sums: Sums, prior: Prior, features: Vector, elements: Vector, precisions: Vector, front: Vector
) -> float:
    """P = R + C' H C; `elements` are those of C. The precision of normal rows is returned."""
    front[:] = 0.0
    scale = math.exp(features[sums.precision]) if sums.precision >= 0 else 1.0
    runs = prior.runs
    for k in range(runs.lengths.shape[0]):
        _add_run(runs, k, runs.twice[k] * scale, sums.hessian, elements, front)
    rows, columns = prior.precision.rows, prior.precision.columns
    coefficients, factors = prior.precision.coefficients, prior.precision.factors
    for k in range(rows.shape[0]):
        value = coefficients[k]
        for j in range(factors.shape[1]):
            value *= features[factors[k, j]]
        front[rows[k]] += value * precisions[columns[k]]
    return scale


@jitable
def _add_run(runs: Runs, k: int, factor: float, hessian: Vector, elements: Vector, front: Vector) -> None:
    """Add a run of products; what lies side by side is read so."""
    at, h, one, other = runs.first[k, 0], runs.first[k, 1], runs.first[k, 2], runs.first[k, 3]
    of_at, of_h, of_one, of_other = runs.steps[k, 0], runs.steps[k, 1], runs.steps[k, 2], runs.steps[k, 3]
    n = runs.lengths[k]
    if n > 1 and of_at == 1 and of_h == 1 and of_one <= 1 and 0 <= of_other <= 1 and of_one >= 0:
        to, weights = front[at : at + n], hessian[h : h + n]
        if of_one + of_other == 0:
            factor *= elements[one] * elements[other]
            for j in range(n):
                to[j] += factor * weights[j]
        elif of_one + of_other == 2:
            left, right = elements[one : one + n], elements[other : other + n]
            for j in range(n):
                to[j] += factor * weights[j] * left[j] * right[j]
        else:
            factor *= elements[other if of_one == 1 else one]
            begin = one if of_one == 1 else other
            left = elements[begin : begin + n]
            for j in range(n):
                to[j] += factor * weights[j] * left[j]
        return
    for j in range(n):
        product = elements[one + j * of_one] * elements[other + j * of_other]
        front[at + j * of_at] += factor * hessian[h + j * of_h] * product


@jitable
def write_location(
    sums: Sums, prior: Prior, features: Vector, elements: Vector, of_x: Vector, right: Vector, work: Vector
) -> float:
    """C' (g + H (x* - b)) in `right` (n_z,), with precision one; V at z = 0, but for a constant.

    `of_x` (n_x,) is g + H x*; `work` (n_x,) is written over.
    """
    work[:] = of_x
    total = 0.0
    if prior.given.shape[0] > 0:
        b = np.zeros(work.shape[0])
        for k in range(prior.given.shape[0]):
            b[prior.given[k]] += prior.constants[k] * features[prior.numbers[k]]
        for p in range(b.shape[0]):
            total += b[p] * of_x[p]
        first, second, hessian = sums.first, sums.second, sums.hessian
        for h in prior.with_given:
            i, j = first[h], second[h]
            value = hessian[h]
            work[i] -= value * b[j]
            total -= (0.5 if i == j else 1.0) * value * b[i] * b[j]
            if i != j:
                work[j] -= value * b[i]
    right[:] = 0.0
    rows, columns = prior.map.rows, prior.map.columns
    for k in range(elements.shape[0]):
        right[columns[k]] += elements[k] * work[rows[k]]
    return total


@jitable
def log_marginal(plan: FieldArrays, features: Vector, side: int) -> float:
    """Log p^(theta) without the prior of theta; the factor L and c go to one side of the room."""
    scale, log_volume = _write_factor(plan, features, side)
    if math.isnan(log_volume):
        return -math.inf
    return _height(plan, features, side, scale, plan.room.right, plan.room.squares[0]) - log_volume


@jitable
def mean_log_marginal(plan: FieldArrays, features: Vector, rights: Matrix, squares: Vector) -> float:
    """The mean of log p^(theta) over draws of what is held: of g + H x* (k, n_x), and of residual sums (k,).

    The factor goes to the first side of the room.
    """
    scale, log_volume = _write_factor(plan, features, 0)
    if math.isnan(log_volume):
        return -math.inf
    total, n = 0.0, rights.shape[0]
    for k in range(n):
        total += _height(plan, features, 0, scale, rights[k], squares[k]) / n
    return total - log_volume


@jitable
def _write_factor(plan: FieldArrays, features: Vector, side: int) -> tuple[float, float]:
    """Write C, the pulls and L of one side of the room; the precision of normal rows, and log |L| or NaN."""
    room, prior = plan.room, plan.prior
    write_elements(prior.map, features, room.elements[side])
    write_elements(prior.pulls, features, room.pulls[side])
    front, places = room.fronts[side], prior.matched.places
    scale = write_precision(plan.sums, prior, features, room.elements[side], room.precisions, front)
    for k in range(places.shape[0]):
        front[places[k]] += plan.sums.matched_hessian[k]
    nothing = np.full(room.shifts.shape[1], -1.0)
    return scale, factorise(plan.tree, front, nothing)


@jitable
def _height(
    plan: FieldArrays, features: Vector, side: int, scale: float, of_x: Vector, squares: float
) -> float:
    """Log p^(theta) without its volume, and c of one side of the room, which has the factor."""
    room, sums = plan.room, plan.sums
    right, work = room.work[0], np.empty(sums.center.shape[0])
    total = scale * write_location(sums, plan.prior, features, room.elements[side], of_x, right, work)
    for k in range(right.shape[0]):
        right[k] *= scale
    matched = plan.prior.matched.coordinates
    for k in range(matched.shape[0]):
        right[matched[k]] += sums.matched_right[k]
    forward(plan.tree, room.fronts[side], right, room.shifts[side])
    shifts = room.shifts[side]
    for k in range(right.shape[0]):
        total += 0.5 * shifts[k] ** 2
    if sums.precision >= 0:
        total += 0.5 * sums.n_normal * math.log(scale) - 0.5 * scale * squares
    return total


@jitable
def write_state(plan: FieldArrays, features: Vector, side: int) -> None:
    """Write z and d of one side of the room, from its eps and factor."""
    room = plan.room
    right, shifts, eps = room.work[0], room.shifts[side], room.eps[side]
    for k in range(right.shape[0]):
        right[k] = shifts[k] + eps[k]
    backward(plan.tree, room.fronts[side], right, room.z[side])
    write_displacements(plan, features, side)


@jitable
def write_displacements(plan: FieldArrays, features: Vector, side: int) -> None:
    """D = b + C z - x* of one side of the room."""
    room, prior = plan.room, plan.prior
    d, center, elements, z = room.d[side], plan.sums.center, room.elements[side], room.z[side]
    for p in range(d.shape[0]):
        d[p] = -center[p]
    for k in range(prior.given.shape[0]):
        d[prior.given[k]] += prior.constants[k] * features[prior.numbers[k]]
    rows, columns = prior.map.rows, prior.map.columns
    for k in range(rows.shape[0]):
        d[rows[k]] += elements[k] * z[columns[k]]


@jitable
def pull_on_intercept(plan: FieldArrays, side: int) -> float:
    """Pulls . z, what effects take from the standardised intercept; the tree has the intercept without it."""
    columns, total = plan.prior.pulls.columns, 0.0
    pulls, z = plan.room.pulls[side], plan.room.z[side]
    for k in range(columns.shape[0]):
        total += pulls[k] * z[columns[k]]
    return total


@jitable
def log_prior_change(plan: FieldArrays, side: int, pull: float) -> float:
    """Log prior density of the intercept less what the tree has in its place."""
    if plan.prior.intercept < 0:
        return 0.0
    z: float = plan.room.z[side, plan.prior.intercept]
    return pull * (z - 0.5 * pull)


@jitable
def write_eps(plan: FieldArrays, side: int) -> None:
    """Eps = L' z - c of one side of the room."""
    room, tree = plan.room, plan.tree
    z, front, eps = room.z[side], room.fronts[side], room.eps[side]
    shifts = room.shifts[side]
    first, size, starts, below, fronts = tree.first, tree.size, tree.starts, tree.below, tree.fronts
    strides = tree.strides
    for k in range(eps.shape[0]):
        eps[k] = -shifts[k]
    for v in range(first.shape[0]):
        q, start, o, f, step = size[v], starts[v], fronts[v], first[v], strides[v]
        for j in range(q):
            for i in range(j, q):
                eps[f + j] += front[o + i * step + j] * z[f + i]
            for i in range(starts[v + 1] - start):
                eps[f + j] += front[o + (q + i) * step + j] * z[below[start + i]]
