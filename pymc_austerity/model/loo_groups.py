"""Densities of whole groups, effects integrated out: what leaving a group out needs of each draw.

p(y_g | theta) = int p(y_g | u, theta) p(u | theta) du, by Gauss and Hermite's rule around the mode of the
integrand. All groups that are asked for move at once, as no row has the effects of two.
"""

import math
from collections.abc import Callable

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.element_terms import ElementTerms
from pymc_austerity.model.factorise import value_variables
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.model.structure.incidence import Incidence
from pymc_austerity.target import Index, Vector

# Newton steps to the mode, with differences of so many standard deviations; nodes of the rule.
_STEPS, _DIFFERENCE, _NODES = 5, 0.2, 11

Point = list[NDArray[np.float64]]


class Groups:
    """The rows of each group, and their density.

    A group is an element of an effect: all rows that look it up. `FactorisationError` is raised if these are
    no groups: if a row has two of them, or effects depend on one another given what they share.
    """

    def __init__(self, model: pm.Model, name: str) -> None:
        (value,) = value_variables(model, name)
        if value.type.ndim != 1:
            raise FactorisationError(
                f"group={name!r} has {value.type.ndim} axes: groups are the elements of a vector.", name
            )
        point = default_point(model)
        terms = ElementTerms(model, [value], point, check=True)
        self.name, self.n_groups, self.factorisation = name, terms.n_elements, terms.factorisation
        self._place = list(self.factorisation.graph.values).index(str(value.name))
        found = terms.rows(point)
        self._own, self._rows = found.own, found.tested
        latent = {term.name for term in self.factorisation.locals} - {
            name,
            *self.factorisation.graph.likelihood,
        }
        if latent or terms.followed:
            others = ", ".join(map(repr, [*sorted(latent), *terms.followed]))
            raise FactorisationError(
                f"Groups of {name!r} cannot be left out: it has a part in {others}.", name
            )
        if not _are_apart(self._own) or np.any(np.diff(self._own.starts) != 1):
            raise FactorisationError(
                f"Elements of {name!r} depend on one another given the variables of its prior, as those of a "
                "random walk do: there is no group that can be left out alone.",
                name,
            )
        if not _are_apart(self._rows):
            raise FactorisationError(
                f"Some rows have two elements of {name!r}, and belong to two groups.", name
            )
        fact = self.factorisation
        self._functions = [fact.compile(term.rows, [term.index], mode=INTERPRETED) for term in fact.locals]
        self._ends = np.cumsum([term.size for term in fact.locals])

    def log_densities(self, point: Point, groups: Index) -> Vector:
        """Log density of all rows of each of some groups at a point, their effects integrated out."""
        rows = np.concatenate(
            [self._of(self._own, g) for g in groups] + [self._of(self._rows, g) for g in groups]
        )
        counts = [len(self._of(self._rows, g)) for g in groups]
        group = np.concatenate([np.arange(len(groups)), np.repeat(np.arange(len(groups)), counts)])
        density = self._density(point, groups, rows, group)
        x, scale = point[self._place][groups], np.ones(len(groups))
        for _ in range(_STEPS):
            h = _DIFFERENCE * scale
            below, here, above = density(x - h), density(x), density(x + h)
            curvature = np.maximum((2.0 * here - below - above) / h**2, 1e-8 / scale**2)
            step = (above - below) / (2.0 * h) / curvature
            x = x + np.clip(step, -5.0 * scale, 5.0 * scale)
            scale = curvature**-0.5
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        heights = np.array(
            [density(x + scale * t) + 0.5 * t * t + math.log(w) for t, w in zip(nodes, weights, strict=True)]
        )
        return np.asarray(np.logaddexp.reduce(heights, axis=0) + np.log(scale))

    @staticmethod
    def _of(found: Incidence, group: int) -> Index:
        return found.rows[found.starts[group] : found.starts[group + 1]].astype(np.int64)

    def _density(self, point: Point, groups: Index, rows: Index, group: Index) -> Callable[[Vector], Vector]:
        """The log density of effects and rows of each group, as a function of the effects."""
        fact, first = self.factorisation, 0
        parts = []
        for function, end in zip(self._functions, self._ends, strict=True):
            own = (rows >= first) & (rows < end)
            parts.append((function, rows[own] - first, group[own]))
            first = int(end)

        def at(effects: Vector) -> Vector:
            moved, total = list(point), np.zeros(len(groups))
            moved[self._place] = point[self._place].copy()
            moved[self._place][groups] = effects
            with np.errstate(all="ignore"):
                for function, index, of_group in parts:
                    if len(index):
                        found = function(*moved, index, *fact.leaf_values)
                        total += np.bincount(of_group, found, len(groups))
            return np.where(np.isfinite(total), total, -1e300)

        return at


def _are_apart(found: Incidence) -> bool:
    return len(np.unique(found.rows)) == len(found.rows)
