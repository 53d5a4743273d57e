"""Densities of whole groups, effects integrated out: what leaving a group out needs of each draw.

p(y_g | theta) = int p(y_g | u, theta) p(u | theta) du, by Gauss and Hermite's rule around the mode of the
integrand. All groups that are asked for move at once, as no row has the effects of two.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.element_terms import ElementTerms
from pymc_austerity.model.factorise import value_variables
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.model.structure.incidence import Incidence
from pymc_austerity.target import Index, Matrix, Vector

# Newton steps to the mode, with differences of so many standard deviations; nodes of the rule in each
# direction, of groups with so many effects.
_STEPS, _DIFFERENCE, _NODES = 5, 0.2, {1: 11, 2: 9, 3: 6, 4: 4, 5: 3}
# The density of an effect, in standard deviations of it, falls at least as slowly as this says.
_FLATTEST, _LONGEST = 1e-8, 5.0

Point = list[NDArray[np.float64]]


class Groups:
    """The rows of each group, and their density.

    A group has an element of each effect, or a row where an effect has two axes, and all rows of the data
    that look these up. `FactorisationError` is raised if these are no groups: if a row has two of them, or
    effects depend on one another given what they share.
    """

    def __init__(self, model: pm.Model, names: str | Sequence[str]) -> None:
        values = value_variables(model, names if isinstance(names, str) else list(names))
        self.names = tuple(str(model.values_to_rvs[value].name) for value in values)
        self.name = name = ", ".join(self.names)
        shapes = [value.type.shape for value in values]
        widths = [math.prod(shape[1:]) for shape in shapes]
        if len({shape[:1] for shape in shapes} - {()}) != 1 or () in shapes or sum(widths) not in _NODES:
            said = ", ".join(f"{one} {shape}" for one, shape in zip(self.names, shapes, strict=True))
            raise FactorisationError(
                f"group= has effects of the shapes {said}: give vectors, or matrices with a row for each "
                f"group, all for the same groups and with at most {max(_NODES)} effects of a group.",
                name,
            )
        point = default_point(model)
        terms = ElementTerms(model, values, point, check=True)
        self.n_groups, self.factorisation = terms.n_elements // len(values), terms.factorisation
        every = list(self.factorisation.graph.values)
        self._places = [every.index(str(value.name)) for value in values]
        self._ends_of_effects = np.cumsum(widths)
        found = terms.rows(point)
        self._own, self._rows = (self._rows_of_groups(one) for one in (found.own, found.tested))
        latent = {term.name for term in self.factorisation.locals}
        latent -= {*self.names, *self.factorisation.graph.likelihood}
        if latent or terms.followed:
            others = ", ".join(map(repr, [*sorted(latent), *terms.followed]))
            raise FactorisationError(
                f"Groups of {name!r} cannot be left out: it has a part in {others}.", name
            )
        if not _are_apart(self._own):
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
        parts = [self._own[g] for g in groups], [self._rows[g] for g in groups]
        numbers = [np.repeat(np.arange(len(groups)), [len(one) for one in part]) for part in parts]
        density = self._density(
            point, groups, np.concatenate([*parts[0], *parts[1]]), np.concatenate(numbers)
        )
        x = np.concatenate([point[k][groups].reshape(len(groups), -1) for k in self._places], axis=1)
        n_effects = x.shape[1]
        root = np.broadcast_to(np.eye(n_effects), (len(groups), n_effects, n_effects))

        def along(t: Vector) -> Vector:
            return density(x + root @ t)

        for _ in range(_STEPS):
            slope, curvature = _derivatives(along, n_effects)
            sizes, axes = np.linalg.eigh(curvature)
            sizes = np.maximum(sizes, _FLATTEST)
            step = np.clip(np.einsum("gij,gi->gj", axes, slope) / sizes, -_LONGEST, _LONGEST)
            x = x + np.einsum("gij,gjk,gk->gi", root, axes, step)
            root = root @ axes * sizes[:, None, :] ** -0.5
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES[n_effects])
        rule = itertools.product(zip(nodes, np.log(weights), strict=True), repeat=n_effects)
        heights = []
        for at in rule:
            t, log_w = np.array(at).T
            heights.append(along(t) + 0.5 * t @ t + log_w.sum())
        return np.asarray(np.logaddexp.reduce(heights, axis=0) + np.linalg.slogdet(root)[1])

    def _rows_of_groups(self, found: Incidence) -> list[Index]:
        """The rows of each group, by those of its elements."""
        of = np.split(found.rows.astype(np.int64), found.starts[1:-1])
        return [np.unique(np.concatenate(of[g :: self.n_groups])) for g in range(self.n_groups)]

    def _density(self, point: Point, groups: Index, rows: Index, group: Index) -> Callable[[Matrix], Vector]:
        """The log density of effects and rows of each group, as a function of the effects of each."""
        fact, first = self.factorisation, 0
        parts = []
        for function, end in zip(self._functions, self._ends, strict=True):
            own = (rows >= first) & (rows < end)
            parts.append((function, rows[own] - first, group[own]))
            first = int(end)

        def at(effects: Matrix) -> Vector:
            moved, total = list(point), np.zeros(len(groups))
            of_variables = np.split(effects, self._ends_of_effects[:-1], axis=1)
            for place, own in zip(self._places, of_variables, strict=True):
                moved[place] = point[place].copy()
                moved[place][groups] = own.reshape(moved[place][groups].shape)
            with np.errstate(all="ignore"):
                for function, index, of_group in parts:
                    if len(index):
                        found = function(*moved, index, *fact.leaf_values)
                        total += np.bincount(of_group, found, len(groups))
            return np.where(np.isfinite(total), total, -1e300)

        return at


def _derivatives(along: Callable[[Vector], Vector], n: int) -> tuple[Matrix, Matrix]:
    """Slopes and minus second derivatives of functions at zero, by differences."""
    h = _DIFFERENCE * np.eye(n)
    here, above, below = along(np.zeros(n)), [along(one) for one in h], [along(-one) for one in h]
    slopes = np.stack([a - b for a, b in zip(above, below, strict=True)], axis=1) / (2.0 * _DIFFERENCE)
    curvature = np.empty((len(here), n, n))
    for i, j in itertools.combinations_with_replacement(range(n), 2):
        around = above[i] + below[i] - 2.0 * here
        if i != j:
            both = along(h[i] + h[j]) + along(-h[i] - h[j]) - 2.0 * here
            around = 0.5 * (both - around - (above[j] + below[j] - 2.0 * here))
        curvature[:, i, j] = curvature[:, j, i] = -around / _DIFFERENCE**2
    return slopes, curvature


def _are_apart(rows: list[Index]) -> bool:
    every = np.concatenate(rows)
    return len(np.unique(every)) == len(every)
