"""The list of all files of the package, made from the first sentences of their docstrings."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "pymc_austerity"


def first_sentence(file: Path) -> str:
    """What a module says first of itself."""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def files_by_room() -> dict[str, list[Path]]:
    """Files of each folder but those that only say which names are public."""
    found: dict[str, list[Path]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        if file.stem != "__init__":
            found.setdefault(file.parent.relative_to(PACKAGE).as_posix(), []).append(file)
    return found


def page() -> str:
    """The list as a page in markdown."""
    lines = [
        "# All files",
        "",
        "Made when the documentation is built. [Architecture](../architecture.md) has the rooms.",
    ]
    for room, files in sorted(files_by_room().items()):
        n_lines = sum(len(file.read_text().splitlines()) for file in files)
        lines += [
            "",
            f"## `{'' if room == '.' else room}/`",
            "",
            f"{len(files)} files, {n_lines:,} lines.",
            "",
        ]
        lines += [f"- `{file.name}`: {first_sentence(file)}" for file in files]
    return "\n".join(lines) + "\n"
