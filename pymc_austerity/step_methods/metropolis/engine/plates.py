"""The compiled sweeps over a plate."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.acceptance.base import AcceptanceRule
from pymc_austerity.kernels.elements import READS_ALL
from pymc_austerity.kernels.plates.chain_memory import ChainMemory, new_memory
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.kernels.plates.row_tests import RowTests
from pymc_austerity.kernels.plates.sweeps import plate_sweeps, tested_sweeps
from pymc_austerity.mode.plates.draws import Drawn, drawn_state
from pymc_austerity.mode.plates.fit import SharedFit
from pymc_austerity.mode.plates.theta_density import SharedTerms
from pymc_austerity.model.compile.protocol import exact_arithmetic
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.plates.inner_effects import Scaled
from pymc_austerity.model.starting_point import FAR_BELOW, likely_draw
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel
from pymc_austerity.step_methods.metropolis.engine.sequential import tests_of_remainders
from pymc_austerity.target import Index, Vector


class PlateProposalState(NamedTuple):
    """What a chain on plates carries from draw to draw: nothing is learnt while it runs."""

    scale: Vector  # (1,): 1; other proposals have a scale that is adapted
    memory: ChainMemory


class PlateEngine(CompiledKernel):
    """Transitions of `kernels.plates`: what is compiled of a model is its prior alone.

    `shared` are the terms of theta, with features; see `PlateSurvey.of_kernel`. A `rule` decides on a
    subsample of remainders; without one all is exact. It is compiled with `q` and `point`.
    """

    def __init__(
        self,
        shared: Factorisation,
        plate: Plate,
        q: np.ndarray,
        point: PointType,
        rule: AcceptanceRule | None = None,
    ) -> None:
        self.n_local = self.n_others = len(plate.rows.predictors)
        self.plate = plate
        self._n_groups_with_rows = int(np.count_nonzero(plate.bounds.sizes))
        self._shared = shared
        self.target = CompiledTarget(shared)
        self._tests: dict[str, Any] = {} if rule is None else row_tests(rule, np.diff(plate.rows.starts))
        state = self.new_state()
        kernel = plate_sweeps if rule is None else tested_sweeps
        self._put_around(kernel, self._given(q, point, state), ["global_log_ratio", "features"])
        stage("transitions")
        with exact_arithmetic():  # the first call compiles
            self.run(0, False, np.random.default_rng(0), q.copy(), point, state)

    @property
    def draws_rows(self) -> bool:
        """Whether rows are drawn by bounds."""
        return self.plate.rule.has_remainders and not self._tests and not self.reads_all

    @property
    def reads_all(self) -> bool:  # type: ignore[override]
        """Whether all rows of all groups are read."""
        if self._tests:
            return bool(np.all(self._tests["tests"].first_stage == READS_ALL))
        return self.plate.rule.has_remainders and bool(np.all(self.plate.bounds.reaches < 0.0))

    @property
    def n_moves(self) -> int:  # type: ignore[override]
        """Moves of a sweep: each is decided on up to N rows."""
        return 2 + (len(self.plate.outer.columns) > 0)

    @property
    def n_readings(self) -> int:  # type: ignore[override]
        """Moves of all groups that have rows, in a sweep."""
        return self.n_moves * self._n_groups_with_rows

    def restart(self) -> None:
        """Begin to count violations; undo what an interrupted test left in disorder."""
        if self._tests:
            population = self._tests["tests"].population
            population[:] = np.arange(len(population))
        rule = self.plate.rule._replace(violations=np.zeros(1, dtype=np.int64))
        self.plate = self.plate._replace(rule=rule)

    @property
    def violations(self) -> Index:  # type: ignore[override]
        """Terms larger than their bounds."""
        return self.plate.rule.violations

    def new_state(self) -> PlateProposalState:
        """The state of a chain before its first draw."""
        n_values = len(self.plate.proposal.moved) + len(self.plate.outer.columns)
        n_values += len(self.plate.sums.slopes)
        return PlateProposalState(np.ones(1), new_memory(self.plate, n_values))

    def starts(
        self, fit: SharedFit, point: PointType, log_density: Callable[[Vector], float]
    ) -> Callable[[np.random.Generator], Vector]:
        """Draws of the fitted distribution, again where `log_density` is far lower than at the center."""

        def with_height(found: Drawn) -> tuple[Vector, float]:
            height = log_density(found.q) + found.log_volume
            return found.q, -math.inf if math.isnan(height) else height

        q, height = with_height(self.drawn(fit, point, None))
        lowest = height - FAR_BELOW - 0.5 * len(q)  # for each group, remainders vary by less
        names = f"the effects of {len(self.plate.bounds.sizes):,} groups"
        return lambda rng: likely_draw(lambda: with_height(self.drawn(fit, point, rng)), lowest, names)

    def drawn(self, fit: SharedFit, point: PointType, rng: np.random.Generator | None) -> Drawn:
        """A draw of the distribution that is fitted to the plate; the state at its center without `rng`."""
        return drawn_state(self.plate, self._terms(point), fit, rng)

    def _terms(self, point: PointType) -> SharedTerms:
        return SharedTerms(self._shared, point, self.plate.sums.n_effects)

    def theta_of(self, q: np.ndarray, point: PointType) -> np.ndarray:
        """Theta as the chain has it, from a state of the model."""
        rule, shared = self.plate.rule, self._terms(point)
        theta = q[: len(q) - len(self.plate.sums.slopes)]
        return Scaled(rule.scaled, rule.scaled_by).in_chain(theta, shared.features(theta))

    def _given(self, q: np.ndarray, point: PointType, proposal_state: Any) -> dict[str, Any]:
        return {"plate": self.plate, "memory": proposal_state.memory, **self._tests}


def row_tests(rule: AcceptanceRule, sizes: Index) -> dict[str, Any]:
    """The tests of all rows and of those of each group, with their rule; `sizes` (G,) are rows of groups."""
    first_stage, population, bound_rule = tests_of_remainders(rule, np.concatenate([[sizes.sum()], sizes]))
    return {"tests": RowTests(first_stage, population), "rule": bound_rule}
