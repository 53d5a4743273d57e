"""The plan of a step on a field: expansion, bounds and proposals, tried out on a short pilot run."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity import work
from pymc_austerity.acceptance.base import AcceptanceRule, Exact, with_batch_size
from pymc_austerity.exceptions import warn
from pymc_austerity.kernels.fields.records import FieldArrays, Schedule
from pymc_austerity.kernels.fields.sweeps import SweepOutcome
from pymc_austerity.mode.fields.field_model import MANY_WALKS, FieldModel, field_model, schedule_of
from pymc_austerity.mode.fields.fit import FieldFit, FittedField
from pymc_austerity.mode.fields.order import work_of
from pymc_austerity.model.factorisation import (
    FEWEST_GROUPS,
    FEWEST_IF_SLOW,
    Factorisation,
    point_of,
    row_operations,
    vector_of,
)
from pymc_austerity.model.graph.log_density import fingerprint
from pymc_austerity.model.starting_point import require_finite
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.base import floats
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel
from pymc_austerity.step_methods.metropolis.engine.fields import FieldEngine, FieldProposalState
from pymc_austerity.step_methods.metropolis.field_pilot import (
    OF_READ,
    FieldPrediction,
    announced,
    starting_at,
)
from pymc_austerity.step_methods.metropolis.mixing_pilot import warn_of_poor_mixing
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import Plan, Recipe, factorised
from pymc_austerity.target import Vector

logger = logging.getLogger(__name__)

# States that are further out than all but very few draws of the fitted distribution.
_FAR = 5.0
# Below this acceptance rate chains mix badly.
_SELDOM = 0.2
# Sweeps of a pilot run before it counts, and those that count.
_SEED, _SETTLE, _COUNTED = 2041, 30, 40
# Nanoseconds for a number and a node of the tree, and for a sweep beside its moves.
_OF_NUMBER, _OF_NODE, _OF_SWEEP = 2.0, 40.0, 1e5
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


@dataclass(frozen=True)
class FieldSweeps:
    """How a field is moved, as the configuration says it."""

    effects: str  # The value variables of the effects
    n_nodes: int
    kappa: float  # So many times the rows are drawn for moves of theta, which makes decisions less noisy


@dataclass(frozen=True, kw_only=True)
class FieldRecipe(Recipe):
    """A fitted field with its pilot, as other processes are handed it: it has the size of the effects."""

    is_field: ClassVar[bool] = True
    columns: ClassVar[dict[str, tuple[type, list[int]]]] = floats(
        "shared_n_used", "effects_n_used", "effects_acceptance"
    )

    proposal: FieldSweeps
    fit: tuple[FittedField, ...]
    schedules: tuple[Schedule, ...]
    prediction: FieldPrediction
    reads_all: bool
    certificate: str

    @property
    def n_watched(self) -> int:
        """Coordinates that tell how well a chain mixes: long effects are drawn anew at almost every sweep."""
        return self.prediction.n_shared

    def tell(self, plan: Plan) -> None:
        """Warn if the shared variables will mix badly, or if all rows are read where few were asked for."""
        found, mixing, fact = self.prediction, self.prediction.mixing, plan.factorisation
        if found.shared_acceptance < _SELDOM:
            warn(
                f"Moves of what {found.n_effects:,} effects share are accepted at a rate of about "
                f"{found.shared_acceptance:.2f}: {found.why_few(self.n_local)}. The chain is exact, and "
                "mixes slowly. pm.NUTS may suit the model better."
            )
        elif mixing is not None and mixing.is_poor:
            name = fact.graph.variables[fact.coordinate(mixing.dimension)[0]]
            warn_of_poor_mixing(mixing, name, is_field=True)
        if self.reads_all and plan.options.switch_above > 0.0:
            warn(
                f"TunaMH would draw many of {self.n_local:,} rows for a sweep over {found.n_effects:,} "
                "effects: all are read instead."
            )

    def fitted_draw(
        self, fact: Factorisation, engine: CompiledKernel, point: PointType, rng: np.random.Generator
    ) -> Vector:
        """A draw of the distribution that is fitted to the field."""
        assert isinstance(engine, FieldEngine)
        return engine.drawn(rng, point)

    def start(
        self,
        fact: Factorisation,
        engine: CompiledKernel,
        point: PointType,
        default: Callable[[], PointType],
        rng: np.random.Generator,
        names: str,
    ) -> PointType:
        """A draw of the fitted distribution, or `point` if somebody has chosen it; see `Recipe.start`."""
        q = vector_of(fact, point)
        if np.allclose(q, vector_of(fact, default())):
            logger.info("%s: the chain starts from a draw of the fitted distribution.", names)
            return point_of(fact, self.fitted_draw(fact, engine, point, rng), point)
        found, n = self.distance(engine, q, point)
        if found**2 > n + _FAR * math.sqrt(2.0 * n):
            warn(
                f"The chain starts {found:.3g} standard deviations from the distribution that was fitted to "
                f"the shared variables of {names}, at a point that is not the model's initial point and was "
                "therefore kept. Proposals may be rejected there for long. Without initvals the chain starts "
                "from a draw of the fitted distribution."
            )
        return point

    def distance(self, engine: CompiledKernel, q: Vector, point: PointType) -> tuple[float, int]:
        """How many standard deviations theta is from its fitted distribution in a state, and its length."""
        assert isinstance(engine, FieldEngine)
        return engine.distance(q, point), len(self.fit[0].theta)

    def statistics(self, found: dict[str, float], outcome: Any, n: int, engine: CompiledKernel) -> None:
        """Add rows and acceptance of either move to the sample statistics `found` of n sweeps."""
        if "clipped" in found:  # a share of the decisions of a sweep
            found["clipped"] /= 1 + self.prediction.n_nodes
        found |= {
            "exhausted": outcome.whole_groups / n / engine.n_readings,  # share of what was read whole
            "shared_n_used": outcome.shared_n_used / n,
            "effects_n_used": outcome.effects_n_used / n,
            "effects_acceptance": outcome.effects_accepted / n,
        }

    @property
    def rate(self) -> float:
        """Effective draws of the shared variables in a second of CPU time, roughly."""
        mixing = self.prediction.mixing
        assert mixing is not None
        return 1e9 * mixing.efficiency / self.prediction.sweep


@dataclass(frozen=True)
class FieldPlan(Plan):
    """A step that sweeps over a field. It has size N."""

    recipe: FieldRecipe
    field: FieldModel
    engine: FieldEngine  # Compiled already: the pilot has used it

    def compile(self, point: PointType) -> CompiledKernel:
        """The compiled sweeps."""
        return self.engine


def rule_of_remainders(options: MetropolisOptions) -> AcceptanceRule | None:
    """The rule that decides the moves of a field on a subsample of remainders; None for exact decisions."""
    return None if isinstance(options.acceptance, Exact) else options.acceptance


def plan_field(
    options: MetropolisOptions,
    point: PointType,
    recipe: Recipe | None = None,
    found: FieldModel | None = None,
) -> FieldPlan:
    """Fit the field and try it out; with a recipe nothing is fitted or tried out."""
    if recipe is not None:
        assert isinstance(recipe, FieldRecipe)
        fact = factorised(options, point, recipe)
        field = field_model(options.model, fact, is_tempered=options.temperature != 1.0)
        rule = None if rule_of_remainders(options) is None else recipe.rule
        reads_all = rule is not None or recipe.reads_all
        arrays = field.arrays(field.fit_again(recipe.fit), reads_all=reads_all, debug=options.debug)
        engine = FieldEngine(field.values, arrays, point, rule)
        engine.take(recipe.schedules)
        return FieldPlan(options, field.factorisation, recipe, field, engine)
    assert found is not None
    fact = found.factorisation
    work.sized(fact.n_rows, len(vector_of(fact, point)), row_operations(fact))
    require_finite(fact, point)
    names = f", {found.n_effects:,} effects"
    stage("fit", names)
    fit = found.fit()
    stage("bounds", f" of {fact.n_rows:,} rows")
    rule = rule_of_remainders(options)
    if rule is not None:
        rule = with_batch_size(rule, fact.n_rows, options.default_batch)
    reads_all = rule is not None or options.switch_above <= 0.0
    arrays = found.arrays(fit, reads_all=reads_all, debug=options.debug)
    engine = FieldEngine(found.values, arrays, point, rule)
    best = _best(engine, found, point)
    if engine.draws_rows and best[0].terms > options.switch_above * engine.n_readings:
        return _reading_all(options, point, found, fit)
    return _planned(options, point, found, fit, engine, best, rule)


def field_with_all_rows(plan: FieldPlan, point: PointType) -> FieldPlan:
    """The same fit with decisions on all rows, tried out anew."""
    return _reading_all(plan.options, point, plan.field, plan.field.fit_again(plan.recipe.fit))


def _reading_all(
    options: MetropolisOptions, point: PointType, found: FieldModel, fit: tuple[FieldFit, ...]
) -> FieldPlan:
    engine = FieldEngine(found.values, found.arrays(fit, reads_all=True, debug=options.debug), point)
    return _planned(options, point, found, fit, engine, _best(engine, found, point))


def _planned(
    options: MetropolisOptions,
    point: PointType,
    found: FieldModel,
    fit: tuple[FieldFit, ...],
    engine: FieldEngine,
    best: tuple[FieldPrediction, Vector],
    rule: AcceptanceRule | None = None,
) -> FieldPlan:
    fact, (prediction, last) = found.factorisation, best
    prediction = announced(engine, prediction, starting_at(last, lambda rng: engine.drawn(rng, point)), point)
    recipe = FieldRecipe(
        data=fingerprint(fact.graph),
        n_local=fact.n_rows,
        n_dim=len(vector_of(fact, point)),
        rule=options.acceptance if rule is None else rule,
        proposal=FieldSweeps(", ".join(found.effects), found.n_nodes, float(engine.schedules[0].kappas[0])),
        proposal_state=engine.new_state(),
        mode_fit=None,
        fit=tuple(one.fitted for one in fit),
        prediction=prediction,
        reads_all=engine.reads_all,
        certificate=_certificate(found, reads_all=not engine.draws_rows),
        schedules=engine.schedules,
    )
    return FieldPlan(replace(options, fewest_groups=FEWEST_IF_SLOW), fact, recipe, found, engine)


def _best(engine: FieldEngine, found: FieldModel, point: PointType) -> tuple[FieldPrediction, Vector]:
    """Try out what a sweep moves together, and leave the engine with the best; the last state."""
    schedules = _schedules(engine.turns, 1, _KAPPAS[0])
    engine.take(schedules)
    chain = _settled(engine, found, point)
    best = _tried(engine, found, point, chain)

    def tried(other: tuple[Schedule, ...]) -> bool:
        nonlocal best, schedules
        engine.take(other)
        one = _tried(engine, found, point, chain)
        is_better = _fastest(one, found)[0] < _GAIN * _fastest(best, found)[0]
        if is_better:
            best, schedules = one, other
        return is_better

    for kappa in _KAPPAS[1:] if engine.draws_rows else ():
        if not tried(_schedules(engine.turns, 1, kappa)):
            break
    n, kappa = 2, schedules[0].kappas[0]
    depth = max(int(one.tree.depth.max(initial=0)) for one in engine.turns)
    while n < 2 * depth and tried(_schedules(engine.turns, n, kappa)):
        n *= 2
    for _ in range(_MOST_MORE if engine.draws_rows else 0):  # a large node needs more rows than a small one
        more = [np.where(own < _POOR, _MORE, 1.0) for own in best.of_groups]
        pairs = zip(schedules, more, strict=True)
        more_rows = tuple(one._replace(kappas=one.kappas * np.append(1.0, own)) for one, own in pairs)
        if all(np.all(own == 1.0) for own in more) or not tried(more_rows):
            break
    _, n_roots = _fastest(best, found)
    engine.take(
        tuple(
            one._replace(n_roots=n_roots if len(turn.law.which) else one.n_roots, walks=_walks(best))
            for one, turn in zip(schedules, engine.turns, strict=True)
        )
    )
    return _with_roots(best.prediction, found, n_roots), chain.q


def _schedules(turns: tuple[FieldArrays, ...], n_depths: int, kappa: float) -> tuple[Schedule, ...]:
    """What turns move together: a root without theta is moved once, and an empty one never."""
    found = []
    for one in turns:
        own = schedule_of(one.tree, n_depths)
        n_roots = 1 if len(one.law.which) else min(int(one.tree.size[-1]), 1)
        found.append(own._replace(n_roots=n_roots, kappas=np.append(kappa, own.kappas[1:])))
    return tuple(found)


def _walks(tried: "_Tried") -> float:
    """The share of walks: few where all moves are accepted well, as then no state holds a chain up."""
    accepted = [tried.prediction.shared_acceptance, *(float(own.min(initial=1.0)) for own in tried.of_groups)]
    return _FEW_WALKS if min(accepted) >= _POOR else MANY_WALKS


def _fastest(tried: "_Tried", found: FieldModel) -> tuple[float, int]:
    """Nanoseconds for an effective draw of theta and of the effects, and the moves of theta that this takes.

    As if rejections alone held a chain up: one of independent proposals has acc / (2 - acc) effective draws.
    Walks count for nothing. An effect is drawn anew if all groups of depths above it are accepted.
    """
    one = tried.prediction
    anew = 1.0 - _walks(tried)
    theta = anew * one.shared_acceptance + 1e-9
    effects = anew * min(float(np.prod(own)) for own in tried.of_groups) + 1e-9
    return min(
        (_with_roots(one, found, m).sweep * max((2.0 - theta) / (theta * m), (2.0 - effects) / effects), m)
        for m in range(1, _MOST_ROOTS + 1)
    )


def _with_roots(one: FieldPrediction, found: FieldModel, n: int) -> FieldPrediction:
    """What is expected of sweeps with n moves of theta, from one with one."""
    of_root, _ = tree_nanoseconds(found)
    return one._replace(shared_rows=n * one.shared_rows, of_tree=one.of_tree + (n - 1) * of_root)


class _Tried(NamedTuple):
    """A pilot run: what it predicts, and the acceptance of each group of depths, by turns."""

    prediction: FieldPrediction
    of_groups: list[Vector]


class _Chain(NamedTuple):
    """The chain of all pilot runs: schedules change what it costs, not what it converges to."""

    rng: np.random.Generator
    state: FieldProposalState
    q: Vector


def _settled(engine: FieldEngine, found: FieldModel, point: PointType) -> _Chain:
    """A chain that has left the fitted distribution for the posterior."""
    rng = np.random.default_rng(_SEED)
    chain = _Chain(rng, engine.new_state(), engine.drawn(rng, point))
    stage("pilot run")
    for _ in range(_SETTLE):
        _sweep(engine, found, point, chain)
    return chain


def _sweep(engine: FieldEngine, found: FieldModel, point: PointType, chain: _Chain) -> SweepOutcome:
    """One sweep of a pilot run."""
    outcome: SweepOutcome = engine.run(1, False, chain.rng, chain.q, point, chain.state)
    rows = outcome.shared_n_used + outcome.effects_n_used
    work.spend(OF_READ * rows + _of_tree(engine, found), "Pilot runs on a field")
    return outcome


def _of_tree(engine: FieldEngine, found: FieldModel) -> float:
    """Nanoseconds of a sweep beside its rows."""
    of_root, of_group = tree_nanoseconds(found)
    return _OF_SWEEP + of_root + of_group * (max(len(one.depths) for one in engine.schedules) - 1)


def _tried(engine: FieldEngine, found: FieldModel, point: PointType, chain: _Chain) -> _Tried:
    """Run some sweeps.

    Of turns, and of groups of depths, the acceptance of that which is accepted least is predicted.
    """
    counts = np.zeros(2)
    tallies = [np.zeros_like(one.room.tally) for one in engine.turns]
    of_tree = _of_tree(engine, found)
    for _ in range(_COUNTED):
        outcome = _sweep(engine, found, point, chain)
        counts += [outcome.shared_n_used, outcome.effects_n_used]
        for tally, one in zip(tallies, engine.turns, strict=True):
            tally += one.room.tally
    shared_rows, effects_rows = (counts / _COUNTED).tolist()
    of_shared, of_groups = 1.0, []
    for (proposed, taken), schedule in zip(tallies, engine.schedules, strict=True):
        if schedule.n_roots:
            of_shared = min(of_shared, float(taken[-1] / max(proposed[-1], 1.0)))
        n = len(schedule.depths) - 1
        of_groups.append(taken[:n] / proposed[:n])
    of_effects = min(float(own.min(initial=1.0)) for own in of_groups)
    prediction = FieldPrediction(
        found.n_effects, found.n_nodes, _n_watched(found), shared_rows, effects_rows, of_shared, of_effects,
        of_tree, reads_all=engine.reads_all,
    )  # fmt: skip
    return _Tried(prediction, of_groups)


def _n_watched(found: FieldModel) -> int:
    """Numbers, and vectors of few effects: they come first. Without any, the first effects."""
    fact = found.factorisation
    sizes = [int(np.prod(fact.graph.values[name].type.shape)) for name in fact.var_names]
    return sum(size for size in sizes if size < FEWEST_GROUPS) or min(FEWEST_GROUPS, sum(sizes))


def tree_nanoseconds(found: FieldModel) -> tuple[float, float]:
    """Nanoseconds of a move of theta and of one of a group of depths, beside their rows, of all turns.

    They are counted.
    """
    of_roots, of_groups = 0.0, 0.0
    for tree in [one.tree for one in found.layouts]:
        of_group = _OF_NUMBER * float(tree.fronts[-1]) + _OF_NODE * len(tree.first)
        of_groups += of_group
        of_roots += work_of(tree) + of_group
    return of_roots, of_groups


def _certificate(found: FieldModel, *, reads_all: bool) -> str:
    names = ", ".join(map(repr, found.factorisation.graph.likelihood))
    if found.is_normal:
        return f"{names}: normal, sums are sufficient and no row is read"
    if reads_all:
        return "not needed, as all rows are read"
    p = found.layouts[0].columns.n_predictors
    predictors = f"{p} predictors" if p > 1 else "1 predictor"
    return f"third derivatives of {names}, a function of {predictors} of each row, by interval arithmetic"
