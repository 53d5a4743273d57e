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
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.crossed_plan import plan_groups, replan_groups
from pymc_austerity.step_methods.metropolis.engine.plates import PlateEngine
from pymc_austerity.step_methods.metropolis.exact_plan import plate_for
from pymc_austerity.step_methods.metropolis.plan import StepPlan, factorised, plan_metropolis, survey
from pymc_austerity.step_methods.metropolis.plate_plan import PlateDecision, PlateRecipe
from pymc_austerity.step_methods.metropolis.plate_start import start_of_plate, tell_of_plate
from pymc_austerity.step_methods.metropolis.statistics import (
    PLATE_DTYPES_SHAPES,
    also_report,
    plate_statistics,
)
from pymc_austerity.target import Vector

# A group takes as long, in a sweep, as so many rows that are read.
_ROWS_A_GROUP = 8.0


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
            tell_of_plate(plan.recipe, self._decision())

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
            lambda: engine.drawn(plate.fit, point, self.rng),
            ", ".join(str(self._model.values_to_rvs[v].name) for v in self._vars),
        )
        return point_of(fact, q, point)

    @property
    def _is_plate(self) -> bool:
        return self.plate is not None

    @property
    def _is_fitted(self) -> bool:
        return self.plate is not None or super()._is_fitted

    @property
    def _rows_a_draw(self) -> float:
        if self.plate is None:
            return super()._rows_a_draw
        return self.plate.prediction.terms + _ROWS_A_GROUP * self.plate.prediction.n_groups

    @property
    def _n_watched(self) -> int:
        # The effects are drawn anew at almost every sweep.
        return super()._n_watched if self.plate is None else self.plate.prediction.n_shared

    @property
    def _efficiency(self) -> float | None:
        if self.plate is None or self.mixing is not None:
            return super()._efficiency
        return self.plate.prediction.efficiency

    def _fitted_draw(self, point: PointType, rng: np.random.Generator) -> Vector:
        engine = self.engine
        if self.plate is None or not isinstance(engine, PlateEngine):
            return super()._fitted_draw(point, rng)
        return engine.drawn(self.plate.fit, point, rng)

    def _statistics(self, outcome: Outcome, n: int) -> dict[str, Any]:
        found = super()._statistics(outcome, n)
        if self.plate is None:
            return found
        n_groups = self.plate.prediction.n_groups
        if "clipped" in found:  # a share of the decisions of a sweep
            found["clipped"] /= 1 + n_groups
        return {**found, **plate_statistics(outcome, n, n_groups)}
