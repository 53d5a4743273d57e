"""A step that sweeps over a plate if the model has one, and else moves the whole block."""

from __future__ import annotations

from typing import Any

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.acceptance import Exact
from pymc_austerity.kernels.metropolis import Outcome
from pymc_austerity.model.factorisation import point_of, vector_of
from pymc_austerity.model.plates.crossed import Plates
from pymc_austerity.model.plates.gathers import FEWEST_GROUPS, FEWEST_IF_SLOW
from pymc_austerity.model.starting_point import density_of_block
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.crossed_plan import plan_groups, replan_groups
from pymc_austerity.step_methods.metropolis.engine.plates import PlateEngine
from pymc_austerity.step_methods.metropolis.exact_plan import plate_for
from pymc_austerity.step_methods.metropolis.mixing_pilot import Mixing
from pymc_austerity.step_methods.metropolis.plan import StepPlan, factorised, plan_metropolis, survey
from pymc_austerity.step_methods.metropolis.plate_plan import PlateDecision, PlateRecipe
from pymc_austerity.step_methods.metropolis.plate_start import start_of_plate, tell_of_plate
from pymc_austerity.step_methods.metropolis.statistics import (
    PLATE_DTYPES_SHAPES,
    also_report,
    plate_statistics,
)
from pymc_austerity.target import Vector


class PlateStep(SubsampledStep):
    """What a step on a plate does in another way: where it starts, what it reports, and nothing is tuned."""

    def _decision(self) -> PlateDecision:
        """How the moves of a plate are decided: by the rule of the step, the exact one on all rows."""
        rule = self._options.acceptance
        return PlateDecision(0.0, debug=False, rule=None if isinstance(rule, Exact) else rule)

    def _planned(self, point: PointType) -> StepPlan:
        options = self._options
        is_expanded = not options.elementwise and options.control_variate is not None
        if not is_expanded or getattr(options.acceptance, "needs_range", False):
            return super()._planned(point)
        fact = factorised(options, point)
        found = plate_for(options, fact, point, self._fewest_groups)
        if isinstance(found, Plates):
            return plan_groups(options, self._decision(), found, point)
        return plan_metropolis(options, point, survey(options, point, factorisation=fact))

    @property
    def plate(self) -> PlateRecipe | None:
        """What is known of the plate, if the step sweeps over one."""
        return self._recipe if isinstance(self._recipe, PlateRecipe) else None

    @property
    def n_moves(self) -> int:
        """Moves of a transition, each of which may read all rows."""
        engine = self._engine
        return engine.n_moves if isinstance(engine, PlateEngine) else 1

    @property
    def _fewest_groups(self) -> int:
        # A small plate was chosen because the block mixes badly; it stays one when data are replaced.
        is_plate = "_recipe" in self.__dict__ and self.plate is not None
        return FEWEST_IF_SLOW if is_plate else FEWEST_GROUPS

    def _planned_again(self, point: PointType) -> StepPlan | None:
        if self.plate is None:
            return super()._planned_again(point)
        assert self._data_seen is not None
        return replan_groups(self._options, self._decision(), self.plate, self._data_seen[0], point)

    def _tell(self, plan: StepPlan) -> None:
        if isinstance(plan.recipe, PlateRecipe):
            fact = plan.survey.factorisation
            names = fact.graph.variables
            tell_of_plate(plan.recipe, self._decision(), lambda k: names[fact.coordinate(k)[0]])

    def _compile(self, plan: StepPlan, point: PointType) -> None:
        is_plate = isinstance(plan.recipe, PlateRecipe)
        if "_recipe" in self.__dict__ and is_plate != (self.plate is not None):
            now = "has a plate of groups" if is_plate else "has no plate of groups any more"
            raise ValueError(
                f"With the data that replaced those of before the model {now}, and this step was made for "
                f"the other kind. Make {type(self).__name__} anew."
            )
        super()._compile(plan, point)
        if self.plate is not None:  # this step alone has columns of a plate
            also_report(self, PLATE_DTYPES_SHAPES)

    def _begin_chain(self, n_tune: int) -> None:
        # All of a plate is fitted before a chain begins: there is nothing to watch while it tunes.
        super()._begin_chain(n_tune if self.plate is None else 0)

    def _first_point(self, point: PointType) -> PointType:
        engine, plate = self.engine, self.plate
        if plate is None or not self.tune or not isinstance(engine, PlateEngine):
            return super()._first_point(point)
        fact = self.factorisation
        given = vector_of(fact, point)
        q = start_of_plate(
            plate.fit,
            given,
            engine.theta_of(given, point),
            lambda: vector_of(fact, default_point(self._model)),
            lambda: self._fitted_draw(point, self.rng),
            ", ".join(str(self._model.values_to_rvs[v].name) for v in self._vars),
        )
        return point_of(fact, q, point)

    @property
    def _is_plate(self) -> bool:
        return self.plate is not None

    @property
    def _is_fitted(self) -> bool:
        return self.plate is not None or super()._is_fitted

    def try_out(self, point: PointType) -> Mixing | None:
        """What the plan has measured; see `MixingStep.try_out`."""
        if self.plate is None:
            return super().try_out(point)
        self.mixing = self.plate.prediction.mixing
        return self.mixing

    @property
    def _n_watched(self) -> int:
        # The effects are drawn anew at almost every sweep.
        return super()._n_watched if self.plate is None else self.plate.prediction.n_shared

    @property
    def _efficiency(self) -> float | None:
        mixing = None if self.plate is None else self.plate.prediction.mixing
        return super()._efficiency if mixing is None else mixing.efficiency

    def _fitted_draw(self, point: PointType, rng: np.random.Generator) -> Vector:
        engine = self.engine
        if self.plate is None or not isinstance(engine, PlateEngine):
            return super()._fitted_draw(point, rng)
        return engine.starts(self.plate.fit, point, density_of_block(self.factorisation, point))(rng)

    def _statistics(self, outcome: Outcome, n: int) -> dict[str, Any]:
        found = super()._statistics(outcome, n)
        engine = self.engine
        if self.plate is None or not isinstance(engine, PlateEngine):
            return found
        if "clipped" in found:  # a share of the decisions of a sweep
            found["clipped"] /= 1 + self.plate.prediction.n_groups
        return {**found, **plate_statistics(outcome, n, engine.n_readings)}
