"""The search for the posterior mode of a block: from several starts on a subsample, then on all data.

Where the posterior is known to be log-concave it has one mode, and one start leads there. That is so for
regressions with canonical links, for probits, and for many others, under normal priors.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.continuous import FlatRV
from pymc.initial_point import PointType
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import LogisticRV, MvNormalRV, NormalRV

from pymc_austerity import work
from pymc_austerity.bounds.expressions.continuity import is_straight
from pymc_austerity.bounds.expressions.curvature import is_concave
from pymc_austerity.bounds.row_function import evenly_spaced
from pymc_austerity.exceptions import NoNormalApproximationError, warn
from pymc_austerity.mode.newton import NEAR, OF_STEP, Density, Maximum, NoMaximumError, maximise
from pymc_austerity.model.factorisation import coordinate_name
from pymc_austerity.model.starting_point import dispersed_points
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.log_likelihood import Elsewhere
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.progress import stage
from pymc_austerity.target import Index, Vector

# Rows of the first search, and by how much they grow from one to the next, as long as they are no more than
# the last number: they are held in memory, and from there a few passes over all rows lead to the mode.
_FIRST_ROWS, _ROWS_PER_DIMENSION, _GROWTH, _MOST_ROWS = 2000, 20, 10, 400_000
# From so many rows on one of each of many equal parts is drawn, which takes no table of all rows.
_IN_PARTS = 1_000_000
# Rows above which a search from all starts takes long.
_MANY_ROWS = 100_000
# Points that the first search starts from, where there may be several modes.
_STARTS = 8
# Two ends of searches are the same mode if they are closer than this, in posterior standard deviations.
_SAME = 0.1
# Rows that are looked at for whether they are curved.
_LOOKED_AT = 200
# How near to the mode of some rows a search on these ends, in standard deviations.
_ROUGHLY = 1e-2
# Modes compared on all the data, and the smallest share of the posterior that is worth a warning.
_MOST_MODES, _SHARE = 3, 1e-3
# Passes that a search takes at least: the first from a start, and one that goes on from the end of another.
# And what further starts are taken to need at least, relative to those before.
_FIRST_PASSES, _PASSES, _NO_LESS = 3, 2, 0.5
_SEED = 2017
# Distributions whose log densities are concave for all parameters.
_CONCAVE = (FlatRV, LogisticRV, MvNormalRV, NormalRV)


def samples_of_rows(
    n_local: int, n_dim: int, rng: np.random.Generator, n_rows: int
) -> Iterator[Index | None]:
    """Local terms for one search after the other, each on ten times as many; at last None, for all of them.

    What is told of them is how many of the `n_rows` of the likelihood they are.
    """
    sizes = sizes_of_samples(n_local, n_dim)
    for k, size in enumerate(sizes):
        stage("mode", f" {k + 1}/{len(sizes)}, {min(size, n_rows):,} of {n_rows:,} rows")
        yield None if size == n_local else some_at_random(n_local, size, rng)


def sizes_of_samples(n_local: int, n_dim: int) -> list[int]:
    """Local terms of each search; at last all of them."""
    rows = max(_FIRST_ROWS, _ROWS_PER_DIMENSION * n_dim)
    sizes: list[int] = []
    while rows * 2 < n_local and (not sizes or rows <= _MOST_ROWS):
        sizes.append(rows)
        rows *= _GROWTH
    return [*sizes, n_local]


def some_at_random(n_rows: int, size: int, rng: np.random.Generator) -> Index:
    """Numbers of `size` different rows at random, in order; any row is as likely as another."""
    if n_rows < _IN_PARTS:
        return np.sort(rng.choice(n_rows, size, replace=False, shuffle=False))
    ends = np.arange(size + 1) * n_rows // size
    # Parts differ by one row at most: where they begin is shifted around all rows at random.
    chosen: Index = (rng.integers(ends[:-1], ends[1:]) + rng.integers(n_rows)) % n_rows
    return np.sort(chosen)


class BlockPosterior:
    """Value, gradient and Hessian of the log posterior by the free coordinates of a block.

    Coordinates that are not free stay at `point`, and variables outside the block. With `whole_block` all are
    free; else those of variables that a local term contains. `elsewhere` computes sums over all rows in other
    processes. The `likelihood` of all rows stores its designs from the first pass on.
    """

    def __init__(
        self,
        structure: TermStructure,
        point: Mapping[str, Any],
        *,
        whole_block: bool,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.structure = structure
        self.factorisation = fact = structure.factorisation
        self._function = Differentiable(structure, point)
        self.likelihood = self._function.likelihood(elsewhere=elsewhere)
        used = set(ancestors([term.rows for term in fact.locals]))
        values = [fact.graph.values[name] for name in fact.var_names]
        moved = [whole_block or value in used for value in values]
        self.free_names = [name for name, free in zip(fact.var_names, moved, strict=True) if free]
        self.free = np.concatenate(
            [np.full(int(np.prod(v.type.shape)), free) for v, free in zip(values, moved, strict=True)]
        )

    @property
    def start(self) -> Vector:
        """The vector q at the given point, all coordinates of it."""
        return self._function.start

    def whole(self, free: Vector) -> Vector:
        """The vector q, all coordinates of it, from those that are free."""
        q = self.start.copy()
        q[self.free] = free
        return q

    def density(self, positions: Index | None = None) -> Density:
        """The log posterior by the free coordinates, with the rows at `positions` scaled up to all."""
        fact = self.factorisation
        weight = 1.0 if positions is None else fact.n_local / len(positions)
        likelihood = self.likelihood if positions is None else self._function.likelihood(positions)
        square = np.ix_(self.free, self.free)

        def at(free: Vector) -> tuple[float, Vector, np.ndarray]:
            q = self.whole(free)
            result = self._function.prior(q).plus(likelihood(q), weight)
            return result.value, result.gradient[self.free], result.hessian[square]

        return at

    def require_curved(self) -> None:
        """Refuse rows that are made of straight pieces."""
        structure = self.structure
        numbers = filter(structure.is_function_of_block, range(len(self.factorisation.locals)))
        for function in map(structure.row_function, numbers):
            positions = evenly_spaced(function.n_rows, _LOOKED_AT)
            rows, q = function.rows(positions), self._function.features(self.start)
            etas, data = (rows[..., :-1] @ q + rows[..., -1]).T, dict(enumerate(function.data(positions)))
            if function.form is not None and is_straight(function.form, etas, data):
                raise NoNormalApproximationError.of_straight_pieces(function.name)

    def operations(self, n_rows: int) -> float:
        """Operations of the density with two derivatives on so many rows, and of a Newton step from there."""
        own = self._function
        of_rows = n_rows / self.factorisation.n_local * self.likelihood.operations
        return (
            of_rows + own.prior.operations + own.features.operations + OF_STEP * float(self.free.sum()) ** 3
        )

    def whole_precision(self, free: Vector, precision: np.ndarray) -> np.ndarray:
        """Precision of all of q at a mode.

        What is not free has the precision of its prior, or 1 where there is none.
        """
        curvature = -np.diag(self._function.prior(self.whole(free)).hessian)
        result = np.diag(np.where(np.isfinite(curvature) & (curvature > 0.0), curvature, 1.0))
        result[np.ix_(self.free, self.free)] = precision
        return result

    def leading(self, direction: Vector) -> list[str]:
        """The coordinates that make up most of a direction of the free ones; none if it is zero."""
        if not np.any(direction):
            return []
        whole = np.zeros(len(self.free))
        whole[self.free] = np.abs(direction)
        order = np.argsort(-whole)
        leading = [d for d in order[:3] if whole[d] > 0.3 * whole[order[0]]]
        return [coordinate_name(self.factorisation, int(d)) for d in leading]


class ModeSearch:
    """The search for the highest mode: from several starts, but if the posterior is known to have one mode.

    The first start is at `point`; any others are draws from the prior.
    """

    def __init__(self, model: pm.Model, posterior: BlockPosterior, point: PointType) -> None:
        self._model, self._posterior, self._point = model, posterior, point
        self._n_local = posterior.factorisation.n_local
        self._rng = np.random.default_rng(_SEED)

    def run(self) -> tuple[Maximum, int, int]:
        """The highest mode, the points that the first search started from, and the modes that it found.

        Searches on more and more rows start where the one before ended. Rows that have no mode (few of them
        may separate the responses) are left behind.
        """
        self._posterior.require_curved()
        n, n_dim = self._n_local, int(self._posterior.free.sum())
        starts, searched = self._starts(), False
        n_starts = len(starts)
        ahead = [_PASSES * self._posterior.operations(size) for size in sizes_of_samples(n, n_dim)]
        for positions in samples_of_rows(n, n_dim, self._rng, self._posterior.factorisation.n_rows):
            ahead.pop(0)
            if positions is None and (searched or n > _MANY_ROWS):
                # Of many rows only the best starts are worth a search; few have not been searched from.
                starts = starts[:_MOST_MODES]
            ends, problem = self._modes(starts, positions, _PASSES if searched else _FIRST_PASSES, sum(ahead))
            if positions is not None and ends:
                starts, searched = [m.q for m in ends[:_MOST_MODES]], True
        if not ends:
            self._refuse(problem)
        return ends[0], n_starts, self._count_modes(ends)

    def _starts(self) -> list[Vector]:
        names, points = self._posterior.free_names, [self._point]
        if not is_log_concave(self._model, self._posterior.structure):
            points += dispersed_points(self._model, self._point, names, _STARTS - 1, self._rng)
        ravelled = [np.concatenate([np.ravel(p[name]) for name in names]) for p in points]
        return [q.astype(np.float64) for q in ravelled]

    def _modes(
        self, starts: list[Vector], positions: Index | None, fewest: int, ahead: float
    ) -> tuple[list[Maximum], NoMaximumError | None]:
        """Distinct maxima from some starts, highest first; and what was in the way from the first start.

        Before each it is asked whether the budget allows for what is left: for passes from other starts, at
        least `fewest` from each, and half as many as the starts before have taken; and for searches on more
        rows, which take `ahead` operations.
        """
        density, found, problem = self._posterior.density(positions), [], None
        n_rows, passes = self._n_local if positions is None else len(positions), 0
        for k, start in enumerate(starts):
            of_start = max(float(fewest), _NO_LESS * passes / max(k, 1))
            left = (len(starts) - k) * of_start * self._posterior.operations(n_rows)
            work.require(left + ahead, "The search for the mode")
            try:
                maximum = maximise(density, start, NEAR if positions is None else _ROUGHLY)
            except NoMaximumError as error:
                problem, passes = problem or error, passes + error.passes
                continue
            passes += maximum.passes
            found.append(maximum)
        distinct: list[Maximum] = []
        for maximum in sorted(found, key=lambda m: -m.log_mass):
            apart = [maximum.q - other.q for other in distinct]
            if all(d @ other.precision @ d > _SAME**2 for d, other in zip(apart, distinct, strict=True)):
                distinct.append(maximum)
        return distinct, problem

    def _refuse(self, problem: NoMaximumError | None) -> None:
        assert problem is not None
        leading = self._posterior.leading(problem.direction)
        where = f" along {', '.join(leading)}" if leading else ""
        raise NoNormalApproximationError(
            f"The posterior has no mode to expand at: {problem.reason}{where}. Data that separate the "
            "responses perfectly, a parameter that the model does not identify, or a scale of a hierarchical "
            "prior in the same block do this; so do covariates far from zero compared with their spread, and "
            "terms made of straight pieces, as of Laplace errors or quantiles. Give that parameter a proper "
            "prior, or remove it; center covariates; put hierarchical scales and what they govern under "
            "Taylor() with proposal=Surrogate(); or use a step without control_variate and with a random "
            "walk, such as AusterityMH().",
            leading,
        )

    def _count_modes(self, ends: list[Maximum]) -> int:
        """Modes with a share of the posterior that matters; warn if there are several."""
        mass = np.exp(np.array([m.log_mass for m in ends]) - ends[0].log_mass)
        n_modes = int(np.sum(mass > _SHARE * mass.sum()))
        if n_modes > 1:
            apart = (ends[1].q - ends[0].q) * np.sqrt(np.diag(ends[0].precision))
            where = self._posterior.leading(apart)[0]
            warn(
                f"The posterior has {n_modes} or more modes: another is {np.abs(apart).max():.3g} standard "
                f"deviations away in {where}, with {mass[1:].sum() / mass.sum():.1%} of the mass. One Taylor "
                "polynomial and one normal proposal fit only the highest. Remove the symmetry (order the "
                "components of a mixture), or use a step without control_variate."
            )
        return n_modes


def is_log_concave(model: pm.Model, structure: TermStructure) -> bool:
    """Is the log density known to be concave in the block, whatever the other variables are?

    Local terms have to be functions of predictors that are linear in the block, and concave in these
    (`is_concave`). Other terms with variables of the block have to be their priors, of distributions that are
    known, with parameters that do not depend on the block.
    """
    if structure.features is not None:
        return False
    fact = structure.factorisation
    block = {fact.graph.values[name] for name in fact.var_names}
    moved = {rv for rv in model.free_RVs if model.rvs_to_values[rv].name in fact.var_names}
    priors = {
        rv.name
        for rv in moved
        if isinstance(rv.owner.op, _CONCAVE)
        and model.rvs_to_transforms[rv] is None
        and moved.isdisjoint(ancestors(rv.owner.inputs))
    }
    if any(name not in priors for name, graph in fact.globals if block.intersection(ancestors([graph]))):
        return False
    if not all(map(structure.has_row_function, range(len(fact.locals)))):
        return False
    return all(not one.others and is_concave(one.expression) for one in structure.row_functions)
