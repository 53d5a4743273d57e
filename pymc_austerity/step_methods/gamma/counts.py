"""Statistics from the counts that another step carries along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pymc_austerity.model.conjugacy.forms import Conjugacy, Totals


class Counter(Protocol):
    """Counts that another step carries along, such as `MinibatchCategoricalGibbs`."""

    vars: list[Any]

    def counts(self, point: Any) -> npt.NDArray[np.int64]:
        """Number of rows in each category at a point, (K,)."""


def counted(conjugacy: Conjugacy, counter: Counter, point: Mapping[str, Any]) -> Totals:
    """Statistics from the counts of another step; no rows are read."""
    prior = conjugacy.prior
    s = counter.counts(point).astype(np.float64).reshape(prior.n_rows, prior.n_parts)
    return Totals(s, np.zeros((prior.n_rows, 1)))


def require_counts(conjugacy: Conjugacy, counter: Counter, point: Mapping[str, Any]) -> None:
    """Compare the counts of another step with the likelihood, at random allocations.

    Raises
    ------
    ValueError
        If they are not the statistics of the variable.
    """
    prior, structure = conjugacy.prior, conjugacy.structure
    z = counter.vars[0].name
    reason = f"its likelihood is of the form {structure.form!r}"
    if structure.form == "counts" and z in conjugacy.gradient.parents:
        random = np.random.default_rng(2018).integers(0, prior.n_parts, np.shape(point[z]))
        there = {**point, z: random.astype(np.asarray(point[z]).dtype)}
        full = conjugacy.full(structure.references, conjugacy.gradient.args(there)).s
        counts = counter.counts(there)
        if full.size == counts.size and np.allclose(full.ravel(), counts, rtol=1e-9, atol=1e-9):
            return
        reason = "they differ from the derivatives of its likelihood"
    names = ", ".join(repr(name) for name in dict.fromkeys(conjugacy.gradient.names))
    raise ValueError(
        f"The counts of {z!r} are not the sufficient statistics of {prior.name!r} (terms {names}): {reason}. "
        "Leave counts= out."
    )
