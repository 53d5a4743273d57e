"""The folder in which a store is written before it has its name: nothing half-made is taken for whole.

A lock keeps other processes out. A journal, one line of JSON for each chunk, tells an interrupted run from
what is not ours, and how far it came.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from pymc_austerity.data.layout import FILE

JOURNAL = "journal.jsonl"

# A line of the journal: the first says what is written, the others what is known of a chunk.
Entry = dict[str, Any]


def require_free(path: Path, overwrite: bool, mark: str = FILE, kind: str = "row store") -> None:
    """Refuse to write over what is there; with `overwrite`, over anything of another `kind`.

    The kind is known by a file within, its `mark`.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} to.")
    if os.path.lexists(path):
        if not overwrite:
            raise FileExistsError(f"{path} is there already. overwrite=True replaces a {kind}.")
        if not (path / mark).is_file():
            raise FileExistsError(f"{path} is no {kind}, and is not overwritten. Give another path.")


def partial_path(path: Path) -> Path:
    """The folder in which a store is written: `<name>.partial` beside its path."""
    return path.with_name(path.name + ".partial")


@contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """The folder in which the store of a path is written, held by this process.

    A `BlockingIOError` if another process writes to the path, an `ImportError` if the system has no locks.
    """
    folder = partial_path(path)
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


def publish(folder: Path, path: Path) -> None:
    """Give the folder its name; a row store that has it is deleted after that."""
    replaced = "replaced"
    if os.path.lexists(path):
        path.rename(folder / replaced)
    folder.rename(path)
    shutil.rmtree(path / replaced, ignore_errors=True)


def begin_journal(folder: Path, request: Entry, entries: list[Entry]) -> TextIO:
    """A journal that says what is written, and has the entries of an earlier run that are kept.

    What is appended by `write` is in the file after each line.
    """
    journal = (folder / JOURNAL).open("w", encoding="utf-8", buffering=1)
    journal.writelines(json.dumps(entry) + "\n" for entry in [request, *entries])
    return journal


def entries_of(folder: Path, request: Entry) -> list[Entry]:
    """What an earlier run has told of its chunks; nothing if there was no such run.

    A `ValueError` if that run wrote something else.
    """
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
