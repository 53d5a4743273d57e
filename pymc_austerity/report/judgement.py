"""Whether the draws of a step agree with the reference, differ from it, or that cannot be told."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
import scipy
import xarray as xr
from xarray import DataTree

from pymc_austerity.diagnostics.agreement import agreement
from pymc_austerity.diagnostics.result import SAMPLE, by_label, posterior_of

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
# An sd ratio from which on effective draws are not those of the posterior.
_WIDE = 1.05
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

    @property
    def widest(self) -> pd.Series | None:
        """The scalar whose sd is larger than that of the reference beyond chance by most, if one is."""
        if self.table is None:
            return None
        wide = self.table[(self.table["z_sd"] > self.limit) & (self.table["sd_ratio"] > _WIDE)]
        return None if wide.empty else wide.loc[wide["sd_ratio"].idxmax()]

    def __str__(self) -> str:
        """A verdict and its reason, as a sentence."""
        joint = {"differs": "differs from the reference:", "agrees": "agrees with the reference"}
        return f"{joint.get(self.verdict, f'{self.verdict}:')} {self.reason}"


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
    table = _in_errors(agreement(idata, reference, var_names=var_names))
    limit = float(scipy.stats.norm.isf(LEVEL / (3 * max(len(table), 1)) / 2))
    doubts = [*_doubts(own, other, "its"), *_doubts(other, own, "the reference's")]
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
    more = f"more than {of_mean:.2g} sd in a mean, or {100 * np.expm1(of_sd):.0f} % in an sd,"
    verdict: Verdict = "agrees"
    reason = f"within Monte Carlo error in all {len(known)} scalars; {more} is excluded."
    if found:
        verdict, reason = "differs", f"{'; '.join(found[:_NAMED])}{_more(found, ', and')}."
    elif not max(of_mean, of_sd) <= tolerance:
        verdict = "cannot tell"
        reason = (
            f"no difference is beyond {limit:.1f} standard errors, but {more} is not excluded. "
            f"More draws are needed to exclude differences of {tolerance:g} sd."
        )
    return Judgement(verdict, reason, limit, table, own)


def _in_errors(table: pd.DataFrame) -> pd.DataFrame:
    """Add differences in standard errors; the worst scalar comes first."""
    table["z_shift"] = table["shift"] / table["shift_error"]
    table["z_sd"] = np.log(table["sd_ratio"]) / (table["sd_ratio_error"] / table["sd_ratio"])
    # The KS distance on the same scale, so that the worst of all comparisons is known.
    table["z_ks"] = scipy.stats.norm.isf(np.clip(table["ks_pvalue"], 1e-300, 1.0) / 2)
    worst = table[["z_shift", "z_sd", "z_ks"]].abs().max(axis=1)
    return table.loc[worst.sort_values(ascending=False, kind="stable").index]


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


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return f"{', '.join(names[:_NAMED])}{_more(names, ' and')}"


def _more(all_of_them: Sequence[str], joined: str) -> str:
    return f"{joined} {len(all_of_them) - _NAMED} more" if len(all_of_them) > _NAMED else ""


def _doubts(table: pd.DataFrame, other: pd.DataFrame, whose: str) -> Iterator[str]:
    """Why Monte Carlo errors of one side cannot be trusted, beside the other one."""

    def those(chosen: pd.Series) -> list[str]:
        return [str(name) for name in table.index[chosen]]

    if stuck := those((table["sd"] == 0.0) & (other["sd"].reindex(table.index) > 0.0)):
        yield f"{whose} chains never moved {_some(stuck)}"
    if infinite := those(~np.isfinite(table["sd"])):
        yield f"{whose} chains have draws of {_some(infinite)} that are not finite"
    if short := those((table["sd"] > 0.0) & table["ess"].isna()):
        yield f"{whose} chains are too short to know the effective draws of {_some(short)}"
    if (rhat := table["rhat"].max()) > LARGEST_RHAT:
        yield f"{whose} chains have not converged (R-hat {rhat:.2f} for {table['rhat'].idxmax()})"
    if (ess := table["ess"].min()) < FEWEST_EFFECTIVE:
        yield (
            f"{whose} chains have only {ess:.0f} effective draws of {table['ess'].idxmin()} "
            f"({FEWEST_EFFECTIVE} are needed)"
        )


@np.errstate(over="ignore")
def convergence(idata: DataTree, var_names: list[str]) -> pd.DataFrame:
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


def with_error(value: float, error: float, sign: bool = False) -> str:
    """A number with its Monte Carlo error in brackets, to two digits of the error."""
    if not np.isfinite(value):
        return ABSENT
    if not np.isfinite(error) or error <= 0.0:
        return f"{value:+.3g}" if sign else f"{value:.3g}"
    places = max(0, 1 - int(np.floor(np.log10(error)))) if error < 10 else 0
    return f"{value:{'+' if sign else ''}.{places}f} ({error:.{places}f})"
