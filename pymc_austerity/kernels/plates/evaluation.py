"""How far predictors of some rows move, and changes of their remainders."""

import numpy as np

from pymc_austerity.bounds.jets.points import BLOCK, run_at_points
from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.plates.records import GroupedRows, GroupSums, Workspace
from pymc_austerity.target import Index, Matrix, Vector


@jitable
def moved(
    rows: GroupedRows,
    sums: GroupSums,
    which: tuple[Index, Index],
    of_groups: tuple[Vector, Vector],
    d: Vector,
    result: Vector,
) -> None:
    """t_i = e_g - q_g + what the row's levels add + the rest of z_i . d, of the last rows of `which`.

    With slopes it has Z_i . e_g, and z_i is what is left of x_i by a regression on Z_i.

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
    covariates, q = rows.covariates, sums.n_effects
    own, first = d[sums.dense], BLOCK - groups.shape[0]
    for lane in range(first, BLOCK):
        i, g = index[lane], groups[lane - first]
        total = levels[g * q] - means_of_levels[g]
        for f in range(columns.shape[0]):
            total += d[columns[f, i]]
        for k in varying:
            total += (x[i, k] - means[g * q, k]) * own[k]
        for j in range(q - 1):
            level = levels[g * q + 1 + j]
            for k in varying:
                level -= means[g * q + 1 + j, k] * own[k]
            total += covariates[i, j] * level
        result[lane] = total


@jitable
def changes(
    rows: GroupedRows,
    room: Workspace,
    index: Index,
    n: int,
    state: tuple[Vector, Matrix],
    other: tuple[Vector, Matrix],
    result: Vector,
) -> None:
    """r_i(t_i', psi') - r_i(t_i, psi) of the last n of up to BLOCK rows.

    They are written to the same places. Either state has t (BLOCK,), and phi* + psi and psi (2, n_phi).
    """
    first = BLOCK - n  # the program runs on the lanes from here on
    (old, phi), (new, new_phi) = state, other
    for lane in range(first, BLOCK):
        i = index[lane]
        for k in range(rows.data.shape[0]):
            room.data[k, lane] = rows.data[k, i]
        room.predictors[0, lane] = rows.predictors[i] + old[lane]
    for j in range(phi.shape[1]):
        room.predictors[1 + j, first:] = phi[0, j]
    run_at_points(rows.program, room.predictors, room.data, first, room.points)
    found = room.points.coefficients[rows.program.root, 0]
    for lane in range(first, BLOCK):
        room.values[lane] = found[lane - first]
        room.predictors[0, lane] = rows.predictors[index[lane]] + new[lane]
    for j in range(phi.shape[1]):
        room.predictors[1 + j, first:] = new_phi[0, j]
    run_at_points(rows.program, room.predictors, room.data, first, room.points)
    for lane in range(first, BLOCK):
        i, s, t = index[lane], old[lane], new[lane]
        polynomial = (t - s) * (rows.slopes[i] + 0.5 * rows.curvatures[i] * (s + t))
        if rows.thirds.shape[0] > 0:
            polynomial += (t - s) * (s * s + s * t + t * t) * rows.thirds[i] / 6.0
        if phi.shape[1] > 0:
            polynomial += change_by_phi(rows, i, (s, phi[1]), (t, new_phi[1]))
        result[lane] = found[lane - first] - room.values[lane] - polynomial


@jitable
def change_by_phi(
    rows: GroupedRows, i: int, state: tuple[float, Vector], other: tuple[float, Vector]
) -> float:
    """The part of the change of a row's polynomial that has psi in it."""
    slopes, mixed, seconds = rows.dispersions
    (s, psi), (t, new_psi) = state, other
    total, place = 0.0, 0
    for j in range(psi.shape[0]):
        total += slopes[j, i] * (new_psi[j] - psi[j]) + mixed[j, i] * (t * new_psi[j] - s * psi[j])
        for k in range(j, psi.shape[0]):
            total += seconds[place, i] * (new_psi[j] * new_psi[k] - psi[j] * psi[k])
            place += 1
    return total


@jitable
def phi_at(sums: GroupSums, d: Vector) -> Matrix:
    """Numbers that rows share beside their predictor, and their displacements psi: ndarray (2, n_phi)."""
    result = np.zeros((2, sums.phi.shape[0]))
    for j in range(sums.phi.shape[0]):
        for k in range(sums.phi_slopes.shape[1]):
            result[1, j] += sums.phi_slopes[j, k] * d[k]
        result[0, j] = sums.phi[j] + result[1, j]
    return result
