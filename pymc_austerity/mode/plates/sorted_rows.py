"""Rows of a plate, sorted by group, with as many columns as matter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.model.plates.plate_model import PlateModel
from pymc_austerity.target import Index, Vector

Matrix = npt.NDArray[np.float64]

_CHUNK = 16_384


class SortedRows(NamedTuple):
    """Rows in the order of their groups. It has size N.

    Attributes
    ----------
    starts : ndarray of int (G + 1,)
    x : ndarray (N, P)
    offsets : ndarray (N,)
    data : ndarray (n_data, N)
    levels : ndarray of int32 (F, N)
        The column of x that holds the level of each of the other factors.
    """

    starts: Index
    x: Matrix
    offsets: Vector
    data: Matrix
    levels: npt.NDArray[np.int32]

    def thinned(self, step: int) -> SortedRows:
        """Every so manyth row of each group."""
        sizes = np.diff(self.starts)
        groups = np.repeat(np.arange(len(sizes)), sizes)
        some = np.flatnonzero((np.arange(len(groups)) - self.starts[groups]) % step == 0)
        starts = np.concatenate([[0], np.cumsum(np.bincount(groups[some], minlength=len(sizes)))])
        data = np.ascontiguousarray(self.data[:, some])
        levels = np.ascontiguousarray(self.levels[:, some])
        return SortedRows(starts, self.x[some], self.offsets[some], data, levels)


def sorted_rows(plate: PlateModel, linear: Index) -> SortedRows:
    """Read the rows, with the columns of some coordinates of theta.

    Rows keep their order within a group.

    Raises
    ------
    UnboundedError
        If a number of the design is not finite.
    """
    n_rows, n_groups = plate.rows.n_rows, plate.n_groups
    chunks = [np.arange(a, min(a + _CHUNK, n_rows)) for a in range(0, n_rows, _CHUNK)]
    n_data = len(plate.columns(np.arange(1)))
    sizes = np.zeros(n_groups, np.int64)
    for chunk in chunks:
        sizes += np.bincount(plate.rows.groups(chunk), minlength=n_groups)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    levels = np.empty((len(plate.rows.factors), n_rows), np.int32)
    result = SortedRows(
        starts, np.empty((n_rows, len(linear))), np.empty(n_rows), np.empty((n_data, n_rows)), levels
    )
    free = starts[:-1].copy()
    for chunk in chunks:
        some = plate.rows(chunk)
        if not (np.isfinite(some.x).all() and np.isfinite(some.offsets).all()):
            raise UnboundedError(f"Some rows of the design of the term {plate.name!r} are not finite.")
        places = np.empty(len(chunk), np.int64)
        _places(some.groups, free, places)
        result.x[places] = some.x[:, linear]
        result.offsets[places] = some.offsets
        result.data[:, places] = plate.columns(chunk)
        levels[:, places] = np.searchsorted(linear, plate.rows.levels(chunk))
    return result


@entry
def _places(groups: Index, free: Index, places: Index) -> None:
    """Where rows go; the first free place of each group moves on."""
    for i in range(groups.shape[0]):
        places[i] = free[groups[i]]
        free[groups[i]] += 1
