"""The distribution that theta is proposed from: the Laplace marginal, shifted by the drift of the remainders.

The sum of the remainders, as a function of theta at fixed eps, is nearly linear over the posterior, and its
slope is not small: it is the bias of penalised quasi-likelihood, of the order of G / sqrt(N) posterior
standard deviations. The proposal is shifted by it. Where that is far, the expansion moves there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.kernels.plates.scores import LAST, N_KNOTS
from pymc_austerity.mode.plates.center import Center, PlateSurvey, moments, moved_center
from pymc_austerity.mode.plates.expansion import Expanded, drift_of
from pymc_austerity.mode.plates.group_means import locations, slopes_of_locations
from pymc_austerity.mode.plates.normal_scores import normal_scores
from pymc_austerity.mode.plates.shared_map import SharedMap
from pymc_austerity.mode.plates.slope_levels import given_theta, scaled_eps, times_curvatures
from pymc_austerity.mode.plates.theta_density import SharedTerms
from pymc_austerity.model.plates.inner_effects import first_inner
from pymc_austerity.target import Index, Matrix, Vector

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


# States of effects of a crossed factor, for draws of eps: sums given them, what they add to rows, and eps.
Beside = Callable[[Expanded, GroupSums, Matrix], Iterable[tuple[GroupSums, Vector, Vector]]]


def fit_shared(
    survey: PlateSurvey,
    center: Center,
    eps: Matrix | None = None,
    rounds: int = _MOST_ROUNDS,
    beside: Beside | None = None,
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
    beside : callable, optional
        States of a crossed factor, over which the drift is averaged.
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
            if beside is None:
                states = _around(survey, theta, found.precision, eps)
                drifts = [_drift(survey, at, sums, *state) for state in states]
            else:
                others = beside(at, sums, eps)
                drifts = [_drift(survey, at, given, theta, one, added) for given, added, one in others]
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
    added: Vector | None = None,
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
        added,
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
