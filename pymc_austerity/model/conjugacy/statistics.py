"""Sufficient statistics of the likelihood of one variable: of all the data, or of some rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.model.conjugacy.forms import LikelihoodForm, Totals
from pymc_austerity.model.conjugacy.gradients import LikelihoodGradient
from pymc_austerity.model.conjugacy.priors import GammaPrior
from pymc_austerity.target import Array


class Place(NamedTuple):
    """A point at which derivatives of the likelihood are taken."""

    references: tuple[Array, ...]  # Natural values of the variable
    args: tuple[Any, ...]  # Other variables and data, as `LikelihoodGradient` takes them


class Groups(NamedTuple):
    """Statistics of parts of a minibatch."""

    totals: Totals  # Of each group, unscaled; its first axis has one entry for each group
    sizes: npt.NDArray[np.int64]  # Rows of each group
    n_rows: int  # N, rows of the local term


@dataclass(frozen=True, eq=False)
class Structure:
    """Form of the likelihood in one variable, as it was found out. Nothing in it has size N."""

    form: LikelihoodForm
    references: tuple[Array, ...]  # Natural values at which G is taken; none if frozen
    nonlinear: tuple[str, ...]  # Names of terms that are of no conjugate form
    totals: Totals | None  # Over all data, if they depend on no other variable
    shift: float  # M of a frozen simplex

    @property
    def constant(self) -> bool:
        """Whether s and t depend on no other variable."""
        return self.totals is not None


class Conjugacy:
    """Sufficient statistics of the likelihood of one variable, or its derivatives.

    It has size N, but for its pickles, which leave the derivatives out. `batch_sizes` are the rows of each
    local term in a minibatch; None: all are read.
    """

    def __init__(
        self,
        prior: GammaPrior,
        gradient: LikelihoodGradient,
        structure: Structure,
        batch_sizes: Sequence[int] | None = None,
    ) -> None:
        self.prior, self.gradient, self.structure = prior, gradient, structure
        self.batch_sizes = batch_sizes
        self._short: Totals | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "gradient": None, "_short": None}

    @property
    def is_compiled(self) -> bool:
        """Whether this is no copy from a pickle."""
        return self.gradient is not None

    @property
    def form(self) -> LikelihoodForm:
        """The form of the likelihood."""
        return self.structure.form

    def place(self, log_theta: Array, point: Mapping[str, Any]) -> Place:
        """Point at which derivatives are taken when the processes are at `log_theta`."""
        structure = self.structure
        references = structure.form.references_at(
            self.prior.family, log_theta, structure.references, constant=structure.constant
        )
        return Place(references, self.gradient.args(point))

    def full(self, place: Place) -> Totals:
        """Statistics of all the data."""
        if self.structure.totals is not None:
            return self.structure.totals
        derivatives = [self.gradient.terms(r, place.args).sum(axis=0) for r in place.references]
        return self._statistics(derivatives, place)

    def short(self, place: Place) -> Totals:
        """Statistics of the terms that are not subsampled."""
        if self._short is not None:
            return self._short
        derivatives = [self.gradient.short(r, place.args).sum(axis=0) for r in place.references]
        found = self._statistics(derivatives, place)
        if self.structure.constant:
            self._short = found
        return found

    def groups(self, term: int, place: Place, index: Any, sizes: Any) -> Groups:
        """Statistics of consecutive groups, of these sizes, of the rows `index` of a local term."""
        ends = np.cumsum(sizes)
        sums = [
            np.array(
                [
                    self.gradient.rows(term, r, index[end - size : end], place.args)
                    for size, end in zip(sizes, ends, strict=True)
                ]
            )
            for r in place.references
        ]
        return Groups(self._statistics(sums, place), sizes, self.gradient.sizes[term])

    def _statistics(self, derivatives: Sequence[Array], place: Place) -> Totals:
        return self.structure.form.statistics(self.prior.family, derivatives, place.references)
