"""Statistics from minibatches: of the rows themselves, or of how these have changed since an anchor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pymc_austerity.model.conjugacy.forms import Totals
from pymc_austerity.model.conjugacy.statistics import Conjugacy, Groups, Place
from pymc_austerity.step_methods.gamma.estimates import Anchor, Estimate
from pymc_austerity.target import Array

# A minibatch is split into so many groups; the variance of an estimate is told from their differences.
_GROUPS = 4
# Of more numbers than this, fewer groups: the statistic is pooled over them.
_MANY = 5000
_FEW_GROUPS = 2


def allotted_rows(n_rows: int, sizes: Sequence[int]) -> list[int]:
    """Rows drawn of each local term: in proportion to their sizes, at least one of each."""
    total = sum(sizes)
    return [min(size, max(1, round(n_rows * size / total))) for size in sizes]


def group_sizes(n: int, n_numbers: int, n_groups: int) -> npt.NDArray[np.int64]:
    """Sizes of the groups of n rows, of which there are so many, or fewer."""
    k = min(n, _FEW_GROUPS if n_numbers > _MANY else n_groups)
    return np.diff(np.arange(k + 1) * n // k).astype(np.int64)


class Readings(Protocol):
    """What is known without a minibatch, and what a minibatch adds to it."""

    def known(self) -> Totals:
        """Statistics that are not estimated."""

    def groups(self, term: int, index: Any, sizes: Any) -> Groups:
        """Statistics of groups of rows of a local term, of these sizes."""


class RowsHere(NamedTuple):
    """Rows at the present point."""

    conjugacy: Conjugacy
    here: Place

    def known(self) -> Totals:
        """Statistics of the terms that are not subsampled."""
        return self.conjugacy.short(self.here)

    def groups(self, term: int, index: Any, sizes: Any) -> Groups:
        """Statistics of the rows."""
        return self.conjugacy.groups(term, self.here, index, sizes)


class ChangesOfRows(NamedTuple):
    """Rows at the present point less the same rows at an anchor, whose totals are known."""

    conjugacy: Conjugacy
    here: Place
    then: Place
    totals: Totals

    def known(self) -> Totals:
        """Statistics of the anchor, and changes of the terms that are not subsampled."""
        short, before = self.conjugacy.short(self.here), self.conjugacy.short(self.then)
        return self.totals.plus(short).plus(before, -1.0)

    def groups(self, term: int, index: Any, sizes: Any) -> Groups:
        """Changes of the statistics of the rows."""
        now = self.conjugacy.groups(term, self.here, index, sizes)
        before = self.conjugacy.groups(term, self.then, index, sizes)
        return Groups(now.totals.plus(before.totals, -1.0), sizes, now.n_rows)


def minibatch_estimate(
    conjugacy: Conjugacy,
    readings: Readings,
    here: Place,
    rng: np.random.Generator,
    *,
    noisy_rate: bool,
    n_groups: int = _GROUPS,
) -> Estimate:
    """Statistics from a minibatch without replacement of each local term, and the other terms in full.

    A rate is that of all data, unless `noisy_rate`.
    """
    gradient, family = conjugacy.gradient, conjugacy.prior.family
    n_numbers = family.n_rows * family.n_parts
    assert conjugacy.batch_sizes is not None
    totals, parts = readings.known(), []
    for term, (n, size) in enumerate(zip(conjugacy.batch_sizes, gradient.sizes, strict=True)):
        index = rng.choice(size, n, replace=False).astype(np.int64, copy=False)
        groups = readings.groups(term, index, group_sizes(n, n_numbers, n_groups))
        totals = totals.plus(Totals(groups.totals.s.sum(axis=0), groups.totals.t.sum(axis=0)), size / n)
        parts.append(groups)
    n_used = sum(conjugacy.batch_sizes)
    if not noisy_rate and conjugacy.form.adds_to_rate:
        totals = Totals(totals.s, conjugacy.full(here).t)
        if not conjugacy.structure.constant:
            n_used = gradient.n_local
    return Estimate(totals, parts, n_used, noisy_rate)


@dataclass(frozen=True)
class Minibatch:
    """Statistics of all rows from those of a minibatch.

    Parameters
    ----------
    minibatch_rate : bool
        Whether rates are estimated too.
    """

    minibatch_rate: bool
    is_subsampled = True
    is_anchored = False

    def estimate(
        self,
        conjugacy: Conjugacy,
        log_theta: Array,
        point: Mapping[str, Any],
        rng: np.random.Generator,
        anchor: Anchor | None,
    ) -> Estimate:
        """Statistics of a minibatch, times N / n.

        Raises
        ------
        ValueError
            Naming the variable and its terms, if a derivative is not finite.
        """
        here = conjugacy.place(log_theta, point)
        noisy_rate = self.minibatch_rate and conjugacy.form.adds_to_rate
        found = minibatch_estimate(conjugacy, RowsHere(conjugacy, here), here, rng, noisy_rate=noisy_rate)
        _require_finite(conjugacy, found)
        return found


@dataclass(frozen=True)
class AnchoredMinibatch:
    """Statistics of all rows at an anchor, and their changes from a minibatch.

    Parameters
    ----------
    minibatch_rate : bool
        Whether rates are estimated too.
    refresh : int
        Transitions after which the anchor is taken anew.
    """

    minibatch_rate: bool
    refresh: int
    is_subsampled = True
    is_anchored = True

    def estimate(
        self,
        conjugacy: Conjugacy,
        log_theta: Array,
        point: Mapping[str, Any],
        rng: np.random.Generator,
        anchor: Anchor | None,
    ) -> Estimate:
        """Statistics of the anchor and of what has changed since, with the anchor that was used.

        Raises
        ------
        ValueError
            Naming the variable and its terms, if a derivative is not finite.
        """
        here = conjugacy.place(log_theta, point)
        anchor, n_read = self._renewed_anchor(conjugacy, anchor, here, point)
        then = Place(anchor.references, conjugacy.gradient.args(anchor.others))
        noisy_rate = self.minibatch_rate and conjugacy.form.adds_to_rate
        readings = ChangesOfRows(conjugacy, here, then, anchor.totals)
        found = minibatch_estimate(conjugacy, readings, here, rng, noisy_rate=noisy_rate)
        _require_finite(conjugacy, found)
        return Estimate(found.totals, found.groups, found.n_used + n_read, noisy_rate, anchor)

    def _renewed_anchor(
        self, conjugacy: Conjugacy, anchor: Anchor | None, here: Place, point: Mapping[str, Any]
    ) -> tuple[Anchor, int]:
        """The anchor, one transition older or taken anew, and how many rows that read."""
        if anchor is not None and anchor.age + 1 < self.refresh:
            return anchor._replace(age=anchor.age + 1), 0
        others = {name: np.array(point[name]) for name in conjugacy.gradient.parents}
        n_read = 0 if conjugacy.structure.constant else conjugacy.gradient.n_local
        return Anchor(0, others, here.references, conjugacy.full(here)), n_read


def _require_finite(conjugacy: Conjugacy, found: Estimate) -> None:
    if np.all(np.isfinite(found.totals.s)):
        return
    terms = ", ".join(conjugacy.gradient.names)
    raise ValueError(
        f"The derivative of the likelihood by {conjugacy.prior.name!r} is not finite (terms {terms}). "
        "Take a smaller step_size, or another step method."
    )
