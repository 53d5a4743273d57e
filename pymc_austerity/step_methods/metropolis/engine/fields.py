"""The compiled sweeps over a field."""

import math
from copy import deepcopy
from typing import Any, NamedTuple, Self

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.acceptance.base import AcceptanceRule, with_batch_size
from pymc_austerity.kernels.elements import READS_ALL
from pymc_austerity.kernels.fields.records import FieldArrays, Schedule
from pymc_austerity.kernels.fields.row_tests import FieldTests
from pymc_austerity.kernels.fields.sweeps import FieldMemory, SweepOutcome, field_sweeps, tested_field_sweeps
from pymc_austerity.kernels.metropolis import Rule, no_range
from pymc_austerity.mode.fields.draws import height_of, hold_at, middle, scores_of_theta, theta_of_scores
from pymc_austerity.mode.fields.values import FieldValues
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.starting_point import FAR_BELOW, likely_draw
from pymc_austerity.packed import Packed
from pymc_austerity.progress import stage
from pymc_austerity.proposals.deviations import no_deviations, note
from pymc_austerity.step_methods.base import floats
from pymc_austerity.step_methods.metropolis.engine.base import Engine
from pymc_austerity.step_methods.metropolis.engine.sequential import fewest_rows, tests_of
from pymc_austerity.target import Index, Vector


class FieldProposalState(NamedTuple):
    """What a chain on a field carries from draw to draw: nothing is learnt while it runs."""

    scale: Vector  # (1,): 1; other proposals have a scale that is adapted
    memory: FieldMemory
    others: list[np.ndarray]  # Values of variables that other steps move, for which the memory is


class FieldEngine(Engine):
    """Transitions of `kernels.fields`: what is compiled of a model is its prior alone.

    A `rule` decides on a subsample of remainders; without one all is exact.
    """

    columns = floats("shared_n_used", "effects_n_used", "effects_acceptance")
    functions = ("global_log_ratio", "features")
    tells_given = False

    def __init__(
        self,
        values: FieldValues,
        turns: tuple[FieldArrays, ...],
        point: PointType,
        rule: AcceptanceRule | None = None,
    ) -> None:
        self.n_local = self.n_others = values.factorisation.n_rows
        self.turns, self.values = turns, values
        self._packed: dict[int, tuple[FieldArrays, Any]] = {}  # What compiled code is handed, by turns
        self._tests: list[dict[str, Any]] = [{} if rule is None else row_tests(rule, one) for one in turns]
        self._n_features = len(values.features(np.zeros(len(turns[0].room.theta))))
        self._others = values.others()  # what the rooms of all turns are for
        self._number = 0  # of the turn
        self.target = CompiledTarget(values.shared)
        self.kernel = field_sweeps if rule is None else tested_field_sweeps
        stage("transitions")
        self._compile(self.new_state(), np.zeros(values.n_dim), point)

    @property
    def reads_all(self) -> bool:  # type: ignore[override]
        """Whether all rows are read."""
        if not (self.turns[0].reads_all and self.turns[0].has_remainders):
            return False
        return all(np.all(one["tests"].first_stage == READS_ALL) for one in self._tests if one)

    @property
    def draws_rows(self) -> bool:
        """Whether rows are drawn by bounds."""
        return self.turns[0].has_remainders and not self.turns[0].reads_all

    def statistics(self, found: dict[str, float], outcome: SweepOutcome, n: int) -> None:
        """Add rows and acceptance of either move."""
        if "clipped" in found:  # a share of the decisions of a sweep
            found["clipped"] /= 1 + sum(len(one.tree.first) for one in self.turns)
        found |= {
            "exhausted": outcome.whole_groups / n / self.n_readings,  # share of what was read whole
            "shared_n_used": outcome.shared_n_used / n,
            "effects_n_used": outcome.effects_n_used / n,
            "effects_acceptance": outcome.effects_accepted / n,
        }

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """What each turn moves together."""
        return tuple(one.schedule for one in self.turns)

    def take(self, schedules: tuple[Schedule, ...]) -> None:
        """Move other effects together."""
        self.turns = tuple(one._replace(schedule=own) for one, own in zip(self.turns, schedules, strict=True))

    @property
    def n_moves(self) -> int:  # type: ignore[override]
        """Moves of a sweep: each is decided on up to N rows."""
        return sum(one.n_roots + len(one.depths) - 1 for one in self.schedules)

    @property
    def n_readings(self) -> int:  # type: ignore[override]
        """Rows that all moves of a sweep would read, if all read all."""
        return sum(
            (one.schedule.n_roots + len(one.schedule.depths) - 1) * max(len(one.rows.predictors), 1)
            for one in self.turns
        )

    def restart(self) -> None:
        """Begin to count violations; forget what an interrupted draw has left."""
        for tests in filter(None, self._tests):
            population = tests["tests"].population
            population[:] = np.arange(len(population))
        count = np.zeros(1, dtype=np.int64)
        self.turns = tuple(one._replace(violations=count) for one in self.turns)
        for one in self.turns:
            one.room.kept[0] = -1.0

    def copy(self) -> Self:
        """An engine that shares what is compiled and all that is fixed, with room of its own."""
        clone = super().copy()
        clone._packed, clone._others = {}, deepcopy(self._others)
        clone.turns = tuple(
            one._replace(room=deepcopy(one.room), held=one.held.with_room()) for one in clone.turns
        )
        return clone

    @property
    def violations(self) -> Index:  # type: ignore[override]
        """Terms larger than their bounds."""
        return self.turns[0].violations

    def new_state(self) -> FieldProposalState:
        """The state of a chain before its first draw."""
        n = self.values.maps.n_coordinates
        memory = FieldMemory(
            np.full(self.values.n_dim, np.nan), np.zeros(len(self.turns[0].room.theta)), np.zeros(n),
            np.full(n, np.nan), np.zeros(self._n_features), no_deviations(len(self.turns[0].room.theta) + n),
        )  # fmt: skip
        return FieldProposalState(np.ones(1), memory, self.values.others())

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
        memory, others = proposal_state.memory, self.values.others(point)
        if _replaced(self._others, others):
            for one in self.turns:
                one.room.kept[0] = -1.0
        if _replaced(proposal_state.others, others) or not (memory.q == q).all():
            if not np.isfinite(q).all():
                raise ValueError("The state of a chain on a field has values that are not finite.")
            memory.theta[:], memory.z[:] = self.values.coordinates(q, others)
            memory.eps[:] = np.nan
        memory.q[:] = np.nan  # until all of it is written
        outcome = self._swept(n, tune, rng, q, point, proposal_state)
        for _ in range(n):
            note(memory.deviations)
        q[:] = memory.q[:] = self.values(memory.theta, memory.z, memory.features, others)
        return outcome

    def names_of_coordinates(self, factorisation: Factorisation) -> list[tuple[str, int]]:
        """Variable and element of theta and of each coordinate of effects."""
        names, effects = factorisation.graph.variables, self.values.maps.coordinates
        of_effects = [(names[one.innovation.name], k) for one in effects for k in range(one.size)]
        return super().names_of_coordinates(self.values.shared) + of_effects

    def runs_ahead(self, proposal_state: Any) -> bool:
        """Whether `run_ahead` may be called: never, as each state is written out as the model has it."""
        return False

    def _swept(self, n: int, *given: Any) -> SweepOutcome:
        """Sweeps of one turn after the other; what these count is added."""
        n_roots = max(sum(one.schedule.n_roots for one in self.turns), 1)
        if len(self.turns) == 1:
            outcome = super().run(n, *given)
            return outcome._replace(n_accepted=outcome.n_accepted / n_roots)
        outcomes = []
        for _ in range(max(n, 1)):
            for k in range(len(self.turns)):
                self._number = k
                outcomes.append(super().run(min(n, 1), *given))
        last = next((one for one in reversed(outcomes) if math.isfinite(one.log_ratio_mean)), outcomes[-1])
        return last._replace(
            n_accepted=sum(one.n_accepted for one in outcomes) / n_roots,
            n_used=sum(one.n_used for one in outcomes),
            n_stages=n,
            n_clipped=sum(one.n_clipped for one in outcomes),
            shared_n_used=sum(one.shared_n_used for one in outcomes),
            effects_n_used=sum(one.effects_n_used for one in outcomes),
            effects_accepted=sum(one.effects_accepted for one in outcomes) / len(self.turns),
            whole_groups=sum(one.whole_groups for one in outcomes),
        )

    def drawn(self, rng: np.random.Generator, point: PointType) -> Vector:
        """A draw of the fitted distribution, turn by turn: each given the others.

        It is drawn again where it is far less likely than the center. `point` has variables of other steps.
        """
        others = self.values.others(point)
        theta, z = middle(self.turns, lambda theta: self.values.features(theta, others))
        for arrays in self.turns:
            theta, z = np.split(self._drawn_in_turn(rng, arrays, theta, z, others), [len(theta)])
        return self.values(theta, z, others=others)

    def _drawn_in_turn(
        self,
        rng: np.random.Generator,
        arrays: FieldArrays,
        theta: Vector,
        z: Vector,
        others: list[np.ndarray],
    ) -> Vector:
        """Theta and z, of which what a turn moves is drawn."""
        law, n = arrays.law, len(arrays.coordinates)
        hold_at(arrays, self.values.features(theta, others), z)

        def draw(of_scores: np.ndarray, eps: np.ndarray) -> tuple[Vector, float]:
            new, all_z = theta.copy(), z.copy()
            new[law.which], log_slope = theta_of_scores(law, of_scores)
            features = self.values.features(new, others)
            height = self.values.log_prior(new, others) + log_slope + height_of(arrays, features, eps)
            arrays.room.kept[0] = -1.0  # its sides are written over
            all_z[arrays.coordinates] = arrays.room.z[0]
            if arrays.held.is_bound:
                all_z[arrays.held.coordinates] = arrays.held.z[1]
            return np.append(new, all_z), -math.inf if math.isnan(height) else height

        n_theta = len(law.which)
        _, center = draw(np.zeros(n_theta), np.zeros(n))
        return likely_draw(
            lambda: draw(law.factor @ rng.standard_normal(n_theta), rng.standard_normal(n)),
            center - FAR_BELOW - 0.5 * (n_theta + n),
            f"{n:,} effects",
        )

    def distance(self, q: Vector, point: PointType) -> float:
        """How many standard deviations theta of a state of the model is from its fitted distribution."""
        theta, _ = self.values.coordinates(q, self.values.others(point))
        squares, seen = 0.0, np.zeros(len(theta), bool)
        for law in [one.law for one in self.turns]:
            if not seen[law.which].all():  # others move in several turns
                squares += float(((law.inverse @ scores_of_theta(law, theta)) ** 2).sum())
            seen[law.which] = True
        return math.sqrt(squares)

    def _given(self, q: np.ndarray, point: PointType, proposal_state: Any) -> dict[str, Any]:
        turn, tests = self.turns[self._number], self._tests[self._number]
        of, field = self._packed.get(self._number, (None, None))
        if of is not turn:
            field = Packed(turn) if self.backend.name == "numba" else turn
            self._packed[self._number] = turn, field
            self._seen_state = None  # compiled code trusts a pointer: its type is looked at once
        return {"field": field, "memory": proposal_state.memory, **tests}


def _replaced(kept: list[np.ndarray], values: list[np.ndarray]) -> bool:
    """Put values in the place of others; were they different?"""
    is_new = False
    for own, now in zip(kept, values, strict=True):
        is_new = is_new or not np.array_equal(own, now)
        own[...] = now
    return is_new


def row_tests(rule: AcceptanceRule, turn: FieldArrays) -> dict[str, Any]:
    """The tests of all nodes of a turn, with their rule."""
    tree, cells, of_cells = turn.tree, turn.bounds.cells, turn.bounds.of_cells
    n = len(tree.first)
    below = np.ones(n, np.int64)  # nodes below each and itself lie together
    for v in range(n - 1):
        below[tree.parent[v]] += below[v]
    last = np.arange(n) + 1
    first_row = cells[np.searchsorted(of_cells, last - below)]
    sizes = cells[np.searchsorted(of_cells, last)] - first_row

    def stages(n: int) -> Any:
        return with_batch_size(rule, n).bind(n)

    schedule, first_stage, different = tests_of(sizes, fewest_rows(rule), stages, rule)
    population = np.arange(int(different.max(initial=0)))
    bound_rule = Rule(schedule, math.nan, *rule.functions, no_range)
    return {"tests": FieldTests(first_row, sizes, first_stage, population), "rule": bound_rule}
