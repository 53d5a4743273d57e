"""Statistics from the counts of categories that another step carries along."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pymc_austerity.model.conjugacy.forms import COUNTS, Totals
from pymc_austerity.model.conjugacy.statistics import Conjugacy
from pymc_austerity.step_methods.gamma.estimates import Anchor, Estimate
from pymc_austerity.target import Array


class Counter(Protocol):
    """Counts that another step carries along, such as `MinibatchCategoricalGibbs`."""

    vars: list[Any]

    def counts(self, point: Any) -> npt.NDArray[np.int64]:
        """Number of rows in each category at a point, (K,)."""


@dataclass(frozen=True)
class CountsOfStep:
    """Statistics from the counts of another step; no rows are read."""

    counter: Counter
    is_subsampled = False
    is_anchored = False

    def estimate(
        self,
        conjugacy: Conjugacy,
        log_theta: Array,
        point: Mapping[str, Any],
        rng: np.random.Generator,
        anchor: Anchor | None,
    ) -> Estimate:
        """The counts at `point`, which are exact."""
        family = conjugacy.prior.family
        s = self.counter.counts(point).astype(np.float64).reshape(family.n_rows, family.n_parts)
        return Estimate(Totals(s, np.zeros((family.n_rows, 1))), [], 0)


def require_counts(conjugacy: Conjugacy, counter: Counter, point: Mapping[str, Any]) -> None:
    """Compare the counts of another step with the likelihood, at random allocations.

    Raises
    ------
    ValueError
        If they are not the statistics of the variable.
    """
    z = counter.vars[0].name
    reason = f"its likelihood is of the form {conjugacy.form.name!r}"
    if conjugacy.form == COUNTS and z in conjugacy.gradient.parents:
        family = conjugacy.prior.family
        random = np.random.default_rng(2018).integers(0, family.n_parts, np.shape(point[z]))
        there = {**point, z: random.astype(np.asarray(point[z]).dtype)}
        logs = family.log_gammas(there[conjugacy.prior.value_name])
        full = conjugacy.full(conjugacy.place(logs, there)).s
        counts = counter.counts(there)
        if full.size == counts.size and np.allclose(full.ravel(), counts, rtol=1e-9, atol=1e-9):
            return
        reason = "they differ from the derivatives of its likelihood"
    names = ", ".join(repr(name) for name in dict.fromkeys(conjugacy.gradient.names))
    raise ValueError(
        f"The counts of {z!r} are not the sufficient statistics of {conjugacy.prior.name!r} (terms {names}): "
        f"{reason}. Leave counts= out."
    )
