"""A row store from a source: the first pass, a second one where it is needed, and `store.json`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.data import journal
from pymc_austerity.data.disk_space import require_space
from pymc_austerity.data.layout import ArrayLayout, Layout, write_layout
from pymc_austerity.data.narrowing import converted
from pymc_austerity.data.npy_file import NpyFile, file_size
from pymc_austerity.data.outputs import Output
from pymc_austerity.data.partial_folder import emptied, partial_folder, publish, require_free
from pymc_austerity.data.reading import UnreadableError
from pymc_austerity.data.rows import told_column
from pymc_austerity.data.sorting import Merge
from pymc_austerity.data.staging import FOLDER, Job, Staging
from pymc_austerity.progress import stage, watched

# Bytes of the widest array that are merged at once.
_MERGED_BYTES = 16_000_000
# A column whose sd is that much smaller than its mean is constant, up to rounding.
_ROUNDING = 1e-14


def write_store(job: Job, path: Path, overwrite: bool, resume: bool) -> None:
    """Write a store, or leave nothing behind.

    What is there stays for `resume=True` if the source cannot be read, or the program is interrupted.

    Parameters
    ----------
    job : Job
        Its folder is the partial folder of the path.
    path : Path
        Of the folder that the store gets.
    overwrite, resume : bool
    """
    require_free(path, overwrite)
    with partial_folder(path) as folder, watched("RowStore.write", True):
        # Another process may have been quicker.
        if os.path.lexists(path) and not overwrite:
            _removed(folder)
            require_free(path, overwrite)
        earlier = journal.entries_of(folder, job.as_json()) if resume else []
        if not earlier:
            emptied(folder)
        try:
            _fill(job, earlier)
        except (UnreadableError, KeyboardInterrupt):
            raise
        except BaseException:
            _removed(folder)
            raise
        publish(folder, path)


def _removed(folder: Path) -> None:
    emptied(folder)
    folder.rmdir()


def _fill(job: Job, earlier: list[journal.Entry]) -> None:
    """Write all files into the partial folder."""
    if not earlier:
        journal.Journal(job.folder, job.as_json(), []).close()
    require_space(job.folder, _wanted(job) - _allocated(job.folder))
    stage("rows", f" of the source: {job.source.n_rows:,}")
    staging = Staging(job)
    staging.run(earlier)
    files = dict(staging.files)
    unfinished = [output for output in job.outputs if not job.is_final(output)]
    if unfinished:
        stage("second pass", f": {job.source.n_rows:,} rows")
        files |= _finished(job, staging, unfinished)
    shutil.rmtree(job.folder / FOLDER)
    arrays = {output.name: _layout(output, files[output.name], staging) for output in job.outputs}
    write_layout(job.folder, Layout(job.source.n_rows, job.chunk_rows, job.sort_by, arrays))
    journal.drop(job.folder)


def _wanted(job: Job) -> int:
    """Bytes of all files while they are written."""
    return sum(
        file_size(output.dtype, job.shape(output))
        + (0 if job.is_final(output) else file_size(output.raw, job.shape(output)))
        for output in job.outputs
    )


def _allocated(folder: Path) -> int:
    """Bytes on disk that an earlier run has."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*.npy"))


def _finished(job: Job, staging: Staging, outputs: list[Output]) -> dict[str, NpyFile]:
    """The second pass: rows in another order, or standardised."""
    staged = {o.name: np.load(job.staged_path(o), mmap_mode="r").view(np.ndarray) for o in outputs}
    scales = {name: _scale(output, staging) for output in outputs if (name := output.name) in staging.moments}
    with ExitStack() as stack:
        files = {
            o.name: stack.enter_context(NpyFile(job.path(o), o.dtype, job.shape(o), job.chunk_rows))
            for o in outputs
        }
        for place in _places(job, staged):
            for output in outputs:
                file = files[output.name]
                rows = staged[output.name][place]
                if output.standardised:
                    mean, sd = scales[output.name]
                    rows = converted(
                        (rows - mean) / sd, output.dtype, f"{output.name!r}, standardised", file.n_rows
                    )
                file.append(rows)
        for file in files.values():
            file.sync()
    return files


def _places(job: Job, staged: Mapping[str, NDArray[Any]]) -> Iterator[slice | NDArray[np.int64]]:
    """Numbers of the rows in the order of the store, some at a time."""
    if job.sort_by is not None:
        widest = max(rows[:1].nbytes for rows in staged.values())
        at_once = max(1, _MERGED_BYTES // widest)
        yield from Merge(staged[job.sort_by], job.chunk_rows, at_once).pieces()
    else:
        for start in range(0, job.source.n_rows, job.chunk_rows):
            yield slice(start, start + job.chunk_rows)


def _scale(output: Output, staging: Staging) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each column, if they can be used."""
    moments = staging.moments[output.name]
    mean, sd = moments.mean, moments.sd
    for place in np.ndindex(mean.shape):
        told = told_column(output.name, output.parts if output.stacked else None, place)
        if not np.isfinite(sd[place]):
            raise ValueError(f"{told} has NaN or infinity in it, and cannot be standardised.")
        if sd[place] <= _ROUNDING * abs(mean[place]):
            raise ValueError(
                f"{told} is {mean[place]:g} in all rows, and cannot be standardised. Write it under another "
                "name, or leave it out."
            )
    return mean, sd


def _layout(output: Output, file: NpyFile, staging: Staging) -> ArrayLayout:
    """Entry of an array in `store.json`."""
    labels, moments = staging.labels.get(output.name), staging.moments.get(output.name)
    return ArrayLayout(
        file=file.path.name,
        offset=file.offset,
        dtype=output.dtype.str,
        shape=file.shape,
        columns=output.parts if output.stacked else None,
        crc32=tuple(file.crc32),
        labels=None if labels is None else tuple(labels.known),
        means=None if moments is None else moments.mean.tolist(),
        sds=None if moments is None else moments.sd.tolist(),
    )
