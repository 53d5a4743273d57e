"""Sums over rows by which a plate is moved given a crossed factor; see `kernels.plates.crossed`."""

from typing import NamedTuple

import numpy as np

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.plates.crossing import Crossing
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.mode.plates.expansion import Expanded
from pymc_austerity.mode.plates.fit import SharedFit
from pymc_austerity.mode.plates.sorted_rows import Levels, SortedRows
from pymc_austerity.mode.plates.theta_density import SharedTerms, quadratic_derivatives
from pymc_austerity.target import Index, Matrix, Vector

# The largest of so many standard normal displacements, and more: how far they are allowed for.
_MARGIN = 2.0


class CrossedSums(NamedTuple):
    """Sums over cells and levels at a center."""

    # starts, levels, weights, cross, level_slopes, level_weights: see `Crossing`
    starts: Index
    levels: Levels
    weights: Vector
    cross: Matrix
    level_slopes: Vector
    level_weights: Vector

    @property
    def groups(self) -> Index:
        """Group of each cell, ndarray of int."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def given(self, sums: GroupSums, displacements: Vector) -> GroupSums:
        """Sums of the plate given the effects of the other factor."""
        moved = np.bincount(self.groups, self.weights * displacements[self.levels], len(sums.slopes))
        square = displacements @ (self.level_weights * displacements - 2.0 * self.level_slopes)
        return sums._replace(
            slopes=sums.slopes - moved,
            gradient=sums.gradient - displacements @ self.cross,
            other_squares=np.array([square]),
        )

    def farther(self, scales: Vector) -> Vector:
        """How far rows of each group may be moved; `scales` (H,) are standard deviations of the effects."""
        most = (np.sqrt(2.0 * np.log(max(2, len(scales)))) + _MARGIN) * scales
        result = np.zeros(len(self.starts) - 1)
        np.maximum.at(result, self.groups, most[self.levels])
        return result


def crossed_sums(
    rows: SortedRows, at: Expanded, sums: GroupSums, levels: Levels, n_levels: int
) -> CrossedSums:
    """Make them, in a pass over the rows.

    Parameters
    ----------
    rows : SortedRows
    at : Expanded
    sums : GroupSums
        Of that expansion.
    levels : ndarray of int32 (N,)
        Of the other factor, in the order of the rows.
    n_levels : int
    """
    unit = -float(at.curvatures.mean()) if sums.n_normal else 1.0
    n, n_groups = len(levels), len(rows.starts) - 1
    starts, columns, weights = np.zeros(n_groups + 1, np.int64), np.empty(n, np.int32), np.empty(n)
    of_levels, cross = np.zeros((2, n_levels)), np.zeros((n_levels, len(rows.dense)))
    seen = np.full(n_levels, -1), np.zeros(n_levels, np.int64)
    _add_cells(
        rows, at.slopes, at.curvatures, sums.means, levels, seen, (starts, columns, weights), of_levels, cross
    )
    wide = np.zeros((n_levels, len(sums.linear)))
    wide[:, sums.dense[sums.varying]] = cross[:, sums.varying] / unit
    n_cells = starts[-1]
    return CrossedSums(
        starts,
        columns[:n_cells].copy(),
        weights[:n_cells] / unit,
        wide,
        of_levels[0] / unit,
        of_levels[1] / unit,
    )


@entry
def _add_cells(
    rows: SortedRows,
    slopes: Vector,
    curvatures: Vector,
    means: Matrix,
    levels: Levels,
    seen: tuple[Index, Index],
    cells: tuple[Index, Levels, Vector],
    of_levels: Matrix,
    cross: Matrix,
) -> None:
    (group_of, cell_of), (starts, columns, weights), x, n = seen, cells, rows.x, 0
    for g in range(starts.shape[0] - 1):
        for i in range(rows.starts[g], rows.starts[g + 1]):
            h, w = levels[i], -curvatures[i]
            if group_of[h] != g:
                group_of[h], cell_of[h] = g, n
                columns[n], weights[n] = h, 0.0
                n += 1
            weights[cell_of[h]] += w
            of_levels[0, h] += slopes[i]
            of_levels[1, h] += w
            for k in range(x.shape[1]):
                cross[h, k] += w * (x[i, k] - means[g, k])
        starts[g + 1] = n


def crossing_of(shared: SharedTerms, fit: SharedFit, sums: GroupSums, own: CrossedSums) -> Crossing:
    """Record of the crossed factor that the kernel is handed."""
    at, n_columns, n = shared(fit.theta), len(sums.linear), len(fit.theta)
    d = fit.theta[sums.linear] - sums.center
    log_square, log_precision = at.log_square.value, at.log_precision.value
    _, base, _ = quadratic_derivatives(sums, d, log_square, log_precision)
    by_theta = np.zeros((n, n_columns + 2))
    by_theta[sums.linear, np.arange(n_columns)] = 1.0
    by_theta[:, n_columns], by_theta[:, n_columns + 1] = at.log_square.gradient, at.log_precision.gradient
    n_groups = len(sums.slopes)
    return Crossing(
        displacements=np.zeros(len(own.cross)),
        **own._asdict(),
        slopes=sums.slopes,
        gradient=sums.gradient,
        middles=np.zeros(n_groups),
        farthest=np.zeros(n_groups),
        d=d,
        scale=float(np.exp(0.5 * log_square)),
        log_precision=float(log_precision),
        pull=np.ascontiguousarray(fit.factor @ fit.factor.T @ fit.slopes.T @ by_theta),
        base=base,
        mean=fit.mean.copy(),
    )
