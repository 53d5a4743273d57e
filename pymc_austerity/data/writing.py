"""A row store from a source, and more rows to it: a first pass, perhaps a second one, and `store.json`.

The first pass writes each chunk of the source as it comes, and tells the journal: it can go on after an
interruption. Rows that are sorted are so within each chunk then. The second pass merges the chunks, and
standardises. Rows that are appended follow those in the files, or are merged with them if these are sorted.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.data.files import (
    FILE,
    ArrayLayout,
    NpyFile,
    file_size,
    read_layout,
    require_space,
    restore,
    state_of,
    told_column,
    write_layout,
)
from pymc_austerity.data.outputs import Labels, Output, plan_outputs
from pymc_austerity.data.sources import Block, Source, UnreadableError, regrouped
from pymc_austerity.progress import stage, watched

JOURNAL = "journal.jsonl"

# A line of the journal: the first says what is written, the others what is known of a chunk.
Entry = dict[str, Any]
Positions = NDArray[np.int64]

# The version of the entries of a journal.
_JOURNAL_FORMAT = 2
# The folder of what only the first pass writes.
_STAGED = "staged"
# Bytes of the widest array that are merged at once.
_MERGED_BYTES = 16_000_000
# A column whose sd is that much smaller than its mean is constant, up to rounding.
_ROUNDING = 1e-14


class Job(NamedTuple):
    """What a first pass over a source is to write, and where."""

    source: Source | Extended
    outputs: tuple[Output, ...]
    sort_by: str | None
    chunk_rows: int

    def as_json(self) -> Entry:
        """Settings of a run that must not differ if it goes on where another was interrupted."""
        outputs = [o._replace(raw=o.raw.str, dtype=o.dtype.str) for o in self.outputs]  # type: ignore[arg-type]
        return {
            "format": _JOURNAL_FORMAT,
            "source": self.source.described,
            "arrays": outputs,
            "sort_by": self.sort_by,
            "chunk_rows": self.chunk_rows,
        }


def write_store(job: Job, path: Path, overwrite: bool, resume: bool) -> None:
    """Write a store into the folder `path`, or leave nothing behind; options are those of `RowStore.write`.

    What is there stays for `resume=True` if the source, which is no stream, cannot be read, or the program is
    interrupted.
    """
    require_free(path, overwrite)
    with partial_folder(path) as folder, watched("RowStore.write", True):
        # Another process may have been quicker.
        if os.path.lexists(path) and not overwrite:
            _remove(folder)
            require_free(path, overwrite)
        # A stream, of which the number of rows is not known, is written from the start.
        earlier = entries_of(folder, job.as_json()) if resume and job.source.n_rows else []
        if not earlier:
            emptied(folder)
        try:
            _fill(job, folder, earlier)
        except BaseException as error:
            if not (job.source.described and isinstance(error, UnreadableError | KeyboardInterrupt)):
                _remove(folder)
            raise
        # The folder gets its name; a row store that has it is deleted after that.
        replaced = "replaced"
        if os.path.lexists(path):
            path.rename(folder / replaced)
        folder.rename(path)
        shutil.rmtree(path / replaced, ignore_errors=True)


def _remove(folder: Path) -> None:
    emptied(folder)
    folder.rmdir()


def _fill(job: Job, folder: Path, earlier: list[Entry]) -> None:
    """Write all files into the partial folder."""
    if not earlier:
        begin_journal(folder, [job.as_json()]).close()  # all that is written from now on is ours
    arrays = [StagedArray(output, job, folder) for output in job.outputs]
    # What an earlier run has written takes its space already.
    allocated = sum(path.stat().st_blocks * 512 for path in folder.rglob("*.npy"))
    require_space(folder, sum(array.bytes_wanted for array in arrays) - allocated)
    stage("rows", f" of the source{f': {job.source.n_rows:,}' if job.source.n_rows else ''}")
    (folder / _STAGED).mkdir(exist_ok=True)
    _first_pass(job, folder, arrays, earlier)
    unfinished = [array for array in arrays if not array.is_final]
    if unfinished:
        stage("second pass", f": {job.source.n_rows:,} rows")
        _second_pass(job, unfinished)
    shutil.rmtree(folder / _STAGED)
    layouts = {array.output.name: array.layout() for array in arrays}
    if isinstance(job.source, Extended):
        layouts = job.source.layouts({name: one.crc32 for name, one in layouts.items()})
    write_layout(folder, job.source.n_rows, job.chunk_rows, job.sort_by, layouts)
    (folder / JOURNAL).unlink()


class StagedArray:
    """One array while it is written into a folder: its file, and what is known of its rows so far."""

    file: NpyFile  # which is written now, or was last
    staged: NDArray[Any]  # the rows that the first pass has written

    def __init__(self, output: Output, job: Job, folder: Path) -> None:
        self.output, self._source, self._chunk_rows = output, job.source, job.chunk_rows
        self._columns = output.parts if output.stacked else None
        self.is_final = job.sort_by is None and not output.standardised  # after the first pass
        self._path = folder / f"{output.name}.npy"
        self._staged_path = self._path if self.is_final else folder / _STAGED / self._path.name
        sizes = [file_size(dtype, self.shape) for dtype in (output.dtype, output.raw)]
        self.bytes_wanted = sizes[0] if self.is_final else sum(sizes)
        self._labels = Labels(output.parts[0], output.labels or (), bool(output.labels))
        self._n_told = len(self._labels.known)  # labels in the journal
        of_none = Moments(0, np.zeros(output.shape), np.zeros(output.shape))
        self._moments = of_none if output.standardised else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The rows that there are, or that have come of a stream, and the shape of one."""
        return (self._source.n_rows, *self.output.shape)

    def open(self, stack: ExitStack, *, is_final: bool) -> None:
        """Begin the file of the first pass, or of the second."""
        path, dtype = self._staged_path, self.output.raw
        if is_final:
            self.staged = np.load(path, mmap_mode="r").view(np.ndarray)
            self._require_scale()
            path, dtype = self._path, self.output.dtype
        self.file = stack.enter_context(closing(NpyFile(path, dtype, self.shape, self._chunk_rows)))

    def read(self, block: Block, first_row: int) -> NDArray[Any]:
        """Rows of the output from those of the source, counted among its labels and moments."""
        rows = self.output.values(block, first_row, self._labels)
        if self._moments is not None:
            self._moments = self._moments.with_rows(rows)
        return rows

    def entry(self) -> Entry:
        """What the journal tells of the last chunk: of labels those that no entry has told before."""
        labels = self._labels.known[self._n_told :]
        self._n_told += len(labels)
        moments = None if self._moments is None else [np.asarray(one).tolist() for one in self._moments]
        return {"crc32": self.file.crc32[-1], "labels": labels, "moments": moments}

    def go_on(self, entries: Sequence[Entry]) -> None:
        """Go on after the chunks of which these entries tell."""
        self.file.go_on([entry["crc32"] for entry in entries], len(entries) * self._chunk_rows)
        for entry in entries:
            self._labels.add(entry["labels"])
            self._n_told += len(entry["labels"])
            if self._moments is not None:
                n_rows, *sums = entry["moments"]
                self._moments = Moments(n_rows, *(np.asarray(one, float) for one in sums))

    def finish(self, chunk: NDArray[Any], first_row: int) -> None:
        """Append rows of the first pass, standardised if that was asked for."""
        if self._moments is not None:
            chunk = self.output.scaled(chunk, self._moments.mean, self._moments.sd, first_row)
        self.file.append(chunk)

    def _require_scale(self) -> None:
        """Refuse to standardise a column that is constant, or has no standard deviation."""
        if self._moments is None:
            return
        mean, sd = self._moments.mean, self._moments.sd
        for place in np.ndindex(mean.shape):
            told = told_column(self.output.name, self._columns, place)
            if not np.isfinite(sd[place]):
                raise ValueError(f"{told} has NaN or infinity in it, and cannot be standardised.")
            if sd[place] <= _ROUNDING * abs(mean[place]):
                raise ValueError(
                    f"{told} is {mean[place]:g} in all rows, and cannot be standardised. Write it under "
                    "another name, or leave it out."
                )

    def layout(self) -> ArrayLayout:
        """What `store.json` tells of it."""
        return ArrayLayout(
            file=self._path.name,
            offset=self.file.offset,
            dtype=self.output.dtype.str,
            shape=self.shape,
            columns=self._columns,
            crc32=tuple(self.file.crc32),
            labels=None if self.output.labels is None else tuple(self._labels.known),
            means=None if self._moments is None else self._moments.mean.tolist(),
            sds=None if self._moments is None else self._moments.sd.tolist(),
            column=None if self.output.stacked else self.output.parts[0],
            closed=bool(self.output.labels),
        )


class Moments(NamedTuple):
    """Number of rows, means and sums of squared deviations of columns (Chan, Golub and LeVeque, 1983)."""

    n_rows: int
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]

    def with_rows(self, rows: NDArray[Any]) -> Moments:
        """Moments with some rows more."""
        values = rows.astype(np.float64, copy=False)
        mean = values.mean(axis=0)
        n_rows = self.n_rows + len(values)
        step = mean - self.mean
        within = ((values - mean) ** 2).sum(axis=0)
        squares = self.squares + within + step**2 * (self.n_rows * len(values) / n_rows)
        return Moments(n_rows, self.mean + step * (len(values) / n_rows), squares)

    @property
    def sd(self) -> NDArray[np.float64]:
        """The standard deviation with divisor N."""
        return np.asarray(np.sqrt(self.squares / self.n_rows))


# The first pass -----------------------------------------------------------------------------------


def _first_pass(job: Job, folder: Path, arrays: Sequence[StagedArray], earlier: Sequence[Entry]) -> None:
    """Write all chunks that an earlier run has not written."""
    with ExitStack() as stack:
        for array in arrays:
            array.open(stack, is_final=False)
        whole = _whole(job, arrays, earlier)
        journal = stack.enter_context(begin_journal(folder, [job.as_json(), *whole]))
        for array in arrays:
            array.go_on([entry[array.output.name] for entry in whole])
        first_row = len(whole) * job.chunk_rows
        names = list(dict.fromkeys(part for output in job.outputs for part in output.parts))
        for block in job.source.blocks(names, first_row, job.chunk_rows):
            rows = {array.output.name: array.read(block, first_row) for array in arrays}
            order = slice(None) if job.sort_by is None else _order(rows[job.sort_by], job.sort_by, first_row)
            for array in arrays:
                array.file.append(rows[array.output.name][order])
            journal.write(json.dumps({array.output.name: array.entry() for array in arrays}) + "\n")
            first_row += len(block[names[0]])
        _require_all(first_row, job.source.n_rows)
        for array in arrays:
            array.file.finish(array.shape)


def _require_all(found: int, n_rows: int) -> None:
    """Refuse a source that has ended early, or has no rows."""
    if found != n_rows:
        raise UnreadableError(f"The source has ended after {found:,} of {n_rows:,} rows.")
    if not found:
        raise ValueError("The source has no rows. A stream that was read before has none left.")


def _whole(job: Job, arrays: Sequence[StagedArray], entries: Sequence[Entry]) -> list[Entry]:
    """Entries up to the first chunk that the files lack, and not the last chunk if it is short."""
    whole = []
    for number, entry in enumerate(entries[: job.source.n_rows // job.chunk_rows]):
        if not all(array.file.is_whole(number, entry[array.output.name]["crc32"]) for array in arrays):
            break
        whole.append(entry)
    return whole


def _order(keys: NDArray[Any], name: str, first_row: int) -> NDArray[np.intp]:
    """The order of the rows of a chunk by their keys."""
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        row = first_row + int(np.argmax(np.isnan(keys)))
        raise ValueError(f"sort_by={name!r} is NaN in row {row:,}: it has no place in the order.")
    return np.argsort(keys, kind="stable")


# The second pass ----------------------------------------------------------------------------------


def _second_pass(job: Job, arrays: Sequence[StagedArray]) -> None:
    """Write rows in another order, or standardised."""
    with ExitStack() as stack:
        for array in arrays:
            array.open(stack, is_final=True)
        places = _places(job, arrays)
        pieces = ({array.output.name: array.staged[place] for array in arrays} for place in places)
        for number, chunk in enumerate(regrouped(pieces, job.chunk_rows)):
            for array in arrays:
                array.finish(chunk[array.output.name], number * job.chunk_rows)
        for array in arrays:
            array.file.finish(array.shape)


def _places(job: Job, arrays: Sequence[StagedArray]) -> Iterator[slice | Positions]:
    """Which rows of the first pass follow, some at a time."""
    if job.sort_by is None:
        for start in range(0, job.source.n_rows, job.chunk_rows):
            yield slice(start, start + job.chunk_rows)
    else:
        (keys,) = (array.staged for array in arrays if array.output.name == job.sort_by)
        widest = max(array.staged[:1].nbytes for array in arrays)
        yield from merged(keys, job.chunk_rows, max(1, _MERGED_BYTES // widest))


def merged(keys: NDArray[Any], run_rows: int, at_once: int) -> Iterator[Positions]:
    """Row numbers in the order of their keys, in pieces; rows with equal keys keep the order that they had.

    Keys, which may be mapped, are sorted within each run of `run_rows`; the last run may have fewer. A piece
    has `at_once` rows at most.
    """
    begins = np.arange(0, len(keys), run_rows)
    # A stack instead of recursion: ranges of keys in ascending order, the next one on top.
    stack = [(begins, np.minimum(begins + run_rows, len(keys)))]
    while stack:
        starts, stops = stack.pop()
        lengths = stops - starts
        if lengths.sum() <= at_once:
            before = np.cumsum(lengths) - lengths
            rows = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
            yield rows[np.argsort(keys[rows], kind="stable")]
        elif (middle := _split(keys, starts, stops)) is not None:
            stack += [(middle, stops), (starts, middle)]
        else:
            for start, stop in zip(starts, stops, strict=True):
                for first in range(start, stop, at_once):
                    yield np.arange(first, min(first + at_once, stop))


def _split(keys: NDArray[Any], starts: Positions, stops: Positions) -> Positions | None:
    """First row of the upper keys in each run; None if all keys are equal.

    The pivot is the median over runs, weighted by their rows, of the median of a run: at least a quarter of
    all keys is not above it, and a quarter is not below.
    """
    there = stops > starts
    begins, ends = starts[there], stops[there]
    lowest, highest = keys[begins].min(), keys[ends - 1].max()
    if lowest == highest:
        return None
    medians = keys[(begins + ends) // 2]
    order = np.argsort(medians, kind="stable")
    weights = np.cumsum((ends - begins)[order])
    pivot = medians[order[np.searchsorted(weights, weights[-1] / 2)]]
    # Keys equal to the pivot go up, unless nothing would be left below.
    side = "left" if pivot > lowest else "right"
    middle = starts.copy()
    for run in np.flatnonzero(there):
        found = np.searchsorted(keys[starts[run] : stops[run]], pivot, side)  # type: ignore[call-overload]
        middle[run] = starts[run] + found
    return middle


# Rows that are appended ---------------------------------------------------------------------------


class Extended:
    """Rows of a store, and after them those of a source in its columns, dtypes, codes and scales."""

    described: ClassVar[Entry] = {}  # nothing goes on where an earlier run was interrupted

    def __init__(self, rows: Mapping[str, Any], path: Path, source: Source) -> None:
        self.chunk_rows, self.sort_by, self.known = read_layout(path)
        self._rows, self._source = rows, source  # rows are of type `Rows`
        self.n_old = len(next(iter(rows.values())))
        self.bytes_wanted = source.n_rows * sum(one[:1].nbytes for one in rows.values())
        self.outputs = plan_outputs(
            source.columns,
            {name: one.columns or one.column or name for name, one in self.known.items()},
            {name: one.dtype for name, one in self.known.items()},
            {name: one.labels for name, one in self.known.items() if one.labels},
            [name for name, one in self.known.items() if one.means is not None],
            None,
        )
        self._labels = {}
        for output in self.outputs:
            name, part, one = output.name, output.parts[0], self.known[output.name]
            if output.shape != one.shape[1:]:
                raise ValueError(
                    f"{name!r} has rows of shape {one.shape[1:]} in the store, {output.shape} in the source."
                )
            labels, column = one.labels or (), source.columns[part]
            kind = "text" if labels and isinstance(labels[0], str) else "numbers"
            # What an array of objects has is found out when it is read.
            if labels and column.kind != kind and column.described != "object":
                told = f"column {part!r} ({column.described}) cannot have. Convert the column."
                raise ValueError(f"{name!r} has categories such as {labels[0]!r}, which {told}")
            self._labels[name] = Labels(part, labels, one.closed)

    @property
    def n_rows(self) -> int:
        """All rows; of a stream those that have come."""
        return self.n_old + self._source.n_rows

    def blocks(self, names: Sequence[str], first_row: int, length: int) -> Iterator[Block]:
        """All arrays from the first row on, in blocks of one length."""
        numbers = range(next(iter(self._rows.values())).n_chunks)
        old = ({name: one.chunk(number) for name, one in self._rows.items()} for number in numbers)
        return regrouped(chain(old, self.new()), length)

    def new(self) -> Iterator[Block]:
        """The rows of the source, in chunks."""
        parts = list(dict.fromkeys(part for output in self.outputs for part in output.parts))
        first_row = 0
        for block in self._source.blocks(parts, 0, self.chunk_rows):
            rows = {output.name: self._stored(output, block, first_row) for output in self.outputs}
            if self.sort_by is not None:
                _order(rows[self.sort_by], self.sort_by, first_row)  # NaN is told by its row in the source
            yield rows
            first_row += len(block[parts[0]])
        _require_all(first_row, self._source.n_rows)

    def _stored(self, output: Output, block: Block, first_row: int) -> NDArray[Any]:
        values, one = output.values(block, first_row, self._labels[output.name]), self.known[output.name]
        if one.means is None:
            return values
        return output.scaled(values, np.asarray(one.means), np.asarray(one.sds), first_row)

    def layouts(self, crc32: Mapping[str, Sequence[int | None]]) -> dict[str, ArrayLayout]:
        """What `store.json` tells, with the checksums of all chunks."""
        found = {}
        for name, one in self.known.items():
            labels = None if one.labels is None else tuple(self._labels[name].known)
            shape = (self.n_rows, *one.shape[1:])
            found[name] = one._replace(shape=shape, crc32=tuple(crc32[name]), labels=labels)
        return found


def append_rows(rows: Mapping[str, Any], path: Path, source: Source) -> None:
    """Append the rows of a source to the store in the folder `path`, of which these are the `Rows`.

    If it is sorted, it is written again. Else new rows follow the old ones in their files, which stay as they
    were if anything fails. `store.json` is replaced last: until then it tells of the old rows.
    """
    extended = Extended(rows, path, source)
    if extended.sort_by is not None:
        stored = tuple(
            one._replace(parts=(one.name,), stacked=False, raw=one.dtype, labels=None, standardised=False)
            for one in extended.outputs
        )
        job = Job(extended, stored, extended.sort_by, extended.chunk_rows)
        write_store(job, path, overwrite=True, resume=False)
        return
    with partial_folder(path) as folder, watched("RowStore.append", True), ExitStack() as stack:
        emptied(folder)
        stack.callback(_remove, folder)
        for array in rows.values():
            array.require_unchanged()  # another process may have been quicker
        undo = [(path / one.file, one, (path / one.file).stat()) for one in extended.known.values()]
        before = state_of(path / FILE)
        try:
            stage("rows", " of the source")
            _lengthen(extended, path, folder)
            (folder / FILE).replace(path / FILE)
        except BaseException:
            if state_of(path / FILE) == before:
                for file, one, state in undo:
                    restore(file, one, state)
            raise


def _lengthen(extended: Extended, path: Path, folder: Path) -> None:
    """Write new rows behind the old ones in the files in `path`, and into `folder` what there is then."""
    require_space(folder, extended.bytes_wanted)
    with ExitStack() as stack:
        files = {}
        for output in extended.outputs:
            one, shape = extended.known[output.name], (extended.n_rows, *output.shape)
            file = NpyFile(path / one.file, output.dtype, shape, extended.chunk_rows)
            files[output.name] = stack.enter_context(closing(file))
            file.go_on(cast(tuple[int, ...], one.crc32), extended.n_old)
        for block in extended.new():
            for name, rows in block.items():
                files[name].append(rows)
        for output in extended.outputs:
            files[output.name].finish((extended.n_rows, *output.shape))
    layouts = extended.layouts({name: file.crc32 for name, file in files.items()})
    write_layout(folder, extended.n_rows, extended.chunk_rows, None, layouts)


# The folder of a store that is written ------------------------------------------------------------
#
# A lock keeps other processes out. A journal, one line of JSON for each chunk, tells an interrupted run from
# what is not ours, and how far it came.


def require_free(path: Path, overwrite: bool, mark: str = FILE, kind: str = "row store") -> None:
    """Refuse to write over what is there; with `overwrite`, over what lacks the file `mark` of its `kind`."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} to.")
    if os.path.lexists(path):
        if not overwrite:
            raise FileExistsError(f"{path} is there already. overwrite=True replaces a {kind}.")
        if not (path / mark).is_file():
            raise FileExistsError(f"{path} is no {kind}, and is not overwritten. Give another path.")


@contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """The folder that a store is written in, `<name>.partial` beside its path, held by this process."""
    folder = path.with_name(path.name + ".partial")
    descriptor = _held(folder, path)
    try:
        yield folder
    finally:
        os.close(descriptor)


def _held(folder: Path, path: Path) -> int:
    """Lock the folder. The lock ends with the process, however it ends."""
    try:
        import fcntl  # not before a store is written: Windows has none
    except ImportError as error:
        raise ImportError(
            f"RowStore.write locks the folder of {path}, and Python has no locks of files on this system "
            f"({error}). Write the store on Linux or macOS, or keep the rows in memory."
        ) from error
    while True:
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise BlockingIOError(
                errno.EAGAIN, f"Another process is writing {path}. Wait until it is done"
            ) from None
        try:
            if folder.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except FileNotFoundError:
            pass
        # Whoever held it has given it its name meanwhile.
        os.close(descriptor)


def emptied(folder: Path) -> None:
    """Delete what an earlier run has left; a `FileExistsError` if something else lies in the folder."""
    there = sorted(folder.iterdir(), key=lambda path: path.name == JOURNAL)
    if there and not any(path.name in (JOURNAL, FILE) for path in there):
        raise FileExistsError(f"{folder} is in the way: no interrupted writing has left it. Rename it.")
    # The journal goes last: it tells that all else is ours.
    for path in there:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def begin_journal(folder: Path, entries: Sequence[Entry]) -> TextIO:
    """A journal that says what is written, and has the entries of an earlier run that are kept."""
    # What is written to it is in the file after each line.
    journal = (folder / JOURNAL).open("w", encoding="utf-8", buffering=1)
    journal.writelines(json.dumps(entry) + "\n" for entry in entries)
    return journal


def entries_of(folder: Path, request: Entry) -> list[Entry]:
    """What an earlier run has told of its chunks; nothing if there was no such run."""
    path = folder / JOURNAL
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        # After a power cut the last lines may be cut, or without their content.
        try:
            found.append(json.loads(line if line.endswith("\n") else ""))
        except ValueError:
            break
    if not found:
        return []
    # As JSON gives it back: lists for tuples.
    wanted = json.loads(json.dumps(request))
    for key, value in wanted.items():
        if found[0].get(key) != value:
            raise ValueError(
                f"{folder} was begun with another {key}: {found[0].get(key)}, now {value}. "
                "Without resume=True it is begun anew."
            )
    return found[1:]
