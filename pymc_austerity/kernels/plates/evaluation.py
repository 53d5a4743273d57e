"""How far predictors of some rows move, and changes of their remainders."""

from __future__ import annotations

from numba.extending import register_jitable

from pymc_austerity.bounds.jets.points import BLOCK, run_at_points
from pymc_austerity.kernels.plates.records import GroupedRows, GroupSums, Workspace
from pymc_austerity.target import Index, Vector


@register_jitable
def moved(
    rows: GroupedRows,
    sums: GroupSums,
    which: tuple[Index, Index],
    of_groups: tuple[Vector, Vector],
    d: Vector,
    result: Vector,
) -> None:
    """t_i = e_g - q_g + what the row's levels add + the rest of z_i . d, of the last rows of `which`.

    Parameters
    ----------
    rows : GroupedRows
    sums : GroupSums
    which : tuple of ndarray of int
        Rows, in the last of BLOCK places, and the groups of so many.
    of_groups : tuple of ndarray
        e_g and q_g.
    d : ndarray (P,)
    result : ndarray (BLOCK,)
    """
    (index, groups), (levels, means_of_levels) = which, of_groups
    x, columns, means, varying = rows.x, rows.levels, sums.means, sums.varying
    own, first = d[sums.dense], BLOCK - groups.shape[0]
    for lane in range(first, BLOCK):
        i, g = index[lane], groups[lane - first]
        total = levels[g] - means_of_levels[g]
        for f in range(columns.shape[0]):
            total += d[columns[f, i]]
        for k in varying:
            total += (x[i, k] - means[g, k]) * own[k]
        result[lane] = total


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
