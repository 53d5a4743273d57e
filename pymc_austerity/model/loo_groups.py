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
from pytensor.graph.traversal import ancestors

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.element_terms import ElementTerms
from pymc_austerity.model.factorisation import some_rows
from pymc_austerity.model.factorise import value_variables
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.model.structure.incidence import Incidence
from pymc_austerity.target import Index, Matrix, Vector

# Newton steps to the mode at most, until they are so short, with differences of so many standard deviations;
# nodes of the rule in each direction, of groups with so many effects.
_STEPS, _SHORT, _DIFFERENCE, _NODES = 5, 0.1, 0.2, {1: 11, 2: 9, 3: 6, 4: 4, 5: 3}
# The density of an effect, in standard deviations of it, falls at least as slowly as this says.
_FLATTEST, _LONGEST = 1e-8, 5.0

Point = list[NDArray[np.float64]]
# The function of a term, its rows among some, and the places of these.
_Part = tuple[Callable[..., Vector], Index, Index]


class Groups:
    """The rows of each group, and their density.

    A group has an element of each effect, or a row where an effect has two axes, and all rows of the data
    that look these up; elements that no row looks up are no groups. `FactorisationError` is raised if a row
    has two groups, or effects depend on one another given what they share.
    """

    def __init__(self, model: pm.Model, names: str | Sequence[str]) -> None:
        names = [names] if isinstance(names, str) else list(names)
        values = value_variables(model, [_made_of(model, name) for name in names])
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
        self.factorisation = terms.factorisation
        every = list(self.factorisation.graph.values)
        self._places = [every.index(str(value.name)) for value in values]
        self._ends_of_effects = np.cumsum(widths)
        found = terms.rows(point)
        n = terms.n_elements // len(values)
        own, rows = _rows_of_groups(found.own, n), _rows_of_groups(found.tested, n)
        self._elements = np.array([g for g in range(n) if len(rows[g])], dtype=np.int64)
        self.n_groups = len(self._elements)
        self._own, self._rows = ([part[g] for g in self._elements] for part in (own, rows))
        latent = {term.name for term in self.factorisation.locals}
        latent -= {*self.names, *self.factorisation.graph.likelihood}
        if latent or terms.followed:
            others = ", ".join(map(repr, [*sorted(latent), *terms.followed]))
            raise FactorisationError(
                f"Groups of {name!r} cannot be left out: it has a part in {others}.", name
            )
        if not self.n_groups:
            raise FactorisationError(f"No row looks up an element of {name!r}.", name)
        if not _are_apart(own):
            raise FactorisationError(
                f"Elements of {name!r} depend on one another given the variables of its prior, as those of a "
                "random walk do: there is no group that can be left out alone.",
                name,
            )
        if not _are_apart(rows):
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
        rows, elements = np.concatenate([*parts[0], *parts[1]]), self._elements[groups]
        density = self._density(point, elements, rows, np.concatenate(numbers))
        x = np.concatenate([point[k][elements].reshape(len(groups), -1) for k in self._places], axis=1)
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
            if np.all(np.abs(step) * np.sqrt(sizes) < _SHORT):
                break
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES[n_effects])
        rule = itertools.product(zip(nodes, np.log(weights), strict=True), repeat=n_effects)
        heights = []
        for at in rule:
            t, log_w = np.array(at).T
            heights.append(along(t) + 0.5 * t @ t + log_w.sum())
        return np.asarray(np.logaddexp.reduce(heights, axis=0) + np.linalg.slogdet(root)[1])

    def others(self) -> list[str]:
        """Other effects of the same groups, which are given by draws that have seen the group left out."""
        fact, found = self.factorisation, []
        point = fact.point_values(fact.graph.point)
        shape = point[self._places[0]].shape[:1]
        beside = np.concatenate([self._rows[0][:0], *self._rows[1:]])  # none, if there is one group

        def changes(rows: Index, moved: Point) -> bool:
            parts = self._by_terms(rows)
            before, after = (self._values(parts, one, len(rows)) for one in (point, moved))
            return not np.array_equal(before, after, equal_nan=True)

        for k, name in enumerate(fact.graph.values):
            if k not in self._places and point[k].dtype.kind == "f" and point[k].shape[:1] == shape:
                moved = list(point)
                moved[k] = point[k].copy()
                moved[k][self._elements[0]] += 0.1
                is_own = changes(self._rows[0], moved)
                if is_own and not any(changes(beside[rows], moved) for rows in some_rows(len(beside))):
                    found.append(str(fact.graph.variables[name]))
        return found

    def _by_terms(self, rows: Index) -> list[_Part]:
        """Some rows, term by term."""
        starts = np.append(0, self._ends[:-1])
        own = [np.flatnonzero((rows >= a) & (rows < b)) for a, b in zip(starts, self._ends, strict=True)]
        return [(f, rows[k] - a, k) for f, k, a in zip(self._functions, own, starts, strict=True) if len(k)]

    def _values(self, parts: list[_Part], point: Point, n: int) -> Vector:
        """Log densities of n rows."""
        result = np.empty(n)
        with np.errstate(all="ignore"):
            for function, index, places in parts:
                result[places] = function(*point, index, *self.factorisation.leaf_values)
        return result

    def _density(
        self, point: Point, elements: Index, rows: Index, group: Index
    ) -> Callable[[Matrix], Vector]:
        """The log density of effects and rows of each group, as a function of the effects of each."""
        parts = self._by_terms(rows)

        def at(effects: Matrix) -> Vector:
            moved = list(point)
            of_variables = np.split(effects, self._ends_of_effects[:-1], axis=1)
            for place, own in zip(self._places, of_variables, strict=True):
                moved[place] = point[place].copy()
                moved[place][elements] = own.reshape(moved[place][elements].shape)
            total = np.bincount(group, self._values(parts, moved, len(rows)), len(elements))
            return np.where(np.isfinite(total), total, -1e300)

        return at


def _made_of(model: pm.Model, name: str) -> str:
    """The name of the variable that a Deterministic is made of, if one alone has its shape; others stay."""
    if name not in {one.name for one in model.deterministics}:
        return name
    above, shape = set(ancestors([model[name]])), model[name].type.shape
    found = [str(rv.name) for rv in model.free_RVs if rv in above and rv.type.shape == shape]
    return found[0] if len(found) == 1 else name


def _rows_of_groups(found: Incidence, n: int) -> list[Index]:
    """The rows of each of n groups, by those of its elements: the same one of each effect."""
    of = np.split(found.rows.astype(np.int64), found.starts[1:-1])
    return [np.unique(np.concatenate(of[g::n])) for g in range(n)]


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
