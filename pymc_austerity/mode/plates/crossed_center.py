"""Two crossed plates at a common center: each is fitted given the effects of the other, in turn."""

from collections.abc import Iterator

import numpy as np

from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.mode.plates.center import (
    NEAR,
    ROUGHLY,
    Center,
    PlateSurvey,
    climb,
    first_center,
    first_step,
    moments,
)
from pymc_austerity.mode.plates.crossed_sums import CrossedSums, crossed_sums
from pymc_austerity.mode.plates.draws import state_at
from pymc_austerity.mode.plates.expansion import Expanded
from pymc_austerity.mode.plates.fit import Beside
from pymc_austerity.mode.plates.row_tables import fixed
from pymc_austerity.model.factorisation import CHUNK, point_of, vector_of
from pymc_austerity.model.plates.crossed import CrossedModel
from pymc_austerity.progress import stage
from pymc_austerity.target import Matrix, Vector

# Rounds of a search, and how little effects move in the last, in standard deviations. The center matters for
# acceptance alone.
_MOST_ROUNDS, _STILL = 25, 0.1
_SEED = 2033


class CrossedSurvey:
    """Surveys of two crossed plates, by which they are expanded anywhere. It has size N.

    Parameters
    ----------
    crossed : CrossedModel
    point : dict of str to ndarray
        Values of all variables.

    Attributes
    ----------
    surveys : tuple of PlateSurvey
        Of either turn. Their rows have the effects of the other factor, as they are held, in their offsets.
    levels : list of ndarray of int32 (N,)
        In either turn, levels of the other factor in the order of the rows.
    held : list of ndarray
        In either turn, the effects of the other factor at the center, less their location.
    """

    def __init__(self, crossed: CrossedModel, point: dict[str, np.ndarray]) -> None:
        self.crossed = crossed
        first, second = (PlateSurvey(one, point, nested=False) for one in crossed.plates)
        self.surveys = first, second
        n = crossed.plates[0].rows.n_rows
        chunks = [np.arange(a, min(a + CHUNK, n)) for a in range(0, n, CHUNK)]
        groups = [np.concatenate([one.rows.groups(c) for c in chunks]) for one in crossed.plates]
        self.levels = [groups[1 - t][np.argsort(groups[t], kind="stable")].astype(np.int32) for t in range(2)]
        self._offsets = [one.rows.offsets for one in self.surveys]
        self.held = [np.zeros(one.n_groups) for one in reversed(crossed.plates)]

    def hold(self, turn: int, effects: Vector) -> None:
        """Hold the effects of the other factor, less their location, in a turn."""
        own = self.surveys[turn]
        self.held[turn] = effects
        own.rows = own.rows._replace(offsets=fixed(self._offsets[turn] + effects[self.levels[turn]]))

    def sums(self, turn: int, at: Expanded, sums: GroupSums) -> CrossedSums:
        """Sums over the cells in a turn."""
        return crossed_sums(self.surveys[turn].rows, at, sums, self.levels[turn], len(self.held[turn]))

    def without_location(self, turn: int, center: Center) -> Vector:
        """Effects of the plate of a turn, less their location."""
        return center.effects - self.surveys[turn].location(center.theta)

    def effects_at(self, turn: int, point: dict[str, np.ndarray]) -> tuple[Vector, Vector]:
        """Theta of a turn as the chain has it, and effects of its plate less their location, at a point."""
        plate, own = self.crossed.plates[turn], self.surveys[turn]
        q = vector_of(plate.factorisation, point)
        theta, effects = q[: plate.n_shared], q[plate.n_shared :]
        if plate.is_centered and not len(plate.scaled.coordinates):
            return theta, effects - own.location(theta)
        shared = own.shared.given(point)
        theta = plate.scaled.in_chain(theta, shared.features(theta))
        if plate.is_centered:
            return theta, effects - own.location(theta)
        return theta, effects * shared.tau_and_precision(theta)[0]

    def with_effects(self, turn: int, effects: Vector, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """A point with the effects of a plate at their location; those that are not centred stay."""
        plate, own = self.crossed.plates[turn], self.surveys[turn]
        if not plate.is_centered or not len(own.located.coordinates):
            return point
        theta, _ = self.effects_at(turn, point)
        return {**point, plate.effects[0]: effects + own.location(theta)}

    def point_at(self, centers: list[Center], point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The model's values at the centers of both; shared variables are those of the first."""
        for t in (1, 0):
            plate = self.crossed.plates[t]
            point = point_of(plate.factorisation, state_at(self.surveys[t], centers[t]), point)
        return self.with_effects(1, self.without_location(1, centers[1]), point)

    def beside(self, turn: int, displacements: Matrix) -> Beside:
        """States of the other factor for the drift: one for each eps, or as many for all."""

        def states(at: Expanded, sums: GroupSums, eps: Matrix) -> Iterator[tuple[GroupSums, Vector, Vector]]:
            own = self.sums(turn, at, sums)
            for k, one in enumerate(displacements):
                yield own.given(sums, one), one[self.levels[turn]], eps[k % len(eps)]

        return states


def around(scales: Vector, n: int) -> Matrix:
    """Displacements of a factor on both sides of its center: (2 n, H)."""
    draws = scales * np.random.default_rng(_SEED).standard_normal((n, len(scales)))
    return np.concatenate([draws, -draws])


def find_crossed_center(survey: CrossedSurvey) -> tuple[list[Center], list[Vector]]:
    """Search for the centers of both, on some rows first; and standard deviations of effects there.

    What each turn holds is the center of the other.
    """
    centers = [first_center(one) for one in survey.surveys]
    scales = [np.ones(one.n_groups) for one in survey.crossed.plates]
    n = len(survey.levels[0])
    step, number = first_step(n), "1/1"
    if step > 1:
        stage("mode", f" 1/2, {n // step:,} of {n:,} rows")
        _alternate(survey, centers, scales, step, ROUGHLY)
        number = "2/2"
    stage("mode", f" {number}, {n:,} of {n:,} rows")
    _alternate(survey, centers, scales, 1, NEAR)
    for t in range(2):
        survey.hold(t, survey.without_location(1 - t, centers[1 - t]))
    return centers, scales


def _alternate(
    survey: CrossedSurvey, centers: list[Center], scales: list[Vector], step: int, near: float
) -> None:
    """Fit one given the other until both stay where they are; `centers` and `scales` are written."""
    for _ in range(_MOST_ROUNDS):
        change = 0.0
        for t, own in enumerate(survey.surveys):
            survey.hold(t, survey.without_location(1 - t, centers[1 - t]))
            rows = None if step == 1 else own.rows.thinned(step)
            new, _, sums = climb(own, centers[t], rows, near)
            before, after = (survey.without_location(t, one) for one in (centers[t], new))
            centers[t], scales[t] = new, moments(own.shared, sums, new.theta)[2]
            change = max(change, float(np.sqrt(np.mean(((after - before) / scales[t]) ** 2))))
        if change < max(near, _STILL):
            return
