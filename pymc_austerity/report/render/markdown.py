"""A comparison as Markdown, and as a short piece of HTML for notebooks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

import pandas as pd

from pymc_austerity.report.render import words
from pymc_austerity.report.results import Results


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
    parts += ["## Cost", _table(words.cost_table(comparison), "step")]
    parts += ["## How reliable this is", _list(map(_inline, words.reliability(comparison)))]
    probes = [
        f"{_bold(run.name)}: {probe.verdict}. {_inline(probe.reason)}" for run, _, probe in comparison.results
    ]
    parts += ["## Normality of batch means", _list(probes)]
    if any(probe.log_ratios is not None for _, _, probe in comparison.results):
        parts.append(words.NORMALITY_NOTE)
    remarks = remarks_of(comparison)
    parts += ["## Warnings and remarks", _list(map(_inline, remarks)) if remarks else "None."]
    parts += ["## Configuration", _list(map(_inline, words.configuration_lines(comparison)))]
    return "\n\n".join(parts) + "\n"


def as_fragment(comparison: Results) -> str:
    """Verdicts and both tables."""
    verdicts = "".join(
        f"<li><strong>{escape(run.name)}</strong> {escape(words.verdict_of(judgement))}</li>"
        for run, judgement, _ in comparison.results
    )
    tables = [words.agreement_table(comparison), words.cost_table(comparison)]
    with pd.option_context("display.max_colwidth", None):  # names are not cut
        shown = "".join(table.to_html(border=0) for table in tables)
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
    rows = [[corner, *table.columns], ["---"] * (table.shape[1] + 1)]
    rows += [[str(name), *map(str, row)] for name, row in zip(table.index, table.to_numpy(), strict=True)]
    return "\n".join("| " + " | ".join(_cell(text) for text in row) + " |" for row in rows)


def _cell(text: str) -> str:
    return _inline(text).replace("|", "\\|")


def _inline(text: str) -> str:
    """On one line, with what Markdown or HTML would take for markup escaped."""
    return re.sub(r"([\\`*<])", r"\\\1", " ".join(text.split()))
