"""`Rows`, an array in a file, mapped and read only; and `RowStore`, several of equal length on disk."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.data.files import (
    ArrayLayout,
    FileState,
    checksum,
    path_here,
    place_of_map,
    read_layout,
    require_scratch,
    require_size,
    state_of,
    told_column,
)
from pymc_austerity.data.outputs import STORED, CategoryChoice, ColumnChoice, DtypeChoice, plan_outputs
from pymc_austerity.data.sources import opened, require_equal_lengths
from pymc_austerity.data.writing import Job, append_rows, write_store
from pymc_austerity.validation import nearest, require_switches, require_whole


class Rows:
    """Rows of an array on disk, read only. `RowStore` makes them.

    A slice is a view of the map: nothing is read before it is used. `numpy.asarray` gives the whole map.

    Attributes
    ----------
    name : str
        Of the array.
    path : Path
        The file that the rows are in.
    shape : tuple of int
        Rows first.
    dtype : dtype
    columns : tuple of str or None
        Names of the columns of a matrix that was stacked from a table.
    labels : tuple or None
        The labels of the codes 0, 1, ... if the array was written with `categories=`.
    means, sds : array, shape of a row, or None
        Of each column before it was standardised by `standardise=`.

    Raises
    ------
    ValueError
        If the file is shorter than the rows, or not the one that was opened first.

    Notes
    -----
    *Guarantee*: a file that was cut or written to before it is mapped is refused, also in another process.

    *When it fails*: if a file is cut while it is mapped, the operating system ends the program (SIGBUS).
    """

    def __init__(
        self,
        name: str,
        path: Path,
        layout: ArrayLayout,
        chunk_rows: int,  # the last chunk may have fewer
        scratch: Path | None,  # the folder for what is computed from the rows
        is_stored: bool,  # whether the checksums of all chunks were written with them
        state: FileState | None = None,  # of the file when it was opened first; None for that of now
    ) -> None:
        self.name, self.path, self.chunk_rows = name, path, chunk_rows
        self._layout, self._scratch, self._is_stored = layout, scratch, is_stored
        self._state = state_of(path) if state is None else state
        self._crc32 = list(layout.crc32)
        self.shape, self.dtype = layout.shape, np.dtype(layout.dtype)
        self.columns, self.labels = layout.columns, layout.labels
        self.means = None if layout.means is None else np.asarray(layout.means, np.float64)
        self.sds = None if layout.sds is None else np.asarray(layout.sds, np.float64)
        self.require_unchanged()
        mapped = np.memmap(path, self.dtype, "r", layout.offset, self.shape)
        self._values: NDArray[Any] = mapped.view(np.ndarray)

    def __reduce__(self) -> tuple[Any, ...]:
        # By path: the rows are not sent to workers.
        layout = self._layout._replace(crc32=tuple(self._crc32))
        file = self.name, self.path, layout, self.chunk_rows, self._scratch, self._is_stored, self._state
        return _reopened, file

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        return self._values[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._values, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"Rows({self.name!r}, shape={self.shape}, dtype={self.dtype}, {str(self.path)!r})"

    def scratch_folder(self) -> Path:
        """A folder for what is computed from the rows; see `require_scratch`."""
        return require_scratch(self._scratch)

    @property
    def ndim(self) -> int:
        """Axes, that of the rows included."""
        return len(self.shape)

    @property
    def n_chunks(self) -> int:
        """Number of chunks of the array."""
        return -(-len(self) // self.chunk_rows)

    @property
    def fingerprint(self) -> str:
        """Hash of content and labels if checksums are stored, else of path, size, time and inode."""
        content: tuple[Any, ...] = (str(self.path), self._layout.offset, *self._state)
        if self._is_stored:
            content = (tuple(self._crc32), self.labels)
        return blake2b(repr((self.dtype.str, self.shape, content)).encode(), digest_size=16).hexdigest()

    def chunk(self, number: int) -> NDArray[Any]:
        """One chunk, compared with its checksum, which one of a map gets when it is first read."""
        # A file that was cut is refused before it is read, which would end the program.
        self.require_unchanged()
        start = number * self.chunk_rows
        rows = self._values[start : start + self.chunk_rows]
        found, known = checksum(rows), self._crc32[number]
        if known is None:
            self._crc32[number] = found
        elif known != found:
            raise ValueError(
                f"{self.path} has changed since it was written: chunk {number} "
                f"(rows {start:,} to {start + len(rows) - 1:,}) has another checksum. Write the store again, "
                "and build the step again."
            )
        return rows

    def begins_with(self, other: Rows) -> bool:
        """Whether the first rows are those of another array: by checksums, but for its last chunk."""
        like = self.dtype, self.shape[1:], self.chunk_rows
        if like != (other.dtype, other.shape[1:], other.chunk_rows) or len(self) < len(other):
            return False
        for k, (one, two) in enumerate(zip(self._crc32, other._crc32, strict=False)):
            own = slice(k * self.chunk_rows, min((k + 1) * self.chunk_rows, len(other)))
            is_whole = own.stop - own.start == self.chunk_rows and None not in (one, two)
            if one != two if is_whole else not np.array_equal(self[own], other[own]):
                return False
        return True

    def require_unchanged(self) -> None:
        """Refuse a file that was cut, written to or replaced since it was opened first, by a `ValueError`."""
        require_size(self.path, self._layout.offset + math.prod(self.shape) * self.dtype.itemsize)
        if state_of(self.path) != self._state:
            raise ValueError(
                f"{self.path} has changed since it was opened. Open the store and build the step again."
            )

    def spot_check(self, rng: np.random.Generator, n_chunks: int) -> None:
        """Compare the file with what it was, and some chunks at random with their checksums."""
        self.require_unchanged()
        for number in sorted(rng.choice(self.n_chunks, min(n_chunks, self.n_chunks), replace=False)):
            self.chunk(int(number))

    def require_finite(self, number: int) -> None:
        """Refuse NaN and infinity in a chunk by a `ValueError`: it names the value, column, row and chunk."""
        rows = self._values[number * self.chunk_rows : (number + 1) * self.chunk_rows]
        if self.dtype.kind != "f":
            return
        with np.errstate(all="ignore"):
            # A sum is not finite if a number is not; it may also overflow.
            if np.isfinite(rows.sum()) or bool(np.isfinite(rows).all()):
                return
        place = np.unravel_index(int(np.argmin(np.isfinite(rows))), rows.shape)
        row = number * self.chunk_rows + int(place[0])
        told = told_column(self.name, self.columns, place[1:])
        raise ValueError(f"{told} is {rows[place]} in row {row:,} (chunk {number}).")


def _reopened(name: str, path: Path, *rest: Any) -> Rows:
    """Rows that were opened in another process, perhaps on another host, where a copy needs checksums."""
    here = path_here(path)
    if here == path:
        return Rows(name, path, *rest)
    layout, chunk_rows, scratch, is_stored, _ = rest
    if not is_stored:
        raise ValueError(
            f"{here} is a copy of {path}, which has no checksums: write the rows by RowStore.write."
        )
    return Rows(name, here, layout, chunk_rows, None if scratch is None else here.parent, is_stored)


# Several arrays ------------------------------------------------------------------------------------

# Rows of a chunk, where nobody says another number.
CHUNK_ROWS = 65_536


class Chunk(NamedTuple):
    """Neighbouring rows of some arrays."""

    number: int  # from 0
    start: int  # number of its first row
    stop: int  # number of the row after its last
    arrays: dict[str, NDArray[Any]]  # views of the maps


class RowStore(Mapping[str, Rows]):
    """Arrays on disk that have a row for each observation, such as covariates and responses.

    `RowStore.write` makes a store from tables, here or in an object store, or from arrays; `RowStore.append`
    adds rows, and `RowStore.open` opens it. A store is a folder of `.npy` files, which NumPy alone can read,
    and `store.json`.

    Parameters
    ----------
    rows : mapping of str to Rows
        The arrays.
    path : Path or None
        The folder, if there is one.
    scratch : Path or None
        The folder for what is computed from the rows.

    Raises
    ------
    ValueError
        If the arrays differ in their numbers of rows.

    Notes
    -----
    A store is a mapping from names to `Rows`. It goes to other processes by its paths, without the rows.

    *Guarantee*: every chunk of rows has a checksum (crc32), which `verify` and `chunks` compare. A
    file that was cut, written to or replaced since the store was opened is refused by name. An interrupted
    `write` leaves no store, and an interrupted `append` the old rows.

    *When it fails*: if a file is cut while it is mapped, the operating system ends the program (SIGBUS). A
    change that keeps size, time and inode of a file is found by checksums only.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pymc_austerity import RowStore
    >>> rng = np.random.default_rng(1)
    >>> table = {"x1": rng.normal(size=1000), "x2": rng.normal(size=1000), "y": rng.integers(2, size=1000)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = RowStore.write(
    ...         table, f"{folder}/clicks.rows", columns={"X": ["x1", "x2"], "y": "y"}, dtype={"y": "int8"}
    ...     )
    ...     print(store["X"].shape, store["y"].dtype, store["y"][:3])
    (1000, 2) int8 [1 1 0]
    """

    def __init__(self, rows: Mapping[str, Rows], path: Path | None, scratch: Path | None) -> None:
        require_equal_lengths({name: len(one) for name, one in rows.items()})
        self._rows, self._path, self._scratch = dict(rows), path, scratch

    @classmethod
    def write(
        cls,
        source: Any,
        path: str | Path,
        *,
        columns: ColumnChoice | None = None,
        dtype: DtypeChoice = None,
        categories: CategoryChoice | None = None,
        standardise: Sequence[str] | None = None,
        sort_by: str | None = None,
        chunk_rows: int = CHUNK_ROWS,
        overwrite: bool = False,
        resume: bool = False,
    ) -> RowStore:
        """Write a store from a source, which is read once, in chunks.

        Parameters
        ----------
        source : dict, path or URI, list of paths or URIs, pyarrow.dataset.Dataset, or table
            A dict of names to arrays (of NumPy, mapped or not, or Zarr); a group of Zarr (`.zarr`); a file of
            Parquet (`.parquet`), Arrow (`.arrow`, `.feather`) or CSV (`.csv`), a list of them, or a folder.
            Folders within it such as `year=2024` make columns. URIs such as ``s3://bucket/folder`` are those
            of `pyarrow.fs.FileSystem.from_uri`, with credentials of the environment. A row group of Parquet
            has to fit into memory, and CSV is read twice. A `pyarrow.dataset.Dataset`, which may be filtered,
            stands for anything else that pyarrow reads, such as Delta tables. Tables and streams are those
            with Arrow's method ``__arrow_c_stream__`` (of pyarrow, pandas, polars, duckdb), and scanners of
            pyarrow. Of a stream, and a filtered dataset, the number of rows is not known: the space on disk
            is not checked before, and `resume` writes from the start.
        path : path
            Of the folder to be made.
        columns : dict, optional
            For each array the name of a column, or a list of columns that become a matrix. Default: every
            column by itself.
        dtype : dtype or dict of names to dtypes, optional
            For all arrays, or for some. Floating-point numbers may be rounded by it. Default: as in the
            source; decimal numbers become float64.
        categories : list of names, or dict of names to lists of labels, optional
            Arrays that are stored as codes 0, 1, ...: in the order of first appearance, or of the list.
        standardise : list of names, optional
            Arrays of which each column is shifted to mean 0 and scaled to sd 1 (with divisor N).
        sort_by : str, optional
            The array by which rows are ordered, such as that of the groups. Equal ones keep their order.
        chunk_rows : int >= 1, default 65536
            Rows of a chunk. One chunk of all chosen columns has to fit into memory several times.
        overwrite : bool, default False
            Whether a row store at the path is replaced, once the new one is complete.
        resume : bool, default False
            Whether to go on where an earlier call was interrupted, or could not read the source.

        Returns
        -------
        RowStore

        Raises
        ------
        FileExistsError
            If there is something at the path.
        OSError
            If the disk is full, the source or a part of it cannot be read, or another process writes to the
            path.
        ValueError
            If values do not fit into their dtype, or a column has none.
        ImportError
            If the library for the format is not installed, or the system has no locks of files (Windows).
        """
        target = Path(path).absolute()
        require_whole(1, chunk_rows=chunk_rows)
        require_switches(overwrite=overwrite, resume=resume)
        found = opened(source)
        outputs = plan_outputs(found.columns, columns, dtype, categories, standardise, sort_by)
        write_store(Job(found, outputs, sort_by, int(chunk_rows)), target, overwrite, resume)
        return cls.open(target)

    @classmethod
    def open(
        cls, path: str | Path | Mapping[str, NDArray[Any]], scratch: str | Path | None = None
    ) -> RowStore:
        """Open a store, or arrays that are mapped already, without a copy.

        Parameters
        ----------
        path : path, or dict of names to maps
            A folder that `write` has made, or arrays of `numpy.memmap`: C-ordered, in the byte order of this
            machine. Their chunks have no checksums before they are read for the first time.
        scratch : path, optional
            A folder for what is computed from the rows, made when it is needed. Default: that of the store.

        Returns
        -------
        RowStore

        Raises
        ------
        FileNotFoundError
            If there is no store.
        ValueError
            If a file was cut or is damaged, or a map does not suit.
        """
        elsewhere = None if scratch is None else Path(scratch).absolute()
        if isinstance(path, Mapping):
            if not path:
                raise ValueError("There are no arrays to open.")
            maps = {name: _rows_of_map(name, array, elsewhere) for name, array in path.items()}
            return cls(maps, None, elsewhere)
        folder = Path(path).absolute()
        chunk_rows, _, arrays = read_layout(folder)
        rows = {}
        for name, array in arrays.items():
            file = folder / array.file
            if not file.is_file():
                raise FileNotFoundError(
                    f"{file} is not there, and store.json names it. Write the store again."
                )
            if not np.dtype(array.dtype).isnative:
                raise ValueError(
                    f"{file} was written on a machine with another byte order. Write the store again: "
                    f"RowStore.write({{{name!r}: np.load({file.name!r}, mmap_mode='r')}}, ...)."
                )
            rows[name] = Rows(name, file, array, chunk_rows, elsewhere or folder, is_stored=True)
        return cls(rows, folder, elsewhere)

    def append(self, source: Any) -> RowStore:
        """Append the rows of a source, which is read once, in chunks.

        Parameters
        ----------
        source : dict, path or URI, list of paths or URIs, pyarrow.dataset.Dataset, or table
            As of `write`, with the columns that the store was written from. Others are left out. Another
            store is appended by its `chunks`: ``store = store.append(chunk.arrays)`` for each.

        Returns
        -------
        RowStore
            With all rows. This one still shows the old ones; `verify`, `chunks` and steps refuse it.

        Raises
        ------
        OSError
            If the disk is full, the source or a part of it cannot be read, or another process writes to the
            path.
        ValueError
            If a column is missing or has rows of another shape, values do not fit into their dtype, a label
            is none of those that were given to `write`, or files have changed since they were opened.

        Notes
        -----
        The options of `write` hold. `standardise` uses the means and sds of the first rows. `categories` that
        were found keep their codes, and new ones get the next codes. Only new rows are read and written,
        unless `sort_by` was given: then all are written again, which takes twice their space beside them.

        *Guarantee*: apart from `standardise`, the files are to the byte those of one `write` of all rows. If
        anything fails, or the program is interrupted, the store has the old rows. Chains that run go on.

        *When it fails*: a step that was built on the old rows is refused where its next chain starts. A
        program that is killed just before a sorted store gets its name leaves it in `<name>.partial`; `open`
        says so.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from pymc_austerity import RowStore
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = RowStore.write({"y": np.array([1, 0, 1])}, f"{folder}/clicks.rows")
        ...     store = store.append({"y": np.array([0, 0])})
        ...     print(store["y"][:])
        [1 0 1 0 0]
        """
        if self._path is None:
            raise ValueError("Maps are not appended to. RowStore.write({...}, path) makes a store of them.")
        append_rows(self._rows, self._path, opened(source))
        return type(self).open(self._path, self._scratch)

    def __getitem__(self, name: str) -> Rows:
        if name not in self._rows:
            raise KeyError(
                f"There is no {name!r}.{nearest(str(name), self._rows)} There are {', '.join(self._rows)}."
            )
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {rows.shape[1:]} {rows.dtype}" for name, rows in self._rows.items())
        return f"RowStore({self.n_rows:,} rows: {told})"

    # Two stores are equal if they are one object: to compare rows would read them.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def path(self) -> Path | None:
        """The folder; None if the arrays are maps that were given."""
        return self._path

    @property
    def n_rows(self) -> int:
        """Rows of each array."""
        return len(next(iter(self._rows.values())))

    @property
    def fingerprint(self) -> str:
        """Hash of the content of all arrays; of maps that were given, the hash of their files' state."""
        parts = [(name, rows.fingerprint) for name, rows in sorted(self._rows.items())]
        return blake2b(repr(parts).encode(), digest_size=16).hexdigest()

    def scratch_folder(self) -> Path:
        """A folder for what is computed from the rows.

        Raises
        ------
        PermissionError
            If nothing can be written there.
        ValueError
            If the arrays are maps that were given, and no folder was.
        """
        return require_scratch(self._scratch or self._path)

    def chunks(self, names: Sequence[str] | None = None) -> Iterator[Chunk]:
        """All rows in order, each chunk compared with its checksum and searched for NaN and infinity.

        Parameters
        ----------
        names : sequence of str, optional
            Of arrays. Default: all.

        Returns
        -------
        iterator of Chunk
            `number`, `start`, `stop` and `arrays`, a dict of names to views.

        Raises
        ------
        ValueError
            If a file or chunk has changed, or a value is not finite.
        """
        arrays = [self[name] for name in (self._rows if names is None else names)]
        for number in range(arrays[0].n_chunks if arrays else 0):
            found = {}
            for rows in arrays:
                found[rows.name] = rows.chunk(number)
                rows.require_finite(number)
            start = number * arrays[0].chunk_rows
            yield Chunk(number, start, min(start + arrays[0].chunk_rows, self.n_rows), found)

    def verify(self) -> None:
        """Compare every chunk of every array with its checksum.

        Raises
        ------
        ValueError
            It names the first file and chunk that differ.
        """
        for rows in self._rows.values():
            for number in range(rows.n_chunks):
                rows.chunk(number)

    def spot_check(self, rng: np.random.Generator, n_chunks: int = 16) -> None:
        """Compare files with what they were, and some chunks at random with their checksums.

        Parameters
        ----------
        rng : numpy.random.Generator
        n_chunks : int, default 16
            Chunks of each array.

        Raises
        ------
        ValueError
            It names the file and what has changed.
        """
        for rows in self._rows.values():
            rows.spot_check(rng, n_chunks)


def _rows_of_map(name: str, array: Any, scratch: Path | None) -> Rows:
    """A map that was given, if it suits."""
    place = place_of_map(array) if isinstance(array, np.ndarray) else None
    if place is None:
        raise ValueError(
            f"{name!r} is not mapped from a file. RowStore.write({{{name!r}: ...}}, path) makes one."
        )
    remedy = f"RowStore.write({{{name!r}: ...}}, path) makes a copy that suits."
    if not array.dtype.isnative:
        raise ValueError(f"{name!r} ({array.dtype.str}) has the byte order of other machines. {remedy}")
    if array.dtype.name not in STORED:
        raise ValueError(
            f"{name!r} has the dtype {array.dtype}, and must have one of {', '.join(STORED)}. {remedy}"
        )
    if not array.ndim or not len(array):
        raise ValueError(f"{name!r} has no rows.")
    if not array.flags.c_contiguous:
        raise ValueError(
            f"{name!r} does not have its rows one after the other (Fortran order, or a part). {remedy}"
        )
    path, start, _ = place
    unread = (None,) * -(-len(array) // CHUNK_ROWS)
    layout = ArrayLayout(path.name, start, array.dtype.str, array.shape, None, unread, None, None, None)
    return Rows(name, path, layout, CHUNK_ROWS, scratch, is_stored=False)
