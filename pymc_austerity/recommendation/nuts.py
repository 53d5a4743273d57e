"""`pm.NUTS` with what the search for a step has found: coordinates in which the posterior is nearly round."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pymc as pm
from pymc.step_methods.hmc.quadpotential import QuadPotentialDiagAdapt
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.mode.fields.field_model import FieldModel
from pymc_austerity.mode.fields.fit import FieldFit
from pymc_austerity.mode.whitening import Whitening, of_field, of_mode
from pymc_austerity.model.checks import explained, refuse_data, require_start
from pymc_austerity.model.graph.many import many_graphs
from pymc_austerity.model.starting_point import initial_point
from pymc_austerity.progress import stage, watched
from pymc_austerity.step_methods.metropolis.field_plan import field_of
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import Survey, factorised, survey
from pymc_austerity.step_methods.recommendation import Recommendation
from pymc_austerity.target import Vector
from pymc_austerity.work import budgeted

# A posterior that is less than so many times longer than wide gains nothing.
_LONG = 4.0


class NUTS(pm.NUTS):
    """`pymc.NUTS`, in coordinates in which the posterior is nearly round if these are known.

    The target and its stationary distribution are those of `pymc.NUTS`; the mass matrix is that of the
    coordinates, with a diagonal that is adapted. `recommendation` says why it was recommended.
    """

    name = "nuts"
    recommendation: Recommendation | None = None
    whitening: Whitening | None = None

    @classmethod
    def in_coordinates(cls, block: list[Variable], model: pm.Model, whitening: Whitening | None) -> NUTS:
        """A step for a block; in its own coordinates without others.

        PyMC takes gradients for those of other variables if these are not in the order of the model.
        """
        block = [value for value in model.value_vars if value in block]
        if whitening is None:
            return cls(block, model=model)
        whitening = whitening.in_order(tuple(value.name for value in block))
        step = cls(block, model=model, potential=WhitenedPotential(whitening))
        step.whitening = whitening
        return step


class WhitenedPotential(QuadPotentialDiagAdapt):
    """Kinetic energy of coordinates w, q = center + factor w, with a mass for each that is adapted."""

    def __init__(self, whitening: Whitening) -> None:
        self._whitening = whitening
        n = len(whitening.center)
        super().__init__(n, np.zeros(n), np.ones(n), 10)

    def velocity(self, x: Vector, out: Vector | None = None) -> Vector:
        """The velocity of q at a momentum."""
        factor = self._whitening.factor
        found: Vector = factor @ (self._var * (factor.T @ x))
        if out is None:
            return found
        out[:] = found
        return out

    def energy(self, x: Vector, velocity: Vector | None = None) -> float:
        """Kinetic energy of a momentum."""
        return 0.5 * float(x @ (self.velocity(x) if velocity is None else velocity))

    def random(self) -> Vector:
        """A momentum of q, drawn from the normal distribution whose energy this is."""
        return self._whitening.solve_transposed(super().random())

    def update(self, sample: Vector, grad: Vector, tune: bool) -> None:
        """Adapt the masses to a draw."""
        white = self._whitening
        super().update(white.solve(sample - white.center), white.factor.T @ grad, tune)


def whitening_of(found: FieldModel | Survey, fits: tuple[FieldFit, ...] = ()) -> Whitening | None:
    """Coordinates of a fitted field, or of a block at its mode; None where they would gain nothing."""
    white = None
    if isinstance(found, FieldModel):
        white = of_field(found, fits)
    elif found.found is not None and found.found.mode_fit.report.n_modes == 1:
        white = of_mode(found.factorisation, found.found.mode_fit)
    return white if white is not None and white.stretch > _LONG else None


def search_whitening(options: MetropolisOptions, *, progressbar: bool = True) -> Whitening | None:
    """Search for coordinates of a model; None if it has none, or the search would cost too much."""
    model = options.model
    refuse_data(model)
    begun = watched("sample", progressbar), many_graphs(), explained(model), budgeted(options.set_up_budget)
    with begun[0], begun[1], begun[2], begun[3], suppress(UnsuitableError):
        stage("reading the model")
        point = initial_point(model)
        require_start(model, point)
        fact = factorised(options, point)
        field = field_of(options, fact, point)
        if isinstance(field, FieldModel):
            stage("fit", f", {field.n_effects:,} effects")
            return whitening_of(field, field.fit())
        surveyed = survey(replace(options, switch_above=0.0), point, certify=False, factorisation=fact)
        return whitening_of(surveyed)
    return None
