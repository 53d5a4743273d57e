"""The search for the posterior mode of a block: from several starts on a subsample, then on all data."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.traversal import ancestors

from pymc_austerity.exceptions import NoNormalApproximationError, warn
from pymc_austerity.mode.newton import Maximum, NoMaximumError, flat_direction, maximise
from pymc_austerity.model.starting_point import dispersed_points
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.target import Index, Vector

logger = logging.getLogger(__name__)

# Rows of the first search, and by how much they grow from one to the next.
_FIRST_ROWS, _ROWS_PER_DIMENSION, _GROWTH = 2000, 20, 10
# Rows above which a search from all starts takes long.
_MANY_ROWS = 100_000
# Points that the first search starts from.
_STARTS = 8
# Two ends of searches are the same mode if they are closer than this, in posterior standard deviations.
_SAME = 0.1
# Modes compared on all the data, and the smallest share of the posterior that is worth a warning.
_MOST_MODES, _SHARE = 3, 1e-3
# Standard deviations from the mode at which a given centre is called far.
_OFF = 3.0
_SEED = 2017
# Seconds between messages of a long search.
_PATIENCE = 5.0


class ModeSearch:
    """The search for the mode, over some or all of the block."""

    def __init__(
        self, model: pm.Model, structure: TermStructure, point: PointType, *, whole_block: bool
    ) -> None:
        fact = structure.factorisation
        self._model, self._fact, self._point = model, fact, point
        self._function = Differentiable(structure, point)
        # Of all rows: its designs are stored from here on.
        self.likelihood = self._function.likelihood()
        # Coordinates that are not free stay here.
        self._fixed = self._function.start
        used = set(ancestors([term.rows for term in fact.locals]))
        values = [fact.graph.values[name] for name in fact.var_names]
        moved = [whole_block or value in used for value in values]
        self._names = [name for name, free in zip(fact.var_names, moved, strict=True) if free]
        self.free = np.concatenate(
            [np.full(int(np.prod(v.type.shape)), free) for v, free in zip(values, moved, strict=True)]
        )
        self.passes = self.n_starts = 0
        # From the point of expansion to the mode, where a user gave the former.
        self.newton_step = np.zeros(int(self.free.sum()))
        self._stage = "at the given point"
        self._rng = np.random.default_rng(_SEED)
        self._started = self._told = time.perf_counter()

    def whole(self, free: Vector) -> Vector:
        """All of q, where some of it is free."""
        q = self._fixed.copy()
        q[self.free] = free
        return q

    def run(self) -> tuple[Maximum, int]:
        """The highest mode, and how many there are.

        Searches on more and more rows start where the one before ended. Rows that have no mode (few of them
        may separate the responses) are left behind.
        """
        n = self._fact.n_local
        starts, searched = self._starts(), False
        rows = max(_FIRST_ROWS, _ROWS_PER_DIMENSION * int(self.free.sum()))
        while rows * 2 < n:
            positions = np.sort(self._rng.choice(n, rows, replace=False))
            modes, _ = self._modes(starts, positions)
            starts = [m.q for m in modes[:_MOST_MODES]] if modes else starts
            searched = searched or bool(modes)
            rows *= _GROWTH
        # Of many rows only the best starts are worth a search; few have not been searched from.
        best = starts[:_MOST_MODES] if searched or n > _MANY_ROWS else starts
        ends, problem = self._modes(best, None)
        if not ends:
            self._refuse(problem)
        return ends[0], self._count_modes(ends)

    def at(self, center: Mapping[str, Any]) -> Maximum:
        """The point that a user gave."""
        missing = [name for name in self._fact.var_names if name not in center]
        if missing:
            raise ValueError(
                f"center has no value for {', '.join(missing)}: it needs one for each value variable of the "
                "step, on the unconstrained scale, as in model.initial_point()."
            )
        values = self._fact.graph.values
        unknown = [name for name in center if name not in values]
        if unknown:
            raise ValueError(
                f"center has values for {', '.join(unknown)}, which are no value variables of the model: "
                f"these are {', '.join(values)}."
            )
        q = np.concatenate([np.ravel(center[n]) for n in self._fact.var_names]).astype(np.float64)
        for name in self._fact.var_names:
            shape = values[name].type.shape
            if np.shape(center[name]) != shape:
                raise ValueError(f"center[{name!r}] must have shape {shape}, got {np.shape(center[name])}.")
        self._fixed = q
        value, gradient, hessian = self._density(None)(q[self.free])
        self.passes += 1
        if not all(np.all(np.isfinite(part)) for part in (q, value, gradient, hessian)):
            raise ValueError("The log density or a derivative of it is not finite at the given center.")
        flat = flat_direction(-hessian)
        if flat is not None:
            raise ValueError(
                f"The log density is not concave at the given center along {self.name(flat)}: there is no "
                'normal approximation there. Give a point nearer to the mode, or center="mode".'
            )
        self.newton_step = step = np.linalg.solve(-hessian, gradient)
        if gradient @ step > _OFF**2:
            warn(
                f"The given center is {np.sqrt(gradient @ step):.3g} standard deviations from the mode, as "
                'far as its curvature tells. Steps will read more rows than with center="mode".'
            )
        return Maximum(q[self.free], value, -hessian, float(np.sqrt(gradient @ step)), 1)

    def precision(self, found: Maximum) -> np.ndarray:
        """Precision of all of q; what was not free has that of its prior, or 1 where there is none."""
        curvature = -np.diag(self._function.prior(self.whole(found.q)).hessian)
        result = np.diag(np.where(np.isfinite(curvature) & (curvature > 0.0), curvature, 1.0))
        result[np.ix_(self.free, self.free)] = found.precision
        return result

    def _starts(self) -> list[Vector]:
        points = [self._point]
        points += dispersed_points(self._model, self._point, self._names, _STARTS - 1, self._rng)
        self.n_starts = len(points)
        ravelled = [np.concatenate([np.ravel(p[name]) for name in self._names]) for p in points]
        return [q.astype(np.float64) for q in ravelled]

    def _density(self, positions: Index | None) -> Any:
        """The log density of what is free, with some rows scaled up to all."""
        weight = 1.0 if positions is None else self._fact.n_local / len(positions)
        likelihood = self.likelihood if positions is None else self._function.likelihood(positions)
        square = np.ix_(self.free, self.free)

        def density(free: Vector) -> tuple[float, Vector, np.ndarray]:
            q = self.whole(free)
            result = self._function.prior(q).plus(likelihood(q), weight)
            now = time.perf_counter()
            if now - self._told > _PATIENCE:
                self._told = now
                logger.warning(
                    "Looking for the posterior mode, %s: log density %.6g after %.0f s.",
                    self._stage,
                    result.value,
                    now - self._started,
                )
            return result.value, result.gradient[self.free], result.hessian[square]

        return density

    def _modes(
        self, starts: list[Vector], positions: Index | None
    ) -> tuple[list[Maximum], NoMaximumError | None]:
        """Distinct maxima from some starts, highest first; and what was in the way from the first start."""
        density, found, problem = self._density(positions), [], None
        for k, start in enumerate(starts):
            n_rows = self._fact.n_local if positions is None else len(positions)
            self._stage = f"start {k + 1} of {len(starts)} on {n_rows:,} rows"
            try:
                maximum = maximise(density, start)
            except NoMaximumError as error:
                problem = problem or error
                self.passes += error.passes if positions is None else 0
                continue
            self.passes += maximum.passes if positions is None else 0
            found.append(maximum)
        distinct: list[Maximum] = []
        for maximum in sorted(found, key=lambda m: -m.log_mass):
            apart = [maximum.q - other.q for other in distinct]
            if all(d @ other.precision @ d > _SAME**2 for d, other in zip(apart, distinct, strict=True)):
                distinct.append(maximum)
        return distinct, problem

    def _refuse(self, problem: NoMaximumError | None) -> None:
        assert problem is not None
        where = f" along {self.name(problem.direction)}" if np.any(problem.direction) else ""
        raise NoNormalApproximationError(
            f"The posterior has no mode to expand at: {problem.reason}{where}. Data that separate the "
            "responses perfectly, a parameter that the model does not identify, or a scale of a hierarchical "
            "prior in the same block do this. Give that parameter a proper prior, or remove it; put "
            "hierarchical scales and what they govern under Taylor() with proposal=Surrogate(); or use the "
            "step without control_variate and with a random walk."
        )

    def _count_modes(self, ends: list[Maximum]) -> int:
        """Modes with a share of the posterior that matters; warn if there are several."""
        mass = np.exp(np.array([m.log_mass for m in ends]) - ends[0].log_mass)
        n_modes = int(np.sum(mass > _SHARE * mass.sum()))
        if n_modes > 1:
            apart = ends[1].q - ends[0].q
            worst = np.zeros(len(self.free))
            worst[self.free] = apart * np.sqrt(np.diag(ends[0].precision))
            where = self.name_of(int(np.abs(worst).argmax()))
            warn(
                f"The posterior has {n_modes} or more modes: another is {np.abs(worst).max():.3g} standard "
                f"deviations away in {where}, with {mass[1:].sum() / mass.sum():.1%} of the mass. One Taylor "
                "polynomial and one normal proposal fit only the highest. Remove the symmetry (order the "
                "components of a mixture), or use a step without control_variate."
            )
        return n_modes

    def name(self, direction: Vector) -> str:
        """The variables that make up most of a direction."""
        whole = np.zeros(len(self.free))
        whole[self.free] = np.abs(direction)
        order = np.argsort(-whole)
        leading = [d for d in order[:3] if whole[d] > 0.3 * whole[order[0]]]
        return ", ".join(self.name_of(int(d)) for d in leading)

    def name_of(self, dimension: int) -> str:
        """Name of one coordinate of q."""
        name, index = self._fact.coordinate(dimension)
        return name + (f"[{', '.join(map(str, index))}]" if index else "")
