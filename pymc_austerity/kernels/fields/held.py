"""Effects that are held while others take their turn.

Given the held ones, x_h = C_h(theta) z_h, the others have a quadratic with another slope: V has g + H x* less
H_h d_h on its right side. Where theta of this turn has a part in C_h, x_h stays as it is, and its density
p(x_h | theta) is weighed: the turn is centred for these effects, and for its own it is not.
"""

import math

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.fields.decisions import loose_level
from pymc_austerity.kernels.fields.records import FieldArrays, Held, Room, Sums
from pymc_austerity.kernels.fields.state import write_elements
from pymc_austerity.target import Vector


@jitable
def hold(plan: FieldArrays, features: Vector, z: Vector) -> None:
    """Begin a turn: write what held effects are, and what sums have of them; `z` are all."""
    held = plan.held
    for k in range(held.coordinates.shape[0]):
        held.z[0, k] = z[held.coordinates[k]]
    held.d[:] = -held.center
    write_elements(held.map, features, held.elements[0])
    for k in range(held.elements.shape[1]):
        held.d[held.map.rows[k]] += held.elements[0, k] * held.z[0, held.map.columns[k]]
    write_right(held, plan.sums, plan.room)
    _write_sizes_of_held(plan)


@jitable
def _write_sizes_of_held(plan: FieldArrays) -> None:
    """Sizes of levels of what is held: they stay, for all decisions of the turn."""
    loose, bounds, d, sizes = plan.bounds.loose, plan.bounds, plan.held.d, plan.room.sizes
    n_x, first = plan.room.d.shape[1], bounds.nodes.shape[0]
    for b in range(loose.nodes.shape[0]):
        if loose.nodes[b] >= 0:
            continue
        total = 0.0
        for k in range(loose.starts[b + 1] - loose.starts[b]):
            total += loose_level(loose, b, k, d, n_x) ** 2
        size = math.sqrt(total) / bounds.sizes[first + b]
        sizes[0, first + b] = sizes[1, first + b] = size
        sizes[2, first + b] = 0.0


@jitable
def write_right(held: Held, sums: Sums, room: Room) -> None:
    """G + H x* and the residual sum, less what held effects take."""
    right, d, first, second, hessian = room.right, held.d, held.first, held.second, held.hessian
    right[:] = sums.right
    squares = sums.squares
    for k in range(first.shape[0]):
        right[first[k]] -= hessian[k] * d[second[k]]
    if sums.precision >= 0:
        center, gradient, one, other = sums.center, held.gradient, held.one, held.other
        own_hessian = held.own_hessian
        for k in range(gradient.shape[0]):
            squares -= 2.0 * gradient[k] * d[k]
        for k in range(first.shape[0]):  # the gradient is that at x*, and the sum that at x = 0
            squares -= 2.0 * hessian[k] * d[second[k]] * center[first[k]]
        for k in range(one.shape[0]):
            i, j = one[k], other[k]
            squares += (1.0 if i == j else 2.0) * own_hessian[k] * d[i] * d[j]
    room.squares[0] = squares


@jitable
def held_log_density(held: Held, features: Vector) -> float:
    """Log p(x_h | theta) of held effects as they are; their coordinates go to the second side."""
    total = 0.0
    if not held.is_bound:
        return 0.0
    write_elements(held.map, features, held.elements[1])
    k = 0
    for b in range(held.starts.shape[0] - 1):
        begin = held.starts[b]
        q = held.starts[b + 1] - begin
        own, right = np.zeros((q, q)), np.zeros(q)
        while k < held.elements.shape[1] and held.map.rows[k] < begin + q:
            i, j = held.map.rows[k], held.map.columns[k]
            own[i - begin, j - begin] += held.elements[1, k]
            right[i - begin] += held.elements[0, k] * held.z[0, j]
            k += 1
        log_determinant = _solve(own, right)
        if not math.isfinite(log_determinant):
            return -math.inf
        total -= log_determinant
        for i in range(q):
            held.z[1, begin + i] = right[i]
            total -= 0.5 * right[i] * right[i]
    return total


@jitable
def take_held(plan: FieldArrays) -> None:
    """Take over coordinates of held effects, and their map, after theta has moved."""
    if plan.held.is_bound:
        plan.held.z[0], plan.held.elements[0] = plan.held.z[1], plan.held.elements[1]


@jitable
def _solve(own: np.ndarray, right: Vector) -> float:
    """Solve own x = right in place, by rows with the largest pivots; log |det own|."""
    q, total = right.shape[0], 0.0
    for j in range(q):
        largest = j
        for i in range(j + 1, q):
            if abs(own[i, j]) > abs(own[largest, j]):
                largest = i
        if not abs(own[largest, j]) > 0.0:
            return -math.inf
        if largest != j:
            for k in range(q):
                own[j, k], own[largest, k] = own[largest, k], own[j, k]
            right[j], right[largest] = right[largest], right[j]
        total += math.log(abs(own[j, j]))
        for i in range(j + 1, q):
            ratio = own[i, j] / own[j, j]
            for k in range(j + 1, q):
                own[i, k] -= ratio * own[j, k]
            right[i] -= ratio * right[j]
    for j in range(q - 1, -1, -1):
        for k in range(j + 1, q):
            right[j] -= own[j, k] * right[k]
        right[j] /= own[j, j]
    return total
