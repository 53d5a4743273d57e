"""Are the batch means of a step normal? FittedTerms out after it has run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pymc as pm
from pymc.step_methods.compound import BlockedStep
from xarray import DataTree

from pymc_austerity.diagnostics import normality
from pymc_austerity.report.probing.probe import probe
from pymc_austerity.report.run import Run
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.tuna import TunaMH


@dataclass(frozen=True, eq=False)
class Probed:
    """Result of a probe of a step.

    Attributes
    ----------
    verdict : str
        That of `diagnostics.normality`, or "not needed", "not probed".
    reason : str
    log_ratios : DataTree or None
        As `probe` returns it.
    """

    verdict: str
    reason: str
    log_ratios: DataTree | None = field(default=None, repr=False)


def probed(model: pm.Model, blocks: Sequence[BlockedStep], run: Run, n_pairs: int, seed: int) -> Probed:
    """Probe the first step that decides on uniform subsamples."""
    if run.idata is None:
        return Probed("not probed", "The step failed.")
    subsampled = [b for b in blocks if isinstance(b, SubsampledStep)]
    deciding = [b for b in subsampled if not isinstance(b, TunaMH) and not b.engine.reads_all]
    if not deciding:
        return Probed("not needed", "Its decisions do not rely on normal batch means.")
    if not n_pairs:
        return Probed("not probed", "n_pairs is 0.")
    options: dict[str, Any] = {"n_pairs": n_pairs, "random_seed": seed}
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tree = probe(model, deciding[0], idata=run.idata, **options)
            found = normality(tree)
    except Exception as error:  # the step may be the user's own: its failure is told, and ends nothing
        return Probed("not probed", f"{type(error).__name__}: {error}")
    said = " ".join(str(w.message) for w in caught)
    return Probed(found.verdict, f"{found.reason} {said}".strip(), tree)
