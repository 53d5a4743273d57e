"""How far the writing of a store is: one line of JSON for each chunk."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

FILE = "journal.jsonl"

Entry = dict[str, Any]


class Journal:
    """Lines that are appended.

    Parameters
    ----------
    folder : Path
    request : dict
        What is written, as it can be written to JSON.
    entries : list of dict
        Of an earlier run, which are kept.
    """

    def __init__(self, folder: Path, request: Entry, entries: list[Entry]) -> None:
        self._file = (folder / FILE).open("w", encoding="utf-8")
        for entry in [request, *entries]:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Append one line."""
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def entries_of(folder: Path, request: Entry) -> list[Entry]:
    """Lines that an earlier run has left; none if there was no such run.

    Parameters
    ----------
    folder : Path
    request : dict

    Raises
    ------
    ValueError
        If that run wrote something else.
    """
    path = folder / FILE
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


def drop(folder: Path) -> None:
    """Delete the journal."""
    (folder / FILE).unlink()
