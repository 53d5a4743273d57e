"""Short runs on a plate: the mean of the effects, and what a sweep costs."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity import work
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.mode.plates.center import PlateSurvey, moments
from pymc_austerity.mode.plates.fit import SharedFit
from pymc_austerity.mode.plates.group_means import mean_shifts
from pymc_austerity.mode.plates.slope_levels import by_groups, unscaled
from pymc_austerity.model.compile.backend import NUMBA
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.starting_point import density_of_block
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.messages import few_digits
from pymc_austerity.step_methods.metropolis.engine.fields import FieldEngine
from pymc_austerity.step_methods.metropolis.engine.plates import PlateEngine
from pymc_austerity.step_methods.metropolis.mixing_pilot import Mixing, try_out
from pymc_austerity.target import Vector

# Groups for each square root of the rows, above which these are few.
_MANY_GROUPS = 30.0
# Rows that are drawn for the shared move, relative to what its bounds need: what is tried, in this order.
KAPPAS = (5.0, 20.0, 80.0)
# Sweeps that are dropped, and those that count; states over which the drift is averaged.
_SETTLE, _COUNTED, _STATES = 40, 100, 3
# Nanoseconds for a group and sweep, for a row that is drawn and one of many that are read together, and more
# for each column.
OF_GROUP, _OF_DRAWN, OF_READ, _OF_COLUMN = 50.0, 300.0, 30.0, 4.0
# Sweeps of a chain in the run that is announced, at most, and nanoseconds for four chains, and for one.
_MOST, _BUDGETS = 1000, {4: 6e7, 1: 3e8}


class PlatePrediction(NamedTuple):
    """What a sweep costs, and how often its moves are accepted, by a pilot."""

    # n_groups, n_shared: G, and the length of theta
    n_groups: int
    n_shared: int
    # shared_rows, plate_rows: rows for either move
    shared_rows: float
    plate_rows: float
    shared_acceptance: float
    plate_acceptance: float
    n_effects: int = 1  # Effects of a group, q
    reads_all: bool = False  # Whether decisions are made on all rows
    # Effective draws of theta, measured; None as long as numbers of rows are tried out
    mixing: Mixing | None = None
    of_tree: float = 0.0  # Of a field: nanoseconds of a sweep beside its rows

    @property
    def terms(self) -> float:
        """Rows for a sweep."""
        return self.shared_rows + self.plate_rows

    @property
    def sweep(self) -> float:
        """Nanoseconds of a sweep, counted: they do not depend on how busy a machine is."""
        group = (OF_GROUP + _OF_COLUMN * self.n_shared) * self.n_groups * self.n_effects**2
        row = OF_READ if self.reads_all else _OF_DRAWN
        group = self.of_tree or group
        return group + (row + _OF_COLUMN * self.n_shared) * self.terms

    @property
    def cost(self) -> float:
        """What numbers of rows are compared by: time for an effective draw if rejections alone held it up.

        A chain of independent proposals has acc / (2 - acc) of them. What it has indeed is `mixing`.
        """
        accepted = self.shared_acceptance
        return self.sweep * (2.0 - accepted) / max(accepted, 1e-300)

    def why_few(self, n_rows: int) -> str:
        """Why moves of the shared variables are accepted seldom."""
        ratio = self.n_groups / math.sqrt(n_rows)
        if ratio > _MANY_GROUPS:
            return f"there are few rows for each group (groups / sqrt(rows) is {ratio:.0f})"
        return "the rows of a group say little, as with rare events, or there are many shared variables"

    def __str__(self) -> str:
        plate = f"plate of {self.n_groups:,} groups:"
        if self.of_tree:
            plate = f"field of {self.n_groups:,} nodes:"
            if self.n_groups == 1:
                rows, accepted = few_digits(self.shared_rows), self.shared_acceptance
                return f"field that is moved as a whole: {rows} rows; accepted {accepted:.2f}"
        return (
            f"{plate} {few_digits(self.plate_rows)} rows for a sweep of all "
            f"effects, {few_digits(self.shared_rows)} for the shared variables; accepted "
            f"{self.plate_acceptance:.2f} and {self.shared_acceptance:.2f}"
        )


class Pilot(NamedTuple):
    """A short run of sweeps over a plate, and what it measured."""

    # (G,): mean of u_g, as if theta were at its fitted mean: means of levels, which do not follow the shared
    # variables as u_g does
    effects: Vector
    eps: np.ndarray  # (k, G): some states
    prediction: PlatePrediction
    q: Vector  # The last state


def with_kappa(arrays: Plate, kappa: float) -> Plate:
    """A plate with another number of rows for the shared move."""
    return arrays._replace(rule=arrays.rule._replace(kappa=kappa))


def best_pilot(
    engine: PlateEngine,
    survey: PlateSurvey,
    mean: Vector,
    q: Vector,
    point: PointType,
    rng: np.random.Generator,
) -> Pilot:
    """Try out some numbers of rows for the shared move, and leave the engine with the best."""
    best = pilot(engine, survey, mean, q, point, rng)
    arrays = engine.plate
    for kappa in KAPPAS[1:] if engine.draws_rows else ():
        engine.plate = with_kappa(arrays, kappa)
        found = pilot(engine, survey, mean, best.q, point, rng)
        if found.prediction.cost >= best.prediction.cost:
            break
        best, arrays = found, engine.plate
    engine.plate = arrays
    return best


def starts_of(
    engine: PlateEngine, fit: SharedFit, last: Vector, fact: Factorisation, point: PointType
) -> Callable[[np.random.Generator], Vector]:
    """Where chains of a pilot start: the first at a state that was reached, others at draws of the fit."""
    return starting_at(last, engine.starts(fit, point, density_of_block(fact, point)))


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
    engine: PlateEngine | FieldEngine,
    prediction: PlatePrediction,
    start: Callable[[np.random.Generator], Vector],
    point: PointType,
    times: float = 1.0,
) -> PlatePrediction:
    """What a fresh run finds, in which nothing was chosen: rows, acceptance and effective draws of theta.

    `prediction` is that of the run that chose the number of rows; `start` says where a chain starts. The run
    may cost so many `times` as usual.
    """
    n_draws, n_chains = _COUNTED, 1  # where Python itself runs the sweeps
    if engine.backend is NUMBA:
        n_draws, n_chains = draws_of_sweeps(prediction.sweep / times)
    counts: list[list[float]] = []

    def see(outcome: Any) -> None:
        work.spend(prediction.sweep, "Pilot runs on a plate")
        counts.append(
            [outcome.shared_n_used, outcome.plate_n_used, outcome.n_accepted, outcome.plate_accepted]
        )

    mixing = try_out(
        engine, start, point, engine.new_state(),
        n_draws=n_draws, n_watched=prediction.n_shared, n_chains=n_chains, n_settle=_SETTLE, see=see,
    )  # fmt: skip
    shared_rows, plate_rows, accepted, of_plate = np.mean(counts, axis=0).tolist()
    return prediction._replace(
        shared_rows=shared_rows, plate_rows=plate_rows, shared_acceptance=accepted,
        plate_acceptance=of_plate, mixing=mixing,
    )  # fmt: skip


def pilot(
    engine: PlateEngine,
    survey: PlateSurvey,
    mean: Vector,
    q: Vector,
    point: PointType,
    rng: np.random.Generator,
) -> Pilot:
    """Run some sweeps from q; `mean` is the fitted mean of theta."""
    stage("pilot run", f" of {_SETTLE + _COUNTED} sweeps")
    n_shared, sums, shared = survey.plate.n_shared, engine.plate.sums, survey.shared
    state = engine.new_state()
    q = q.copy()
    engine.run(_SETTLE, False, rng, q, point, state)
    plate, n_effects = survey.plate, survey.plate.n_effects
    total, eps = np.zeros(plate.n_groups * n_effects), []
    counts = np.zeros(4)
    for k in range(_COUNTED):
        outcome = engine.run(1, False, rng, q, point, state)
        rows = outcome.shared_n_used + outcome.plate_n_used
        work.spend(OF_READ * rows + OF_GROUP * survey.plate.n_groups, "Pilot runs on a plate")
        theta, effects = q[:n_shared], q[n_shared:]
        theta = plate.scaled.in_chain(theta, shared.features(theta))
        effects = by_groups(effects, plate.n_vectors)
        if not plate.is_centered and n_effects > 1:
            effects = (effects.reshape(-1, n_effects) @ shared.factor_and_precision(theta)[0].T).ravel()
        elif not plate.is_centered:
            effects = effects * shared.tau_and_precision(theta)[0] / engine.plate.effects.ratio
        total += effects + mean_shifts(sums, (theta - mean)[sums.linear])
        if k % (_COUNTED // _STATES) == 0:
            d, means, scales = moments(shared, sums, theta)
            eps.append(unscaled(sums, scales, effects - sums.effects + mean_shifts(sums, d) - means))
        counts += [
            outcome.shared_n_used, outcome.plate_n_used, outcome.n_accepted, outcome.plate_accepted
        ]  # fmt: skip
    shared_rows, plate_rows, accepted, of_plate = counts / _COUNTED
    prediction = PlatePrediction(
        plate.n_groups, n_shared, shared_rows, plate_rows, accepted, of_plate, n_effects,
        reads_all=engine.reads_all,
    )  # fmt: skip
    return Pilot(total / _COUNTED, np.array(eps), prediction, q)
