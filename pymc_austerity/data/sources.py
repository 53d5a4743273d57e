"""Where rows come from: a dict of arrays, a Zarr group, Parquet and Arrow files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pymc_austerity.data.columns import Column
from pymc_austerity.data.reading import Block


class Source(Protocol):
    """Rows that can be read in order.

    Attributes
    ----------
    n_rows : int
    columns : dict of str to Column
    described : dict
        What has to be the same for an interrupted writing to go on, for JSON.
    """

    n_rows: int
    columns: dict[str, Column]
    described: dict[str, Any]

    def blocks(self, names: Sequence[str], first_row: int, length: int) -> Iterator[Block]:
        """Read some columns from a row on, in blocks of one length.

        Parameters
        ----------
        names : sequence of str
        first_row : int
        length : int

        Raises
        ------
        UnreadableError
            If a part of a file is damaged.
        """


def opened(source: Any) -> Source:
    """Find out what a source is.

    Parameters
    ----------
    source : mapping, path, or sequence of paths
        As in `RowStore.write`.

    Raises
    ------
    ValueError, FileNotFoundError, ImportError
    """
    # Each format is imported if it is used: its library is an extra.
    if isinstance(source, Mapping):
        from pymc_austerity.data.dict_source import DictSource

        return DictSource(source)
    if isinstance(source, str | Path):
        return _of_path(Path(source))
    if isinstance(source, Sequence) and source and all(isinstance(path, str | Path) for path in source):
        return _of_parquet([Path(path) for path in source])
    raise ValueError(
        "The source must be a dict of names to arrays, a path (.zarr, .parquet, .arrow, .feather), or a list "
        f"of paths of Parquet files, got {type(source).__name__}."
    )


def _of_path(path: Path) -> Source:
    if not path.exists():
        raise FileNotFoundError(f"There is no {path}.")
    if path.suffix in (".arrow", ".feather"):
        from pymc_austerity.data.arrow_file import ArrowSource

        return ArrowSource(path)
    if path.suffix == ".zarr" or (path / "zarr.json").exists():
        from pymc_austerity.data.zarr_arrays import arrays_of_group

        return _of_arrays(arrays_of_group(path))
    if path.is_dir():
        return _of_parquet(_parquet_files(path))
    if path.suffix == ".parquet":
        return _of_parquet([path])
    hint = " Give {'X': np.load(path, mmap_mode='r')}." if path.suffix == ".npy" else ""
    raise ValueError(f"{path} is none of .zarr, .parquet, .arrow, .feather.{hint}")


def _of_arrays(arrays: Mapping[str, Any]) -> Source:
    from pymc_austerity.data.dict_source import DictSource

    return DictSource(arrays)


def _of_parquet(paths: Sequence[Path]) -> Source:
    from pymc_austerity.data.parquet import ParquetSource

    return ParquetSource(paths)


def _parquet_files(folder: Path) -> list[Path]:
    """Files of a folder by name; those whose names begin with a dot or a line are not data."""
    there = [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "_"))]
    for path in there:
        if path.is_dir():
            raise ValueError(
                f"{folder} has the folder {path.name}. Give a list of files: columns that only folders name "
                "are not read."
            )
    files = [path for path in there if path.suffix == ".parquet"]
    if not files:
        raise ValueError(f"{folder} has no file that ends in .parquet.")
    return files
