"""Families of variables that are made of gamma variables, and forms of a likelihood in one of them.

A form is told by derivatives; three are conjugate, and there is any other. With G = dl/d(natural value), from
`gradients`:

    counts   Dirichlet w, l = sum of s_j log w_j           G = s, whatever w is
    affine   beta or Dirichlet w, the same on the simplex  G, centred, = s - M w with M = sum of s_j
    rate     gamma theta, l = s log theta - t theta        G = s - t theta
    frozen   any other: G where the process is now

In the first three s and t follow from G at one or two fixed references, where nothing is ever zero or
infinite. `recognise` decides by numbers which form a likelihood has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from pytensor.graph.basic import Variable

from pymc_austerity.target import Array

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


@dataclass(frozen=True)
class LikelihoodForm(ABC):
    """How statistics follow from derivatives. Objects hold nothing and are equal if their classes are."""

    name: ClassVar[str]  # What the attribute `forms` of a step calls it
    is_conjugate: ClassVar[bool] = True  # Whether s and t do not depend on the variable
    adds_to_rate: ClassVar[bool] = False  # Whether t is a sum over rows

    @abstractmethod
    def statistics(
        self, family: GammaFamily, derivatives: Sequence[Array], references: Sequence[Array]
    ) -> Totals:
        """S and t from derivatives G at the references; linear in G."""

    def references_at(
        self, family: GammaFamily, log_theta: Array, stored: tuple[Array, ...], *, constant: bool
    ) -> tuple[Array, ...]:
        """Natural values at which derivatives are taken when the processes are at `log_theta`.

        `stored` are those of the time when the form was found. `constant` says that s and t depend on no
        other variable.
        """
        return stored


class ConjugateForm(LikelihoodForm):
    """A form that can be verified: derivatives at any point follow from s and t."""

    n_references: ClassVar[int] = 2  # Points at which derivatives are needed

    def first_references(
        self,
        family: GammaFamily,
        start: Array,
        gradient: Callable[[Array], Array],
        prior: tuple[Array, Array],
    ) -> tuple[Array, ...]:
        """Natural values at which derivatives are taken when the form is looked for.

        `start` are those of the point of the model, `gradient` sums derivatives of all terms, and `prior` are
        shapes and rates.
        """
        return family.reference_pair(start)[: self.n_references]

    @abstractmethod
    def residuals(self, family: GammaFamily, found: Totals, tables: Array, weights: Array) -> Array:
        """Derivatives at `weights` less those that s and t predict there."""


class Counts(ConjugateForm):
    """A sum of s_j log w_j, as counts of categories have it."""

    name = "counts"
    n_references = 1  # Derivatives are the same everywhere

    def statistics(
        self, family: GammaFamily, derivatives: Sequence[Array], references: Sequence[Array]
    ) -> Totals:
        """Statistics s and t of counts: s is the gradient g."""
        table = family.table(derivatives[0])
        return Totals(table, np.zeros((*table.shape[:-1], 1)))

    def residuals(self, family: GammaFamily, found: Totals, tables: Array, weights: Array) -> Array:
        """Derivatives less the statistics, g - s."""
        return tables - found.s


class Affine(ConjugateForm):
    """A sum of s_j log w_j on the simplex; outside of it the graph may be anything."""

    name = "affine"

    def statistics(
        self, family: GammaFamily, derivatives: Sequence[Array], references: Sequence[Array]
    ) -> Totals:
        """M from the change of centred derivatives between two points, and s = G + M w."""
        tables = [family.table(g) for g in derivatives]
        weights = [family.weights(r) for r in references]
        inside = [family.tangent(g, w) for g, w in zip(tables, weights, strict=True)]
        change = weights[1] - weights[0]
        count = ((inside[0] - inside[1]) * change).sum(axis=-1, keepdims=True) / (change**2).sum(
            axis=-1, keepdims=True
        )
        s = inside[0] + count * weights[0]
        zero = np.zeros((*tables[0].shape[:-1], 1))
        return Totals(np.where(np.abs(s) <= _ROUNDING * np.abs(count), 0.0, s), zero)

    def residuals(self, family: GammaFamily, found: Totals, tables: Array, weights: Array) -> Array:
        """Centred G - (s - M w)."""
        expected = found.s - found.s.sum(axis=-1, keepdims=True) * weights
        return family.tangent(tables, weights) - expected


class Rate(ConjugateForm):
    """A likelihood s log theta - t theta of gamma variables."""

    name = "rate"
    adds_to_rate = True

    def first_references(
        self,
        family: GammaFamily,
        start: Array,
        gradient: Callable[[Array], Array],
        prior: tuple[Array, Array],
    ) -> tuple[Array, ...]:
        """Near the conditional mean, where s and t theta are of one size: little is lost in s - t theta."""
        alpha, rate = prior
        first = np.where(np.isfinite(start), start, 0.0)
        for _ in range(2):
            pair = family.reference_pair(first)
            s, t = self.statistics(family, [gradient(r) for r in pair], pair)
            mean = ((alpha + s) / (rate + t)).ravel()
            first = np.where(np.isfinite(mean) & (mean > 0.0), np.log(np.abs(mean)), first)
        return family.reference_pair(first)

    def statistics(
        self, family: GammaFamily, derivatives: Sequence[Array], references: Sequence[Array]
    ) -> Totals:
        """T from the change of derivatives between two points, and s = G + t theta."""
        tables = [family.table(g) for g in derivatives]
        weights = [family.weights(r) for r in references]
        t = (tables[0] - tables[1]) / (weights[1] - weights[0])
        s = tables[0] + t * weights[0]
        return Totals(np.where(np.abs(s) <= _ROUNDING * np.abs(t * weights[0]), 0.0, s), t)

    def residuals(self, family: GammaFamily, found: Totals, tables: Array, weights: Array) -> Array:
        """G - (s - t theta)."""
        return tables - (found.s - found.t * weights)

    def references_at(
        self, family: GammaFamily, log_theta: Array, stored: tuple[Array, ...], *, constant: bool
    ) -> tuple[Array, ...]:
        """Near the present theta, which may be far from where the step was built, little is lost."""
        return stored if constant else family.reference_pair(family.natural(log_theta))


class Frozen(LikelihoodForm):
    """No conjugate form: s is the derivative where the process is now, held fixed during a transition."""

    name = "frozen"
    is_conjugate = False

    def statistics(
        self, family: GammaFamily, derivatives: Sequence[Array], references: Sequence[Array]
    ) -> Totals:
        """S is G, centred on a simplex."""
        table = family.table(derivatives[0])
        zero = np.zeros((*table.shape[:-1], 1))
        return Totals(family.tangent(table, family.weights(references[0])), zero)

    def references_at(
        self, family: GammaFamily, log_theta: Array, stored: tuple[Array, ...], *, constant: bool
    ) -> tuple[Array, ...]:
        """The present natural values, at which the drift is frozen."""
        return (family.natural(log_theta),)


COUNTS, AFFINE, RATE, FROZEN = Counts(), Affine(), Rate(), Frozen()


class GammaFamily(ABC):
    """How a variable is made of a table of independent gamma variables theta_ij ~ Gamma(alpha_ij, rate_i).

    `PositiveFamily` and `SimplexFamily` define most of it. Tables have the shape (n_rows, n_parts), and
    natural values, by which likelihoods are differentiated, are flat: (n_rows * width,).
    """

    distributions: ClassVar[tuple[type, ...]]  # PyTensor's random variables of this family
    pymc_names: ClassVar[tuple[str, ...]]  # What PyMC calls their distributions
    transform: ClassVar[type]  # PyMC's default transform
    # Forms of likelihood that are conjugate, in the order in which they are tried
    forms: ClassVar[tuple[ConjugateForm, ...]]
    # Whether only the ratios within a row matter: its total is then a number of the chain, not of a point
    carries_total: ClassVar[bool]

    array_shape: tuple[int, ...]  # Of the variable
    # Of the table: the elements, times 1 for positive variables and 2 for beta variables; the rows and the K
    # components of Dirichlet variables
    n_rows: int
    n_parts: int
    width: int  # Natural values in a row
    transformed: bool  # Whether a point holds the value under `transform`, or the variable itself

    @abstractmethod
    def __init__(self, value_shape: tuple[int, ...], transformed: bool) -> None: ...

    # The prior ----------------------------------------------------------------------------------

    def parameter_graphs(self, parameters: Sequence[Variable]) -> list[Variable]:
        """Graphs of the numbers that `alpha_and_rate` takes, from the parameters of the distribution."""
        return list(parameters)

    @abstractmethod
    def alpha_and_rate(self, parameters: Sequence[Array]) -> tuple[Array, Array]:
        """Shapes alpha, (n_rows, n_parts), and rates, (n_rows, 1), of the gamma variables."""

    # Points -------------------------------------------------------------------------------------

    @abstractmethod
    def log_gammas(self, value: npt.ArrayLike) -> Array:
        """Logarithms of theta, or of the components of a simplex, at a point's value; (n_rows, n_parts)."""

    @abstractmethod
    def value(self, log_theta: Array) -> Array:
        """A point's value, from logarithms of theta, (n_rows, n_parts); of a simplex up to a factor."""

    @abstractmethod
    def log_density(self, log_theta: Array, alpha: Array, rate: Array) -> Array:
        """Log density of what a point holds, `value(log_theta)`, in each row; up to a constant."""

    # Natural values -----------------------------------------------------------------------------

    @abstractmethod
    def natural(self, log_gammas: Array) -> Array:
        """Natural values of a table of logarithms of gamma variables."""

    @abstractmethod
    def from_natural(self, natural: Variable) -> Variable:
        """The variable as a graph of its natural values, which have its shape."""

    @abstractmethod
    def central_natural(self) -> Array:
        """Natural values in the middle of those that there are, in the shape of the variable."""

    @abstractmethod
    def reference_pair(self, near: Array) -> tuple[Array, Array]:
        """Two natural values whose weights differ in every row; near `near` unless they are bounded."""

    def random_natural(self, near: Array, rng: np.random.Generator) -> Array:
        """Random natural values, at which forms are verified."""
        return near + rng.uniform(-1.0, 1.0, near.shape)

    @abstractmethod
    def weights(self, natural: Array) -> Array:
        """Theta or w, (n_rows, n_parts)."""

    def table(self, derivatives: Array) -> Array:
        """Derivatives by natural values, flat, as a table of `n_rows` rows."""
        return derivatives.reshape(*derivatives.shape[:-1], self.n_rows, self.width)

    @abstractmethod
    def tangent(self, table: Array, weights: Array) -> Array:
        """Derivatives along the values that the variable can take, (n_rows, n_parts)."""

    def default_shift(self, derivatives: Array, n_terms: int) -> float:
        """M of a drift that is frozen, from derivatives of all terms at the initial point."""
        return 0.0
