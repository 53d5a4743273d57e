"""`Rows`: an array in a file, mapped and read only."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.data.checksums import Checksums
from pymc_austerity.data.columns import Dtype
from pymc_austerity.data.elsewhere import path_here
from pymc_austerity.data.file_state import FileState, require_size, state_of
from pymc_austerity.data.labels import Label
from pymc_austerity.data.scratch import require_scratch


class RowsFile(NamedTuple):
    """File of an array of rows, and where in it they are: all that a worker needs.

    Attributes
    ----------
    name : str
        Of the array.
    path : Path
    offset : int
        Bytes before the first row.
    dtype : dtype
    shape : tuple of int
    chunk_rows : int
        Rows of a chunk; the last may have fewer.
    state : FileState
        Of the file when it was opened first.
    is_stored : bool
        Whether the checksums of all chunks were written with them.
    columns, labels, means, sds
        As in `ArrayLayout`.
    scratch : Path or None
        The folder for what is computed from the rows.
    """

    name: str
    path: Path
    offset: int
    dtype: Dtype
    shape: tuple[int, ...]
    chunk_rows: int
    state: FileState
    is_stored: bool
    columns: tuple[str, ...] | None = None
    labels: tuple[Label, ...] | None = None
    means: Any = None
    sds: Any = None
    scratch: Path | None = None


class Rows:
    """Rows of an array on disk, read only. `RowStore` makes them.

    A slice is a view of the map: nothing is read before it is used. `numpy.asarray` gives the whole map.

    Parameters
    ----------
    file : RowsFile
        Where they are.
    checksums : sequence of int or None
        The crc32 of each chunk; None for one that has not been read yet.

    Attributes
    ----------
    name : str
        Of the array.
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

    def __init__(self, file: RowsFile, checksums: Sequence[int | None]) -> None:
        self._file, self._checksums = file, Checksums(checksums)
        self.name, self.shape, self.dtype = file.name, file.shape, file.dtype
        self.columns, self.labels = file.columns, file.labels
        self.means = None if file.means is None else np.asarray(file.means, np.float64)
        self.sds = None if file.sds is None else np.asarray(file.sds, np.float64)
        self.require_unchanged()
        mapped = np.memmap(file.path, file.dtype, "r", file.offset, file.shape)
        self._values: NDArray[Any] = mapped.view(np.ndarray)

    def __reduce__(self) -> tuple[Any, ...]:
        # By path: the rows are not sent to workers.
        return Rows.reopened, (self._file, self._checksums.known)

    @classmethod
    def reopened(cls, file: RowsFile, checksums: Sequence[int | None]) -> Self:
        """Rows that were opened in another process, perhaps on another host.

        Parameters
        ----------
        file : RowsFile
        checksums : sequence of int or None

        Raises
        ------
        ValueError
            If the file is another one, or a copy and not of a store that `RowStore.write` made: only these
            have checksums by which a copy is known.
        """
        path = path_here(file.path)
        if path == file.path:
            return cls(file, checksums)
        if not file.is_stored:
            raise ValueError(
                f"{path} is a copy of {file.path}, which has no checksums: write the rows by RowStore.write."
            )
        scratch = None if file.scratch is None else path.parent
        return cls(file._replace(path=path, state=state_of(path), scratch=scratch), checksums)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        return self._values[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._values, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"Rows({self.name!r}, shape={self.shape}, dtype={self.dtype}, {str(self._file.path)!r})"

    @property
    def path(self) -> Path:
        """The file that the rows are in."""
        return self._file.path

    def scratch_folder(self) -> Path:
        """A folder for what is computed from the rows.

        Raises
        ------
        PermissionError
            If nothing can be written there.
        ValueError
            If there is none.
        """
        return require_scratch(self._file.scratch)

    @property
    def ndim(self) -> int:
        """Axes, that of the rows included."""
        return len(self.shape)

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk; the last may have fewer."""
        return self._file.chunk_rows

    @property
    def n_chunks(self) -> int:
        """Number of chunks of the array."""
        return -(-len(self) // self.chunk_rows)

    @property
    def fingerprint(self) -> str:
        """Hash of content and labels if checksums are stored, else of path, size, time and inode."""
        content: tuple[Any, ...] = (str(self._file.path), self._file.offset, *self._file.state)
        if self._file.is_stored:
            content = (self._checksums.known, self.labels)
        return blake2b(repr((self.dtype.str, self.shape, content)).encode(), digest_size=16).hexdigest()

    def chunk(self, number: int) -> NDArray[Any]:
        """One chunk, compared with its checksum.

        Parameters
        ----------
        number : int
            From 0.

        Raises
        ------
        ValueError
            If it has changed.
        """
        start = number * self.chunk_rows
        rows = self._values[start : start + self.chunk_rows]
        if not self._checksums.is_right(number, rows):
            raise ValueError(
                f"{self._file.path} has changed since it was written: chunk {number} "
                f"(rows {start:,} to {start + len(rows) - 1:,}) has another checksum. Write the store again, "
                "and build the step again."
            )
        return rows

    def require_unchanged(self) -> None:
        """Refuse a file that is not the one which was opened first.

        Raises
        ------
        ValueError
            If it was cut, written to or replaced.
        """
        wanted = self._file.offset + int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        require_size(self._file.path, wanted)
        if state_of(self._file.path) != self._file.state:
            raise ValueError(
                f"{self._file.path} has changed since it was opened. Open the store and build the step again."
            )

    def spot_check(self, rng: np.random.Generator, n_chunks: int) -> None:
        """Compare the file with what it was, and some chunks at random with their checksums.

        Parameters
        ----------
        rng : numpy.random.Generator
        n_chunks : int

        Raises
        ------
        ValueError
            It names the file and what has changed.
        """
        self.require_unchanged()
        for number in sorted(rng.choice(self.n_chunks, min(n_chunks, self.n_chunks), replace=False)):
            self.chunk(int(number))

    def require_finite(self, number: int) -> None:
        """Refuse NaN and infinity in a chunk.

        Parameters
        ----------
        number : int
            Of the chunk.

        Raises
        ------
        ValueError
            It names the value, the column, the row and the chunk.
        """
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


def told_column(name: str, columns: Sequence[str] | None, place: Sequence[Any]) -> str:
    """A column of an array, for messages.

    Parameters
    ----------
    name : str
        Of the array.
    columns : sequence of str or None
        Names of its columns.
    place : sequence of int
        Index of the column; empty if rows are numbers.
    """
    if not place:
        return repr(name)
    told = ", ".join(str(int(i)) for i in place) if columns is None else repr(columns[int(place[0])])
    return f"Column {told} of {name!r}"
