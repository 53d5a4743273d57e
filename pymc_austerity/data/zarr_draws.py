"""Draws of long vectors, written to a group of Zarr piece by piece."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.data.disk_space import named_if_full
from pymc_austerity.data.partial_folder import require_free
from pymc_austerity.extras import imported

_GROUP, _FILE = "posterior_predictive", "zarr.json"


class LongVariable(NamedTuple):
    """A predicted variable with a number for each row.

    Attributes
    ----------
    shape : tuple of int
        Of one draw, rows first.
    dtype : dtype
    dims : tuple of str
        Names of its axes.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dims: tuple[str, ...]


class DrawsOnDisk:
    """The arrays (chain, draw, row, ...) of a group, which takes its name when all is written.

    Parameters
    ----------
    group : zarr.Group
    variables : dict of str to LongVariable
    coords : dict of str to ndarray
        Chains and draws.
    n_rows : int
        Rows of a piece: a piece of all draws is one chunk of Zarr.
    """

    def __init__(
        self,
        group: Any,
        variables: Mapping[str, LongVariable],
        coords: Mapping[str, NDArray[Any]],
        n_rows: int,
    ) -> None:
        self.n_rows, sizes = n_rows, tuple(len(values) for values in coords.values())
        for name, values in coords.items():
            group.create_array(name, data=values, dimension_names=[name])
        self._arrays = {
            name: group.create_array(
                name,
                shape=sizes + own.shape,
                dtype=own.dtype,
                chunks=(*sizes, min(n_rows, own.shape[0]), *own.shape[1:]),
                dimension_names=[*coords, *own.dims],
            )
            for name, own in variables.items()
        }

    def write(self, name: str, first: int, values: NDArray[Any]) -> None:
        """Write all draws of some rows.

        Parameters
        ----------
        name : str
        first : int
            Number of the first row.
        values : ndarray, shape (chains, draws, rows, ...)
        """
        self._arrays[name][:, :, first : first + values.shape[2]] = values


def require_new(path: Path, overwrite: bool) -> None:
    """Refuse to write over anything but predictions; see `require_free`."""
    require_free(path, overwrite, f"{_GROUP}/{_FILE}", "group of predictions")


@contextmanager
def draws_on_disk(
    path: Path, variables: Mapping[str, LongVariable], coords: Mapping[str, NDArray[Any]], n_rows: int
) -> Iterator[DrawsOnDisk]:
    """Arrays to write to. After an error, or an interrupt, nothing of them is left.

    Parameters
    ----------
    path : Path
        Where they are afterwards.
    variables : dict of str to LongVariable
    coords : dict of str to ndarray
        Chains and draws.
    n_rows : int
        Rows of a piece.

    Raises
    ------
    OSError
        If the disk is full: it names the bytes.
    """
    zarr = imported("zarr", "Predictions on disk", "store")
    wanted = sum(int(np.prod(own.shape)) * own.dtype.itemsize for own in variables.values())
    wanted *= int(np.prod([len(values) for values in coords.values()]))
    with tempfile.TemporaryDirectory(prefix=f"{path.name}.", dir=path.parent) as folder:
        with named_if_full(path, wanted):
            root = zarr.create_group(str(Path(folder, "new")))
            yield DrawsOnDisk(root.create_group(_GROUP), variables, coords, n_rows)
        if os.path.lexists(path):
            path.rename(Path(folder, "replaced"))
        Path(folder, "new").rename(path)
