"""The distribution that a step is fitted to, which its proposals come from: draws, and their log densities.

Of a block it is the normal distribution at the mode. Of a field it is theta by its normal scores, and effects
given theta by the averaged expansion:

    theta = T(F s), L' z = c + eps, w = S z, with s and eps standard normal,

where T, F, L, c and S are those of `kernels.fields`; L, c and S depend on theta.
"""

import math
from abc import ABC, abstractmethod

import numpy as np
from pymc.initial_point import PointType
from scipy import linalg, sparse
from scipy.sparse.linalg import splu

from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.kernels.fields.records import FieldArrays
from pymc_austerity.mode.fields import compiled
from pymc_austerity.mode.fields.draws import hold_at, middle, scores_of_theta, theta_of_scores
from pymc_austerity.mode.fields.field_model import field_model
from pymc_austerity.mode.fields.maps import matrix_of
from pymc_austerity.mode.fields.prior import places_of
from pymc_austerity.mode.fields.values import FieldValues
from pymc_austerity.mode.mode_fit import ModeFit
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.engine.fields import FieldEngine
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.target import Vector

_HALF_LOG = 0.5 * math.log(2.0 * math.pi)


class Fitted(ABC):
    """A distribution of the vector q of a block."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Vector:
        """A draw (D,), for which no row is read."""

    @abstractmethod
    def log_density(self, q: Vector) -> float:
        """The log density of q, with all constants."""


def fitted_to(step: SubsampledStep, point: PointType, *, has_density: bool = False) -> Fitted:
    """The distribution that a step is fitted to; `point` has the variables of other steps.

    Each turn of a field has a fit of its own. If a density is asked for, all effects are fitted together.

    Raises
    ------
    UnsuitableError
        If it is fitted to none, or only to some of its variables.
    """
    engine, fit = step.engine, step.recipe.mode_fit
    if isinstance(engine, FieldEngine):
        if has_density and len(engine.turns) > 1:
            return _fitted_together(step, point)
        return _FittedField(engine.copy().turns, engine.values, point)
    if fit is not None and not fit.free.all():
        fact = step.factorisation
        beside = dict.fromkeys(fact.coordinate(int(k))[0] for k in np.flatnonzero(~fit.free))
        raise UnsuitableError(
            f"{type(step).__name__} is fitted to the variables that rows contain, and moves "
            f"{', '.join(str(fact.graph.variables[name]) for name in beside)} beside: no distribution of all "
            "of them is known. Use sample()."
        )
    if fit is None:
        raise UnsuitableError(
            f"{type(step).__name__} has no distribution that is fitted to all its variables: give a step "
            "with control_variate=Taylor() and the proposal Laplace(), if the model has a mode."
        )
    return _NormalAtMode(fit)


def _fitted_together(step: SubsampledStep, point: PointType) -> Fitted:
    """The distribution that is fitted to all effects at once."""
    options = step.options
    try:
        found = field_model(
            options.model,
            factorised(options, point),
            is_tempered=options.temperature != 1.0,
            joins=options.joins_equal_rows,
            moves=False,
        )
    except NoField as reason:
        raise UnsuitableError(
            f"Effects are drawn in turns, which have no density, and they are too many for one: {reason}."
        ) from None
    return _FittedField(found.arrays(found.fit(), reads_all=True, debug=False), found.values, point)


class _NormalAtMode(Fitted):
    def __init__(self, fit: ModeFit) -> None:
        self._fit = fit

    def draw(self, rng: np.random.Generator) -> Vector:
        return self._fit.drawn(self._fit.proxy.mode, rng)

    def log_density(self, q: Vector) -> float:
        root = self._fit.unwhiten  # upper triangular
        s = linalg.solve_triangular(root, q - self._fit.proxy.mode)
        return float(-0.5 * s @ s - np.log(np.abs(np.diag(root))).sum()) - _HALF_LOG * len(s)


class _FittedField(Fitted):
    def __init__(self, turns: tuple[FieldArrays, ...], values: FieldValues, point: PointType) -> None:
        self._turns, self._values, self._others = turns, values, values.others(point)
        every = np.arange(len(turns[0].coordinates))
        self._diagonal = places_of(turns[0].tree, every, every)
        self._theta, self._z = middle(turns, lambda theta: values.features(theta, self._others))

    def draw(self, rng: np.random.Generator) -> Vector:
        theta, z, values = self._theta.copy(), self._z.copy(), self._values
        for arrays in self._turns:
            law, room = arrays.law, arrays.room
            hold_at(arrays, values.features(theta, self._others), z)
            theta[law.which], _ = theta_of_scores(law, law.factor @ rng.standard_normal(len(law.which)))
            features = values.features(theta, self._others)
            compiled.log_marginal(arrays, features, 0)
            room.eps[0] = rng.standard_normal(len(arrays.coordinates))
            compiled.write_state(arrays, features, 0)
            z[arrays.coordinates] = room.z[0]
            if arrays.held.is_bound:
                compiled.held_log_density(arrays.held, features)
                z[arrays.held.coordinates] = arrays.held.z[1]
            room.kept[0] = -1.0  # its sides are written over
        return values(theta, z, others=self._others)

    def log_density(self, q: Vector) -> float:
        maps, values = self._values.maps, self._values
        (arrays,) = self._turns
        room, law = arrays.room, arrays.law
        theta, z = values.coordinates(q, self._others)
        scores = scores_of_theta(law, theta)
        _, total = theta_of_scores(law, scores)
        s, features = law.inverse @ scores, values.features(theta, self._others)
        log_marginal = compiled.log_marginal(arrays, features, 0)
        if not math.isfinite(log_marginal):
            return -math.inf

        def eps_of(z: Vector) -> Vector:
            room.z[0] = z[arrays.coordinates]
            compiled.write_eps(arrays, 0)
            return room.eps[0].copy()

        eps = eps_of(z)
        # Means of effects that sum to zero are integrated out: eps is linear in them.
        of_means = np.array([eps_of(z + one) - eps for one in values.unseen(features)]).reshape(-1, len(eps))
        root = linalg.qr(of_means.T, mode="economic")
        eps -= root[0] @ (root[0].T @ eps)
        total += math.log(abs(np.linalg.det(law.factor))) - np.log(room.fronts[0][self._diagonal]).sum()
        total += np.log(np.abs(np.diag(root[1]))).sum()
        for one in maps.coordinates:
            own = splu(sparse.csc_array(matrix_of(one.own, features, (one.size, one.size))))
            logs = np.log(np.abs(own.U.diagonal()))
            total += logs.sum() - (logs[0] if one.has_mean else 0.0)  # of a mean, whose scale is that of all
        room.kept[0] = -1.0  # its sides are written over
        n = len(s) + len(eps) - len(of_means)
        return float(-0.5 * (s @ s + eps @ eps) - total) - _HALF_LOG * n
