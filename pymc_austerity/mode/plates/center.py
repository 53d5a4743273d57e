"""The center of a plate: coefficients and effects near the mode, with scales by Laplace's approximation.

Newton's method alternates between two things. The log likelihood is expanded at a center (a pass over the
rows), and the Laplace marginal of theta is maximised for that expansion (no row is read); the effects follow
as m_g(theta). The scales of effects are at the mode of their marginal: the joint mode would have them at 0.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_austerity import work
from pymc_austerity.exceptions import NoModeError, NoNormalApproximationError
from pymc_austerity.kernels.plates.outer import Outer, no_outer
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.mode.newton import Density, NoMaximumError, maximise
from pymc_austerity.mode.plates.effects_excess import EffectsExcess, density_of
from pymc_austerity.mode.plates.expansion import Expanded, expand, predictors_at
from pymc_austerity.mode.plates.group_means import locations, mean_shifts
from pymc_austerity.mode.plates.locations import affine_functions, located, without_parents
from pymc_austerity.mode.plates.outer import Surroundings, outer_effects, without_prior
from pymc_austerity.mode.plates.shared_map import SharedMap, no_map, shared_map
from pymc_austerity.mode.plates.slope_levels import given_theta, times_curvatures
from pymc_austerity.mode.plates.sorted_rows import SortedRows, sorted_rows
from pymc_austerity.mode.plates.theta_density import (
    SharedAt,
    SharedTerms,
    likelihood_with_slopes,
    marginal,
    quadratic_derivatives,
)
from pymc_austerity.model.factorisation import vector_of
from pymc_austerity.model.plates.inner_effects import first_inner
from pymc_austerity.model.plates.plate_model import PlateModel
from pymc_austerity.model.structure.derivatives import Derivatives
from pymc_austerity.progress import stage
from pymc_austerity.target import Index, Matrix, Vector

# The maximum of the Laplace marginal of theta for one expansion, in coordinates in which it is round.

# What integrating out effects of outer groups adds to the log density of the other shared variables.


def log_scales(outer: Outer, sums: GroupSums, at: SharedAt) -> Derivatives:
    """The sum of log S_h (`kernels.plates.nested`) with derivatives by theta.

    In v the density is normal, with these scales. So its maximum over v, times the scales, is what is left
    when v is integrated out, and the maximum of that and the sum here is at the mode of the marginal.
    """
    log_square, log_precision = at.log_square, at.log_precision
    log_prior = at.inner[outer.scale_at - first_inner(1)]
    t2, square = np.exp(log_square.value), np.exp(log_prior.value)
    b = np.exp(log_precision.value) * sums.curvatures
    r = 1.0 / (1.0 + b * t2)
    # B_h, and its derivatives by log tau^2 and log lambda.
    of_groups = np.array(
        [
            b * r,
            -b * r * (1.0 - r),
            b * r * r,
            b * r * (1.0 - r) * (1.0 - 2.0 * r),
            -2.0 * b * r * r * (1.0 - r),
            b * r * r * (2.0 * r - 1.0),
        ]
    )
    some = outer.parents >= 0
    n = len(outer.columns)
    big, by_0, by_1, by_00, by_01, by_11 = (
        np.bincount(outer.parents[some], one[some], minlength=n) for one in of_groups
    )
    q = 1.0 / (1.0 + big * square)
    first, second, mixed = -0.5 * square * q, 0.5 * (square * q) ** 2, -0.5 * square * q * q
    gradient = np.array([(first * by_0).sum(), (first * by_1).sum(), 0.5 * q.sum()])
    hessian = np.empty((3, 3))
    hessian[0, 0] = (first * by_00 + second * by_0**2).sum()
    hessian[0, 1] = hessian[1, 0] = (first * by_01 + second * by_0 * by_1).sum()
    hessian[1, 1] = (first * by_11 + second * by_1**2).sum()
    hessian[0, 2] = hessian[2, 0] = (mixed * by_0).sum()
    hessian[1, 2] = hessian[2, 1] = (mixed * by_1).sum()
    hessian[2, 2] = -0.5 * (q * (1.0 - q)).sum()
    features = log_square, log_precision, log_prior
    jacobian = np.array([one.gradient for one in features])
    curved = sum(g * one.hessian for g, one in zip(gradient, features, strict=True))
    value = 0.5 * float((log_prior.value + np.log(q)).sum())
    return Derivatives(value, gradient @ jacobian, jacobian.T @ hessian @ jacobian + curved)


# What may be the matter, and what to do about it.
WHY_NO_MODE = (
    "Give proper priors, to the scale of the effects too, and to coefficients where the data separate the "
    "responses perfectly. If all are proper, the data may say nothing of the "
    "level of the effects, as where all outcomes are zero and there is no intercept: it and their scale then "
    "drift into the tails of their priors. Add an intercept, or give the scale a prior with a lighter tail."
)
# Logarithms of a scale that are far below all that data can tell.
_FAR_BELOW = (-30.0, -60.0)
_FALLS = 1e-6
# Length of the last Newton step, in standard deviations.
_NEAR = 1e-3
# Operations for a group, and for a second derivative.
_OF_GROUP, _OF_SQUARE = 100.0, 20.0


class ThetaMaximum(NamedTuple):
    """A maximum, in coordinates zeta."""

    map: SharedMap
    # zeta, theta (q,)
    zeta: Vector
    theta: Vector
    precision: Matrix  # (q, q): minus the Hessian by zeta
    slopes: Matrix  # (q, q): d theta / d zeta
    density: Density  # callable: the log density of zeta that has this maximum, with gradient and Hessian


class InnerCoordinates(NamedTuple):
    """Coordinates of inner effects, and the locations of their priors as functions of theta."""

    coordinates: list[Index]
    locations: Callable[[Vector], list[Vector]]


def mapped_coordinates(
    inner: list[Index], locations: Callable[[Vector], list[Vector]], outer: Index
) -> InnerCoordinates:
    """Inner effects without those of outer groups, which are integrated out."""
    kept = [one if not np.isin(one, outer).any() else one[:0] for one in inner]

    def at(theta: Vector) -> list[Vector]:
        return [found[: len(one)] for found, one in zip(locations(theta), kept, strict=True)]

    return InnerCoordinates(kept, at)


def maximum_at(
    name: str,
    shared: SharedTerms,
    sums: GroupSums,
    inner: InnerCoordinates,
    outer: Outer,
    excess: EffectsExcess,
    start: Vector,
) -> ThetaMaximum:
    """Search from theta = `start`; `name` is that of the likelihood, for the error.

    Raises
    ------
    NoNormalApproximationError
        If there is no maximum.
    """
    own = _map_at(shared, sums, inner, start)

    def theta_of(zeta: Vector) -> Vector:
        return own.to_theta(zeta, shared.inner_scales(zeta) ** 2)

    def density(zeta: Vector) -> tuple[float, Vector, Matrix]:
        work.spend(_OF_GROUP * len(sums.effects) + _OF_SQUARE * len(zeta) ** 2, "The fit of a plate")
        theta = theta_of(zeta)
        at = shared(theta)
        found = own.density(marginal(at, sums, theta, excess), zeta, at)
        if len(outer.columns):  # neither log S_h nor v is a function of coordinates that the map changes
            found = found.plus(log_scales(outer, sums, at))
        return found.value, found.gradient, found.hessian

    try:
        with np.errstate(all="ignore"):  # far out scales overflow, and the search turns back
            found = maximise(density, own.to_zeta(start, shared.inner_scales(start) ** 2), near=_NEAR)
    except NoMaximumError as error:
        raise NoModeError(
            f"The shared variables of the groups of {name!r} have no mode: {error.reason}. {WHY_NO_MODE}"
        ) from None
    zeta = found.mode
    theta = theta_of(zeta)
    return ThetaMaximum(own, zeta, theta, found.precision, own.slopes_at(zeta, shared(theta)), density)


def _map_at(shared: SharedTerms, sums: GroupSums, inner: InnerCoordinates, theta: Vector) -> SharedMap:
    at = shared(theta)
    if not any(len(one) for one in inner.coordinates):
        return no_map()
    n = len(sums.linear)
    information, square = np.zeros((len(theta), len(theta))), np.ix_(sums.linear, sums.linear)
    d = theta[sums.linear] - sums.center
    if at.factor:
        _, _, hessian = likelihood_with_slopes(at, sums, d)
    else:
        _, _, hessian = quadratic_derivatives(sums, d, at.log_square.value, at.log_precision.value)
    information[square] = -hessian[:n, :n]
    own = np.concatenate(inner.coordinates)
    others = np.setdiff1d(sums.linear, own)
    prior = np.ix_(others, others)
    information[prior] -= at.prior.hessian[prior]
    return shared_map(at, inner.coordinates, inner.locations(theta), information, theta)


def require_mass(name: str, shared: SharedTerms, theta: Vector, hyper: Index) -> None:
    """Refuse a prior of the effects' scale that has infinite mass near zero, where data do not outweigh it.

    Parameters
    ----------
    name : str
        Of the likelihood, for the error.
    shared : SharedTerms
    theta : ndarray (q,)
    hyper : ndarray of int
        Coordinates of theta that are no coefficients.

    Raises
    ------
    NoNormalApproximationError
        The likelihood tends to that without effects as their scale goes to zero, and not to zero.
    """
    for k in hyper:
        near, far = (shared(theta + step * (np.arange(len(theta)) == k)) for step in _FAR_BELOW)
        fall = near.log_square.value - far.log_square.value
        mass = far.prior.value - near.prior.value
        if 0.0 < fall < np.inf and np.isfinite(mass) and mass >= -_FALLS * fall:
            raise NoNormalApproximationError(
                f"The posterior of the groups of {name!r} is improper: as {shared.name_of(int(k))} falls, "
                "the scale of the effects goes to zero, and the prior gives that infinite mass (1/tau does). "
                "Give the scale a proper prior, such as pm.HalfNormal."
            )


# Predictors, and other numbers of the likelihood, move by this much in a step at most: an expansion says
# little of what is further.
_FARTHEST, _FARTHEST_PHI = 4.0, 1.0
_MOST_STEPS = 60
# Steps that end a search, in standard deviations: on some of the rows, and on all.
ROUGHLY, NEAR = 0.3, 0.05
# Draws of eps over which the drift is averaged, and what the effects' prior adds.
_DRAWS, _SEED = 3, 2007
# Rows of the first search, and the share of all above which it is left out.
_FIRST_ROWS, _WORTH = 50_000, 0.5


class Center(NamedTuple):
    """The point that a plate is expanded at."""

    theta: Vector  # (q,)
    effects: Vector  # (G,): u_g


class PlateSurvey:
    """Rows, priors and derivatives of a plate, by which it is expanded anywhere. It has size N.

    Parameters
    ----------
    plate : PlateModel
    point : dict of str to ndarray
        Values of all variables.
    nested : bool
        Whether effects of outer groups are integrated out.

    Attributes
    ----------
    linear : ndarray of int (P,)
        Coordinates of theta that enter the predictor, or the location of the effects.
    rows : SortedRows
    shared : SharedTerms
    outer : Outer
        Effects of outer groups.
    of_kernel : Factorisation
        The terms of theta that a kernel is handed: without the prior of outer effects.
    """

    def __init__(self, plate: PlateModel, point: dict[str, np.ndarray], nested: bool = True) -> None:
        self.plate = plate
        self.shared = SharedTerms(plate.shared, point, plate.n_effects)
        start = vector_of(plate.shared, point)
        self.start = plate.scaled.in_chain(start, self.shared.features(start))
        self.located, self._parents = without_parents(located(plate, point, self.start), plate)
        self.linear = np.union1d(plate.rows.places, self.located.coordinates)
        for one in plate.inner:  # those of outer groups that have no group, too
            if np.isin(one.coordinates, self._parents).any():
                self.linear = np.union1d(self.linear, one.coordinates)
        self._phi_slopes = np.ascontiguousarray(plate.dispersions.matrix[:, self.linear])
        self.rows = sorted_rows(plate, self.linear)
        inner = [one.coordinates for one in plate.inner]
        sizes = [len(one) for one in inner]
        locations = affine_functions(plate, point, [one.location for one in plate.inner], sizes)
        around = Surroundings(self.rows, self.linear, self.located, self._parents, locations)
        self.outer = outer_effects(plate, around) if nested else no_outer()
        places = self.linear[self.outer.columns]
        self.of_kernel = without_prior(plate.shared, int(places[0])) if len(places) else plate.shared
        self._inner = mapped_coordinates(inner, locations, places)

    def location(self, theta: Vector) -> Vector:
        """Prior location of each effect at theta, (G,)."""
        base, coordinates, matrix = self.located
        found: Vector = base + matrix @ theta[coordinates]
        some = np.flatnonzero(self._parents >= 0)
        found[some] += theta[self._parents[some]]
        return found

    def normal_eps(self) -> Matrix:
        """Some normal draws of eps, always the same."""
        n = self.plate.n_groups * self.plate.n_effects
        return np.random.default_rng(_SEED).standard_normal((_DRAWS, n))

    def maximum(self, sums: GroupSums, start: Vector, eps: Matrix) -> ThetaMaximum:
        """Maximum of the Laplace marginal for an expansion; `eps` are draws for what the prior adds."""
        return maximum_at(
            self.plate.name, self.shared, sums, self._inner, self.outer, self.excess(eps), start
        )

    def excess(self, eps: Matrix) -> EffectsExcess:
        """What the effects' prior adds to that, over these draws."""
        return EffectsExcess(density_of(self.plate.priors[0]), eps)

    def sums(self, at: Expanded, center: Center) -> GroupSums:
        """The polynomial at a center."""
        unit = 1.0
        is_normal = self.plate.is_normal
        if is_normal:  # expanded with some precision: sums are for that of one
            unit = -float(at.curvatures.mean())
        return GroupSums(
            linear=self.linear,
            center=center.theta[self.linear].copy(),
            dense=self.rows.dense,
            varying=at.varying,
            gradient=at.gradient / unit,
            information=at.information / unit,
            slopes=at.group_slopes / unit,
            curvatures=at.group_weights / unit,
            means=at.means,
            cells=at.cells,
            shares=at.shares,
            moved=np.searchsorted(self.linear, self.located.coordinates),
            located=self.located.matrix,
            parents=self._columns_of_parents(),
            offsets=self.location(center.theta) - center.effects,
            effects=center.effects.copy(),
            phi=self.phi(center.theta),
            phi_slopes=self._phi_slopes,
            n_normal=float(len(at.slopes)) if is_normal else 0.0,
            squares=at.squares / unit**2 if is_normal else 0.0,
            n_effects=self.plate.n_effects,
        )

    def _columns_of_parents(self) -> Index:
        """Which of the P columns each location contains besides; empty if none does."""
        some = self._parents >= 0
        return np.where(some, np.searchsorted(self.linear, self._parents), -1)[
            : len(some) if some.any() else 0
        ]

    def expand(self, center: Center, rows: SortedRows | None = None) -> tuple[Expanded, GroupSums]:
        """Expand at a center; all rows by default."""
        if rows is None:
            rows = self.rows
        phi = self.phi(center.theta), self._phi_slopes
        at = expand(self.plate.expression, rows, center.theta[self.linear], center.effects, phi)
        return at, self.sums(at, center)

    def phi(self, theta: Vector) -> Vector:
        """Numbers that rows share beside their predictor."""
        return self.plate.dispersions.offsets + self.plate.dispersions.matrix @ theta


def find_center(survey: PlateSurvey) -> tuple[Center, ThetaMaximum]:
    """Search for it, on some rows of each group first.

    Returns
    -------
    center : Center
    maximum : ThetaMaximum
        Of the Laplace marginal there.
    """
    center, number = first_center(survey), "1/1"
    n = len(survey.rows.offsets)
    step = first_step(n)
    if step > 1:
        some = survey.rows.thinned(step)
        stage("mode", f" 1/2, {len(some.offsets):,} of {n:,} rows")
        number = "2/2"
        center, _, _ = climb(survey, center, some, ROUGHLY)
    stage("mode", f" {number}, {n:,} of {n:,} rows")
    center, maximum, _ = climb(survey, center, None, NEAR)
    return center, maximum


def first_step(n: int) -> int:
    """Every so manyth of n rows is read in a first search; 1 if there is none."""
    return int(np.ceil(n / _FIRST_ROWS)) if n * _WORTH > _FIRST_ROWS else 1


def first_center(survey: PlateSurvey) -> Center:
    """Where a search begins, if there is a mode that it may find."""
    hyper = np.setdiff1d(np.arange(survey.plate.n_shared), survey.linear)
    require_mass(survey.plate.name, survey.shared, survey.start, hyper)
    return Center(survey.start, survey.location(survey.start))


def climb(
    survey: PlateSurvey, center: Center, rows: SortedRows | None, near: float
) -> tuple[Center, ThetaMaximum, GroupSums]:
    """Search from a center on some rows, until a step is as short as this.

    Returns
    -------
    center : Center
    maximum : ThetaMaximum
    sums : GroupSums
        Of the last expansion, from which the last step was made.

    Raises
    ------
    NoNormalApproximationError
        If that does not end.
    """
    first = center
    for _ in range(_MOST_STEPS):
        at, sums = survey.expand(center, rows)
        safe = sums._replace(information=sums.information + at.missing)
        maximum = survey.maximum(safe, center.theta, survey.normal_eps())
        new = moved_center(survey, sums, maximum.theta)
        share = _share_of_step(survey, at, rows, center, new)
        del at  # its room is for the next
        size = step_size(sums, center, new, maximum)
        center = Center(
            center.theta + share * (new.theta - center.theta),
            center.effects + share * (new.effects - center.effects),
        )
        if share == 1.0 and size < near:
            return center, maximum, sums
    name, index = survey.plate.shared.coordinate(int(np.argmax(np.abs(center.theta - first.theta))))
    where = f"{name}[{', '.join(map(str, index))}]" if index else name
    raise NoNormalApproximationError(
        f"The search for the mode of {survey.plate.name!r} and its {survey.plate.n_groups:,} groups did not "
        f"converge within {_MOST_STEPS} steps, in which {where} went furthest: the posterior may have no "
        f"mode. {WHY_NO_MODE}",
        [name],
    )


def moved_center(survey: PlateSurvey, sums: GroupSums, theta: Vector) -> Center:
    """Go to theta, with the effects that go with it, u_g = u_g* + m_g - xbar_g . d."""
    d, means, _ = moments(survey.shared, sums, theta)
    return Center(theta, sums.effects + means - mean_shifts(sums, d))


def moments(shared: SharedTerms, sums: GroupSums, theta: Vector) -> tuple[Vector, Vector, Vector]:
    """d, m_g and s_g at theta; F_g (G, q, q) in the place of s_g where there are slopes."""
    if sums.n_effects > 1:
        d = theta[sums.linear] - sums.center
        factor, log_precision = shared.factor_and_precision(theta)
        return d, *given_theta(sums, locations(sums, d), factor, float(np.exp(log_precision)))
    tau, log_precision = shared.tau_and_precision(theta)
    t2, precision = tau**2, np.exp(log_precision)
    d = theta[sums.linear] - sums.center
    r = 1.0 / (1.0 + precision * sums.curvatures * t2)
    return d, (precision * sums.slopes * t2 + locations(sums, d)) * r, np.sqrt(t2 * r)


def _share_of_step(
    survey: PlateSurvey, at: Expanded, rows: SortedRows | None, old: Center, new: Center
) -> float:
    own = survey.rows if rows is None else rows
    change = predictors_at(own, new.theta[survey.linear], new.effects)
    change -= at.predictors
    largest = max(change.max(initial=0.0), -change.min(initial=0.0), 1e-300)
    of_phi = np.abs(survey.phi(new.theta) - survey.phi(old.theta)).max(initial=1e-300)
    return float(min(1.0, _FARTHEST / largest, _FARTHEST_PHI / of_phi))


def step_size(sums: GroupSums, center: Center, new: Center, maximum: ThetaMaximum) -> float:
    """How far a step goes, in standard deviations: of theta, and in the mean of the levels."""
    change = new.theta - center.theta
    d = change[sums.linear]
    levels = new.effects - center.effects + mean_shifts(sums, d)
    squares = levels * times_curvatures(sums, levels)
    of_levels = float(np.sqrt(np.mean(np.maximum(squares.reshape(-1, sums.n_effects).sum(axis=1), 0.0))))
    in_zeta = np.linalg.solve(maximum.slopes, change)
    square = float(in_zeta @ maximum.precision @ in_zeta)
    return max(np.sqrt(max(square, 0.0)), of_levels)
