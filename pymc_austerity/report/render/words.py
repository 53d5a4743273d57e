"""Numbers and verdicts in words, for text and page alike."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pymc_austerity._version import __version__
from pymc_austerity.diagnostics import decision_summary
from pymc_austerity.diagnostics.samplers import NotRecordedError
from pymc_austerity.plots.style import percent
from pymc_austerity.report.judgement import (
    FEWEST_EFFECTIVE,
    LARGEST_RHAT,
    LEVEL,
    SAFE_RATIO,
    SAFE_SHIFT,
    Judgement,
)
from pymc_austerity.report.numbers import ABSENT, number, with_error
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


def headline(comparison: Results) -> str:
    """First line of a comparison: the steps, and the reference."""
    n = len(comparison.results)
    run = comparison.standard
    what = {
        "exact": "exact Metropolis-Hastings on all data",
        "nuts": "NUTS on all data",
        "given": "draws that were given",
    }[run.name]
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
