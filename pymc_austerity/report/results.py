"""What a comparison has found: runs, judgements and probes as records, and one table of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from xarray import DataTree

from pymc_austerity.report.judgement import Judgement, convergence
from pymc_austerity.report.probe import Probed
from pymc_austerity.report.run import OF_REFERENCE, Run, Settings

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
              the terms that a transition evaluated, over N: above 1 on a plate, where a sweep has several
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
