"""The distribution that theta is proposed from: the Laplace marginal, shifted by the drift of the remainders.

The sum of the remainders, as a function of theta at fixed eps, is nearly linear over the posterior, and its
slope is not small: it is the bias of penalised quasi-likelihood, of the order of G / sqrt(N) posterior
standard deviations. The proposal is shifted by it. Where that is far, the expansion moves there.

*Marginal distributions of scales and the like, as tables from normal scores.* The logarithm of a scale is far
from normal where the scale may be zero: the likelihood has nothing to say there, the density falls as slowly
as the scale itself, and a normal proposal hardly reaches that tail and hardly leaves it. So each coordinate
of theta that is no coefficient is proposed as a monotone function of a normal variable, which gives it the
marginal distribution that Laplace's approximation of all others gives along it. The function is a table, with
straight lines between its knots. It is for proposals alone: with any table the chain has the same stationary
distribution.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtri

from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.kernels.plates.scores import LAST, N_KNOTS
from pymc_austerity.mode.newton import Density
from pymc_austerity.mode.plates.center import Center, PlateSurvey, moments, moved_center
from pymc_austerity.mode.plates.expansion import Expanded, drift_of
from pymc_austerity.mode.plates.group_means import locations, slopes_of_locations
from pymc_austerity.mode.plates.shared_map import SharedMap
from pymc_austerity.mode.plates.slope_levels import given_theta, scaled_eps, times_curvatures
from pymc_austerity.mode.plates.theta_density import SharedTerms
from pymc_austerity.model.plates.inner_effects import first_inner
from pymc_austerity.target import Index, Mask, Matrix, Vector

# Log density below its largest value at which a walk along a coordinate ends: beyond the last score.
_FALL = 0.5 * LAST**2 + 4.0
# First step of the walk in standard deviations, how much longer each next one is, and their number; how often
# a step that leads nowhere is halved.
_SCORE_STEP, _GROWTH, _MOST_STEPS, _HALVES = 0.4, 1.2, 24, 3
# Newton steps of the others to their maximum, at most, and what the density may gain by the last of them.
_NEWTON_STEPS, _MOST_GAIN = 3, 0.3
# Where a coordinate is looked at first, in standard deviations: if its log marginal is that of a normal
# variable there, but for this, it needs no table.
_LOOK, _NORMAL = 3.0, 0.05
# Of a tail that is added: the log density falls by so much at least in a standard deviation; points in it.
_LEAST_RATE, _TAIL = 0.2, 8
# The drift that changes the shape of a distribution, in standard deviations, and how far to the right it
# does; what is left of it moves the distribution as it is.
_MOST_DRIFT, _SCORE_FAR = 1.0, 3.0
# Points at which densities are added up.
_POINTS = 4001
# Knots within the distribution, at least; the least that a table rises, relative to one of a normal variable.
_FEWEST, _LEAST = 9, 1e-3


class _Along(NamedTuple):
    """A point on the way along a coordinate."""

    log_marginal: float  # Of the coordinate
    others: Vector  # (q - 1,): the maximum of the others, one Newton step away
    slope: Vector  # (q - 1,): how that moves with the coordinate


class _Coordinate(NamedTuple):
    """One coordinate of zeta, along which the density is integrated over the others."""

    density: Density  # callable
    k: int
    spread: float  # Its standard deviation at the mode
    others: Mask  # (q,)
    integrated: Mask  # (q - 1,): which of the others the density has been integrated over

    def at(self, zeta: Vector) -> _Along | None:
        """The marginal density by Laplace's approximation; None if the others have no maximum near zeta."""
        zeta = zeta.copy()
        for _ in range(_NEWTON_STEPS):
            found = self._one_step_from(zeta)
            if found is None or found[1] < _MOST_GAIN:
                return None if found is None else found[0]
            zeta[self.others] = found[0].others
        return None

    def _one_step_from(self, zeta: Vector) -> tuple[_Along, float] | None:
        """The marginal after one Newton step of the others, and what the density gains by that step."""
        others = self.others
        with np.errstate(all="ignore"):
            value, gradient, hessian = self.density(zeta)
            if not (math.isfinite(value) and np.isfinite(gradient).all() and np.isfinite(hessian).all()):
                return None
            own = -hessian[np.ix_(others, others)]
            try:
                volume = _half_log_determinant(own)
                # Over these the density is integrated already, given the rest.
                volume -= _half_log_determinant(own[np.ix_(self.integrated, self.integrated)])
                right = np.stack([gradient[others], hessian[others, self.k]], axis=1)
                step, slope = np.linalg.solve(own, right).T
            except np.linalg.LinAlgError:
                return None
            gain = 0.5 * float(gradient[others] @ step)
        if not (math.isfinite(gain) and np.isfinite(slope).all()):
            return None
        return _Along(value + gain - volume, zeta[others] + step, slope), gain


def normal_scores(
    density: Density, mode: Vector, precision: Matrix, shift: Vector, hyper: Index, integrated: Index
) -> Matrix:
    """Tables of coordinates, in standard deviations from their fitted mean, at equidistant scores.

    Parameters
    ----------
    density : callable
        Log density of zeta with its gradient and Hessian.
    mode : ndarray (q,)
    precision : ndarray (q, q)
        At the mode.
    shift : ndarray (q,)
        From the mode to the fitted mean: the drift of the remainders.
    hyper : ndarray of int (k,)
        Coordinates that get a table.
    integrated : ndarray of int
        Coordinates over which the density is integrated, at their maximum given the rest: effects of outer
        groups.

    Returns
    -------
    ndarray (k, n_knots)
        Rising. Equal to the scores where the density is normal.
    """
    covariance, places = np.linalg.inv(precision), np.arange(len(mode))
    normal = np.linspace(-LAST, LAST, N_KNOTS)
    tables = np.tile(normal, (len(hyper), 1))
    for row, k in zip(tables, hyper, strict=True):
        spread, others = math.sqrt(covariance[k, k]), places != k
        one = _Coordinate(density, int(k), spread, others, np.isin(places[others], integrated))
        at_mode = one.at(mode)
        if at_mode is None or _is_normal(one, mode, at_mode, covariance[k] / spread):
            continue
        x, log_marginal = _marginal(one, mode, at_mode)
        drift = float(np.clip(shift[k] / spread, -_MOST_DRIFT, _MOST_DRIFT))
        found = _quantiles(x, log_marginal + drift * _saturating(x, spread), normal) - drift
        if np.isfinite(found).all():  # else it is proposed as if it were normal
            row[:] = found
    return tables


def _is_normal(one: _Coordinate, mode: Vector, at_mode: _Along, direction: Vector) -> bool:
    ends = [one.at(mode + x * direction) for x in (-_LOOK, _LOOK)]
    falls = [math.inf if end is None else at_mode.log_marginal - end.log_marginal for end in ends]
    return all(abs(fall - 0.5 * _LOOK**2) < _NORMAL for fall in falls)


def _marginal(one: _Coordinate, mode: Vector, at_mode: _Along) -> tuple[Vector, Vector]:
    """Points along a coordinate, in standard deviations from the mode, and its log marginal there.

    Where a walk ends early, a tail is added that falls as it did last, or faster.
    """
    found = {0.0: at_mode.log_marginal}
    for sign in (-1.0, 1.0):
        x, here, step, rate, halves = 0.0, at_mode, _SCORE_STEP, _LEAST_RATE, _HALVES
        for _ in range(_MOST_STEPS):
            zeta = np.empty_like(mode)
            zeta[one.others] = here.others + sign * step * one.spread * here.slope
            zeta[one.k] = mode[one.k] + (x + sign * step) * one.spread
            there = one.at(zeta)
            if there is None:
                if halves == 0:
                    break
                step, halves = 0.5 * step, halves - 1
                continue
            rate = max((here.log_marginal - there.log_marginal) / step, _LEAST_RATE)
            x, here = x + sign * step, there
            found[x] = here.log_marginal
            step *= _GROWTH
            if found[x] < max(found.values()) - _FALL:
                break
        left = _FALL - (max(found.values()) - found[x])
        for part in np.arange(1, _TAIL + 1) / _TAIL if left > 0.0 else ():
            found[x + sign * part * left / rate] = found[x] - part * left
    points = np.array(sorted(found))
    return points, np.array([found[x] for x in points])


def _half_log_determinant(precision: Matrix) -> float:
    return float(np.log(np.diag(np.linalg.cholesky(precision))).sum())


def _saturating(x: Vector, spread: float) -> Vector:
    """x, but constant far below zero, as all is that depends on the square of a scale, and far above."""
    below = np.minimum(x, 0.0)
    return np.where(x < 0.0, np.expm1(2.0 * spread * below) / (2.0 * spread), np.minimum(x, _SCORE_FAR))


def _quantiles(x: Vector, log_density: Vector, scores: Vector) -> Vector:
    """Quantiles of the distribution with this log density at the probabilities of normal scores."""
    fine = np.linspace(x[0], x[-1], _POINTS)
    log_fine = PchipInterpolator(x, log_density)(fine)  # does not overshoot where a density ends abruptly
    density = np.exp(log_fine - log_fine.max())
    parts = 0.5 * (density[1:] + density[:-1])
    below, above = np.append(0.0, np.cumsum(parts)), np.append(np.cumsum(parts[::-1])[::-1], 0.0)
    # Tails are added up from their own end, so that small probabilities keep their digits.
    with np.errstate(divide="ignore"):
        of_fine = np.where(below < above, ndtri(below / below[-1]), -ndtri(above / above[0]))[1:-1]
    found = np.interp(scores, of_fine, fine[1:-1])
    return _straight_beyond(found, scores, of_fine[0], of_fine[-1])


def _straight_beyond(table: Vector, scores: Vector, low: float, high: float) -> Vector:
    """A table that is known from low to high, straight on beyond these; NaN if too little is."""
    within = np.flatnonzero((scores > low) & (scores < high))
    if len(within) < _FEWEST:  # all of the distribution is between two points
        return np.full(len(scores), np.nan)
    first, last = within[0], within[-1]
    rises = np.diff(table)
    rises[:first], rises[last:] = rises[first], rises[last - 1]
    rises = np.maximum(rises, _LEAST * (scores[1] - scores[0]))
    result, middle = np.append(0.0, np.cumsum(rises)), len(scores) // 2
    centred: Vector = result - result[middle] + table[middle]
    return centred


# Shifts in standard deviations beyond which the expansion moves, and how often it does.
_FAR, _MOST_ROUNDS = 0.7, 6
# Of differences, relative to the largest scale of effects.
_STEP = 1e-5
_SEED = 2029


class SharedFit(NamedTuple):
    """A center with the distribution of theta there, in coordinates zeta (`shared_map`)."""

    center: Center
    map: SharedMap
    mean: Vector  # (q,): of zeta
    # (q, q): lower triangular; factor factor' is the covariance of zeta, for those of `hyper` of their scores
    factor: Matrix
    theta: Vector  # (q,): at the mean
    slopes: Matrix  # (q, q): d theta / d zeta there
    shift: float  # What the last round moved, in standard deviations
    hyper: Index  # Coordinates of theta that are no coefficients
    knots: Matrix  # (k, n_knots): tables of these (`normal_scores`)
    first_inner: int  # The first of the features that is a scale of inner effects

    def drawn(self, shared: SharedTerms, rng: np.random.Generator) -> Vector:
        """A draw of theta from the fitted distribution."""
        z = self.factor @ rng.standard_normal(len(self.mean))
        for k, knots in zip(self.hyper, self.knots, strict=True):
            spread = np.linalg.norm(self.factor[k])
            z[k] = spread * np.interp(z[k] / spread, np.linspace(-LAST, LAST, N_KNOTS), knots)
        zeta = self.mean + z
        return self.map.to_theta(zeta, shared.inner_scales(zeta) ** 2)


def fit_shared(
    survey: PlateSurvey,
    center: Center,
    eps: Matrix | None = None,
    rounds: int = _MOST_ROUNDS,
) -> tuple[SharedFit, Expanded, GroupSums]:
    """Fit theta about a center, which moves if need be.

    Parameters
    ----------
    survey : PlateSurvey
    center : Center
    eps : ndarray (k, G), optional
        Draws over which the drift is averaged, and what the effects' prior adds; by default normal ones.
    rounds : int
        Expansions, at most.
    """
    if eps is None:
        eps = survey.normal_eps()
    moved = False
    while True:
        at, sums = survey.expand(center)
        found = survey.maximum(sums, center.theta, eps)
        own = found.map
        theta = center.theta if moved else found.theta
        zeta = own.to_zeta(theta, survey.shared.inner_scales(theta) ** 2)
        covariance = np.linalg.inv(found.precision)
        factor = np.linalg.cholesky(0.5 * (covariance + covariance.T))
        mean = found.zeta
        if not survey.plate.is_normal:  # normal residuals have no remainders
            states = _around(survey, theta, found.precision, eps)
            drifts = [_drift(survey, at, sums, *state) for state in states]
            slope = np.mean(drifts, axis=0)
            mean = mean + covariance @ (slope @ own.slopes_at(zeta, survey.shared(theta)))
        shift = float(np.linalg.norm(np.linalg.solve(factor, mean - zeta)))
        if not np.isfinite(shift):
            raise NoNormalApproximationError(
                f"The shared variables of the groups of {survey.plate.name!r} have no normal approximation."
            )
        theta = own.to_theta(mean, survey.shared.inner_scales(mean) ** 2)
        rounds -= 1
        if shift < _FAR or rounds == 0:
            slopes = own.slopes_at(mean, survey.shared(theta))
            hyper = np.setdiff1d(np.arange(len(mean)), sums.linear)
            first = first_inner(sums.n_effects)
            lower = np.ascontiguousarray(factor)
            outer = survey.linear[survey.outer.columns]
            shifted = mean - found.zeta
            knots = normal_scores(found.density, found.zeta, found.precision, shifted, hyper, outer)
            return SharedFit(center, own, mean, lower, theta, slopes, shift, hyper, knots, first), at, sums
        center, moved = moved_center(survey, sums, theta), True
        del at  # its room is for the next


def _around(
    survey: PlateSurvey, theta: Vector, precision: Matrix, eps: Matrix
) -> list[tuple[Vector, Vector]]:
    """States (theta, eps) over which the drift is averaged: outer effects are on both sides of theta."""
    outer = survey.linear[survey.outer.columns]
    if not len(outer):
        return [(theta, one) for one in eps]
    scales, rng = 1.0 / np.sqrt(np.diag(precision)[outer]), np.random.default_rng(_SEED)
    states = []
    for one in eps:
        step = scales * rng.standard_normal(len(outer))
        for sign in (1.0, -1.0):
            at = theta.copy()
            at[outer] += sign * step
            states.append((at, one))
    return states


def _drift(
    survey: PlateSurvey,
    at: Expanded,
    sums: GroupSums,
    theta: Vector,
    eps: Vector,
) -> Vector:
    """The gradient of the sum of all remainders by theta, at fixed eps."""
    d, means, scales = moments(survey.shared, sums, theta)
    terms = survey.shared(theta)
    of_levels, of_shared = drift_of(
        survey.plate.expression,
        survey.rows,
        at,
        means + scaled_eps(sums, scales, eps),
        d,
        (sums.phi, sums.phi_slopes),
    )
    if sums.n_effects > 1:
        return _with_slopes(survey, sums, theta, eps, (of_levels, of_shared))
    t2, precision = np.exp(terms.log_square.value), np.exp(terms.log_precision.value)
    a, b = precision * sums.slopes, precision * sums.curvatures
    r = 1.0 / (1.0 + b * t2)
    by_scale = (of_levels * (t2 * r * (a - b * means) + 0.5 * r * scales * eps)).sum()
    slope: Vector = by_scale * terms.log_square.gradient
    slope[sums.linear] += of_shared + slopes_of_locations(sums, of_levels * r)
    return slope


def _with_slopes(
    survey: PlateSurvey, sums: GroupSums, theta: Vector, eps: Vector, slopes: tuple[Vector, Vector]
) -> Vector:
    """Slopes of theta and levels by what they depend on, where levels of a group are a vector."""
    of_levels, of_shared = slopes
    d = theta[sums.linear] - sums.center
    nu, (factor, _), terms = (
        locations(sums, d),
        survey.shared.factor_and_precision(theta),
        survey.shared(theta),
    )
    _, scales = given_theta(sums, nu, factor, 1.0)

    def levels_at(factor: Matrix) -> Vector:
        means, scales = given_theta(sums, nu, factor, 1.0)
        return means + scaled_eps(sums, scales, eps)

    slope, step = np.zeros(len(theta)), _STEP * float(np.abs(factor).max())
    for (j, k), feature in zip(zip(*np.tril_indices(len(factor)), strict=True), terms.factor, strict=True):
        if feature.gradient.any():
            change = np.zeros_like(factor)
            change[j, k] = step
            by_entry = of_levels @ (levels_at(factor + change) - levels_at(factor - change)) / (2.0 * step)
            slope += by_entry * feature.gradient
    # A level moves with its location by I - S b.
    of_means = scales @ (scales.transpose(0, 2, 1) @ of_levels.reshape(len(scales), -1, 1))
    weights = of_levels - times_curvatures(sums, of_means.ravel())
    slope[sums.linear] += of_shared + slopes_of_locations(sums, weights)
    return slope
