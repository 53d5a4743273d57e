"""Is a likelihood linear in log w, and for gamma variables in w? What are its sufficient statistics?

With G = dl/d(natural value), from `conjugacy_gradients`, there are four forms:

    counts   Dirichlet w, l = sum of s_j log w_j           G = s, whatever w is
    affine   beta or Dirichlet w, the same on the simplex  G, centred, = s - M w with M = sum of s_j
    rate     gamma theta, l = s log theta - t theta        G = s - t theta
    frozen   any other: G where the process is now

In the first three s and t come from G at one or two fixed references, where nothing is ever zero or
infinite. Which form it is, is decided by numbers: predictions at random points, for each term, have to be
right (`conjugacy_analysis`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.model.conjugacy.gradients import LikelihoodGradient
from pymc_austerity.model.conjugacy.priors import GammaPrior

Array = npt.NDArray[np.float64]
Form = Literal["counts", "affine", "rate", "frozen"]

# What is left of zero after cancellation, relative to what was cancelled.
_ROUNDING = 1e-11


class Totals(NamedTuple):
    """Statistics of a likelihood: s of shape (n_rows, n_parts), and t of shape (n_rows, 1).

    There may be one more axis in front.
    """

    s: Array
    t: Array

    def plus(self, other: Totals, weight: float = 1.0) -> Totals:
        """The sum, the second with a weight."""
        return Totals(self.s + weight * other.s, self.t + weight * other.t)


class Groups(NamedTuple):
    """Statistics of parts of a minibatch.

    Attributes
    ----------
    totals : Totals
        Of each group, unscaled; its first axis has one entry for each group.
    sizes : ndarray of int
        Rows of each group.
    n_rows : int
        N, rows of the local term.
    """

    totals: Totals
    sizes: npt.NDArray[np.int64]
    n_rows: int


@dataclass(frozen=True, eq=False)
class Structure:
    """What was found out about one variable. Nothing in it has size N.

    Attributes
    ----------
    form : {"counts", "affine", "rate", "frozen"}
    references : tuple of ndarray
        Natural values at which G is taken; none if frozen.
    nonlinear : tuple of str
        Names of terms that are of no other form.
    totals : Totals or None
        Over all data, if they depend on no other variable.
    shift : float
        M of a frozen simplex.
    """

    form: Form
    references: tuple[Array, ...]
    nonlinear: tuple[str, ...]
    totals: Totals | None
    shift: float

    @property
    def constant(self) -> bool:
        """Whether s and t depend on no other variable."""
        return self.totals is not None


class Conjugacy:
    """Sufficient statistics of the likelihood of one variable, or its derivatives.

    Parameters
    ----------
    prior : GammaPrior
    gradient : LikelihoodGradient
    structure : Structure
    """

    def __init__(self, prior: GammaPrior, gradient: LikelihoodGradient, structure: Structure) -> None:
        self.prior, self.gradient, self.structure = prior, gradient, structure
        self._short: Totals | None = None

    def references(self, natural: Callable[[], Array]) -> tuple[Array, ...]:
        """Where derivatives are taken; `natural` gives the present natural values.

        Near the present theta little is lost in s - t theta, which may be far from where the step was built.
        """
        if self.structure.form == "rate" and not self.structure.constant:
            here = natural()
            return here, here + np.log(2.0)
        return self.structure.references or (natural(),)

    def full(self, references: Sequence[Array], args: tuple[Any, ...]) -> Totals:
        """Statistics of all the data."""
        if self.structure.totals is not None:
            return self.structure.totals
        return self._statistics([self.gradient.terms(r, args).sum(axis=0) for r in references], references)

    def short(self, references: Sequence[Array], args: tuple[Any, ...]) -> Totals:
        """Statistics of the terms that are not subsampled."""
        if self._short is not None:
            return self._short
        found = self._statistics([self.gradient.short(r, args).sum(axis=0) for r in references], references)
        if self.structure.constant:
            self._short = found
        return found

    def groups(
        self, term: int, references: Sequence[Array], args: tuple[Any, ...], index: Any, sizes: Any
    ) -> Groups:
        """Statistics of consecutive groups, of these sizes, of the rows `index` of a local term."""
        ends = np.cumsum(sizes)
        sums = [
            np.array(
                [
                    self.gradient.rows(term, r, index[end - size : end], args)
                    for size, end in zip(sizes, ends, strict=True)
                ]
            )
            for r in references
        ]
        return Groups(self._statistics(sums, references), sizes, self.gradient.sizes[term])

    def _statistics(self, derivatives: Sequence[Array], references: Sequence[Array]) -> Totals:
        return statistics(self.prior, self.structure.form, derivatives, references)


def statistics(
    prior: GammaPrior, form: Form, derivatives: Sequence[Array], references: Sequence[Array]
) -> Totals:
    """S and t from derivatives G at the references; linear in G. Frozen: s is G, centred on a simplex."""
    tables = [g.reshape(*g.shape[:-1], prior.n_rows, width_of(prior)) for g in derivatives]
    zero = np.zeros((*tables[0].shape[:-1], 1))
    if form == "counts" or (form == "frozen" and not prior.is_simplex):
        return Totals(tables[0], zero)
    weights = [weights_of(prior, r) for r in references]
    if form == "rate":
        t = (tables[0] - tables[1]) / (weights[1] - weights[0])
        s = tables[0] + t * weights[0]
        return Totals(np.where(np.abs(s) <= _ROUNDING * np.abs(t * weights[0]), 0.0, s), t)
    inside = [centred(prior, g, w) for g, w in zip(tables, weights, strict=True)]
    if form == "frozen":
        return Totals(inside[0], zero)
    change = weights[1] - weights[0]
    count = ((inside[0] - inside[1]) * change).sum(axis=-1, keepdims=True) / (change**2).sum(
        axis=-1, keepdims=True
    )
    s = inside[0] + count * weights[0]
    return Totals(np.where(np.abs(s) <= _ROUNDING * np.abs(count), 0.0, s), zero)


def width_of(prior: GammaPrior) -> int:
    """Natural values in a row."""
    return 1 if prior.kind == "beta" else prior.n_parts


def weights_of(prior: GammaPrior, natural: Array) -> Array:
    """Theta or w, (n_rows, n_parts)."""
    if prior.kind == "beta":
        return 1.0 / (1.0 + np.exp(np.stack([-natural, natural], axis=1)))
    return np.exp(natural).reshape(prior.n_rows, prior.n_parts)


def centred(prior: GammaPrior, table: Array, weights: Array) -> Array:
    """w_j (g_j - sum of w_k g_k): derivatives along the simplex, whatever the graph is outside of it."""
    if prior.kind == "beta":  # one derivative, by the log odds
        return np.concatenate([table, -table], axis=-1)
    return table - weights * table.sum(axis=-1, keepdims=True)
