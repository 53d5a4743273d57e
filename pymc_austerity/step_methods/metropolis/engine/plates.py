"""The compiled sweeps over a plate."""

from __future__ import annotations

from typing import Any

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.kernels.plates.sweeps import SweepOutcome, plate_sweeps
from pymc_austerity.mode.plates.draws import drawn_state
from pymc_austerity.mode.plates.fit import SharedFit
from pymc_austerity.mode.plates.theta_density import SharedTerms
from pymc_austerity.model.compile.protocol import exact_arithmetic
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.plates.inner_effects import Scaled
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel


class PlateEngine(CompiledKernel):
    """Transitions of `kernels.plates`: what is compiled of a model is its prior alone.

    Parameters
    ----------
    shared : Factorisation
        The terms of theta, with features; see `PlateModel.shared`.
    plate : Plate
    q, point : ndarray, dict
        A state, and the values of all variables, to compile with.
    """

    def __init__(self, shared: Factorisation, plate: Plate, q: np.ndarray, point: PointType) -> None:
        self.n_local = self.n_others = len(plate.rows.predictors)
        self.plate = plate
        self._shared = shared
        self.target = CompiledTarget(shared)
        self._transitions = self.target.compile(plate_sweeps, {}, ["global_log_ratio", "features"])
        stage("transitions")
        with exact_arithmetic():  # the first call compiles
            self.run(0, False, np.random.default_rng(0), q.copy(), point, ())

    @property
    def reads_all(self) -> bool:  # type: ignore[override]
        """Whether all rows of all groups are read."""
        return self.plate.rule.has_remainders and bool(np.all(self.plate.bounds.reaches < 0.0))

    def restart(self) -> None:
        """Begin to count violations."""
        rule = self.plate.rule._replace(violations=np.zeros(1, dtype=np.int64))
        self.plate = self.plate._replace(rule=rule)

    def take_violations(self) -> float:
        """Terms larger than their bounds since the last call."""
        count = float(self.plate.rule.violations[0])
        self.plate.rule.violations[0] = 0
        return count

    def drawn(self, fit: SharedFit, point: PointType, rng: np.random.Generator) -> np.ndarray:
        """A draw of the distribution that is fitted to the plate."""
        return drawn_state(self.plate, SharedTerms(self._shared, point), fit, rng)

    def theta_of(self, q: np.ndarray, point: PointType) -> np.ndarray:
        """Theta as the chain has it, from a state of the model."""
        rule, shared = self.plate.rule, SharedTerms(self._shared, point)
        theta = q[: len(q) - len(self.plate.sums.slopes)]
        return Scaled(rule.scaled, rule.scaled_by).in_chain(theta, shared.features(theta))

    def run(
        self,
        n: int,
        tune: bool,
        rng: np.random.Generator,
        q: np.ndarray,
        point: PointType,
        proposal_state: Any,
    ) -> Any:
        """Make n sweeps from q, which is written over; `point` has the values of the other variables."""
        outcome: SweepOutcome = self._call(
            proposal_state, n, tune, rng, q, self.target.args(point), self.plate
        )
        return outcome
