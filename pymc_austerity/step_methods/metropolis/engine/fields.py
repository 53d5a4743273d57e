"""The compiled sweeps over a field."""

import math
from copy import deepcopy
from typing import Any, NamedTuple, Self

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.kernels.fields.records import FieldArrays
from pymc_austerity.kernels.fields.sweeps import FieldMemory, field_sweeps
from pymc_austerity.mode.fields.draws import height_of, scores_of_theta, theta_of_scores
from pymc_austerity.mode.fields.values import FieldValues
from pymc_austerity.model.compile.protocol import exact_arithmetic
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.starting_point import FAR_BELOW, likely_draw
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel
from pymc_austerity.target import Index, Vector


class FieldProposalState(NamedTuple):
    """What a chain on a field carries from draw to draw: nothing is learnt while it runs."""

    scale: Vector  # (1,): 1; other proposals have a scale that is adapted
    memory: FieldMemory


class FieldEngine(CompiledKernel):
    """Transitions of `kernels.fields`: what is compiled of a model is its prior alone."""

    def __init__(self, values: FieldValues, arrays: FieldArrays, point: PointType) -> None:
        self.n_local = self.n_others = len(arrays.rows.predictors)
        self.arrays, self.values = arrays, values
        self.target = CompiledTarget(values.shared)
        state, q = self.new_state(), np.zeros(values.n_dim)
        self._put_around(field_sweeps, self._given(q, point, state), ["global_log_ratio", "features"])
        stage("transitions")
        with exact_arithmetic():  # the first call compiles
            self.run(0, False, np.random.default_rng(0), q, point, state)

    @property
    def reads_all(self) -> bool:  # type: ignore[override]
        """Whether all rows are read."""
        return self.arrays.reads_all and self.arrays.has_remainders

    @property
    def draws_rows(self) -> bool:
        """Whether rows are drawn by bounds."""
        return self.arrays.has_remainders and not self.reads_all

    @property
    def n_moves(self) -> int:  # type: ignore[override]
        """Moves of a sweep: each is decided on up to N rows."""
        return 1 + int(self.arrays.tree.depth.max(initial=0))

    @property
    def n_readings(self) -> int:  # type: ignore[override]
        """Rows that all moves of a sweep would read, if all read all."""
        return self.n_moves * max(self.n_local, 1)

    def restart(self) -> None:
        """Begin to count violations; forget the factor of an interrupted draw."""
        self.arrays = self.arrays._replace(violations=np.zeros(1, dtype=np.int64))
        self.arrays.room.kept[0] = -1.0

    def copy(self) -> Self:
        """An engine that shares what is compiled and all that is fixed, with room of its own."""
        clone = super().copy()
        clone.arrays = clone.arrays._replace(room=deepcopy(clone.arrays.room))
        return clone

    @property
    def violations(self) -> Index:  # type: ignore[override]
        """Terms larger than their bounds."""
        return self.arrays.violations

    def new_state(self) -> FieldProposalState:
        """The state of a chain before its first draw."""
        n, q = len(self.arrays.tree.node_of), len(self.arrays.law.mean)
        memory = FieldMemory(np.full(self.values.n_dim, np.nan), np.zeros(q), np.zeros(n), np.full(n, np.nan))
        return FieldProposalState(np.ones(1), memory)

    def run(
        self,
        n: int,
        tune: bool,
        rng: np.random.Generator,
        q: np.ndarray,
        point: PointType,
        proposal_state: Any,
    ) -> Any:
        """Make n transitions from q, which is written over; `point` has the other variables."""
        memory = proposal_state.memory
        if not np.array_equal(memory.q, q):
            if not np.isfinite(q).all():
                raise ValueError("The state of a chain on a field has values that are not finite.")
            memory.theta[:], memory.z[:] = self.values.coordinates(q)
            memory.eps[:] = np.nan
        memory.q[:] = np.nan  # until all of it is written
        outcome = super().run(n, tune, rng, q, point, proposal_state)
        q[:] = self.values(memory.theta, memory.z)
        memory.q[:] = q
        return outcome._replace(q=q)

    def drawn(self, rng: np.random.Generator) -> Vector:
        """A draw of the fitted distribution; drawn again where it is far less likely than the center."""

        def draw(of_scores: np.ndarray, eps: np.ndarray) -> tuple[Vector, float]:
            theta, log_slope = theta_of_scores(self.arrays.law, of_scores)
            features = self.values.features(theta)
            height = self.values.log_prior(theta) + log_slope + height_of(self.arrays, features, eps)
            self.arrays.room.kept[0] = -1.0  # its sides are written over
            q = self.values(theta, self.arrays.room.z[0].copy())
            return q, -math.inf if math.isnan(height) else height

        n_theta, n = len(self.arrays.law.mean), len(self.arrays.tree.node_of)
        _, center = draw(np.zeros(n_theta), np.zeros(n))
        lowest = center - FAR_BELOW - 0.5 * (n_theta + n)
        return likely_draw(
            lambda: draw(self.arrays.law.factor @ rng.standard_normal(n_theta), rng.standard_normal(n)),
            lowest,
            f"{n:,} effects",
        )

    def distance(self, q: Vector) -> float:
        """How many standard deviations theta of a state of the model is from its fitted distribution."""
        theta, _ = self.values.coordinates(q)
        return float(np.linalg.norm(self.arrays.law.inverse @ scores_of_theta(self.arrays.law, theta)))

    def _given(self, q: np.ndarray, point: PointType, proposal_state: Any) -> dict[str, Any]:
        return {"field": self.arrays, "memory": proposal_state.memory}
