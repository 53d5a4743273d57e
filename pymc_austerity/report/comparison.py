"""A comparison: its results as a table, in words, and as a page."""

import json
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pymc
from xarray import DataTree

from pymc_austerity._version import __version__
from pymc_austerity.diagnostics import decision_summary
from pymc_austerity.diagnostics.result import NotRecordedError
from pymc_austerity.plots.style import optional
from pymc_austerity.report import figures
from pymc_austerity.report.judgement import (
    ABSENT,
    FEWEST_EFFECTIVE,
    LARGEST_RHAT,
    LEVEL,
    Judgement,
    Verdict,
    convergence,
    with_error,
)
from pymc_austerity.report.probe import Probed
from pymc_austerity.report.run import OF_REFERENCE, Run, Settings


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """Several steps on one model, compared with a reference.

    Made by `compare`.

    Attributes
    ----------
    results : tuple of (Run, Judgement, Probed)
        Of every step: what it did, whether its posterior agrees with the reference, and whether its
        batch means are normal.
    standard : Run
        The reference.
    var_names : tuple of str
        Variables that were compared.
    tolerance : float
        The difference that matters, in posterior sds.
    settings : Settings
    notes : tuple of str
        What was done otherwise than asked for.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import MetropolisHastings, compare
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pm.Normal("y", mu, 1, observed=np.random.default_rng(1).normal(size=2000))
    >>> hot = MetropolisHastings(temperature=0.3, model=model)
    >>> result = compare(model, {"hot": hot}, budget={"draws": 1000}, chains=2, random_seed=1)
    >>> result.verdicts
    {'hot': 'differs'}
    >>> result.runs["hot"].posterior["mu"].shape
    (2, 1000)
    """

    results: tuple[tuple[Run, Judgement, Probed], ...]
    standard: Run
    var_names: tuple[str, ...]
    tolerance: float
    settings: Settings
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> dict[str, DataTree]:
        """Draws of the steps that did not fail, by name."""
        return {run.name: run.idata for run, _, _ in self.results if run.idata is not None}

    @property
    def reference(self) -> DataTree | None:
        """Draws of the reference; None if it failed."""
        return self.standard.idata

    @property
    def reference_name(self) -> str:
        """Name of the reference beside the steps."""
        return f"{self.standard.name}{OF_REFERENCE}"

    @property
    def failures(self) -> dict[str, str]:
        """Why steps failed, by name; of the reference too, by `reference_name`."""
        errors = {run.name: run.error for run, _, _ in self.results}
        errors[self.reference_name] = self.standard.error
        return {name: error for name, error in errors.items() if error}

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdict on each step, by name: "agrees", "differs", "cannot tell" or "failed"."""
        return {run.name: judgement.verdict for run, judgement, _ in self.results}

    def to_dataframe(self) -> pd.DataFrame:
        """One row for the reference, and one for each step.

        Returns
        -------
        DataFrame
            Columns:

            * ``draws`` after tuning, of all chains; ``seconds`` and ``tuning_seconds`` that they took.
            * ``terms``: local terms evaluated after tuning; for NUTS gradients of terms. ``fraction_used``:
              the terms that a transition evaluated, over N: above 1 on a field, where a sweep has several
              moves. NaN if they are not counted.
            * ``ess``, ``rhat``: of the worst scalar; the smaller of bulk and tail ESS.
            * ``ess_per_second``; ``terms_per_effective_draw``. Those of a step that is ``too_wide`` are not
              effective draws of the posterior, and not to be compared with those of others: an sd of it is
              larger than that of the reference by more than 5 %, beyond chance.
            * ``shift``, ``shift_error``, ``shift_of``: the most significant shift of a mean, in posterior
              sds, its Monte Carlo error, and the scalar. The same for ``sd_ratio``. ``ks``: the largest
              Kolmogorov-Smirnov distance.
            * ``normality``: whether batch means are normal enough for a t-test, if there is one.
            * ``verdict``, ``reason``.
        """
        run = self.standard
        table = None if run.idata is None else convergence(run.idata, list(self.var_names))
        standard = _row(run, Judgement("cannot tell", run.error, convergence=table), None)
        rows = {self.reference_name: {**standard, "verdict": "failed" if run.error else "reference"}}
        rows |= {run.name: _row(run, judgement, probe) for run, judgement, probe in self.results}
        return pd.DataFrame.from_dict(rows, orient="index")

    def to_markdown(self) -> str:
        """Verdicts, tables and remarks as text."""
        results, standard = self.results, self.standard
        parts = [f"# {headline(self)}"]
        if standard.error:
            parts.append(f"**The reference failed**: {_inline(standard.error)}")
        probes = [f"{_bold(run.name)}: {probe.verdict}. {_inline(probe.reason)}" for run, _, probe in results]
        of_probes = [NORMALITY_NOTE] if any(probe.log_ratios is not None for _, _, probe in results) else []
        wide = map(_inline, too_wide(self))
        sections = {
            "Verdicts": _list(f"{_bold(run.name)} {_inline(str(judged))}" for run, judged, _ in results),
            "Results": "\n\n".join([note(self), _table(summary(self), "step"), *wide]),
            "How reliable this is": _list(map(_inline, reliability(self))),
            "Normality of batch means": "\n\n".join([_list(probes), *of_probes]),
            "Warnings and remarks": _list(map(_inline, remarks(self))) or "None.",
            "Configuration": _list(map(_inline, configuration_lines(self))),
        }
        parts += [f"## {title}\n\n{text}" for title, text in sections.items() if text]
        return "\n\n".join(parts) + "\n"

    def to_html(self, path: str | Path | None = None) -> str:
        """One page with verdicts, tables and figures, which needs no other file.

        Parameters
        ----------
        path : str or Path, optional
            Where to write it, too; directories are made.

        Returns
        -------
        str
            The page.

        Raises
        ------
        ImportError
            If the extra `plots` is not installed: ``pip install "pymc_austerity[plots]"``.
        """
        jinja2 = optional("jinja2")
        environment = jinja2.Environment(
            autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
        )
        source = resources.files(__package__).joinpath("template.html").read_text(encoding="utf-8")
        # The template calls functions of this module. Figures are drawn where it asks for them: what comes
        # late is left out of a page that is full.
        text: str = environment.from_string(source, globals()).render(
            comparison=self,
            tables={run.name: judged.table for run, judged, _ in self.results if judged.table is not None},
            counted={name: i for name, i in self.runs.items() if _COUNTS & set(i["sample_stats"])},
            album=figures.Album(),
            verdicts=get_args(Verdict),
        )
        if path is not None:
            path = Path(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        return text

    def __repr__(self) -> str:
        columns = ["verdict", "seconds", "ESS", "ESS per second"]
        lines = [headline(self), "", _table(summary(self)[columns], "step"), ""]
        sentences = [f"{run.name} {judgement}" for run, judgement, _ in self.results] + too_wide(self)
        n = sum(len(run.messages) for run, _, _ in self.results) + len(self.standard.messages)
        if n:
            sentences.append(f"{n} warning{'s' if n > 1 else ''} while sampling: see to_markdown().")
        return "\n".join(lines + [textwrap.fill(text, _WIDTH, subsequent_indent="  ") for text in sentences])

    def _repr_html_(self) -> str:
        """Verdicts and the table, with what must not be compared, as a piece of HTML for notebooks."""
        verdicts = "".join(
            f"<li><strong>{escape(run.name)}</strong> {escape(str(judgement))}</li>"
            for run, judgement, _ in self.results
        )
        with pd.option_context("display.max_colwidth", None):  # names are not cut
            table = summary(self).to_html(border=0)
        table += "".join(f"<p>{escape(line)}</p>" for line in too_wide(self))
        return f"<p>{escape(headline(self))}</p><ul>{verdicts}</ul>{table}"


# Tables -------------------------------------------------------------------------------------------


def _row(run: Run, judgement: Judgement, probe: Probed | None) -> dict[str, Any]:
    """The row of a step in the table of all numbers."""
    table, chains = judgement.table, judgement.convergence
    ess = np.nan if chains is None else float(chains["ess"].min())
    return {
        "draws": run.draws,
        "seconds": run.seconds,
        "tuning_seconds": run.tuning_seconds,
        "terms": run.terms,
        "fraction_used": run.fraction,
        "ess": ess,
        "rhat": np.nan if chains is None else float(chains["rhat"].max()),
        "ess_per_second": ess / run.seconds if run.seconds else np.nan,
        "terms_per_effective_draw": run.terms / ess,
        **_worst(table, "shift", "z_shift"),
        **_worst(table, "sd_ratio", "z_sd"),
        "ks": np.nan if table is None else float(table["ks"].max()),
        "too_wide": judgement.widest is not None,
        "normality": "" if probe is None else probe.verdict,
        "verdict": judgement.verdict,
        "reason": judgement.reason,
    }


def _worst(table: pd.DataFrame | None, column: str, z: str) -> dict[str, Any]:
    """The most significant difference of one kind: its size, its error and its scalar."""
    names, found = (column, f"{column}_error", f"{column}_of"), (np.nan, np.nan, "")
    if table is not None and table[z].notna().any():
        worst = table[z].abs().idxmax()
        found = float(table.loc[worst, column]), float(table.loc[worst, names[1]]), str(worst)
    return dict(zip(names, found, strict=True))


# What says how much data a run has touched.
_COUNTS = {"n_used", "n_steps"}
# Scalars that are shown of each step.
_WORST = 10
# Beside effective draws of a distribution that is too wide.
WIDE = "\N{DAGGER}"
_DECISIONS = {
    "decisions": "decisions",
    "mean_error": "mean error at the last look",
    "max_error": "largest error at the last look",
    "near_ties": "share near a tie",
    "exhausted": "share that read all terms",
}


def summary(comparison: Comparison) -> pd.DataFrame:
    """Verdict, distance from the reference, and cost of each step, as text."""
    table = comparison.to_dataframe()
    runs = [comparison.standard, *(run for run, _, _ in comparison.results)]
    mark = [f" {WIDE}" if wide else "" for wide in table["too_wide"]]
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
            "ESS": np.floor(table["ess"]).map(number) + mark,
            "ESS per second": table["ess_per_second"].map(number) + mark,
            "R-hat": _fixed(table["rhat"], ".3f"),
            "terms": table["terms"].map(number),
            "terms per ESS": table["terms_per_effective_draw"].map(number) + mark,
            "share of data": [figures.share_of(run) for run in runs],
        }
    )


def worst_table(table: pd.DataFrame) -> pd.DataFrame:
    """The scalars that differ most, as text, from the table of a `Judgement`."""
    table = table.head(_WORST)
    return pd.DataFrame(
        {
            "shift (sd)": _errors(table, "shift", True),
            "shift in errors": _fixed(table["z_shift"], "+.1f"),
            "sd ratio": _errors(table, "sd_ratio"),
            "sd ratio in errors": _fixed(table["z_sd"], "+.1f"),
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


def number(value: float, digits: int = 3) -> str:
    """A few digits; thousands grouped."""
    if not np.isfinite(value):
        return ABSENT
    size = abs(float(value))
    if size >= 1e7:
        exponent = int(np.floor(np.log10(size)))
        return f"{value / 10**exponent:.1f}e{exponent}"
    if size >= 100 or (float(value).is_integer() and size >= 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def _fixed(column: pd.Series, form: str) -> pd.Series:
    """A column of numbers in one form, as text."""
    return column.map(lambda x: ABSENT if np.isnan(x) else format(x, form))


def _errors(table: pd.DataFrame, column: str, sign: bool = False) -> pd.Series:
    """A column with its Monte Carlo errors, as text."""
    pairs = zip(table[column], table[f"{column}_error"], strict=True)
    return pd.Series([with_error(*pair, sign) for pair in pairs], table.index, dtype=object)


# Markdown -----------------------------------------------------------------------------------------


# Columns of a terminal.
_WIDTH, _LONGEST = 80, 44


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _bold(text: str) -> str:
    return f"**{_inline(text)}**"


def _inline(text: str) -> str:
    """Text on one line, in which what Markdown or HTML would take for markup is escaped."""
    return re.sub(r"([\\`*<])", r"\\\1", " ".join(text.split()))


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


# Words --------------------------------------------------------------------------------------------


_NOTE = (
    "The most significant differences from the reference, with their Monte Carlo errors, and the largest "
    "Kolmogorov-Smirnov distance. Draws after tuning; tuning in seconds. For NUTS terms are gradients of "
    "terms. ESS and R-hat are those of the worst scalar."
)
_SWEEPS = (
    " Before x: moves of a sweep over groups, of what they share and of their effects. Each may read all N "
    "rows."
)
NORMALITY_NOTE = (
    "Normal batch means are what the test takes for granted. Whether the posterior is right is measured "
    "beside the reference."
)


def headline(comparison: Comparison) -> str:
    """First line of a comparison: the steps, and the reference."""
    n, run, n_local = len(comparison.results), comparison.standard, comparison.settings.n_local
    known = {"exact": "exact Metropolis-Hastings on all data", "nuts": "NUTS on all data"}
    size = "" if n_local is None else f", N = {n_local:,} rows"
    return f"Comparison of {n} step{'s' if n > 1 else ''} with {known.get(run.name, run.step)}{size}"


def note(comparison: Comparison) -> str:
    """What the numbers of the summary are."""
    has_sweeps = any(run.moves > 1 for run, _, _ in comparison.results) or comparison.standard.moves > 1
    return _NOTE + (_SWEEPS if has_sweeps else "")


def too_wide(comparison: Comparison) -> list[str]:
    """Steps whose effective draws are not those of the posterior."""
    widest = {run.name: judgement.widest for run, judgement, _ in comparison.results}
    return [
        f"{WIDE} {name} samples a distribution that is too wide (sd ratio "
        f"{with_error(found['sd_ratio'], found['sd_ratio_error'])} for {found.name}): its effective draws "
        "are not those of the posterior, and its ESS per second is not to be compared with that of other "
        "steps."
        for name, found in widest.items()
        if found is not None
    ]


def reliability(comparison: Comparison) -> list[str]:
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


def remarks(comparison: Comparison) -> list[str]:
    """What was done otherwise than asked for, and the warnings of all runs."""
    lines = list(comparison.notes)
    runs = {comparison.reference_name: comparison.standard}
    runs |= {run.name: run for run, _, _ in comparison.results}
    for name, run in runs.items():
        lines += [f"{name}: {note}" for note in run.notes]
        lines += [f"{name} warned: {message}" for message in run.messages]
    return lines


def configuration_of(run: Run) -> str:
    """A step and everything that its parts tell about themselves."""
    parts = [json.dumps(each, indent=1, ensure_ascii=False, default=str) for each in run.configuration]
    return "\n".join([run.step, *parts])


def configuration_lines(comparison: Comparison) -> list[str]:
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
