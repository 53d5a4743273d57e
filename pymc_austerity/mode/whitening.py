"""Coordinates in which a posterior is nearly round: q = center + factor w, where w is nearly N(0, I).

Of a block these are of the normal distribution at its mode. Of a field they are frozen at the fitted theta,
the maximum of log p^, where effects are integrated out: the joint density of a hierarchy may have no mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from pymc_austerity import work
from pymc_austerity.kernels.fields.records import Elements, FieldArrays
from pymc_austerity.mode.fields import compiled
from pymc_austerity.mode.fields.draws import hold_at, middle, theta_of_scores
from pymc_austerity.mode.fields.field_model import FieldModel
from pymc_austerity.mode.fields.fit import FieldFit
from pymc_austerity.mode.mode_fit import ModeFit
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.target import Matrix, Vector

# Dimensions up to which a dense factor is worth its products, and up to which columns are computed singly.
MOST_DENSE, _MOST = 500, 10_000
# Elements of a sparse factor for each row: so many products cost less than the gradient of the row.
_OF_ROW = 20
# Powers of a matrix that tell its largest singular value, and where they begin.
_POWERS, _SEED = 50, 2026
# Curvatures that are smaller, beside the largest one, are taken to be so large.
_FLAT = 1e-6


@dataclass(frozen=True, eq=False)
class Whitening:
    """Coordinates w of the vector q of a block: q = center + factor w."""

    names: tuple[str, ...]  # Value variables of the block, in the order of q
    sizes: tuple[int, ...]
    center: Vector  # (D,)
    factor: sparse.csr_array  # (D, D)

    def in_order(self, names: tuple[str, ...]) -> Whitening:
        """A `Whitening` with rows of center and factor put in the order of these value variables."""
        ends = np.cumsum(self.sizes)
        every = zip(self.names, self.sizes, ends, strict=True)
        places = {name: np.arange(end - size, end) for name, size, end in every}
        order = np.concatenate([places[name] for name in names])
        sizes = tuple(len(places[name]) for name in names)
        return Whitening(names, sizes, self.center[order], self.factor[order])

    @cached_property
    def _inverse(self) -> linalg.SuperLU:
        return linalg.splu(self.factor.tocsc())

    def __getstate__(self) -> dict[str, object]:
        """All but the decomposition, which cannot be pickled."""
        return {name: value for name, value in self.__dict__.items() if name != "_inverse"}

    def solve(self, q: Vector) -> Vector:
        """W of a displacement of q."""
        return self._inverse.solve(q)

    def solve_transposed(self, gradient: Vector) -> Vector:
        """What `factor` transposed makes `gradient` of."""
        return self._inverse.solve(gradient, trans="T")

    @cached_property
    def stretch(self) -> float:
        """How many times longer than wide the fitted distribution is after a diagonal scaling.

        It is scaled as well as standard deviations, given the other coordinates and not, allow.
        """
        squares = self.factor.multiply(self.factor).sum(axis=1)
        given, unit = np.empty(len(squares)), np.zeros(len(squares))
        for k in range(len(given)):
            unit[k] = 1.0
            given[k] = np.sum(self.solve(unit) ** 2)
            unit[k] = 0.0
        units = (squares / given) ** 0.25
        start, factor = np.random.default_rng(_SEED).standard_normal(len(units)), self.factor
        longest = _length(lambda w: factor @ w / units, lambda q: factor.T @ (q / units), start)
        widest = _length(lambda q: self.solve(units * q), lambda w: units * self.solve_transposed(w), start)
        return longest * widest


def _length(forth: Callable[[Vector], Vector], back: Callable[[Vector], Vector], start: Vector) -> float:
    """The largest singular value of a matrix, nearly; `back` multiplies by the transposed one."""
    for _ in range(_POWERS):
        start = back(forth(start))
        start = start / np.linalg.norm(start)
    return float(np.linalg.norm(forth(start)))


def of_mode(fact: Factorisation, fit: ModeFit) -> Whitening | None:
    """Coordinates at the mode of a block; None in many dimensions, or if the fit is one of features."""
    n_dim = len(fit.free)
    if n_dim > MOST_DENSE or fit.of_features is not None:
        return None
    factor = np.eye(n_dim)
    factor[np.ix_(fit.free, fit.free)] = fit.unwhiten
    return _of_block(fact, fit.proxy.mode, sparse.csr_array(factor))


def of_field(field: FieldModel, fits: tuple[FieldFit, ...]) -> Whitening | None:
    """Coordinates of a field near its fitted theta; None if they would cost more than the rows.

    Effects are whitened given theta, by the factor of each turn, and by what turns have in common where that
    is small. A score of theta moves all effects along their mean given theta.
    """
    values, fact, n_dim = field.values, field.factorisation, field.values.n_dim
    if n_dim > _MOST:
        return None
    work.spend(float(n_dim) ** 2, "Coordinates of a field")
    turns = field.arrays(fits, reads_all=True, debug=False)
    theta, z = middle(turns, values.features)
    features = values.features(theta)
    center, effects, precision = values(theta, z, features), _effects(turns, len(z)), None
    if len(turns) > 1 and n_dim <= MOST_DENSE:
        precision = _precision(turns, features)
        effects = sparse.csc_array(_root(precision))

    def mean(theta: Vector) -> Vector:
        """The mean of z given theta."""
        result, pulls = z.copy(), np.zeros(len(z))
        for turn, own in zip(turns, _means(field, turns, theta, z), strict=True):
            result[turn.coordinates] = own
            if precision is not None:
                within = precision[np.ix_(turn.coordinates, turn.coordinates)]
                pulls[turn.coordinates] = within @ (own - z[turn.coordinates])
        return result if precision is None else z + effects @ (effects.T @ pulls)

    columns, seen = [], np.zeros(len(theta), bool)
    for turn in turns:
        law = turn.law
        for j in np.flatnonzero(~seen[law.which]):
            sides = []
            for sign in (1.0, -1.0):
                other = theta.copy()
                other[law.which] = theta_of_scores(law, sign * law.factor[:, j])[0]
                sides.append(values(other, mean(other)))
            columns.append(sparse.csc_array(0.5 * (sides[0] - sides[1])[:, None]))
        seen[law.which] = True
    for k in range(effects.shape[1]):
        column = effects[:, [k]].toarray().ravel()
        columns.append(sparse.csc_array((values(theta, z + column, features) - center)[:, None]))
    factor = sparse.hstack(columns, format="csr")
    if factor.nnz > max(MOST_DENSE**2, _OF_ROW * fact.n_rows):
        return None
    if factor.shape[1] > n_dim:  # more coordinates than values, as of effects that sum to zero
        if n_dim > MOST_DENSE:
            return None
        factor = sparse.csr_array(np.linalg.cholesky((factor @ factor.T).toarray()))
    return _of_block(fact, center, factor)


def _means(field: FieldModel, turns: tuple[FieldArrays, ...], theta: Vector, z: Vector) -> list[Vector]:
    """The mean of z of each turn given theta, and given z of what it holds."""
    features, found = field.values.features(theta), []
    for turn in turns:
        hold_at(turn, features, z)
        compiled.log_marginal(turn, features, 0)
        found.append(_solved(turn, turn.room.shifts[0]))
    return found


def _solved(turn: FieldArrays, eps: Vector) -> Vector:
    """Z of L' z = eps, by the factor that the room of a turn has."""
    result = np.empty(len(eps))
    compiled.backward(turn.tree, turn.room.fronts[0], eps, result)
    return result


def _effects(turns: tuple[FieldArrays, ...], n: int) -> sparse.csc_array:
    """The derivatives of z by eps of all turns, whose rooms have the factors; (n, n) by coordinates.

    A coordinate of several turns has the eps of the first one.
    """
    rows, places, found, seen = [], [], [], np.zeros(n, bool)
    for turn in turns:
        own = turn.coordinates
        for k in np.flatnonzero(~seen[own]):
            unit = np.zeros(len(own))
            unit[k] = 1.0
            column = _solved(turn, unit)
            at = np.flatnonzero(column)
            rows.append(own[at])
            places.append(np.full(len(at), own[k]))
            found.append(column[at])
        seen[own] = True
    every = np.concatenate(found), (np.concatenate(rows), np.concatenate(places))
    return sparse.csc_array(every, shape=(n, n))


def _precision(turns: tuple[FieldArrays, ...], features: Vector) -> Matrix:
    """The precision of z given theta, of turns whose rooms have the factors."""
    n = 1 + max(int(turn.coordinates.max(initial=-1)) for turn in turns)
    result, counts = np.zeros((n, n)), np.zeros((n, n))
    for turn in turns:
        held, own, others = turn.held, turn.coordinates, turn.held.coordinates
        sums, n_x, n_held = turn.sums, len(turn.sums.center), len(held.center)
        hessian = sparse.csr_array((held.hessian, (held.first, held.second)), (n_x, n_held))
        of_own = _at(turn.prior.map, features, (n_x, len(own)))
        of_held = _at(held.map, features, (n_held, len(others)))
        scale = math.exp(features[sums.precision]) if sums.precision >= 0 else 1.0
        cross = scale * (of_own.T @ hessian @ of_held).toarray()
        factor = np.array([_solved(turn, unit) for unit in np.eye(len(own))])
        within = np.linalg.inv(factor.T @ factor)
        for rows, columns, block in ((own, others, cross), (others, own, cross.T), (own, own, within)):
            result[np.ix_(rows, columns)] += block
            counts[np.ix_(rows, columns)] += 1.0
    return result / counts


def _root(precision: Matrix) -> Matrix:
    """R with R R' the inverse of a precision, which rounding or averaging may have left indefinite."""
    units = 1.0 / np.sqrt(np.diag(precision))
    lengths, axes = np.linalg.eigh(precision * np.outer(units, units))
    lengths = np.maximum(lengths, _FLAT * lengths[-1])
    return units[:, None] * (axes / np.sqrt(lengths))


def _at(elements: Elements, features: Vector, shape: tuple[int, int]) -> sparse.csr_array:
    """A matrix of a field at some features."""
    values = np.empty(len(elements.rows))
    compiled.write_elements(elements, features, values)
    return sparse.csr_array((values, (elements.rows, elements.columns)), shape)


def _of_block(fact: Factorisation, center: Vector, factor: sparse.csr_array) -> Whitening:
    values = fact.graph.values
    sizes = tuple(math.prod(values[name].type.shape) for name in fact.var_names)
    return Whitening(tuple(fact.var_names), sizes, center, factor)
