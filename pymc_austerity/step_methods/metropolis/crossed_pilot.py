"""Short runs on two crossed plates: means of effects, states, and what a sweep costs."""

from typing import NamedTuple

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity import work
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.mode.plates.center import Center, moments
from pymc_austerity.mode.plates.crossed_sums import CrossedSums
from pymc_austerity.mode.plates.group_means import mean_shifts
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.metropolis.engine.crossed import CrossedEngine
from pymc_austerity.step_methods.metropolis.plate_pilot import (
    KAPPAS,
    OF_GROUP,
    OF_READ,
    PlatePrediction,
    with_kappa,
)

# Sweeps that are dropped, and those that count; states over which the drift is averaged.
_SETTLE, _COUNTED, _STATES = 40, 100, 4


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
