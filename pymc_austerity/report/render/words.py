"""A comparison in words: as Markdown, as a piece of HTML for notebooks, and what a page shares with them."""

import re
from collections.abc import Iterable
from html import escape

import numpy as np
import pandas as pd

from pymc_austerity._version import __version__
from pymc_austerity.diagnostics import decision_summary
from pymc_austerity.diagnostics.samplers import NotRecordedError
from pymc_austerity.plots.style import percent
from pymc_austerity.report.judgement import (
    ABSENT,
    FEWEST_EFFECTIVE,
    LARGEST_RHAT,
    LEVEL,
    SAFE_RATIO,
    SAFE_SHIFT,
    Judgement,
    number,
    with_error,
)
from pymc_austerity.report.results import Results
from pymc_austerity.report.run import Run

_WORST = 10
# Beside effective draws of a distribution that is too wide.
WIDE = "\N{DAGGER}"
COST_NOTE = (
    "Draws after tuning; tuning in seconds. For NUTS terms are gradients of terms. ESS and R-hat are those "
    "of the worst scalar."
)
SWEEP_NOTE = (
    " Before x: moves of a sweep over groups, one of what they share and one of their effects (also of outer "
    "groups, and of a crossed factor). Each may read all N rows."
)
_DECISIONS = {
    "decisions": "decisions",
    "mean_error": "mean error at the last look",
    "max_error": "largest error at the last look",
    "near_ties": "share near a tie",
    "exhausted": "share that read all terms",
}
NORMALITY_NOTE = (
    "Normal batch means are what the test takes for granted. Whether the posterior is right is measured "
    "beside the reference."
)
# Columns of a terminal.
_WIDTH, _LONGEST = 80, 44


def as_markdown(comparison: Results) -> str:
    """Verdicts, tables and remarks."""
    parts = [f"# {headline(comparison)}"]
    if comparison.standard.error:
        parts.append(f"**The reference failed**: {_inline(comparison.standard.error)}")
    verdicts = [
        f"{_bold(run.name)} {_inline(verdict_of(judgement))}" for run, judgement, _ in comparison.results
    ]
    parts += ["## Verdicts", _list(verdicts)]
    parts += ["## Agreement", _table(agreement_table(comparison), "step")]
    parts += ["## Cost", cost_note(comparison), _table(cost_table(comparison), "step")]
    parts += [_inline(line) for line in too_wide(comparison)]
    parts += ["## How reliable this is", _list(map(_inline, reliability(comparison)))]
    probes = [
        f"{_bold(run.name)}: {probe.verdict}. {_inline(probe.reason)}" for run, _, probe in comparison.results
    ]
    measured = [(run.name, safety_of(judgement)) for run, judgement, _ in comparison.results]
    if any(text for _, text in measured):
        safety = _list(f"{_bold(name)}: {_inline(text)}" for name, text in measured if text)
        parts += ["## Can it be trusted?", safety]
    parts += ["## Normality of batch means", _list(probes)]
    if any(probe.log_ratios is not None for _, _, probe in comparison.results):
        parts.append(NORMALITY_NOTE)
    remarks = [*comparison.notes]
    runs = {comparison.reference_name: comparison.standard}
    runs |= {run.name: run for run, _, _ in comparison.results}
    for name, run in runs.items():
        remarks += [f"{name}: {note}" for note in run.notes]
        remarks += [f"{name} warned: {message}" for message in run.messages]
    parts += ["## Warnings and remarks", _list(map(_inline, remarks)) if remarks else "None."]
    parts += ["## Configuration", _list(map(_inline, configuration_lines(comparison)))]
    return "\n\n".join(parts) + "\n"


def as_fragment(comparison: Results) -> str:
    """Verdicts and both tables, with what must not be compared."""
    verdicts = "".join(
        f"<li><strong>{escape(run.name)}</strong> {escape(verdict_of(judgement))}</li>"
        for run, judgement, _ in comparison.results
    )
    tables = [agreement_table(comparison), cost_table(comparison)]
    with pd.option_context("display.max_colwidth", None):  # names are not cut
        shown = "".join(table.to_html(border=0) for table in tables)
    shown += "".join(f"<p>{escape(line)}</p>" for line in too_wide(comparison))
    return f"<p>{escape(headline(comparison))}</p><ul>{verdicts}</ul>{shown}"


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
    cells = [_inline(text).replace("|", "\\|") for text in texts]
    width = min(max(map(len, cells)), _LONGEST)
    return [cell.ljust(width) for cell in cells]


def _block(columns: list[list[str]]) -> str:
    rule = ["-" * len(column[0]) for column in columns]
    rows = [*zip(*columns, strict=True)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def _inline(text: str) -> str:
    """Text on one line, in which what Markdown or HTML would take for markup is escaped."""
    return re.sub(r"([\\`*<])", r"\\\1", " ".join(text.split()))


def headline(comparison: Results) -> str:
    """First line of a comparison: the steps, and the reference."""
    n = len(comparison.results)
    run = comparison.standard
    what = {"exact": "exact Metropolis-Hastings on all data", "nuts": "NUTS on all data"}.get(
        run.name, run.step
    )
    size = "" if comparison.settings.n_local is None else f", N = {comparison.settings.n_local:,} rows"
    return f"Comparison of {n} step{'s' if n > 1 else ''} with {what}{size}"


def verdict_of(judgement: Judgement) -> str:
    """A verdict and its reason, as a sentence."""
    joint = {"differs": "differs from the reference:", "agrees": "agrees with the reference"}
    return f"{joint.get(judgement.verdict, judgement.verdict + ':')} {judgement.reason}"


def safety_of(judgement: Judgement) -> str:
    """Whether a step is safe here, by what was measured beside the reference; empty if nothing was."""
    if not (judgement.largest_ratio > 0.0):
        return ""
    ratio, shift = f"{judgement.largest_ratio:.3g}", f"{judgement.largest_shift:.2g}"
    if judgement.is_safe:
        return (
            f"Beside the reference the step is safe here: no sd is further off than by a factor of {ratio}, "
            f"and no mean by more than {shift} sd (upper confidence limits)."
        )
    limits = f"an sd may be off by a factor of {ratio}, and a mean by {shift} sd (upper confidence limits)"
    needed = f"factors above {SAFE_RATIO:g} and shifts above {SAFE_SHIFT:g} sd"
    if judgement.verdict == "differs":
        return f"No: beside the reference {limits}."
    if judgement.verdict == "agrees":
        return (
            f"As far as these draws tell, yes: {limits}. It is called safe once {needed} are excluded, which "
            "takes more draws of both."
        )
    return f"Not known yet: beside the reference {limits}. More draws are needed to exclude {needed}."


def too_wide(comparison: Results) -> list[str]:
    """Steps whose effective draws are not those of the posterior."""
    lines = []
    for run, judgement, _ in comparison.results:
        name, ratio, error = judgement.widest
        if name:
            lines.append(
                f"{WIDE} {run.name} samples a distribution that is too wide (sd ratio "
                f"{with_error(ratio, error)} for {name}): its effective draws are not those "
                "of the posterior, and its ESS per second is not to be compared with that of other steps."
            )
    return lines


def cost_table(comparison: Results) -> pd.DataFrame:
    """What each step cost, as text."""
    table = comparison.to_dataframe()
    runs = [comparison.standard, *(run for run, _, _ in comparison.results)]
    mark = [f" {WIDE}" if wide else "" for wide in table["too_wide"]]
    effective = {
        "ESS": table["ess"].map(lambda x: number(np.floor(x))),
        "ESS per second": table["ess_per_second"].map(number),
        "terms per ESS": table["terms_per_effective_draw"].map(number),
    }
    return pd.DataFrame(
        {
            "draws": table["draws"].map(number),
            "seconds": table["seconds"].map(number),
            "tuning": table["tuning_seconds"].map(number),
            "terms": table["terms"].map(number),
            "share of data": [share_of(run) for run in runs],
            **{name: column + mark for name, column in effective.items()},
            "R-hat": [ABSENT if np.isnan(x) else f"{x:.3f}" for x in table["rhat"]],
        }
    )


def share_of(run: Run) -> str:
    """How much of the data a transition has read, as text."""
    if np.isnan(run.fraction):
        return ABSENT
    share = percent(run.fraction / run.moves)
    return share if run.moves == 1 else f"{run.moves} x {share}"


def cost_note(comparison: Results) -> str:
    """Note on what the numbers of the table of costs are."""
    runs = [comparison.standard, *(run for run, _, _ in comparison.results)]
    return COST_NOTE + (SWEEP_NOTE if any(run.moves > 1 for run in runs) else "")


def agreement_table(comparison: Results) -> pd.DataFrame:
    """How far each step is from the reference, as text."""
    rows = {}
    for name, row in comparison.to_dataframe().iloc[1:].iterrows():
        rows[name] = {
            "shift of a mean (sd)": _of(with_error(row["shift"], row["shift_error"], True), row["shift_of"]),
            "sd ratio": _of(with_error(row["sd_ratio"], row["sd_ratio_error"]), row["sd_ratio_of"]),
            "KS": number(row["ks"], 2),
            "normal batch means": row["normality"],
            "verdict": row["verdict"],
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def _of(value: str, name: str) -> str:
    return f"{value} {name}".strip()


def worst_table(judgement: Judgement) -> pd.DataFrame | None:
    """The scalars that differ most, as text."""
    table = judgement.table
    if table is None:
        return None
    table = table.head(_WORST)
    return pd.DataFrame(
        {
            "shift (sd)": [
                with_error(a, b, True) for a, b in zip(table["shift"], table["shift_error"], strict=True)
            ],
            "shift in errors": [ABSENT if np.isnan(z) else f"{z:+.1f}" for z in table["z_shift"]],
            "sd ratio": [
                with_error(a, b) for a, b in zip(table["sd_ratio"], table["sd_ratio_error"], strict=True)
            ],
            "sd ratio in errors": [ABSENT if np.isnan(z) else f"{z:+.1f}" for z in table["z_sd"]],
            "KS distance": table["ks"].map(lambda x: number(x, 2)),
            "Wasserstein (sd)": table["wasserstein"].map(lambda x: number(x, 2)),
        },
        index=table.index,
    )


def decisions_table(run: Run) -> pd.DataFrame | None:
    """How close decisions were, as text; None for steps that make no such decisions."""
    if run.idata is None:
        return None
    try:
        table = decision_summary(run.idata)
    except NotRecordedError:
        return None
    table = table[table["decisions"] > 0]
    return table.map(number).rename(columns=_DECISIONS)


def reliability(comparison: Results) -> list[str]:
    """Remarks on what the comparison can tell, and what it cannot."""
    tables = [j.table for _, j, _ in comparison.results if j.table is not None]
    lines = []
    if tables:
        n = len(tables[0])
        limit = max(j.limit for _, j, _ in comparison.results if j.table is not None)
        lines.append(
            f"{n} scalar{'s' if n > 1 else ''} with three comparisons each (mean, sd, distribution): a step "
            f"is said to differ from {limit:.1f} standard errors on. At this limit a step with the right "
            f"distribution is said to differ with a probability of about {LEVEL:g}, however many scalars "
            "there are; that is for each step."
        )
        lines.append(
            "Numbers in brackets are Monte Carlo standard errors, of the step and of the reference together. "
            f'"Agrees" is said only if differences of {comparison.tolerance:g} posterior sd are excluded, '
            'else "cannot tell".'
        )
    lines.append(
        f"Above an R-hat of {LARGEST_RHAT:g}, or below {FEWEST_EFFECTIVE} effective draws, Monte Carlo "
        'errors are not known themselves, and the verdict is "cannot tell".'
    )
    lines.append(
        "Terms are counted as they are read: subsampled steps evaluate each at two states, exact "
        "Metropolis-Hastings at one, NUTS with its gradient. The error at the last look is what the test "
        "estimated when it stopped: always below epsilon, while the whole test errs more often near ties."
    )
    if comparison.settings.initvals is not None:
        lines.append(
            "All chains start at one point, so a part of the posterior that all of them miss is not seen."
        )
    if comparison.settings.chains == 1:
        lines.append("One chain: R-hat compares its halves, and sees less than that of several chains.")
    return lines


def configuration_lines(comparison: Results) -> list[str]:
    """How it was run, with which versions."""
    import arviz
    import pymc

    s = comparison.settings
    start = "where PyMC starts chains" if s.initvals is None else "at the posterior mode or at initvals"
    budgets = {str(run.budget) for run, _, _ in comparison.results if run.budget is not None}
    lines = [f"Budget of each step: {', '.join(sorted(budgets))}."]
    if comparison.standard.budget is not None:
        lines.append(f"Budget of the reference: {comparison.standard.budget}.")
    lines.append(f"{s.chains} chains, one after the other; {s.tune:,} tuning draws each; they start {start}.")
    lines.append(f"pymc_austerity {__version__}, PyMC {pymc.__version__}, ArviZ {arviz.__version__}.")
    return lines
