"""The center of a plate: coefficients and effects near the mode, with scales by Laplace's approximation.

Newton's method alternates between two things. The log likelihood is expanded at a center (a pass over the
rows), and the Laplace marginal of theta is maximised for that expansion (no row is read); the effects follow
as m_g(theta). The scales of effects are at the mode of their marginal: the joint mode would have them at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.kernels.plates.coordinates import quadratic
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.mode.plates.expansion import Expanded, expand, predictors_at
from pymc_austerity.mode.plates.sorted_rows import SortedRows, sorted_rows
from pymc_austerity.mode.plates.theta_density import SharedTerms
from pymc_austerity.mode.plates.theta_maximum import InnerCoordinates, ThetaMaximum, maximum_at
from pymc_austerity.model.factorisation import vector_of
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.plates.plate_model import PlateModel, in_theta
from pymc_austerity.progress import stage
from pymc_austerity.target import Index, Vector

Matrix = npt.NDArray[np.float64]

# Predictors move by this much in a step at most: an expansion says little of what is further.
_FARTHEST = 4.0
_MOST_STEPS = 60
# Steps that end a search, in standard deviations: on some of the rows, and on all.
_ROUGHLY, _NEAR = 0.3, 0.05
# Rows of the first search, and the share of all above which it is left out.
_FIRST_ROWS, _WORTH = 50_000, 0.5


class Center(NamedTuple):
    """Where a plate is expanded.

    Attributes
    ----------
    theta : ndarray (q,)
    effects : ndarray (G,)
        u_g.
    """

    theta: Vector
    effects: Vector


class Located(NamedTuple):
    """The location of the effects, affine in theta: base + matrix (theta, of the linear coordinates)."""

    base: Vector
    matrix: Matrix


class PlateSurvey:
    """What is needed to expand a plate anywhere. It has size N.

    Parameters
    ----------
    plate : PlateModel
    point : dict of str to ndarray
        Values of all variables.

    Attributes
    ----------
    linear : ndarray of int (P,)
        Coordinates of theta that enter the predictor, or the location of the effects.
    rows : SortedRows
    shared : SharedTerms
    """

    def __init__(self, plate: PlateModel, point: dict[str, np.ndarray]) -> None:
        self.plate = plate
        self.shared = SharedTerms(plate.shared, point)
        self.start = vector_of(plate.shared, point)
        self.linear, self.located = _located(plate, point, self.start)
        self.rows = sorted_rows(plate, self.linear)
        self._inner = InnerCoordinates(
            [one.coordinates for one in plate.inner],
            _functions(
                plate,
                point,
                [one.location for one in plate.inner],
                [len(one.coordinates) for one in plate.inner],
            ),
        )

    def location(self, theta: Vector) -> Vector:
        """That of the effects."""
        return self.located.base + self.located.matrix @ theta[self.linear]

    def maximum(self, sums: GroupSums, start: Vector) -> ThetaMaximum:
        """That of the Laplace marginal for an expansion."""
        return maximum_at(self.plate.name, self.shared, sums, self._inner, start)

    def sums(self, at: Expanded, center: Center) -> GroupSums:
        """The polynomial at a center."""
        unit = 1.0
        is_normal = self.plate.is_normal
        if is_normal:  # expanded with some precision: sums are for that of one
            unit = -float(at.curvatures.mean())
        means = np.ascontiguousarray(at.means)
        return GroupSums(
            linear=self.linear,
            center=center.theta[self.linear].copy(),
            varying=at.varying,
            gradient=at.gradient / unit,
            information=at.information / unit,
            slopes=at.group_slopes / unit,
            curvatures=at.group_weights / unit,
            means=means,
            locations=means + self.located.matrix,
            offsets=self.location(center.theta) - center.effects,
            effects=center.effects.copy(),
            n_normal=float(len(at.slopes)) if is_normal else 0.0,
            squares=at.squares / unit**2 if is_normal else 0.0,
        )

    def expand(self, center: Center, rows: SortedRows | None = None) -> tuple[Expanded, GroupSums]:
        """Expand at a center; all rows by default."""
        if rows is None:
            rows = self.rows
        at = expand(self.plate.expression, rows, center.theta[self.linear], center.effects)
        return at, self.sums(at, center)


def _located(plate: PlateModel, point: dict[str, np.ndarray], start: Vector) -> tuple[Index, Located]:
    """Linear coordinates of theta, and the location of the effects by them."""
    location = _functions(plate, point, [plate.prior.location], [plate.n_groups])
    n, base = len(start), location(np.zeros(len(start)))[0]
    columns = {k: location(row)[0] - base for k, row in enumerate(np.eye(n))} if plate.is_centered else {}
    moved = [k for k, column in columns.items() if np.any(column != 0.0)]
    linear = np.union1d(plate.rows.places, np.array(moved, dtype=np.int64)).astype(np.int64)
    matrix = np.zeros((plate.n_groups, len(linear)))
    for k in moved:
        matrix[:, np.searchsorted(linear, k)] = columns[k]
    return linear, Located(base, matrix)


def _functions(
    plate: PlateModel, point: dict[str, np.ndarray], graphs: list[Variable], sizes: list[int]
) -> Callable[[Vector], list[Vector]]:
    """Locations of effects as functions of theta: vectors of these sizes."""
    fact = plate.shared
    theta = pt.vector("theta", shape=(plate.n_shared,))
    function = fact.compile(in_theta(fact, graphs, theta), [theta], mode=INTERPRETED)
    values = fact.point_values(point)

    def at(value: Vector) -> list[Vector]:
        found = function(*values, value, *fact.leaf_values)
        return [np.broadcast_to(np.ravel(one), n).astype(float) for one, n in zip(found, sizes, strict=True)]

    return at


def find_center(survey: PlateSurvey) -> tuple[Center, ThetaMaximum]:
    """Search for it, on some rows of each group first.

    Returns
    -------
    center : Center
    maximum : ThetaMaximum
        Of the Laplace marginal there.
    """
    center = Center(survey.start, survey.location(survey.start))
    n, number = len(survey.rows.offsets), ""
    if n * _WORTH > _FIRST_ROWS:
        some = survey.rows.thinned(int(np.ceil(n / _FIRST_ROWS)))
        stage("mode", f" 1/2, {len(some.offsets):,} of {n:,} rows")
        number = " 2/2,"
        center, _ = _climb(survey, center, some, _ROUGHLY)
    stage("mode", f"{number} {n:,} rows")
    return _climb(survey, center, None, _NEAR)


def _climb(
    survey: PlateSurvey, center: Center, rows: SortedRows | None, near: float
) -> tuple[Center, ThetaMaximum]:
    for _ in range(_MOST_STEPS):
        at, sums = survey.expand(center, rows)
        maximum = survey.maximum(sums, center.theta)
        new = moved_center(survey, sums, maximum.theta)
        share = _share_of_step(survey, at, rows, new)
        size = step_size(sums, center, new, maximum)
        center = Center(
            center.theta + share * (new.theta - center.theta),
            center.effects + share * (new.effects - center.effects),
        )
        if share == 1.0 and size < near:
            return center, maximum
    raise NoNormalApproximationError(
        f"The search for the mode of {survey.plate.name!r} and its {survey.plate.n_groups:,} groups did not "
        f"converge within {_MOST_STEPS} steps: the posterior may have no mode. Give proper priors."
    )


def moved_center(survey: PlateSurvey, sums: GroupSums, theta: Vector) -> Center:
    """Go to theta, with the effects that go with it, u_g = u_g* + m_g - xbar_g . d."""
    d, means, _ = moments(survey.shared, sums, theta)
    return Center(theta, sums.effects + means - sums.means @ d)


def moments(shared: SharedTerms, sums: GroupSums, theta: Vector) -> tuple[Vector, Vector, Vector]:
    """d, m_g and s_g at theta."""
    tau, log_precision = shared.scales(theta)[:2]
    d = theta[sums.linear] - sums.center
    means, scales = np.empty(len(sums.slopes)), np.empty(len(sums.slopes))
    quadratic(sums, d, tau, log_precision, means, scales)
    return d, means, scales


def _share_of_step(survey: PlateSurvey, at: Expanded, rows: SortedRows | None, new: Center) -> float:
    own = survey.rows if rows is None else rows
    change = np.abs(predictors_at(own, new.theta[survey.linear], new.effects) - at.predictors)
    return float(min(1.0, _FARTHEST / max(change.max(initial=0.0), 1e-300)))


def step_size(sums: GroupSums, center: Center, new: Center, maximum: ThetaMaximum) -> float:
    """How far a step goes, in standard deviations: of theta, and in the mean of the levels."""
    change = new.theta - center.theta
    weights = np.maximum(sums.curvatures, 0.0)
    d = change[sums.linear]
    levels = new.effects - center.effects + sums.means @ d
    of_levels = float(np.sqrt(np.mean(weights * levels**2)))
    in_zeta = np.linalg.solve(maximum.slopes, change)
    square = float(in_zeta @ maximum.precision @ in_zeta)
    return max(np.sqrt(max(square, 0.0)), of_levels)
