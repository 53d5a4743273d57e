"""Changes of remainders of some rows."""

from __future__ import annotations

from numba.extending import register_jitable

from pymc_austerity.bounds.jets.points import BLOCK, run_at_points
from pymc_austerity.kernels.plates.records import GroupedRows, GroupSums, Workspace
from pymc_austerity.target import Index, Vector


@register_jitable
def within(rows: GroupedRows, sums: GroupSums, g: int, i: int, d: Vector) -> float:
    """z_i . d + q_g: what the row's levels add, and the rest less its mean over the group."""
    total = 0.0
    for f in range(rows.levels.shape[0]):
        total += d[rows.levels[f, i]]
    for j in range(sums.varying.shape[0]):
        k = sums.varying[j]
        total += (rows.x[i, k] - sums.means[g, k]) * d[sums.dense[k]]
    return total


@register_jitable
def changes(
    rows: GroupedRows, room: Workspace, index: Index, n: int, old: Vector, new: Vector, result: Vector
) -> None:
    """r_i(t_i') - r_i(t_i) of up to BLOCK rows, which begin at the place `BLOCK - n` of `old` and `new`.

    They are written from the same place on.
    """
    first = BLOCK - n  # the program runs on the lanes from here on
    for lane in range(first, BLOCK):
        i = index[lane]
        for k in range(rows.data.shape[0]):
            room.data[k, lane] = rows.data[k, i]
        room.predictors[0, lane] = rows.predictors[i] + old[lane]
    run_at_points(rows.program, room.predictors, room.data, first, room.points)
    found = room.points.coefficients[rows.program.root, 0]
    for lane in range(first, BLOCK):
        room.values[lane] = found[lane - first]
        room.predictors[0, lane] = rows.predictors[index[lane]] + new[lane]
    run_at_points(rows.program, room.predictors, room.data, first, room.points)
    for lane in range(first, BLOCK):
        i, s, t = index[lane], old[lane], new[lane]
        polynomial = (t - s) * (rows.slopes[i] + 0.5 * rows.curvatures[i] * (s + t))
        result[lane] = found[lane - first] - room.values[lane] - polynomial
