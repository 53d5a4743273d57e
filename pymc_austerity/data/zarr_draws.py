"""Draws of long vectors, written to a group of Zarr piece by piece."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.data.files import named_if_full
from pymc_austerity.data.partial_folder import require_free
from pymc_austerity.extras import imported

_GROUP, _FILE = "posterior_predictive", "zarr.json"


class LongVariable(NamedTuple):
    """A variable that has a number for each row."""

    shape: tuple[int, ...]  # of one draw, rows first
    dtype: np.dtype[Any]
    dims: tuple[str, ...]  # names of its axes


def require_new(path: Path, overwrite: bool) -> None:
    """Refuse to write over anything but predictions; see `require_free`."""
    require_free(path, overwrite, f"{_GROUP}/{_FILE}", "group of predictions")


@contextmanager
def draws_on_disk(
    path: Path, variables: Mapping[str, LongVariable], coords: Mapping[str, NDArray[Any]], n_rows: int
) -> Iterator[dict[str, Any]]:
    """Arrays of Zarr to write to. After an error, or an interrupt, nothing of them is left.

    Parameters
    ----------
    path : Path
        Where they are afterwards.
    variables : dict of str to LongVariable
    coords : dict of str to ndarray
        Chains and draws.
    n_rows : int
        Rows of a piece: a piece of all draws is one chunk of Zarr.

    Yields
    ------
    dict of str to zarr.Array
        (chain, draw, row, ...), by name.

    Raises
    ------
    OSError
        If the disk is full: it names the bytes.
    """
    zarr = imported("zarr", "Predictions on disk", "store")
    sizes = tuple(len(values) for values in coords.values())
    wanted = sum(int(np.prod(sizes + own.shape)) * own.dtype.itemsize for own in variables.values())
    with tempfile.TemporaryDirectory(prefix=f"{path.name}.", dir=path.parent) as folder:
        with named_if_full(path, wanted):
            group = zarr.create_group(str(Path(folder, "new"))).create_group(_GROUP)
            for name, values in coords.items():
                group.create_array(name, data=values, dimension_names=[name])
            yield {
                name: group.create_array(
                    name,
                    shape=sizes + own.shape,
                    dtype=own.dtype,
                    chunks=(*sizes, min(n_rows, own.shape[0]), *own.shape[1:]),
                    dimension_names=[*coords, *own.dims],
                )
                for name, own in variables.items()
            }
        if os.path.lexists(path):
            path.rename(Path(folder, "replaced"))
        Path(folder, "new").rename(path)
