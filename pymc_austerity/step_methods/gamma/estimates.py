"""The shape and rate of a gamma process at one transition: in full, from a minibatch, or with an anchor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.model.conjugacy.forms import Conjugacy, Groups, Totals

Array = npt.NDArray[np.float64]

# A minibatch is split into so many groups; the variance of an estimate is told from their differences.
_GROUPS = 4
# Of more numbers than this, fewer groups: the statistic is pooled over them.
_MANY = 5000
_FEW_GROUPS = 2


class Anchor(NamedTuple):
    """Where statistics were last taken in full.

    Attributes
    ----------
    age : int
        Transitions since then.
    others : dict of str to ndarray
        Values of other variables.
    references : tuple of ndarray
    totals : Totals
    """

    age: int
    others: dict[str, np.ndarray]
    references: tuple[Array, ...]
    totals: Totals


class Estimate(NamedTuple):
    """Statistics of the likelihood at one transition.

    Attributes
    ----------
    totals : Totals
        Estimates of s and t over all data.
    groups : list of Groups
        Of the minibatch of each local term; empty if nothing was estimated.
    n_used : int
        Rows that were read.
    noisy_rate : bool
        Whether t is estimated too.
    """

    totals: Totals
    groups: list[Groups]
    n_used: int
    noisy_rate: bool


def shifted(
    conjugacy: Conjugacy, given: float | None, log_theta: Array, shape: Array, rate: Array
) -> tuple[Array, Array]:
    """Shape and rate of a frozen drift with M w_j, or M theta, added to both sides of it."""
    shift = conjugacy.structure.shift if given is None else given
    weights = np.exp(log_theta)
    if conjugacy.prior.is_simplex:
        return shape + shift * weights / weights.sum(axis=1, keepdims=True), rate
    return shape + shift * weights, rate + shift


def allotted(n_rows: int, sizes: Sequence[int]) -> list[int]:
    """Rows drawn of each local term: in proportion to their sizes, at least one of each."""
    total = sum(sizes)
    return [min(size, max(1, round(n_rows * size / total))) for size in sizes]


def group_sizes(n: int, n_numbers: int) -> npt.NDArray[np.int64]:
    """Sizes of the groups of n rows."""
    k = min(n, _FEW_GROUPS if n_numbers > _MANY else _GROUPS)
    return np.diff(np.arange(k + 1) * n // k).astype(np.int64)


def estimated(
    conjugacy: Conjugacy,
    references: tuple[Array, ...],
    args: tuple[Any, ...],
    counts: list[int],
    rng: np.random.Generator,
    *,
    noisy_rate: bool,
    anchor: Anchor | None,
    anchor_args: tuple[Any, ...],
) -> Estimate:
    """Statistics from a minibatch without replacement of each local term, and the other terms in full.

    With an anchor, only differences from there are estimated. A rate is that of all data, unless
    `noisy_rate`.
    """
    short = conjugacy.short(references, args)
    totals, parts = anchor.totals if anchor is not None else short, []
    if anchor is not None:
        then = conjugacy.short(anchor.references, anchor_args)
        totals = totals.plus(short).plus(then, -1.0)
    for k, (n, size) in enumerate(zip(counts, conjugacy.gradient.sizes, strict=True)):
        index = rng.choice(size, n, replace=False).astype(np.int64, copy=False)
        sizes = group_sizes(n, conjugacy.prior.n_rows * conjugacy.prior.n_parts)
        groups = conjugacy.groups(k, references, args, index, sizes)
        if anchor is not None:
            before = conjugacy.groups(k, anchor.references, anchor_args, index, sizes)
            groups = groups._replace(totals=groups.totals.plus(before.totals, -1.0))
        totals = totals.plus(Totals(groups.totals.s.sum(axis=0), groups.totals.t.sum(axis=0)), size / n)
        parts.append(groups)
    n_used = sum(counts)
    structure = conjugacy.structure
    if not noisy_rate and structure.form == "rate":
        if structure.totals is not None:
            totals = totals._replace(t=structure.totals.t)
        else:
            totals = totals._replace(t=conjugacy.full(references, args).t)
            n_used = conjugacy.gradient.n_local
    return Estimate(totals, parts, n_used, noisy_rate)


def exact(conjugacy: Conjugacy, log_theta: Array, point: Mapping[str, Any]) -> Estimate:
    """Statistics of all data, which are known if they depend on no other variable."""
    if conjugacy.structure.totals is not None:
        return Estimate(conjugacy.structure.totals, [], 0, False)
    references = conjugacy.references(lambda: conjugacy.prior.natural(log_theta))
    args = conjugacy.gradient.args(point)
    return Estimate(conjugacy.full(references, args), [], conjugacy.gradient.n_local, False)


def estimate_at(
    conjugacy: Conjugacy,
    log_theta: Array,
    point: Mapping[str, Any],
    counts: list[int],
    rng: np.random.Generator,
    *,
    minibatch_rate: bool,
    anchor: Anchor | None,
    refresh: int | None,
) -> tuple[Estimate, Anchor | None]:
    """Statistics from a minibatch, and the anchor that was used; there is none if `refresh` is None.

    Raises
    ------
    ValueError
        Naming the variable and its terms, if a derivative is not finite.
    """

    def references() -> tuple[Array, ...]:
        return conjugacy.references(lambda: conjugacy.prior.natural(log_theta))

    read, anchor_args = 0, ()
    if refresh is not None:
        anchor, read = renewed(conjugacy, anchor, refresh, references, point)
        anchor_args = conjugacy.gradient.args(anchor.others)
    found = estimated(
        conjugacy,
        references(),
        conjugacy.gradient.args(point),
        counts,
        rng,
        noisy_rate=minibatch_rate and conjugacy.structure.form == "rate",
        anchor=anchor,
        anchor_args=anchor_args,
    )
    if not np.all(np.isfinite(found.totals.s)):
        terms = ", ".join(conjugacy.gradient.names)
        raise ValueError(
            f"The derivative of the likelihood by {conjugacy.prior.name!r} is not finite (terms {terms}). "
            "Take a smaller step_size, or another step method."
        )
    return found._replace(n_used=found.n_used + read), anchor


def renewed(
    conjugacy: Conjugacy,
    anchor: Anchor | None,
    refresh: int,
    references: Callable[[], tuple[Array, ...]],
    point: Mapping[str, Any],
) -> tuple[Anchor, int]:
    """The anchor, one transition older or taken anew, and how many rows that read."""
    if anchor is not None and anchor.age + 1 < refresh:
        return anchor._replace(age=anchor.age + 1), 0
    others = {name: np.array(point[name]) for name in conjugacy.gradient.parents}
    here = references()
    totals = conjugacy.full(here, conjugacy.gradient.args(point))
    known = conjugacy.structure.constant
    return Anchor(0, others, here, totals), 0 if known else conjugacy.gradient.n_local


def noise_ratio(estimate: Estimate, shape: Array, rate: Array, *, is_simplex: bool) -> float:
    """Var(a_hat) over the exact variance of gamma variables with rate one, both pooled over components.

    On a simplex it is the variance along it: noise in the total does not move w. A simplex component has
    the variance a_j (1 - w_j) there.

    Returns
    -------
    float
        Zero if nothing was estimated, NaN from a single row.
    """
    if not estimate.groups:
        return 0.0
    mean = shape / shape.sum(axis=1, keepdims=True) if is_simplex else 0.0
    variance = np.zeros_like(shape)
    for totals, sizes, n_rows in estimate.groups:
        noise = totals.s - totals.t * (shape / rate) if estimate.noisy_rate else totals.s
        if is_simplex:
            noise = noise - mean * noise.sum(axis=-1, keepdims=True)
        n = int(sizes.sum())
        if n == n_rows:
            continue
        if n == 1:
            return math.nan
        # A group of m of the n rows has the variance m (1 - m / n) S^2, given the batch.
        share = sizes[:, None, None] / n
        squares = ((noise - share * noise.sum(axis=0)) ** 2).sum(axis=0)
        variance += n_rows * (n_rows - n) / n * squares / float((sizes * (1.0 - sizes / n)).sum())
    return float(variance.sum() / (shape * (1.0 - mean)).sum())
