"""Files of Parquet, one or several, read by row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.data.arrow_columns import columns_of_schema, values_of
from pymc_austerity.data.columns import Column
from pymc_austerity.data.reading import Block, following, readable, regrouped
from pymc_austerity.extras import imported

# Bytes of a column that are read at once: without it a row group is held as a whole.
_BUFFER = 1 << 20
# Rows that are decoded at once.
_BATCH = 16_384


class RowGroup(NamedTuple):
    """A row group: its file, its number there, and its rows in the whole source."""

    path: Path
    number: int
    start: int
    stop: int


class ParquetSource:
    """Rows of files of Parquet, one after the other; columns are found by name.

    Parameters
    ----------
    paths : sequence of Path

    Raises
    ------
    ValueError
        If a file lacks a column, or has it in another kind.
    UnreadableError
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._groups: list[RowGroup] = []
        self.columns: dict[str, Column] = {}
        self.n_rows = 0
        for path in paths:
            with readable(str(path)):
                file = _opened(path)
                schema = file.schema_arrow
                lengths = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
                file.close()
            found = columns_of_schema(schema)
            self.columns = _common(self.columns, found, path) if self._groups else found
            for number, length in enumerate(lengths):
                self._groups.append(RowGroup(path, number, self.n_rows, self.n_rows + length))
                self.n_rows += length
        self.described = {
            "groups": [[group.path.name, group.number, group.stop - group.start] for group in self._groups],
            "columns": {name: column.described for name, column in sorted(self.columns.items())},
        }

    def blocks(self, names: Sequence[str], first_row: int, length: int) -> Iterator[Block]:
        """Blocks of `length` rows, from row `first_row` on; see `Source`."""
        return regrouped(self._blocks(names, first_row), length)

    def _blocks(self, names: Sequence[str], first_row: int) -> Iterator[Block]:
        for group in self._groups:
            if group.stop > first_row:
                start = group.start
                for batch in _batches(group, names):
                    skipped = min(max(0, first_row - start), batch.num_rows)
                    yield self._block(batch.slice(skipped), names, start + skipped)
                    start += batch.num_rows

    def _block(self, batch: Any, names: Sequence[str], start: int) -> Block:
        return {
            name: values_of(batch.column(name), self.columns[name], f"column {name!r}", start)
            for name in names
        }


def _opened(path: Path) -> Any:
    parquet = imported("pyarrow.parquet", "Files of Parquet", "store")
    return parquet.ParquetFile(
        str(path), pre_buffer=False, buffer_size=_BUFFER, page_checksum_verification=True
    )


def _batches(group: RowGroup, names: Sequence[str]) -> Iterator[Any]:
    """Rows of a row group."""
    where = f"{group.path}, row group {group.number}"
    with readable(where, group.start, group.stop):
        file = _opened(group.path)
        batches = file.iter_batches(
            batch_size=_BATCH, row_groups=[group.number], columns=list(names), use_threads=False
        )
    start = group.start
    while start < group.stop:
        with readable(where, start, group.stop):
            batch = following(batches)
        yield batch
        start += batch.num_rows
    file.close()


def _common(known: dict[str, Column], found: dict[str, Column], path: Path) -> dict[str, Column]:
    """Columns of the files so far and of one more."""
    if set(known) != set(found):
        odd = ", ".join(map(repr, sorted(set(known) ^ set(found))))
        raise ValueError(f"{path} has other columns than the files before it: {odd} are not in all.")
    return {name: _either(name, column, found[name], path) for name, column in known.items()}


def _either(name: str, one: Column, other: Column, path: Path) -> Column:
    if one.kind != other.kind or one.shape != other.shape:
        raise ValueError(f"Column {name!r} is {other.described} in {path}, and {one.described} before.")
    if one.dtype == other.dtype:
        return one
    dtype = np.result_type(one.dtype, other.dtype)
    return one._replace(dtype=dtype, described=str(dtype))
