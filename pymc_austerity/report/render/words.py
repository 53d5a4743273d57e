"""A comparison in words: as Markdown, as a piece of HTML for notebooks, and what a page shares with them."""

import json
import re
from collections.abc import Iterable
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import pymc
from xarray import DataTree

from pymc_austerity._version import __version__
from pymc_austerity.diagnostics import decision_summary
from pymc_austerity.diagnostics.result import NotRecordedError
from pymc_austerity.plots.style import percent
from pymc_austerity.report.results import (
    ABSENT,
    FEWEST_EFFECTIVE,
    LARGEST_RHAT,
    LEVEL,
    SAFE_RATIO,
    SAFE_SHIFT,
    Judgement,
    Results,
    number,
    with_error,
)
from pymc_austerity.report.run import Run

_WORST = 10
# Beside effective draws of a distribution that is too wide.
WIDE = "\N{DAGGER}"
_NOTE = (
    "The most significant differences from the reference, with their Monte Carlo errors, and the largest "
    "Kolmogorov-Smirnov distance. Draws after tuning; tuning in seconds. For NUTS terms are gradients of "
    "terms. ESS and R-hat are those of the worst scalar."
)
_SWEEPS = (
    " Before x: moves of a sweep over groups, of what they share and of their effects. Each may read all N "
    "rows."
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
    results, standard = comparison.results, comparison.standard
    parts = [f"# {headline(comparison)}"]
    if standard.error:
        parts.append(f"**The reference failed**: {_inline(standard.error)}")
    safety = [(run.name, safety_of(judgement)) for run, judgement, _ in results]
    probes = [f"{_bold(run.name)}: {probe.verdict}. {_inline(probe.reason)}" for run, _, probe in results]
    of_probes = [NORMALITY_NOTE] if any(probe.log_ratios is not None for _, _, probe in results) else []
    wide = map(_inline, too_wide(comparison))
    sections = {
        "Verdicts": _list(f"{_bold(run.name)} {_inline(verdict_of(judged))}" for run, judged, _ in results),
        "Results": "\n\n".join([note(comparison), _table(summary(comparison), "step"), *wide]),
        "How reliable this is": _list(map(_inline, reliability(comparison))),
        "Can it be trusted?": _list(f"{_bold(name)}: {_inline(text)}" for name, text in safety if text),
        "Normality of batch means": "\n\n".join([_list(probes), *of_probes]),
        "Warnings and remarks": _list(map(_inline, remarks(comparison))) or "None.",
        "Configuration": _list(map(_inline, configuration_lines(comparison))),
    }
    parts += [f"## {title}\n\n{text}" for title, text in sections.items() if text]
    return "\n\n".join(parts) + "\n"


def as_fragment(comparison: Results) -> str:
    """Verdicts and the table, with what must not be compared."""
    verdicts = "".join(
        f"<li><strong>{escape(run.name)}</strong> {escape(verdict_of(judgement))}</li>"
        for run, judgement, _ in comparison.results
    )
    with pd.option_context("display.max_colwidth", None):  # names are not cut
        table = summary(comparison).to_html(border=0)
    table += "".join(f"<p>{escape(line)}</p>" for line in too_wide(comparison))
    return f"<p>{escape(headline(comparison))}</p><ul>{verdicts}</ul>{table}"


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _bold(text: str) -> str:
    return f"**{_inline(text)}**"


def _table(table: pd.DataFrame, corner: str) -> str:
    """A table that prints whole in 80 columns: several, one below the other, where it is wider."""
    names, *columns = (_padded(column) for column in table.reset_index(names=corner).items())
    blocks = [[names]]
    for column in columns:
        if len(blocks[-1]) > 1 and sum(len(each[0]) + 3 for each in [*blocks[-1], column]) >= _WIDTH:
            blocks.append([names])
        blocks[-1].append(column)
    rows = [["| " + " | ".join(row) + " |" for row in zip(*block, strict=True)] for block in blocks]
    return "\n\n".join("\n".join(block) for block in rows)


def _padded(column: tuple[Any, pd.Series]) -> list[str]:
    """Head, rule and cells of a column, all of one width but for those that are very long."""
    head, *cells = (_inline(str(text)).replace("|", "\\|") for text in (column[0], *column[1]))
    width = min(max(map(len, [head, *cells])), _LONGEST)
    return [head.ljust(width), "-" * max(len(head), width), *(cell.ljust(width) for cell in cells)]


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


def summary(comparison: Results) -> pd.DataFrame:
    """Verdict, distance from the reference, and cost of each step, as text."""
    table = comparison.to_dataframe()
    runs = [comparison.standard, *(run for run, _, _ in comparison.results)]
    mark = [f" {WIDE}" if wide else "" for wide in table["too_wide"]]
    rhat = [ABSENT if np.isnan(x) else f"{x:.3f}" for x in table["rhat"]]
    return pd.DataFrame(
        {
            "verdict": table["verdict"],
            "shift of a mean (sd)": (_errors(table, "shift", True) + " " + table["shift_of"]).str.strip(),
            "sd ratio": (_errors(table, "sd_ratio") + " " + table["sd_ratio_of"]).str.strip(),
            "KS": table["ks"].map(lambda x: number(x, 2)),
            "normal batch means": table["normality"],
            "draws": table["draws"].map(number),
            "seconds": table["seconds"].map(number),
            "tuning": table["tuning_seconds"].map(number),
            "ESS": table["ess"].map(lambda x: number(np.floor(x))) + mark,
            "ESS per second": table["ess_per_second"].map(number) + mark,
            "R-hat": rhat,
            "terms": table["terms"].map(number),
            "terms per ESS": table["terms_per_effective_draw"].map(number) + mark,
            "share of data": [share_of(run) for run in runs],
        }
    )


def _errors(table: pd.DataFrame, column: str, sign: bool = False) -> pd.Series:
    """A column with its Monte Carlo errors, as text."""
    pairs = zip(table[column], table[f"{column}_error"], strict=True)
    return pd.Series([with_error(*pair, sign) for pair in pairs], table.index, dtype=object)


def share_of(run: Run) -> str:
    """How much of the data a transition has read, as text."""
    if np.isnan(run.fraction):
        return ABSENT
    share = percent(run.fraction / run.moves)
    return share if run.moves == 1 else f"{run.moves} x {share}"


def note(comparison: Results) -> str:
    """What the numbers of the summary are."""
    has_sweeps = any(run.moves > 1 for run, _, _ in comparison.results) or comparison.standard.moves > 1
    return _NOTE + (_SWEEPS if has_sweeps else "")


def worst_table(table: pd.DataFrame) -> pd.DataFrame:
    """The scalars that differ most, as text, from the table of a `Judgement`."""
    table = table.head(_WORST)
    return pd.DataFrame(
        {
            "shift (sd)": _errors(table, "shift", True),
            "shift in errors": [ABSENT if np.isnan(z) else f"{z:+.1f}" for z in table["z_shift"]],
            "sd ratio": _errors(table, "sd_ratio"),
            "sd ratio in errors": [ABSENT if np.isnan(z) else f"{z:+.1f}" for z in table["z_sd"]],
            "KS distance": table["ks"].map(lambda x: number(x, 2)),
            "Wasserstein (sd)": table["wasserstein"].map(lambda x: number(x, 2)),
        }
    )


def decisions_table(idata: DataTree) -> pd.DataFrame | None:
    """How close decisions were, as text; None for steps that make no such decisions."""
    try:
        table = decision_summary(idata)
    except NotRecordedError:
        return None
    table = table[table["decisions"] > 0].map(number).rename(columns=_DECISIONS)
    return None if table.empty else table


def configuration_of(run: Run) -> str:
    """A step and everything that its parts tell about themselves."""
    parts = [json.dumps(each, indent=1, ensure_ascii=False, default=str) for each in run.configuration]
    return "\n".join([run.step, *parts])


def reliability(comparison: Results) -> list[str]:
    """Remarks on what the comparison can tell, and what it cannot."""
    lines = []
    judged = [(len(j.table), j.limit) for _, j, _ in comparison.results if j.table is not None]
    if judged:
        n, limit = max(judged)
        lines = [
            f"{n} scalar{'s' if n > 1 else ''} with three comparisons each (mean, sd, distribution): a step "
            f"is said to differ from {limit:.1f} standard errors on. At this limit a step with the right "
            f"distribution is said to differ with a probability of about {LEVEL:g}, however many scalars "
            "there are; that is for each step.",
            "Numbers in brackets are Monte Carlo standard errors, of the step and of the reference together. "
            f'"Agrees" is said only if differences of {comparison.tolerance:g} posterior sd are excluded, '
            'else "cannot tell".',
        ]
    lines += [
        f"Above an R-hat of {LARGEST_RHAT:g}, or below {FEWEST_EFFECTIVE} effective draws, Monte Carlo "
        'errors are not known themselves, and the verdict is "cannot tell".',
        "Terms are counted as they are read: subsampled steps evaluate each at two states, exact "
        "Metropolis-Hastings at one, NUTS with its gradient. The error at the last look is what the test "
        "estimated when it stopped: always below epsilon, while the whole test errs more often near ties.",
    ]
    if comparison.settings.initvals is not None:
        lines.append(
            "All chains start at one point, so a part of the posterior that all of them miss is not seen."
        )
    if comparison.settings.chains == 1:
        lines.append("One chain: R-hat compares its halves, and sees less than that of several chains.")
    return lines


def remarks(comparison: Results) -> list[str]:
    """What was done otherwise than asked for, and the warnings of all runs."""
    lines = list(comparison.notes)
    runs = {comparison.reference_name: comparison.standard}
    runs |= {run.name: run for run, _, _ in comparison.results}
    for name, run in runs.items():
        lines += [f"{name}: {note}" for note in run.notes]
        lines += [f"{name} warned: {message}" for message in run.messages]
    return lines


def configuration_lines(comparison: Results) -> list[str]:
    """How it was run, with which versions."""
    import arviz

    s, of_reference = comparison.settings, comparison.standard.budget
    start = "where PyMC starts chains" if s.initvals is None else "at the posterior mode or at initvals"
    budgets = {str(run.budget) for run, _, _ in comparison.results}
    return [
        f"Budget of each step: {', '.join(sorted(budgets))}.",
        *([] if of_reference is None else [f"Budget of the reference: {of_reference}."]),
        f"{s.chains} chains, one after the other; {s.tune:,} tuning draws each; they start {start}.",
        f"pymc_austerity {__version__}, PyMC {pymc.__version__}, ArviZ {arviz.__version__}.",
    ]
