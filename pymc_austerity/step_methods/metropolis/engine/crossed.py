"""Compiled sweeps over two crossed plates, which are moved in turn."""

from typing import Any, Self

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.kernels.plates.crossed import crossed_turn
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.kernels.plates.sweeps import SweepOutcome
from pymc_austerity.mode.plates.center import Center
from pymc_austerity.mode.plates.crossed_center import CrossedSurvey
from pymc_austerity.mode.plates.draws import Drawn, drawn_state, state_at
from pymc_austerity.mode.plates.fit import SharedFit
from pymc_austerity.model.factorisation import point_of, vector_of
from pymc_austerity.step_methods.metropolis.engine.plates import PlateEngine, PlateProposalState


class CrossedEngine(PlateEngine):
    """A sweep is a turn of either plate, each with its arrays and its fit. `point` is to compile with."""

    def __init__(
        self, survey: CrossedSurvey, arrays: list[Plate], fits: list[SharedFit], point: PointType
    ) -> None:
        crossed = survey.crossed
        self.n_local = self.n_others = crossed.plates[0].rows.n_rows
        self.survey, self.fits, self._tests = survey, fits, {}
        self.turns = [
            PlateEngine(one.shared, own, vector_of(one.factorisation, point), point, kernel=crossed_turn)
            for one, own in zip(crossed.plates, arrays, strict=True)
        ]
        self.turns[1].number = 1
        # What the class has of one plate is that of the first.
        self.target, self.plate = self.turns[0].target, self.turns[0].plate

    @property
    def draws_rows(self) -> bool:
        """Whether rows are drawn by bounds."""
        return any(one.draws_rows for one in self.turns)

    @property
    def reads_all(self) -> bool:  # type: ignore[override]
        """Whether all rows of all groups are read."""
        return all(one.reads_all for one in self.turns)

    @property
    def n_shared(self) -> int:
        """Length of theta, of both turns together: the first coordinates of a state."""
        fact, plates = self.survey.crossed.factorisation, self.survey.crossed.plates
        sizes = [int(np.prod(fact.graph.values[name].type.shape)) for name in fact.var_names]
        return sum(sizes) - sum(one.n_groups for one in plates)

    @property
    def n_moves(self) -> int:
        """Moves of both turns."""
        return sum(one.n_moves for one in self.turns)

    @property
    def n_readings(self) -> int:
        """Moves of all groups of either plate that have rows."""
        return sum(one.n_readings for one in self.turns)

    def restart(self) -> None:
        """Begin to count violations."""
        for one in self.turns:
            one.restart()

    def copy(self) -> Self:
        """An engine that shares what is compiled."""
        clone = super().copy()
        clone.turns = [one.copy() for one in self.turns]
        return clone

    def take_violations(self) -> float:
        """Terms larger than their bounds since the last call."""
        return sum(one.take_violations() for one in self.turns)

    def theta_of(self, q: np.ndarray, point: PointType) -> np.ndarray:
        """Theta of the first turn as the chain has it."""
        crossed = self.survey.crossed
        theta, _ = self.survey.effects_at(0, point_of(crossed.factorisation, q, point))
        return theta

    def drawn(self, fit: SharedFit, point: PointType, rng: np.random.Generator | None) -> Drawn:
        """A draw of the first plate given the second, which is at its center."""
        crossed, survey = self.survey.crossed, self.survey
        center = Center(self.fits[1].theta, survey.surveys[1].location(self.fits[1].theta) + survey.held[0])
        point = point_of(crossed.plates[1].factorisation, state_at(survey.surveys[1], center), point)
        arrays = self.turns[0].plate
        at_center = arrays.sums._replace(
            slopes=arrays.crossing.slopes, gradient=arrays.crossing.gradient, other_squares=np.zeros(1)
        )
        drawn = drawn_state(arrays._replace(sums=at_center), survey.surveys[0].shared, self.fits[0], rng)
        point = point_of(crossed.plates[0].factorisation, drawn.q, point)
        point = survey.with_effects(1, survey.held[0], point)
        return drawn._replace(q=vector_of(crossed.factorisation, point))

    def new_state(self) -> PlateProposalState:
        """The state of a chain before its first draw."""
        return PlateProposalState(np.ones(1), tuple(one.new_state().memories[0] for one in self.turns))

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
        crossed = self.survey.crossed
        point = point_of(crossed.factorisation, q.copy(), point)
        found: list[SweepOutcome] = []
        for k in range(2 * n):
            outcome, point = self.turn(k % 2, rng, point, proposal_state, tune=tune)
            found.append(outcome)
        q[:] = vector_of(crossed.factorisation, point)
        return self._together(found, q)

    def turn(
        self,
        turn: int,
        rng: np.random.Generator,
        point: PointType,
        state: PlateProposalState,
        *,
        tune: bool = False,
    ) -> tuple[SweepOutcome, PointType]:
        """One turn from a point, and where it ends."""
        survey, engine, kept = self.survey, self.turns[turn], state.memories[1 - turn]
        plate, other = (survey.crossed.plates[t] for t in (turn, 1 - turn))
        is_kept = other.is_centered and np.array_equal(kept.q, vector_of(other.factorisation, point))
        # Of effects near their location the difference is lost: a chain has it, as tau z.
        others = kept.scales[0] * kept.z if is_kept else survey.effects_at(1 - turn, point)[1]
        np.subtract(others, survey.held[turn], out=engine.plate.crossing.displacements)
        q = vector_of(plate.factorisation, point)
        outcome = engine.run(1, tune, rng, q, point, state)
        point = point_of(plate.factorisation, outcome.q, point)
        point = survey.with_effects(1 - turn, others, point)
        if is_kept:
            kept.q[:] = vector_of(other.factorisation, point)
        return outcome, point

    def _together(self, found: list[SweepOutcome], q: np.ndarray) -> SweepOutcome:
        """The outcome of several turns: acceptance is the mean over both kinds."""
        n_groups = [one.n_groups for one in self.survey.crossed.plates]
        shares = [n_groups[k % 2] / sum(n_groups) for k in range(len(found))]
        last = found[-1] if found else None
        return SweepOutcome(
            q=q,
            n_accepted=sum(one.n_accepted for one in found) / 2.0,  # type: ignore[arg-type]
            n_used=sum(one.n_used for one in found),
            n_stages=sum(one.n_stages for one in found),
            n_exhausted=sum(one.n_exhausted for one in found),
            n_clipped=0,
            accepted=last is not None and all(one.accepted for one in found[-2:]),
            log_ratio_mean=np.nan if last is None else last.log_ratio_mean,
            log_ratio_se=0.0,
            psi=np.nan,
            shared_n_used=sum(one.shared_n_used for one in found),
            plate_n_used=sum(one.plate_n_used for one in found),
            plate_accepted=sum(s * one.plate_accepted for s, one in zip(shares, found, strict=True)),
            whole_groups=sum(one.whole_groups for one in found),
        )
