"""Short runs on a field: what a sweep costs, and how well it mixes."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity import work
from pymc_austerity.model.compile.backend import NUMBA
from pymc_austerity.step_methods.messages import few_digits
from pymc_austerity.step_methods.metropolis.engine.fields import FieldEngine
from pymc_austerity.step_methods.metropolis.mixing_pilot import Mixing, try_out
from pymc_austerity.target import Vector

# Nodes for each square root of the rows, above which these are many.
_MANY_NODES = 30.0
# Sweeps that are dropped, and those that count.
_SETTLE, _COUNTED = 40, 100
# Nanoseconds for a row that is drawn and one of many that are read together, and more for each number.
_OF_DRAWN, OF_READ, _OF_NUMBER = 300.0, 30.0, 4.0
# Sweeps of a chain in the run that is announced, at most, and nanoseconds for four chains, and for one.
_MOST, _BUDGETS = 1000, {4: 6e7, 1: 3e8}


class FieldPrediction(NamedTuple):
    """What a sweep costs, and how often its moves are accepted, by a pilot."""

    n_effects: int
    n_nodes: int  # Parts that are moved one by one, and what they share
    n_shared: int  # Length of theta, with vectors of few effects
    # shared_rows, effects_rows: rows for either move
    shared_rows: float
    effects_rows: float
    shared_acceptance: float
    effects_acceptance: float
    of_tree: float  # Nanoseconds of a sweep beside its rows
    reads_all: bool = False  # Whether decisions are made on all rows
    # Effective draws of theta, measured; None as long as schedules are tried out
    mixing: Mixing | None = None

    @property
    def terms(self) -> float:
        """Rows for a sweep."""
        return self.shared_rows + self.effects_rows

    @property
    def sweep(self) -> float:
        """Nanoseconds of a sweep, counted: they do not depend on how busy a machine is."""
        row = OF_READ if self.reads_all else _OF_DRAWN
        return self.of_tree + (row + _OF_NUMBER * self.n_shared) * self.terms

    @property
    def cost(self) -> float:
        """What plans are compared by: time for an effective draw if rejections alone held it up.

        A chain of independent proposals has acc / (2 - acc) of them. What it has indeed is `mixing`.
        """
        accepted = self.shared_acceptance
        return self.sweep * (2.0 - accepted) / max(accepted, 1e-300)

    def why_few(self, n_rows: int) -> str:
        """Why moves of the shared variables are accepted seldom."""
        ratio = self.n_nodes / math.sqrt(n_rows)
        if ratio > _MANY_NODES:
            return f"there are few rows for each group (groups / sqrt(rows) is {ratio:.0f})"
        return "the rows of a group say little, as with rare events, or there are many shared variables"

    def __str__(self) -> str:
        if self.n_nodes == 1:
            rows, accepted = few_digits(self.shared_rows), self.shared_acceptance
            return f"field that is moved as a whole: {rows} rows; accepted {accepted:.2f}"
        return (
            f"field of {self.n_effects:,} effects: {few_digits(self.effects_rows)} rows for a sweep of all "
            f"of them, {few_digits(self.shared_rows)} for the shared variables; accepted "
            f"{self.effects_acceptance:.2f} and {self.shared_acceptance:.2f}"
        )


def starting_at(
    last: Vector, drawn: Callable[[np.random.Generator], Vector]
) -> Callable[[np.random.Generator], Vector]:
    """Where chains start: the first at a state that was reached, others at draws."""
    some = [last]

    def start(rng: np.random.Generator) -> Vector:
        return some.pop() if some else drawn(rng)

    return start


def draws_of_sweeps(nanoseconds: float) -> tuple[int, int]:
    """Draws of each chain, and chains, for sweeps that take so long: of one chain, if four are too many."""
    for n_chains, budget in _BUDGETS.items():
        affordable = int(min(budget / (n_chains * nanoseconds) - _SETTLE, _MOST))
        if affordable >= _COUNTED:
            return affordable, n_chains
    return _COUNTED, 1


def announced(
    engine: FieldEngine,
    prediction: FieldPrediction,
    start: Callable[[np.random.Generator], Vector],
    point: PointType,
    times: float = 1.0,
) -> FieldPrediction:
    """What a fresh run finds, in which nothing was chosen: rows, acceptance and effective draws of theta.

    `prediction` is that of the run that chose the schedule; `start` says where a chain starts. The run
    may cost so many `times` as usual.
    """
    n_draws, n_chains = _COUNTED, 1  # where Python itself runs the sweeps
    if engine.backend is NUMBA:
        n_draws, n_chains = draws_of_sweeps(prediction.sweep / times)
    counts: list[list[float]] = []

    def see(outcome: Any) -> None:
        work.spend(prediction.sweep, "Pilot runs on a field")
        counts.append(
            [outcome.shared_n_used, outcome.effects_n_used, outcome.n_accepted, outcome.effects_accepted]
        )

    mixing = try_out(
        engine, start, point, engine.new_state(),
        n_draws=n_draws, n_watched=prediction.n_shared, n_chains=n_chains, n_settle=_SETTLE, see=see,
    )  # fmt: skip
    shared_rows, effects_rows, accepted, of_effects = np.mean(counts, axis=0).tolist()
    return prediction._replace(
        shared_rows=shared_rows, effects_rows=effects_rows, shared_acceptance=accepted,
        effects_acceptance=of_effects, mixing=mixing,
    )  # fmt: skip
