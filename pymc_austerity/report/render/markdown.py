"""A comparison as Markdown, and as a short piece of HTML for notebooks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

import pandas as pd

from pymc_austerity.report.render import words
from pymc_austerity.report.results import Results

# Columns of a terminal.
_WIDTH, _LONGEST = 80, 44


def as_markdown(comparison: Results) -> str:
    """Verdicts, tables and remarks."""
    parts = [f"# {words.headline(comparison)}"]
    if comparison.standard.error:
        parts.append(f"**The reference failed**: {_inline(comparison.standard.error)}")
    parts.append("## Verdicts")
    parts.append(
        _list(
            f"{_bold(run.name)} {_inline(words.verdict_of(judgement))}"
            for run, judgement, _ in comparison.results
        )
    )
    parts += ["## Agreement", _table(words.agreement_table(comparison), "step")]
    parts += ["## Cost", words.cost_note(comparison), _table(words.cost_table(comparison), "step")]
    parts += [_inline(line) for line in words.too_wide(comparison)]
    parts += ["## How reliable this is", _list(map(_inline, words.reliability(comparison)))]
    probes = [
        f"{_bold(run.name)}: {probe.verdict}. {_inline(probe.reason)}" for run, _, probe in comparison.results
    ]
    measured = [(run.name, words.safety_of(judgement)) for run, judgement, _ in comparison.results]
    if any(text for _, text in measured):
        safety = _list(f"{_bold(name)}: {_inline(text)}" for name, text in measured if text)
        parts += ["## Can it be trusted?", safety]
    parts += ["## Normality of batch means", _list(probes)]
    if any(probe.log_ratios is not None for _, _, probe in comparison.results):
        parts.append(words.NORMALITY_NOTE)
    remarks = remarks_of(comparison)
    parts += ["## Warnings and remarks", _list(map(_inline, remarks)) if remarks else "None."]
    parts += ["## Configuration", _list(map(_inline, words.configuration_lines(comparison)))]
    return "\n\n".join(parts) + "\n"


def as_fragment(comparison: Results) -> str:
    """Verdicts and both tables, with what must not be compared."""
    verdicts = "".join(
        f"<li><strong>{escape(run.name)}</strong> {escape(words.verdict_of(judgement))}</li>"
        for run, judgement, _ in comparison.results
    )
    tables = [words.agreement_table(comparison), words.cost_table(comparison)]
    with pd.option_context("display.max_colwidth", None):  # names are not cut
        shown = "".join(table.to_html(border=0) for table in tables)
    shown += "".join(f"<p>{escape(line)}</p>" for line in words.too_wide(comparison))
    return f"<p>{escape(words.headline(comparison))}</p><ul>{verdicts}</ul>{shown}"


def remarks_of(comparison: Results) -> list[str]:
    """All that was said while sampling, and what was done otherwise."""
    remarks = [*comparison.notes]
    runs = {comparison.reference_name: comparison.standard}
    runs |= {run.name: run for run, _, _ in comparison.results}
    for name, run in runs.items():
        remarks += [f"{name}: {note}" for note in run.notes]
        remarks += [f"{name} warned: {message}" for message in run.messages]
    return remarks


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _bold(text: str) -> str:
    return f"**{_inline(text)}**"


def _table(table: pd.DataFrame, corner: str) -> str:
    """A table that prints whole in 80 columns: several, one below the other, where it is wider."""
    names = _padded([corner, *map(str, table.index)])
    columns = [_padded([str(c), *map(str, table[c])]) for c in table.columns]
    blocks: list[list[list[str]]] = []
    for column in columns:
        wide = sum(len(each[0]) + 3 for each in [names, *(blocks[-1] if blocks else []), column]) + 1
        if not blocks or wide > _WIDTH:
            blocks.append([])
        blocks[-1].append(column)
    return "\n\n".join(_block([names, *block]) for block in blocks)


def _padded(texts: Iterable[str]) -> list[str]:
    """Cells of one column, all of one width but for those that are very long."""
    cells = [_cell(text) for text in texts]
    width = min(max(map(len, cells)), _LONGEST)
    return [cell.ljust(width) for cell in cells]


def _block(columns: list[list[str]]) -> str:
    rule = ["-" * len(column[0]) for column in columns]
    rows = [*zip(*columns, strict=True)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def _cell(text: str) -> str:
    return _inline(text).replace("|", "\\|")


def _inline(text: str) -> str:
    """Text on one line, in which what Markdown or HTML would take for markup is escaped."""
    return re.sub(r"([\\`*<])", r"\\\1", " ".join(text.split()))
