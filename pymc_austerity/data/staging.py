"""The first pass: rows of the source become files. It can go on after an interruption."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.data.journal import Entry, Journal
from pymc_austerity.data.labels import Labels
from pymc_austerity.data.moments import Moments
from pymc_austerity.data.narrowing import converted
from pymc_austerity.data.npy_file import NpyFile
from pymc_austerity.data.outputs import Output
from pymc_austerity.data.reading import Block, UnreadableError
from pymc_austerity.data.sources import Source

FOLDER = "staged"


class Job(NamedTuple):
    """What a first pass over a source is to write, and where.

    Attributes
    ----------
    source : Source
    outputs : tuple of Output
    sort_by : str or None
    chunk_rows : int
    folder : Path
    """

    source: Source
    outputs: tuple[Output, ...]
    sort_by: str | None
    chunk_rows: int
    folder: Path

    def is_final(self, output: Output) -> bool:
        """Is an array as it stays after the first pass?"""
        return self.sort_by is None and not output.standardised

    def staged_path(self, output: Output) -> Path:
        """The file that the first pass writes."""
        return self.path(output) if self.is_final(output) else self.folder / FOLDER / f"{output.name}.npy"

    def path(self, output: Output) -> Path:
        """The file that the store has in the end."""
        return self.folder / f"{output.name}.npy"

    def shape(self, output: Output) -> tuple[int, ...]:
        """The shape of the whole array."""
        return (self.source.n_rows, *output.shape)

    def as_json(self) -> Entry:
        """Settings of a run that must not differ if it goes on where another was interrupted."""
        outputs = [
            [o.name, o.parts, o.stacked, o.shape, o.raw.str, o.dtype.str, o.labels, o.closed, o.standardised]
            for o in self.outputs
        ]
        return {
            "source": self.source.described,
            "arrays": outputs,
            "sort_by": self.sort_by,
            "chunk_rows": self.chunk_rows,
        }


class Staging:
    """The first pass over a source, which writes its rows as they come.

    Parameters
    ----------
    job : Job

    Attributes
    ----------
    labels : dict of str to Labels
        Of the arrays of categories.
    moments : dict of str to Moments
        Of the arrays that are standardised.
    files : dict of str to NpyFile
        As they were written, and closed.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.labels = {
            output.name: Labels(_told(output), output.labels, output.closed)
            for output in job.outputs
            if output.labels is not None
        }
        self.moments = {output.name: Moments(output.shape) for output in job.outputs if output.standardised}
        self.files: dict[str, NpyFile] = {}

    def run(self, earlier: Sequence[Entry]) -> None:
        """Write all chunks that are not there yet.

        Parameters
        ----------
        earlier : sequence of dict
            The journal of a run that was interrupted; its chunks stay if the files have them.
        """
        job = self._job
        with ExitStack() as stack:
            (job.folder / FOLDER).mkdir(exist_ok=True)
            for output in job.outputs:
                self.files[output.name] = stack.enter_context(
                    NpyFile(job.staged_path(output), output.raw, job.shape(output), job.chunk_rows)
                )
            whole = self._whole(earlier)
            journal = stack.enter_context(Journal(job.folder, job.as_json(), whole))
            self._restore(whole)
            first_row = len(whole) * job.chunk_rows
            names = list(dict.fromkeys(part for output in job.outputs for part in output.parts))
            for block in job.source.blocks(names, first_row, job.chunk_rows):
                journal.add(self._write(block, first_row))
                first_row += len(block[names[0]])
            if first_row != job.source.n_rows:
                raise UnreadableError(
                    f"The source has ended after {first_row:,} of {job.source.n_rows:,} rows."
                )
            for file in self.files.values():
                file.sync()

    def _whole(self, entries: Sequence[Entry]) -> list[Entry]:
        """Entries up to the first chunk that the files lack, and not the last chunk if it is short."""
        n_full = self._job.source.n_rows // self._job.chunk_rows
        whole = []
        for number, entry in enumerate(entries[:n_full]):
            if not all(file.is_whole(number, entry["crc32"][name]) for name, file in self.files.items()):
                break
            whole.append(entry)
        return whole

    def _restore(self, entries: Sequence[Entry]) -> None:
        """Go on after these chunks."""
        for name, file in self.files.items():
            file.go_on([entry["crc32"][name] for entry in entries])
        for name, labels in self.labels.items():
            for entry in entries:
                labels.add(entry["labels"][name])
        for name, moments in self.moments.items():
            if entries:
                moments.restore(entries[-1]["moments"][name])

    def _write(self, block: Block, first_row: int) -> Entry:
        """Write one chunk, and tell what has to be known of it."""
        known = {name: len(labels.known) for name, labels in self.labels.items()}
        arrays = {output.name: self._array(output, block, first_row) for output in self._job.outputs}
        for name, moments in self.moments.items():
            moments.add(arrays[name])
        order = self._order(arrays, first_row)
        for name, rows in arrays.items():
            self.files[name].append(rows if order is None else rows[order])
        return {
            "crc32": {name: file.crc32[-1] for name, file in self.files.items()},
            "labels": {name: labels.known[known[name] :] for name, labels in self.labels.items()},
            "moments": {name: moments.as_json() for name, moments in self.moments.items()},
        }

    def _array(self, output: Output, block: Block, first_row: int) -> NDArray[Any]:
        """Rows of one array, from columns of the source."""
        if output.labels is not None:
            codes = self.labels[output.name].codes(block[output.parts[0]], first_row)
            return converted(codes, output.raw, _told(output), first_row)
        parts = [converted(block[part], output.raw, f"column {part!r}", first_row) for part in output.parts]
        return np.stack(parts, axis=1) if output.stacked else parts[0]

    def _order(self, arrays: Block, first_row: int) -> NDArray[np.intp] | None:
        """The order of a chunk by its keys, if rows are sorted."""
        if self._job.sort_by is None:
            return None
        keys = arrays[self._job.sort_by]
        if keys.dtype.kind == "f" and np.isnan(keys).any():
            row = first_row + int(np.argmax(np.isnan(keys)))
            raise ValueError(
                f"sort_by={self._job.sort_by!r} is NaN in row {row:,}: it has no place in the order."
            )
        return np.argsort(keys, kind="stable")


def _told(output: Output) -> str:
    """The column of an array, for messages."""
    return f"column {output.parts[0]!r}"
