"""A comparison as one HTML page that needs no other file."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, get_args

import pandas as pd

from pymc_austerity.plots.optional import optional
from pymc_austerity.report.judgement import Judgement, Verdict
from pymc_austerity.report.probing.of_run import Probed
from pymc_austerity.report.render import words
from pymc_austerity.report.render.figures import Album
from pymc_austerity.report.results import Results
from pymc_austerity.report.run import Run


def as_html(comparison: Results) -> str:
    """Render the page; every text from outside is escaped."""
    jinja2 = optional("jinja2")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    source = resources.files(__package__).joinpath("template.html").read_text(encoding="utf-8")
    album = Album(comparison)
    standard = comparison.standard
    # What matters most is drawn first: figures are left out where the page would become too large.
    overview, costs = album.overview(), album.costs()
    steps = [
        _step(album, k, run, judgement, probe) for k, (run, judgement, probe) in enumerate(comparison.results)
    ]
    remarks = [*comparison.notes, *(f"The reference: {note}" for note in standard.notes)]
    remarks += [f"The reference warned: {message}" for message in standard.messages]
    text: str = environment.from_string(source).render(
        title=words.headline(comparison),
        lede=" ".join(words.configuration_lines(comparison)[:-1]),
        verdicts=get_args(Verdict),
        reference_error=standard.error,
        steps=steps,
        agreement=_table(
            words.agreement_table(comparison),
            "The most significant differences from the reference, with their Monte Carlo errors; the largest "
            "Kolmogorov-Smirnov distance; and whether batch means are normal.",
        ),
        cost=_table(
            words.cost_table(comparison),
            words.cost_note(comparison),
        ),
        overview=overview,
        costs=costs,
        too_wide=words.too_wide(comparison),
        reliability=words.reliability(comparison),
        configuration=words.configuration_lines(comparison),
        remarks=remarks,
    )
    return text


def _step(album: Album, k: int, run: Run, judgement: Judgement, probe: Probed) -> dict[str, Any]:
    """The section of one step."""
    normality = None
    if run.idata is not None:
        normality = {
            "verdict": probe.verdict,
            "reason": probe.reason,
            "figures": album.normality(run, probe),
            "note": words.NORMALITY_NOTE if probe.log_ratios is not None else "",
        }
    return {
        "id": f"step-{k + 1}",
        "name": run.name,
        "verdict": judgement.verdict,
        "reason": judgement.reason,
        "messages": run.messages,
        "notes": run.notes,
        "worst": _table(words.worst_table(judgement), "The scalars that differ most from the reference."),
        "posterior": album.posterior(run, judgement),
        "data": album.data(run),
        "decisions": _table(
            words.decisions_table(run),
            "Decisions: how close they were, and what that means for their errors.",
        ),
        "normality": normality,
        "safety": words.safety_of(judgement),
        "configuration": "\n".join(
            [
                run.step,
                *(json.dumps(each, indent=1, ensure_ascii=False, default=str) for each in run.configuration),
            ]
        ),
    }


def _table(table: pd.DataFrame | None, caption: str) -> dict[str, Any] | None:
    if table is None or table.empty:
        return None
    rows = [(str(n), [str(c) for c in row]) for n, row in zip(table.index, table.to_numpy(), strict=True)]
    return {"caption": caption, "columns": list(table.columns), "rows": rows}
