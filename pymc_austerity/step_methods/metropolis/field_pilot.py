"""Pilot runs on a field: what is moved together, what a sweep costs, and how well it mixes."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity import work
from pymc_austerity.kernels.fields.records import FieldArrays, Schedule
from pymc_austerity.mode.fields.field_model import MANY_WALKS, FieldModel, schedule_of
from pymc_austerity.mode.fields.order import work_of
from pymc_austerity.model.compile.backend import NUMBA
from pymc_austerity.model.factorisation import FEWEST_GROUPS
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.messages import few_digits
from pymc_austerity.step_methods.metropolis.engine.fields import FieldEngine
from pymc_austerity.step_methods.metropolis.mixing_pilot import Mixing, affordable, mixing_of, try_out
from pymc_austerity.target import Vector

# Nodes for each square root of the rows, above which these are many.
_MANY_NODES = 30.0
# Nanoseconds for a row that is drawn and one of many that are read together, and more for each number.
_OF_DRAWN, _OF_READ, _OF_NUMBER = 300.0, 30.0, 4.0
# Nanoseconds for a number and a node of the tree, and for a sweep beside its moves.
_OF_ENTRY, _OF_NODE, _OF_SWEEP = 2.0, 40.0, 1e5

# Sweeps that are dropped before schedules are tried out, and those that count of each.
_SEED, _TRIAL_SETTLE, _TRIAL_COUNTED = 2041, 30, 40
# So many times rows are drawn for moves of theta: what is tried out.
_KAPPAS = (1.0, 5.0, 20.0, 80.0)
# What is tried out must gain so much: acceptance in a pilot run is not known better.
_GAIN = 0.95
# Moves of theta in a sweep, at most.
_MOST_ROOTS = 3
# Share of walks where all moves are accepted well.
_FEW_WALKS = 0.05
# Groups that are accepted less often are given so many times the rows, so often.
_POOR, _MORE, _MOST_MORE = 0.7, 5.0, 3

# Of the run that is announced: sweeps that are dropped, and those that count at least. Where effects are not
# accepted nearly always, so many of them are watched: in a large node they may stay for long.
_SETTLE, _COUNTED, _EFFECTS = 40, 100, 500
# Nanoseconds for four chains of it, and for one.
_BUDGETS = {4: 6e7, 1: 3e8}


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
    # Effective draws of theta, and of effects that are not accepted nearly always, measured; None as long as
    # schedules are tried out
    mixing: Mixing | None = None

    @property
    def terms(self) -> float:
        """Rows for a sweep."""
        return self.shared_rows + self.effects_rows

    @property
    def sweep(self) -> float:
        """Nanoseconds of a sweep, counted: they do not depend on how busy a machine is."""
        row = _OF_READ if self.reads_all else _OF_DRAWN
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


# What is moved together ---------------------------------------------------------------------------


class Trial(NamedTuple):
    """Sweeps of one schedule: what they predict, and by turns the acceptance of each group of depths."""

    schedules: tuple[Schedule, ...]
    prediction: FieldPrediction
    of_groups: list[Vector]
    of_root: float  # Nanoseconds of a move of theta, beside its rows

    @property
    def walks(self) -> float:
        """The share of walks: few where all moves are accepted well, as then no state holds a chain up."""
        lowest = min(self.prediction.shared_acceptance, self.prediction.effects_acceptance)
        return _FEW_WALKS if lowest >= _POOR else MANY_WALKS

    def with_roots(self, n: int) -> FieldPrediction:
        """What is expected of sweeps with n moves of theta, from those with one."""
        one = self.prediction
        return one._replace(shared_rows=n * one.shared_rows, of_tree=one.of_tree + (n - 1) * self.of_root)

    def fastest(self) -> tuple[float, int]:
        """Nanoseconds for an effective draw of theta and of the effects, and moves of theta that this takes.

        As if rejections alone held a chain up: one of independent proposals has acc / (2 - acc) effective
        draws. Walks count for nothing. An effect is drawn anew if all groups of depths above it are accepted.
        """
        anew = 1.0 - self.walks
        theta = anew * self.prediction.shared_acceptance + 1e-9
        effects = anew * min(float(np.prod(own)) for own in self.of_groups) + 1e-9
        return min(
            (self.with_roots(m).sweep * max((2.0 - theta) / (theta * m), (2.0 - effects) / effects), m)
            for m in range(1, _MOST_ROOTS + 1)
        )


class Trials:
    """One chain, on which schedules are tried out: they change what it costs, not what it converges to."""

    def __init__(self, engine: FieldEngine, found: FieldModel, point: PointType) -> None:
        self._engine, self._found, self._point = engine, found, point
        self._of_root, self._of_group = tree_nanoseconds(found)
        engine.take(schedules_of(engine.turns, 1, _KAPPAS[0]))
        self._rng, self._state = np.random.default_rng(_SEED), engine.new_state()
        self.q = engine.drawn(self._rng, point)
        stage("pilot run")
        for _ in range(_TRIAL_SETTLE):  # from the fitted distribution to the posterior
            self._sweep()

    @property
    def _of_tree(self) -> float:
        """Nanoseconds of a sweep beside its rows."""
        n_groups = max(len(one.depths) for one in self._engine.schedules) - 1
        return _OF_SWEEP + self._of_root + self._of_group * n_groups

    def _sweep(self) -> Any:
        outcome = self._engine.run(1, False, self._rng, self.q, self._point, self._state)
        work.spend(_OF_READ * outcome.n_used + self._of_tree, "Pilot runs on a field")
        return outcome

    def run(self, schedules: tuple[Schedule, ...]) -> Trial:
        """Go on with some sweeps of these schedules.

        Of turns, and of groups of depths, the acceptance of that which is accepted least is predicted.
        """
        engine, found = self._engine, self._found
        engine.take(schedules)
        counts = np.zeros(2)
        tallies = [np.zeros_like(one.room.tally) for one in engine.turns]
        for _ in range(_TRIAL_COUNTED):
            outcome = self._sweep()
            counts += [outcome.shared_n_used, outcome.effects_n_used]
            for tally, one in zip(tallies, engine.turns, strict=True):
                tally += one.room.tally
        shared_rows, effects_rows = (counts / _TRIAL_COUNTED).tolist()
        of_shared, of_groups = 1.0, []
        for (proposed, taken), schedule in zip(tallies, schedules, strict=True):
            if schedule.n_roots:
                of_shared = min(of_shared, float(taken[-1] / max(proposed[-1], 1.0)))
            n = len(schedule.depths) - 1
            of_groups.append(taken[:n] / proposed[:n])
        of_effects = min(float(own.min(initial=1.0)) for own in of_groups)
        prediction = FieldPrediction(
            found.n_effects, found.n_nodes, _n_watched(found), shared_rows, effects_rows, of_shared,
            of_effects, self._of_tree, reads_all=engine.reads_all,
        )  # fmt: skip
        return Trial(schedules, prediction, of_groups, self._of_root)


def try_schedules(engine: FieldEngine, found: FieldModel, point: PointType) -> tuple[FieldPrediction, Vector]:
    """Try out what a sweep moves together, and leave the engine with the best; the last state."""
    trials, turns = Trials(engine, found, point), engine.turns
    best = trials.run(engine.schedules)

    def is_better(schedules: tuple[Schedule, ...]) -> bool:
        nonlocal best
        other = trials.run(schedules)
        if not other.fastest()[0] < _GAIN * best.fastest()[0]:
            return False
        best = other
        return True

    for kappa in _KAPPAS[1:] if engine.draws_rows else ():
        if not is_better(schedules_of(turns, 1, kappa)):
            break
    n, kappa = 2, best.schedules[0].kappas[0]
    depth = max(int(one.tree.depth.max(initial=0)) for one in turns)
    while n < 2 * depth and is_better(schedules_of(turns, n, kappa)):
        n *= 2
    for _ in range(_MOST_MORE if engine.draws_rows else 0):  # a large node needs more rows than a small one
        more = [np.where(own < _POOR, _MORE, 1.0) for own in best.of_groups]
        pairs = zip(best.schedules, more, strict=True)
        more_rows = tuple(one._replace(kappas=one.kappas * np.append(1.0, own)) for one, own in pairs)
        if all(np.all(own == 1.0) for own in more) or not is_better(more_rows):
            break
    _, n_roots = best.fastest()
    engine.take(
        tuple(
            one._replace(n_roots=n_roots if len(turn.law.which) else one.n_roots, walks=best.walks)
            for one, turn in zip(best.schedules, turns, strict=True)
        )
    )
    return best.with_roots(n_roots), trials.q


def schedules_of(turns: tuple[FieldArrays, ...], n_depths: int, kappa: float) -> tuple[Schedule, ...]:
    """What turns move together: a root without theta is moved once, and an empty one never."""
    found = []
    for one in turns:
        own = schedule_of(one.tree, n_depths)
        n_roots = 1 if len(one.law.which) else min(int(one.tree.size[-1]), 1)
        found.append(own._replace(n_roots=n_roots, kappas=np.append(kappa, own.kappas[1:])))
    return tuple(found)


def tree_nanoseconds(found: FieldModel) -> tuple[float, float]:
    """Nanoseconds of a move of theta and of one of a group of depths, beside their rows, of all turns.

    They are counted.
    """
    of_roots, of_groups = 0.0, 0.0
    for tree in [one.tree for one in found.layouts]:
        of_group = _OF_ENTRY * float(tree.fronts[-1]) + _OF_NODE * len(tree.first)
        of_groups += of_group
        of_roots += work_of(tree) + of_group
    return of_roots, of_groups


def _n_watched(found: FieldModel) -> int:
    """Numbers, and vectors of few effects: they come first. Without any, the first effects."""
    fact = found.factorisation
    sizes = [int(np.prod(fact.graph.values[name].type.shape)) for name in fact.var_names]
    return sum(size for size in sizes if size < FEWEST_GROUPS) or min(FEWEST_GROUPS, sum(sizes))


# What is announced --------------------------------------------------------------------------------


def draws_of_sweeps(nanoseconds: float) -> tuple[int, int]:
    """Draws of each chain, and chains, for sweeps that take so long: of one chain, if four are too many."""
    n_draws, n_chains = affordable(nanoseconds, _BUDGETS, _SETTLE)
    return max(n_draws, _COUNTED), n_chains


def announced(
    engine: FieldEngine,
    prediction: FieldPrediction,
    start: Callable[[np.random.Generator], Vector],
    point: PointType,
    times: float = 1.0,
) -> FieldPrediction:
    """What a fresh run finds, in which nothing was chosen: rows, acceptance and effective draws.

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

    draws = try_out(
        engine, start, point, engine.new_state(), n_draws=n_draws,
        n_watched=prediction.n_shared + _EFFECTS, n_chains=n_chains, n_settle=_SETTLE, see=see,
    )  # fmt: skip
    shared_rows, effects_rows, accepted, of_effects = np.mean(counts, axis=0).tolist()
    assert draws is not None  # with `see` no run is given up
    watched = draws if of_effects < _POOR else draws[:, :, : prediction.n_shared]
    return prediction._replace(
        shared_rows=shared_rows, effects_rows=effects_rows, shared_acceptance=accepted,
        effects_acceptance=of_effects, mixing=mixing_of(watched),
    )  # fmt: skip
