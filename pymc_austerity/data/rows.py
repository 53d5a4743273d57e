"""`Rows`: an array in a file, mapped and read only."""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.data.files import (
    ArrayLayout,
    FileState,
    checksum,
    path_here,
    require_scratch,
    require_size,
    state_of,
)


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
        """One chunk, compared with its checksum; a `ValueError` if it has changed.

        A chunk of a map gets its checksum when it is first read.
        """
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

    def require_unchanged(self) -> None:
        """Refuse a file that was cut, written to or replaced since it was opened first, by a `ValueError`."""
        wanted = self._layout.offset + int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        require_size(self.path, wanted)
        if state_of(self.path) != self._state:
            raise ValueError(
                f"{self.path} has changed since it was opened. Open the store and build the step again."
            )

    def spot_check(self, rng: np.random.Generator, n_chunks: int) -> None:
        """Compare the file with what it was, and some chunks at random with their checksums.

        A `ValueError` names the file and what has changed.
        """
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


def _reopened(
    name: str,
    path: Path,
    layout: ArrayLayout,
    chunk_rows: int,
    scratch: Path | None,
    is_stored: bool,
    state: FileState,
) -> Rows:
    """Rows that were opened in another process, perhaps on another host.

    A copy of the file is known by its checksums, which only files of a store have.
    """
    here = path_here(path)
    if here == path:
        return Rows(name, path, layout, chunk_rows, scratch, is_stored, state)
    if not is_stored:
        raise ValueError(
            f"{here} is a copy of {path}, which has no checksums: write the rows by RowStore.write."
        )
    return Rows(name, here, layout, chunk_rows, None if scratch is None else here.parent, is_stored)


def told_column(name: str, columns: Sequence[str] | None, place: Sequence[Any]) -> str:
    """A column of an array, for messages, by its place; that is empty if rows are numbers."""
    if not place:
        return repr(name)
    told = ", ".join(str(int(i)) for i in place) if columns is None else repr(columns[int(place[0])])
    return f"Column {told} of {name!r}"
