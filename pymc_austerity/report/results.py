"""What a comparison has found: whether draws agree, differ, or that cannot be told; and one table of all."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy
import xarray as xr
from xarray import DataTree

from pymc_austerity.diagnostics import agreement
from pymc_austerity.diagnostics.result import SAMPLE, by_label, posterior_of
from pymc_austerity.report.probe import Probed
from pymc_austerity.report.run import OF_REFERENCE, Run, Settings

Verdict = Literal["agrees", "differs", "cannot tell", "failed"]

# Probability that a step with the right distribution is said to differ, over all its comparisons.
LEVEL = 0.01
# Above this R-hat chains have not found the same distribution. With fewer effective draws the errors are not
# known themselves.
LARGEST_RHAT = 1.05
FEWEST_EFFECTIVE = 100
# With fewer than these, errors are known so roughly that only larger differences count.
_SURE, _CAUTION = 400, 1.5
_NAMED = 3
# A step is called safe where larger sd ratios, and larger shifts in sds, are excluded.
SAFE_RATIO, SAFE_SHIFT = 1.05, 0.05
ABSENT = "\N{EN DASH}"  # in place of a number


@dataclass(frozen=True, eq=False)
class Judgement:
    """Verdict on the distribution of the draws of a step, compared with the reference."""

    verdict: Verdict
    reason: str  # with the figures
    limit: float = np.nan  # standard errors beyond which a difference is not chance
    # Of every scalar, the worst first: `diagnostics.agreement`, and the differences in standard errors.
    table: pd.DataFrame | None = field(default=None, repr=False)
    convergence: pd.DataFrame | None = field(default=None, repr=False)  # of every scalar
    # Upper confidence limits, for all scalars together: of the sd ratio, or its reciprocal if that is larger,
    # and of the shift of a mean in sds. NaN where Monte Carlo errors are not known.
    largest_ratio: float = np.nan
    largest_shift: float = np.nan

    @property
    def is_safe(self) -> bool:
        """Whether a visibly wrong posterior is excluded: sds within 5 %, means within 0.05 sd."""
        return self.largest_ratio < SAFE_RATIO and self.largest_shift < SAFE_SHIFT

    @property
    def widest(self) -> tuple[str, float, float]:
        """The scalar whose sd is larger than that of the reference beyond chance by most; "" if none is."""
        table = self.table
        if table is None:
            return "", np.nan, np.nan
        wide = table[(table["z_sd"] > self.limit) & (table["sd_ratio"] > SAFE_RATIO)]
        if wide.empty:
            return "", np.nan, np.nan
        name = wide["sd_ratio"].idxmax()
        return str(name), float(wide.loc[name, "sd_ratio"]), float(wide.loc[name, "sd_ratio_error"])

    def __str__(self) -> str:
        return f"{self.verdict}: {self.reason}"


def judge(idata: DataTree, reference: DataTree, var_names: list[str], tolerance: float) -> Judgement:
    """Compare the draws of a step with those of the reference.

    A difference of the tolerance would matter: of a mean in posterior sds, of an sd as a logarithm of the
    ratio. Each scalar has three comparisons: mean, sd, and the whole distribution (Kolmogorov-Smirnov). They
    are tested at `LEVEL` divided by their number (Bonferroni), whatever their dependence. The level is that
    of normal errors, from 400 effective draws on; with fewer the limit is half as large again.

    *When it fails*: Monte Carlo errors come from the chains. Chains that all miss the same part of the
    posterior agree with each other.
    """
    own, other = convergence(idata, var_names), convergence(reference, var_names)
    table, limit = _tested(agreement(idata, reference, var_names=var_names))
    doubts = [*_stuck(own, other, "its"), *_stuck(other, own, "the reference's")]
    doubts += [*_doubts(own, "its"), *_doubts(other, "the reference's")]
    unknown = table.index[table["shift"].isna()]
    if apart := [str(name) for name in unknown if own["sd"][name] == other["sd"][name] == 0.0]:
        doubts.append(f"both sides stand still, at different values of {_some(apart)}")
    known = table[[bool(own["sd"][name] > 0.0) for name in table.index]]  # the others are equal constants
    if known.empty and not doubts:
        doubts.append("nothing that is compared has moved on either side")
    if doubts:
        reason = f"{'; '.join(doubts)}, so Monte Carlo errors are not known."
        if found := _differences(table, limit):
            reason += f" As it is, it would differ: {found[0]}."
        return Judgement("cannot tell", reason, limit, table, own)
    if min(own["ess"].min(), other["ess"].min()) < _SURE:
        limit *= _CAUTION
    found = _differences(table, limit)
    # The largest differences that the errors leave possible.
    of_mean = float((known["shift"].abs() + limit * known["shift_error"]).max())
    relative = known["sd_ratio_error"] / known["sd_ratio"]
    of_sd = float((np.log(known["sd_ratio"]).abs() + limit * relative).max())
    limits = {"largest_ratio": float(np.exp(of_sd)), "largest_shift": of_mean}
    if found:
        more = f", and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return Judgement("differs", f"{'; '.join(found[:_NAMED])}{more}.", limit, table, own, **limits)
    more = f"more than {of_mean:.2g} sd in a mean, or {100 * np.expm1(of_sd):.0f} % in an sd,"
    if not max(of_mean, of_sd) <= tolerance:
        reason = (
            f"no difference is beyond {limit:.1f} standard errors, but {more} is not excluded. "
            f"More draws are needed to exclude differences of {tolerance:g} sd."
        )
        return Judgement("cannot tell", reason, limit, table, own, **limits)
    reason = f"within Monte Carlo error in all {len(known)} scalars; {more} is excluded."
    return Judgement("agrees", reason, limit, table, own, **limits)


def _tested(table: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """Add differences in standard errors, and what the number of comparisons makes of their limit."""
    table["z_shift"] = table["shift"] / table["shift_error"]
    table["z_sd"] = np.log(table["sd_ratio"]) / (table["sd_ratio_error"] / table["sd_ratio"])
    n = 3 * max(len(table), 1)
    limit = float(scipy.stats.norm.isf(LEVEL / n / 2))
    # The KS distance on the same scale, so that the worst of all comparisons is known.
    table["z_ks"] = scipy.stats.norm.isf(np.clip(table["ks_pvalue"], 1e-300, 1.0) / 2)
    worst = table[["z_shift", "z_sd", "z_ks"]].abs().max(axis=1)
    return table.loc[worst.sort_values(ascending=False, kind="stable").index], limit


def _differences(table: pd.DataFrame, limit: float) -> list[str]:
    """Differences beyond chance, the worst first."""
    found: list[tuple[float, str]] = []
    for name, row in table.iterrows():
        before = len(found)
        if abs(row["z_shift"]) > limit:
            by = with_error(row["shift"], row["shift_error"], sign=True)
            found.append((abs(row["z_shift"]), f"the mean of {name} by {by} sd"))
        if abs(row["z_sd"]) > limit:
            by = with_error(row["sd_ratio"], row["sd_ratio_error"])
            found.append((abs(row["z_sd"]), f"the sd of {name} by a factor of {by}"))
        if row["z_ks"] > limit and len(found) == before:
            by = f"a Kolmogorov-Smirnov distance of {row['ks']:.2g}"
            found.append((row["z_ks"], f"the distribution of {name} by {by}"))
    return [words for _, words in sorted(found, key=lambda pair: -pair[0])]


def _stuck(own: pd.DataFrame, other: pd.DataFrame, whose: str) -> list[str]:
    """Scalars that one side never moved, though the other did."""
    names = [str(n) for n in own.index[own["sd"] == 0.0] if other["sd"].get(n, 0.0) > 0.0]
    return [f"{whose} chains never moved {_some(names)}"] if names else []


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _doubts(table: pd.DataFrame, whose: str) -> list[str]:
    """Why Monte Carlo errors cannot be trusted."""
    doubts = []
    infinite = [str(name) for name in table.index[~np.isfinite(table["sd"])]]
    if infinite:
        doubts.append(f"{whose} chains have draws of {_some(infinite)} that are not finite")
    short = [str(name) for name in table.index[(table["sd"] > 0.0) & table["ess"].isna()]]
    if short:
        doubts.append(f"{whose} chains are too short to know the effective draws of {_some(short)}")
    if (rhat := table["rhat"].max()) > LARGEST_RHAT:
        doubts.append(f"{whose} chains have not converged (R-hat {rhat:.2f} for {table['rhat'].idxmax()})")
    if (ess := table["ess"].min()) < FEWEST_EFFECTIVE:
        doubts.append(
            f"{whose} chains have only {ess:.0f} effective draws of {table['ess'].idxmin()} "
            f"({FEWEST_EFFECTIVE} are needed)"
        )
    return doubts


@np.errstate(over="ignore")
def convergence(idata: xr.DataTree, var_names: list[str]) -> pd.DataFrame:
    """R-hat, effective draws and sd of every scalar, a row for each.

    Columns ``rhat`` (rank-normalised, split), ``ess`` (the smaller of bulk and tail), ``sd``. R-hat of a
    single chain is that of its halves; constants have neither.
    """
    import arviz_stats  # takes half a second

    draws = posterior_of(idata, var_names)
    draws = draws.where(draws.map(np.isfinite).all(SAMPLE))
    # What rounding leaves of the sd of a constant is none.
    sd = draws.std(SAMPLE, skipna=False).where(draws.max(SAMPLE) != draws.min(SAMPLE), 0.0)
    if draws.sizes["chain"] == 1:
        half = draws.sizes["draw"] // 2
        draws = xr.concat(
            [draws.isel(draw=slice(k * half, (k + 1) * half)) for k in (0, 1)], "chain", join="override"
        )
    draws = draws.where(sd > 0.0)
    # Where a whole chain stands still, there is no variance within it to compare with.
    stuck = (draws.max("draw") == draws.min("draw")).any("chain")
    sizes = arviz_stats.ess(draws), arviz_stats.ess(draws, method="tail", prob=(0.05, 0.95))
    table = {"rhat": arviz_stats.rhat(draws).where(~stuck, np.inf), "ess": np.fmin(*sizes), "sd": sd}
    return pd.DataFrame({name: by_label(own) for name, own in table.items()})


def number(value: Any, digits: int = 3) -> str:
    """A few digits; thousands grouped; words as they are."""
    if isinstance(value, str):
        return value
    if value is None or not np.isfinite(value):
        return ABSENT
    size = abs(float(value))
    if size >= 1e7:
        exponent = int(np.floor(np.log10(size)))
        return f"{value / 10**exponent:.1f}e{exponent}"
    if size >= 100 or (float(value).is_integer() and size >= 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def with_error(value: float, error: float, sign: bool = False) -> str:
    """A number with its Monte Carlo error in brackets, to two digits of the error."""
    if not np.isfinite(value):
        return ABSENT
    if not np.isfinite(error) or error <= 0.0:
        return f"{value:+.3g}" if sign else f"{value:.3g}"
    places = max(0, 1 - int(np.floor(np.log10(error)))) if error < 10 else 0
    return f"{value:{'+' if sign else ''}.{places}f} ({error:.{places}f})"


# One table of all results -------------------------------------------------------------------------

Result = tuple[Run, Judgement, Probed]


@dataclass(frozen=True, repr=False, eq=False)
class Results:
    """Results of several steps and a reference on one model."""

    # Of every step: what it did, whether its posterior agrees with the reference, and whether batch means of
    # its log ratios are normal
    results: tuple[Result, ...]
    standard: Run  # the reference
    var_names: tuple[str, ...]  # variables that were compared
    tolerance: float  # the difference that matters, in posterior sds
    settings: Settings
    notes: tuple[str, ...] = ()  # what was done otherwise than asked for

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
            * ``safe``: whether upper confidence limits of all sd ratios are below 1.05, and those of all
              shifts below 0.05 sd.
            * ``verdict``, ``reason``.
        """
        run = self.standard
        table = None if run.idata is None else convergence(run.idata, list(self.var_names))
        standard = _row(run, Judgement("cannot tell", run.error, convergence=table), None)
        rows = {self.reference_name: {**standard, "verdict": "failed" if run.error else "reference"}}
        rows |= {run.name: _row(run, judgement, probe) for run, judgement, probe in self.results}
        return pd.DataFrame.from_dict(rows, orient="index")


def _row(run: Run, judgement: Judgement, probe: Probed | None) -> dict[str, Any]:
    """The row of a step in the table."""
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
        "too_wide": bool(judgement.widest[0]),
        "normality": "" if probe is None else probe.verdict,
        "safe": judgement.is_safe,
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
