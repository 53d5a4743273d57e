"""Rows of a plate, sorted by group, with as many columns as matter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.exceptions import UnboundedError, UnsuitableError
from pymc_austerity.kernels.plates.cells import Cells
from pymc_austerity.mode.row_tables import RowTables, not_in_order
from pymc_austerity.model.plates.plate_model import PlateModel
from pymc_austerity.target import Index, Matrix, Vector

Levels = npt.NDArray[np.int32]

_CHUNK = 16_384
# A covariate varies within a group if it does by this much, relative to its largest number.
_CONSTANT = 1e-12


class SortedRows(NamedTuple):
    """Rows in the order of their groups. It has size N."""

    starts: Index  # (G + 1,)
    dense: Index  # (D,): which of the P columns are those of x
    x: Matrix  # (N, D)
    covariates: Matrix  # (N, q - 1): coefficients of the slopes of the row's group
    largest: Vector  # (D,): of each column of x, the largest size of a number
    levels: Levels  # (F, N): which of the P columns have a one for the row: its levels of other factors
    cells: Cells  # Levels that occur in each group
    offsets: Vector  # (N,)
    data: Matrix  # (n_data, N)

    def thinned(self, step: int) -> SortedRows:
        """Every so manyth row of each group."""
        sizes = np.diff(self.starts)
        groups = np.repeat(np.arange(len(sizes)), sizes)
        some = np.flatnonzero((np.arange(len(groups)) - self.starts[groups]) % step == 0)
        starts = np.concatenate([[0], np.cumsum(np.bincount(groups[some], minlength=len(sizes)))])
        levels = np.ascontiguousarray(self.levels[:, some])
        cells = occupied(levels, starts)
        return self._replace(
            starts=starts,
            x=self.x[some],
            covariates=self.covariates[some],
            levels=levels,
            cells=cells,
            offsets=self.offsets[some],
            data=np.ascontiguousarray(self.data[:, some]),
        )


def sorted_rows(plate: PlateModel, linear: Index) -> SortedRows:
    """Read the rows, with the columns of some coordinates of theta.

    Rows keep their order within a group. Those on disk have to be in the order of the groups: what is
    computed of them goes to files beside them.

    Raises
    ------
    RowsOnDiskError
        If they are not.
    UnboundedError
        If a number of the design is not finite.
    UnsuitableError
        If slopes cannot be told from intercepts.
    """
    n_rows, n_groups = plate.rows.n_rows, plate.n_groups
    chunks = [np.arange(a, min(a + _CHUNK, n_rows)) for a in range(0, n_rows, _CHUNK)]
    n_data = len(plate.columns(np.arange(1)))
    sizes = np.zeros(n_groups, np.int64)
    for chunk in chunks:
        sizes += np.bincount(plate.rows.groups(chunk), minlength=n_groups)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    dense = np.searchsorted(linear, plate.rows.dense)
    stored = plate.factorisation.rows_on_disk
    tables = RowTables(stored[0].scratch_folder() if stored else None)
    free, largest = starts[:-1].copy(), np.zeros(len(dense))
    x, covariates = (tables.zeros(n_rows, width) for width in (len(dense), plate.n_effects - 1))
    offsets, data = tables.zeros(n_rows), tables.zeros(n_data, n_rows)
    levels = tables.zeros(len(plate.rows.factors), n_rows, dtype=np.int32)
    for chunk in chunks:
        some = plate.rows(chunk)
        if not all(np.isfinite(one).all() for one in (some.x, some.offsets, some.covariates)):
            raise UnboundedError(f"Some rows of the design of the term {plate.name!r} are not finite.")
        places = np.empty(len(chunk), np.int64)
        _places(some.groups, free, places)
        if stored and not np.array_equal(places, chunk):
            raise not_in_order(plate.name, plate.effects[0])
        np.maximum(largest, np.abs(some.x).max(axis=0, initial=0.0), out=largest)
        x[places], covariates[places], offsets[places] = some.x, some.covariates, some.offsets
        data[:, places] = np.asarray(plate.columns(chunk))
        levels[:, places] = np.searchsorted(linear, plate.rows.levels(chunk))
    _require_slopes(plate, starts, covariates)
    return SortedRows(
        starts, dense, x, covariates, largest, levels, occupied(levels, starts), offsets, data
    )  # fmt: skip


def _require_slopes(plate: PlateModel, starts: Index, covariates: Matrix) -> None:
    """Each covariate is to vary within some group."""
    first = starts[:-1][np.diff(starts) > 0]
    for name, column in zip(plate.effects[1:], covariates.T, strict=True):
        spread = np.maximum.reduceat(column, first) - np.minimum.reduceat(column, first)
        if spread.max() <= _CONSTANT * np.abs(column).max():
            raise UnsuitableError(
                f"The covariate of the slopes {name!r} is constant within each group of {plate.name!r}: "
                f"they cannot be told from the intercepts {plate.effects[0]!r}. Leave them out, or put the "
                "covariate of the groups into the location of the intercepts."
            )


def occupied(levels: Levels, starts: Index) -> Cells:
    """The cells that have rows, in the order in which they occur."""
    n_factors, n_groups = len(levels), len(starts) - 1
    cell_starts = np.zeros(n_factors * n_groups + 1, np.int64)
    columns = np.empty(levels.size, np.int32)
    _write_cells(levels, starts, np.zeros(int(levels.max(initial=-1)) + 1, np.int64), cell_starts, columns)
    return Cells(n_factors, cell_starts, columns[: cell_starts[-1]].copy())


@entry
def _write_cells(levels: Levels, starts: Index, seen: Index, cell_starts: Index, columns: Levels) -> None:
    n, n_factors = 0, levels.shape[0]
    for g in range(starts.shape[0] - 1):
        for f in range(n_factors):
            for i in range(starts[g], starts[g + 1]):
                k = levels[f, i]
                if seen[k] <= g:
                    seen[k] = g + 1
                    columns[n] = k
                    n += 1
            cell_starts[g * n_factors + f + 1] = n


@entry
def _places(groups: Index, free: Index, places: Index) -> None:
    """Where rows go; the first free place of each group moves on."""
    for i in range(groups.shape[0]):
        places[i] = free[groups[i]]
        free[groups[i]] += 1
