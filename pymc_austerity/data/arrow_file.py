"""Files of Arrow: the format for files (Feather, too), and that for streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pymc_austerity.data.arrow_columns import columns_of_schema, values_of
from pymc_austerity.data.file_state import require_size
from pymc_austerity.data.reading import Block, following, readable, regrouped
from pymc_austerity.extras import imported

_MAGIC = b"ARROW1"
# Rows that become arrays of NumPy at once: text takes much memory there.
_PIECE = 16_384


class ArrowSource:
    """Rows of one file of Arrow.

    Parameters
    ----------
    path : Path

    Raises
    ------
    UnreadableError
    """

    def __init__(self, path: Path) -> None:
        self._path, self._size = path, path.stat().st_size
        with path.open("rb") as file:
            self._is_stream = file.read(len(_MAGIC)) != _MAGIC
        with readable(str(path)):
            schema = self._reader().schema
        self.n_rows = self._counted()
        self.columns = columns_of_schema(schema)
        self.described = {"file": path.name, "rows": self.n_rows, "schema": str(schema.remove_metadata())}

    def _reader(self, **options: Any) -> Any:
        # Mapped, because a batch that is not compressed is held as a whole otherwise.
        arrow = imported("pyarrow", "Files of Arrow", "store")
        file = arrow.memory_map(str(self._path), "r")
        opened = arrow.ipc.open_stream if self._is_stream else arrow.ipc.open_file
        return opened(file, options=arrow.ipc.IpcReadOptions(**options))

    def _counted(self) -> int:
        # One column is enough to count rows.
        batches = self._batches(included_fields=[0])
        n_rows = number = 0
        while True:
            with readable(f"{self._path}, batch {number}"):
                batch = next(batches, None)
            if batch is None:
                return n_rows
            n_rows, number = n_rows + batch.num_rows, number + 1

    def _batches(self, **options: Any) -> Iterator[Any]:
        reader = self._reader(**options)
        if self._is_stream:
            yield from reader
        else:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    def blocks(self, names: Sequence[str], first_row: int, length: int) -> Iterator[Block]:
        """Blocks of `length` rows, from row `first_row` on; see `Source`."""
        return regrouped(self._blocks(names, first_row), length)

    def _blocks(self, names: Sequence[str], first_row: int) -> Iterator[Block]:
        batches = self._batches()
        start, number = 0, 0
        while start < self.n_rows:
            with readable(f"{self._path}, batch {number}", start, self.n_rows):
                # Reading from the map of a file that was cut kills Python.
                require_size(self._path, self._size)
                batch = following(batches)
            for offset in range(max(0, first_row - start), batch.num_rows, _PIECE):
                rows = batch.slice(offset, _PIECE)
                yield {
                    name: values_of(rows.column(name), self.columns[name], f"column {name!r}", start + offset)
                    for name in names
                }
            start, number = start + batch.num_rows, number + 1
