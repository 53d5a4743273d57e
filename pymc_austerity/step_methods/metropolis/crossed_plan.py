"""The step on two crossed plates: fits in turn, tried out on a short pilot run, and compiled sweeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity import work
from pymc_austerity.kernels.plates.crossed import crossed_turn
from pymc_austerity.kernels.plates.records import GroupSums, Plate
from pymc_austerity.kernels.plates.sweeps import SweepOutcome
from pymc_austerity.mode.plates.center import Center, moments
from pymc_austerity.mode.plates.crossed_center import CrossedSurvey, around, find_crossed_center
from pymc_austerity.mode.plates.crossed_sums import CrossedSums, crossing_of
from pymc_austerity.mode.plates.draws import Drawn, drawn_state, state_at
from pymc_austerity.mode.plates.expansion import Expanded
from pymc_austerity.mode.plates.fit import SharedFit, fit_shared
from pymc_austerity.mode.plates.group_bounds import no_bounds
from pymc_austerity.mode.plates.group_means import mean_shifts
from pymc_austerity.mode.plates.row_tables import fixed
from pymc_austerity.model.factorisation import point_of, vector_of
from pymc_austerity.model.graph.log_density import fingerprint
from pymc_austerity.model.plates.crossed import CrossedModel
from pymc_austerity.model.starting_point import density_of_block, require_finite
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel
from pymc_austerity.step_methods.metropolis.engine.plates import PlateEngine, PlateProposalState
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import Plan
from pymc_austerity.step_methods.metropolis.plate_pilot import (
    KAPPAS,
    OF_GROUP,
    OF_READ,
    PlatePrediction,
    announced,
    starts_of,
    with_kappa,
)
from pymc_austerity.step_methods.metropolis.plate_plan import (
    PlateRecipe,
    PlateSweeps,
    certificate_of,
    once_found,
    plate_arrays,
)
from pymc_austerity.target import Vector

_SEED = 2035
# Draws of the other factor's effects, on both sides of their center, for the first fit.
_DRAWS = 2
# Sweeps that are dropped, and those that count; states over which the drift is averaged.
_SETTLE, _COUNTED, _STATES = 40, 100, 4


@dataclass(frozen=True, kw_only=True)
class CrossedRecipe(PlateRecipe):
    """What of the plan travels to other processes: constants of size G + H, none of size N."""

    other_fit: SharedFit  # Of the second turn
    # In either turn, the effects of the other factor at the center, less their location
    held: tuple[Vector, Vector]
    scales: tuple[Vector, Vector]  # Standard deviations of the effects of either plate
    kappas: tuple[float, float]


@dataclass(frozen=True)
class CrossedPlan(Plan):
    """A step that sweeps over two crossed plates. It has size N."""

    recipe: CrossedRecipe
    rows: CrossedSurvey
    engine: CrossedEngine  # Compiled already: the pilot has used it

    def compile(self, point: PointType) -> CompiledKernel:
        """The compiled sweeps."""
        return self.engine


def plan_crossed(
    options: MetropolisOptions, point: PointType, crossed: CrossedModel, recipe: CrossedRecipe | None = None
) -> CrossedPlan:
    """Fit each plate given the other, try both out, and fit them again about the means of the pilot."""
    if recipe is not None:
        return _plan_again(options, point, crossed, recipe)
    require_finite(crossed.factorisation, point)
    n_groups = f", {crossed.n_groups:,} groups of two factors"
    stage("order of rows", n_groups)
    survey = CrossedSurvey(crossed, point)
    centers, scales = find_crossed_center(survey)
    stage("fit", f" 1/2{n_groups}")
    reads_all = options.switch_above <= 0.0
    fits, arrays = [], []
    for t, (own, center) in enumerate(zip(survey.surveys, centers, strict=True)):
        beside = survey.beside(t, around(scales[1 - t], _DRAWS))
        fit, at, sums = fit_shared(own, center, beside=beside)
        fits.append(fit)
        arrays.append(turn_arrays(survey, t, fit, (at, sums), scales[1 - t], options, reads_all=reads_all))
    engine = CrossedEngine(survey, arrays, fits, point)
    rng, fact = np.random.default_rng(_SEED), crossed.factorisation
    point = point_of(fact, engine.starts(fits[0], point, density_of_block(fact, point))(rng), point)
    found = crossed_pilot(engine, point, rng)
    stage("fit", f" 2/2{n_groups}")
    for t in range(2):
        survey.hold(t, found.effects[1 - t])
    for t, own in enumerate(survey.surveys):
        beside = survey.beside(t, found.states[1 - t] - survey.held[t])
        fits[t], at, sums = fit_shared(own, found.centers[t], found.eps[t], 2, beside)
        if t == 0:  # what the second turn is bounded by; the first had those of the search
            scales[0] = moments(own.shared, sums, fits[0].theta)[2]
        arrays[t] = turn_arrays(survey, t, fits[t], (at, sums), scales[1 - t], options, reads_all=reads_all)
    with_arrays(engine, arrays)
    found = best_crossed_pilot(engine, found.point, rng)
    if not reads_all and found.prediction.terms > options.switch_above * engine.n_local:
        reads_all = True
        _read_all(engine)
        found = crossed_pilot(engine, found.point, rng)
    starts = starts_of(engine, fits[0], vector_of(fact, found.point), fact, point)
    prediction = announced(engine, found.prediction, starts, point)
    first, second = (one.plate.rule.kappa for one in engine.turns)
    recipe = CrossedRecipe(
        data=fingerprint(fact.graph),
        n_local=engine.n_local,
        n_dim=len(vector_of(crossed.factorisation, point)),
        rule=options.acceptance,
        proposal=PlateSweeps(", ".join(crossed.effects), crossed.n_groups, first),
        proposal_state=engine.new_state(),
        mode_fit=None,
        fit=fits[0],
        prediction=prediction,
        reads_all=engine.reads_all,
        certificate=certificate_of(crossed, reads_all=reads_all),
        other_fit=fits[1],
        held=(survey.held[0], survey.held[1]),
        scales=(scales[0], scales[1]),
        kappas=(first, second),
    )
    return CrossedPlan(once_found(options), fact, recipe, survey, engine)


def turn_arrays(
    survey: CrossedSurvey,
    turn: int,
    fit: SharedFit,
    expanded: tuple[Expanded, GroupSums],
    scales: Vector,
    options: MetropolisOptions,
    *,
    reads_all: bool,
) -> Plate:
    """All that the kernel needs in a turn; `scales` are standard deviations of the other factor's effects."""
    own, (at, sums) = survey.surveys[turn], expanded
    cells = survey.sums(turn, at, sums)
    arrays = plate_arrays(
        own, fit, at, sums, reads_all=reads_all, debug=options.debug, farther=cells.farther(scales)
    )
    levels = (len(sums.linear) + survey.levels[turn]).astype(np.int32)
    # What is written in each turn is the turn's own.
    written = sums._replace(
        slopes=sums.slopes.copy(), gradient=sums.gradient.copy(), other_squares=np.zeros(1)
    )
    return arrays._replace(
        rows=arrays.rows._replace(levels=fixed(levels[None])),
        sums=written,
        proposal=arrays.proposal._replace(mean=arrays.proposal.mean.copy()),
        crossing=crossing_of(own.shared, fit, sums, cells),
    )


def _read_all(engine: CrossedEngine) -> None:
    """Decide on all rows from here on."""
    arrays = []
    for own, turn in zip(engine.survey.surveys, engine.turns, strict=True):
        bounds, weights = no_bounds(own, turn.plate.sums)
        arrays.append(with_kappa(turn.plate._replace(bounds=bounds, weights=weights), KAPPAS[0]))
    with_arrays(engine, arrays)


def crossed_with_all_rows(plan: CrossedPlan, point: PointType) -> CrossedPlan:
    """A plan of crossed plates with the same fits, decided on all rows; it is tried out anew."""
    engine, crossed = plan.engine.copy(), plan.rows.crossed
    _read_all(engine)
    rng, fact = np.random.default_rng(_SEED), crossed.factorisation
    start = point_of(fact, engine.starts(plan.recipe.fit, point, density_of_block(fact, point))(rng), point)
    found = crossed_pilot(engine, start, rng)
    starts = starts_of(engine, plan.recipe.fit, vector_of(fact, found.point), fact, point)
    prediction = announced(engine, found.prediction, starts, point)
    certificate = certificate_of(crossed, reads_all=True)
    recipe = replace(plan.recipe, prediction=prediction, reads_all=True, certificate=certificate)
    return replace(plan, recipe=recipe, engine=engine)


def _plan_again(
    options: MetropolisOptions, point: PointType, crossed: CrossedModel, recipe: CrossedRecipe
) -> CrossedPlan:
    """The same plan in another process."""
    survey, fits, arrays = CrossedSurvey(crossed, point), [recipe.fit, recipe.other_fit], []
    for t, (own, fit) in enumerate(zip(survey.surveys, fits, strict=True)):
        survey.hold(t, recipe.held[t])
        expanded = own.expand(fit.center)
        found = turn_arrays(
            survey, t, fit, expanded, recipe.scales[1 - t], options, reads_all=recipe.reads_all
        )
        arrays.append(with_kappa(found, recipe.kappas[t]))
    engine = CrossedEngine(survey, arrays, fits, point)
    return CrossedPlan(options, crossed.factorisation, recipe, survey, engine)


# Short runs: means of effects, states, and what a sweep costs -------------------------------------


class CrossedPilot(NamedTuple):
    """A short run of sweeps over crossed plates, and what it measured."""

    centers: list[Center]  # Mean of theta and of the effects, in either turn
    effects: list[np.ndarray]  # Means of the effects without their location, of either plate
    # eps, states: some states: eps of either plate, and effects without their location
    eps: list[np.ndarray]
    states: list[np.ndarray]
    predictions: list[PlatePrediction]  # Of either turn
    prediction: PlatePrediction  # Of a sweep
    point: PointType  # The last state


def best_crossed_pilot(engine: CrossedEngine, point: PointType, rng: np.random.Generator) -> CrossedPilot:
    """Try out some numbers of rows for the shared moves, and leave each turn with the best."""
    best = crossed_pilot(engine, point, rng)
    costs = [one.cost for one in best.predictions]
    changed = False
    for kappa in KAPPAS[1:] if engine.draws_rows else ():
        before = [one.plate for one in engine.turns]
        for one in engine.turns:
            one.plate = with_kappa(one.plate, kappa)
        found = crossed_pilot(engine, best.point, rng)
        better = [new.cost < old for new, old in zip(found.predictions, costs, strict=True)]
        for t, one in enumerate(engine.turns):
            if better[t]:
                costs[t] = found.predictions[t].cost
            else:
                one.plate = before[t]
        changed = changed or any(better)
        if not all(better):
            break
    return crossed_pilot(engine, best.point, rng) if changed else best


def crossed_pilot(engine: CrossedEngine, point: PointType, rng: np.random.Generator) -> CrossedPilot:
    """Run some sweeps from a point."""
    stage("pilot run", f" of {_SETTLE + _COUNTED} sweeps")
    survey = engine.survey
    plates = survey.crossed.plates
    thetas = [np.zeros(one.n_shared) for one in plates]
    effects = [np.zeros(one.n_groups) for one in plates]
    eps: list[list[np.ndarray]] = [[], []]
    states: list[list[np.ndarray]] = [[], []]
    counts, state = np.zeros((2, 4)), engine.new_state()
    for k in range(_SETTLE + _COUNTED):
        for t in range(2):
            outcome, point = engine.turn(t, rng, point, state)
            rows = outcome.shared_n_used + outcome.plate_n_used
            work.spend(OF_READ * rows + OF_GROUP * plates[t].n_groups, "Pilot runs on crossed plates")
            if k >= _SETTLE:
                counts[t] += [
                    outcome.shared_n_used, outcome.plate_n_used, outcome.n_accepted, outcome.plate_accepted
                ]  # fmt: skip
        if k < _SETTLE:
            continue
        found = [survey.effects_at(t, point) for t in range(2)]
        for t, (theta, own) in enumerate(found):
            thetas[t] += theta / _COUNTED
            effects[t] += own / _COUNTED
            if k % (_COUNTED // _STATES) == 0:
                states[t].append(own)
                eps[t].append(_eps(engine, t, theta, own, found[1 - t][1]))
    predictions = []
    for t, plate in enumerate(plates):
        shared_rows, plate_rows, accepted, of_plate = counts[t] / _COUNTED
        displaced = np.array(states[1 - t]) - survey.held[t]
        predictions.append(
            PlatePrediction(
                plate.n_groups, plate.n_shared, shared_rows, plate_rows, accepted, of_plate,
                n_cells=len(engine.turns[t].plate.crossing.weights),
                looked_at=_looked_at(np.array(states[t]) - survey.held[1 - t], displaced),
                reads_all=engine.turns[t].reads_all,
            )
        )  # fmt: skip
    centers = [
        Center(theta, own + survey.surveys[t].location(theta))
        for t, (theta, own) in enumerate(zip(thetas, effects, strict=True))
    ]
    return CrossedPilot(
        centers, effects, [np.array(one) for one in eps], [np.array(one) for one in states],
        predictions, _of_sweep(predictions, engine.n_shared), point,
    )  # fmt: skip


def _looked_at(own: np.ndarray, others: np.ndarray) -> float:
    """Rows are drawn by the largest displacement in their group, and kept by their own."""
    of_own, of_others = float(np.mean(own**2)), float(np.mean(others**2))
    largest = np.sqrt(of_own) + float(np.mean(np.abs(others).max(axis=1)))
    return float(largest**2 / (of_own + of_others))


def _eps(
    engine: CrossedEngine, turn: int, theta: np.ndarray, own: np.ndarray, others: np.ndarray
) -> np.ndarray:
    """Eps of the plate of a turn, given the effects of the other."""
    arrays, survey = engine.turns[turn].plate, engine.survey
    crossing = arrays.crossing
    base = arrays.sums._replace(slopes=crossing.slopes, gradient=crossing.gradient)
    sums = CrossedSums(*crossing[1:7]).given(base, others - survey.held[turn])
    shared = survey.surveys[turn].shared
    d, means, scales = moments(shared, sums, theta)
    effects = own + survey.surveys[turn].location(theta)
    found: np.ndarray = (effects - sums.effects + mean_shifts(sums, d) - means) / scales
    return found


def _of_sweep(turns: list[PlatePrediction], n_shared: int) -> PlatePrediction:
    """Prediction for a sweep of both turns: rows add up, and theta is that of both."""
    first, second = turns
    n = first.n_groups + second.n_groups
    return PlatePrediction(
        n_groups=n,
        n_shared=n_shared,
        shared_rows=first.shared_rows + second.shared_rows,
        plate_rows=first.plate_rows + second.plate_rows,
        shared_acceptance=0.5 * (first.shared_acceptance + second.shared_acceptance),
        plate_acceptance=sum(one.n_groups / n * one.plate_acceptance for one in turns),
        n_crossed=second.n_groups,
        n_cells=first.n_cells,
        looked_at=max(first.looked_at, second.looked_at),
        reads_all=first.reads_all and second.reads_all,
    )


def with_arrays(engine: CrossedEngine, arrays: list[Plate]) -> None:
    """Give the engine other arrays."""
    for one, own in zip(engine.turns, arrays, strict=True):
        one.plate = own
    engine.plate = arrays[0]


# Compiled sweeps ----------------------------------------------------------------------------------


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
    def n_moves(self) -> int:  # type: ignore[override]
        """Moves of both turns."""
        return sum(one.n_moves for one in self.turns)

    @property
    def n_readings(self) -> int:  # type: ignore[override]
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
