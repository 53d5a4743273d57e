"""Forms of a likelihood in one variable, by its derivatives: three that are conjugate, and any other.

With G = dl/d(natural value), from `gradients`:

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
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

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


class Coordinates(Protocol):
    """A variable as forms see it: its natural values as a table, and what they stand for."""

    n_rows: int
    n_parts: int

    def table(self, derivatives: Array) -> Array:
        """Derivatives by natural values, flat, as a table with one row for each of the variable's."""

    def natural(self, log_gammas: Array) -> Array:
        """Natural values of a table of logarithms of gamma variables."""

    def weights(self, natural: Array) -> Array:
        """Theta or w, (n_rows, n_parts)."""

    def tangent(self, table: Array, weights: Array) -> Array:
        """Derivatives along the values that the variable can take, (n_rows, n_parts)."""

    def reference_pair(self, near: Array) -> tuple[Array, Array]:
        """Two natural values whose weights differ in every row."""

    def shifted(self, shape: Array, rate: Array, log_theta: Array, shift: float) -> tuple[Array, Array]:
        """Shapes and rates of a drift with M w_j, or M theta, added to both sides of it."""


class LikelihoodForm(ABC):
    """How statistics follow from derivatives. Objects hold nothing and are equal if their classes are.

    Attributes
    ----------
    name : str
        What the attribute `forms` of a step calls it.
    is_conjugate : bool
        Whether s and t do not depend on the variable.
    adds_to_rate : bool
        Whether t is a sum over rows.
    """

    name: ClassVar[str]
    is_conjugate: ClassVar[bool] = True
    adds_to_rate: ClassVar[bool] = False

    @abstractmethod
    def statistics(
        self, coordinates: Coordinates, derivatives: Sequence[Array], references: Sequence[Array]
    ) -> Totals:
        """S and t from derivatives G at the references; linear in G."""

    def references_at(
        self, coordinates: Coordinates, log_theta: Array, stored: tuple[Array, ...], *, constant: bool
    ) -> tuple[Array, ...]:
        """Natural values at which derivatives are taken when the processes are at `log_theta`.

        Parameters
        ----------
        coordinates : Coordinates
        log_theta : ndarray of shape (n_rows, n_parts)
        stored : tuple of ndarray
            References of the time when the form was found.
        constant : bool
            Whether s and t depend on no other variable.
        """
        return stored

    def gamma_parameters(
        self, coordinates: Coordinates, shape: Array, rate: Array, log_theta: Array, shift: float
    ) -> tuple[Array, Array]:
        """Shapes and rates of the processes during a transition, from those of prior and statistics."""
        return shape, rate


class ConjugateForm(LikelihoodForm):
    """A form that can be verified: derivatives at any point follow from s and t."""

    def first_references(
        self,
        coordinates: Coordinates,
        start: Array,
        gradient: Callable[[Array], Array],
        prior: tuple[Array, Array],
    ) -> tuple[Array, ...]:
        """Natural values at which derivatives are taken when the form is looked for.

        Parameters
        ----------
        coordinates : Coordinates
        start : ndarray
            Natural values of the point of the model.
        gradient : callable
            Derivatives of all terms by natural values, summed.
        prior : (ndarray, ndarray)
            Shapes and rates of the prior.
        """
        return coordinates.reference_pair(start)

    @abstractmethod
    def residuals(self, coordinates: Coordinates, found: Totals, tables: Array, weights: Array) -> Array:
        """Derivatives at `weights` less those that s and t predict there."""


@dataclass(frozen=True)
class Counts(ConjugateForm):
    """A sum of s_j log w_j, as counts of categories have it."""

    name = "counts"

    def first_references(
        self,
        coordinates: Coordinates,
        start: Array,
        gradient: Callable[[Array], Array],
        prior: tuple[Array, Array],
    ) -> tuple[Array, ...]:
        """One reference is enough: derivatives are the same everywhere."""
        return coordinates.reference_pair(start)[:1]

    def statistics(
        self, coordinates: Coordinates, derivatives: Sequence[Array], references: Sequence[Array]
    ) -> Totals:
        """Statistics s and t of counts: s is the gradient g."""
        table = coordinates.table(derivatives[0])
        return Totals(table, np.zeros((*table.shape[:-1], 1)))

    def residuals(self, coordinates: Coordinates, found: Totals, tables: Array, weights: Array) -> Array:
        """Derivatives less the statistics, g - s."""
        return tables - found.s


@dataclass(frozen=True)
class Affine(ConjugateForm):
    """A sum of s_j log w_j on the simplex; outside of it the graph may be anything."""

    name = "affine"

    def statistics(
        self, coordinates: Coordinates, derivatives: Sequence[Array], references: Sequence[Array]
    ) -> Totals:
        """M from the change of centred derivatives between two points, and s = G + M w."""
        tables = [coordinates.table(g) for g in derivatives]
        weights = [coordinates.weights(r) for r in references]
        inside = [coordinates.tangent(g, w) for g, w in zip(tables, weights, strict=True)]
        change = weights[1] - weights[0]
        count = ((inside[0] - inside[1]) * change).sum(axis=-1, keepdims=True) / (change**2).sum(
            axis=-1, keepdims=True
        )
        s = inside[0] + count * weights[0]
        zero = np.zeros((*tables[0].shape[:-1], 1))
        return Totals(np.where(np.abs(s) <= _ROUNDING * np.abs(count), 0.0, s), zero)

    def residuals(self, coordinates: Coordinates, found: Totals, tables: Array, weights: Array) -> Array:
        """Centred G - (s - M w)."""
        expected = found.s - found.s.sum(axis=-1, keepdims=True) * weights
        return coordinates.tangent(tables, weights) - expected


@dataclass(frozen=True)
class Rate(ConjugateForm):
    """A likelihood s log theta - t theta of gamma variables."""

    name = "rate"
    adds_to_rate = True

    def first_references(
        self,
        coordinates: Coordinates,
        start: Array,
        gradient: Callable[[Array], Array],
        prior: tuple[Array, Array],
    ) -> tuple[Array, ...]:
        """Near the conditional mean, where s and t theta are of one size: little is lost in s - t theta."""
        alpha, rate = prior
        first = np.where(np.isfinite(start), start, 0.0)
        for _ in range(2):
            pair = coordinates.reference_pair(first)
            s, t = self.statistics(coordinates, [gradient(r) for r in pair], pair)
            mean = ((alpha + s) / (rate + t)).ravel()
            first = np.where(np.isfinite(mean) & (mean > 0.0), np.log(np.abs(mean)), first)
        return coordinates.reference_pair(first)

    def statistics(
        self, coordinates: Coordinates, derivatives: Sequence[Array], references: Sequence[Array]
    ) -> Totals:
        """T from the change of derivatives between two points, and s = G + t theta."""
        tables = [coordinates.table(g) for g in derivatives]
        weights = [coordinates.weights(r) for r in references]
        t = (tables[0] - tables[1]) / (weights[1] - weights[0])
        s = tables[0] + t * weights[0]
        return Totals(np.where(np.abs(s) <= _ROUNDING * np.abs(t * weights[0]), 0.0, s), t)

    def residuals(self, coordinates: Coordinates, found: Totals, tables: Array, weights: Array) -> Array:
        """G - (s - t theta)."""
        return tables - (found.s - found.t * weights)

    def references_at(
        self, coordinates: Coordinates, log_theta: Array, stored: tuple[Array, ...], *, constant: bool
    ) -> tuple[Array, ...]:
        """Near the present theta, which may be far from where the step was built, little is lost."""
        return stored if constant else coordinates.reference_pair(coordinates.natural(log_theta))


@dataclass(frozen=True)
class Frozen(LikelihoodForm):
    """No conjugate form: s is the derivative where the process is now, held fixed during a transition."""

    name = "frozen"
    is_conjugate = False

    def statistics(
        self, coordinates: Coordinates, derivatives: Sequence[Array], references: Sequence[Array]
    ) -> Totals:
        """S is G, centred on a simplex."""
        table = coordinates.table(derivatives[0])
        zero = np.zeros((*table.shape[:-1], 1))
        return Totals(coordinates.tangent(table, coordinates.weights(references[0])), zero)

    def references_at(
        self, coordinates: Coordinates, log_theta: Array, stored: tuple[Array, ...], *, constant: bool
    ) -> tuple[Array, ...]:
        """The present natural values, at which the drift is frozen."""
        return (coordinates.natural(log_theta),)

    def gamma_parameters(
        self, coordinates: Coordinates, shape: Array, rate: Array, log_theta: Array, shift: float
    ) -> tuple[Array, Array]:
        """Shapes and rates with M on both sides of the drift, which keeps shapes positive."""
        return coordinates.shifted(shape, rate, log_theta, shift)


COUNTS, AFFINE, RATE, FROZEN = Counts(), Affine(), Rate(), Frozen()
