"""The distribution that theta is proposed from: the Laplace marginal, shifted by the drift of the remainders.

The sum of the remainders, as a function of theta at fixed eps, is nearly linear over the posterior, and its
slope is not small: it is the bias of penalised quasi-likelihood, of the order of G / sqrt(N) posterior
standard deviations. The proposal is shifted by it. Where that is far, the expansion moves there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.kernels.plates.records import GroupSums, SharedProposal
from pymc_austerity.mode.plates.center import Center, PlateSurvey, maximum_at, moments, moved_center
from pymc_austerity.mode.plates.expansion import Expanded, drift_of
from pymc_austerity.target import Vector

Matrix = npt.NDArray[np.float64]

# Draws of eps over which the drift is averaged.
_DRAWS, _SEED = 3, 2007
# Shifts in standard deviations beyond which the expansion moves, and how often it does.
_FAR, _MOST_ROUNDS = 0.7, 6
# Share of independent draws; the others are random walks of the size that suits many dimensions.
_INDEPENDENT, _WALK = 0.9, 2.4


class SharedFit(NamedTuple):
    """A center with the distribution of theta there.

    Attributes
    ----------
    center : Center
    mean : ndarray (q,)
    factor : ndarray (q, q)
        Lower triangular; factor factor' is the covariance.
    shift : float
        What the last round moved, in standard deviations.
    """

    center: Center
    mean: Vector
    factor: Matrix
    shift: float

    def proposal(self) -> SharedProposal:
        """As the kernel takes it."""
        q = len(self.mean)
        inverse = np.ascontiguousarray(np.linalg.inv(self.factor))
        return SharedProposal(self.mean, self.factor, inverse, _INDEPENDENT, _WALK / np.sqrt(q))


def fit_shared(
    survey: PlateSurvey, center: Center, eps: Matrix | None = None, rounds: int = _MOST_ROUNDS
) -> tuple[SharedFit, Expanded, GroupSums]:
    """Fit theta about a center, which moves if need be.

    Parameters
    ----------
    survey : PlateSurvey
    center : Center
    eps : ndarray (k, G), optional
        Draws over which the drift is averaged; by default normal ones.
    rounds : int
        Expansions, at most.
    """
    if eps is None:
        eps = np.random.default_rng(_SEED).standard_normal((_DRAWS, survey.plate.n_groups))
    theta: Vector | None = None
    while True:
        at, sums = survey.expand(center)
        maximum = maximum_at(survey, sums, center.theta)
        covariance = np.linalg.inv(maximum.precision)
        theta = maximum.mode if theta is None else center.theta
        slope = np.mean([_drift(survey, at, sums, theta, one) for one in eps], axis=0)
        mean = maximum.mode + covariance @ slope
        factor = np.linalg.cholesky(0.5 * (covariance + covariance.T))
        shift = float(np.linalg.norm(np.linalg.solve(factor, mean - theta)))
        rounds -= 1
        if not np.isfinite(shift):
            raise NoNormalApproximationError(
                f"The shared variables of the groups of {survey.plate.name!r} have no normal approximation."
            )
        if shift < _FAR or rounds == 0:
            return SharedFit(center, mean, np.ascontiguousarray(factor), shift), at, sums
        center = moved_center(survey, sums, mean)


def _drift(survey: PlateSurvey, at: Expanded, sums: GroupSums, theta: Vector, eps: Vector) -> Vector:
    """The gradient of the sum of all remainders by theta, at fixed eps."""
    d, means, scales = moments(survey.shared, sums, theta)
    _, log_square, log_precision = survey.shared(theta)
    survey.passes += 1
    of_levels, of_shared = drift_of(survey.plate.expression, survey.rows, at, means + scales * eps, d)
    t2, precision = np.exp(log_square.value), np.exp(log_precision.value)
    a, b = precision * sums.slopes, precision * sums.curvatures
    r = 1.0 / (1.0 + b * t2)
    slope = (of_levels * (t2 * r * (a - b * means) + 0.5 * r * scales * eps)).sum() * log_square.gradient
    np.add.at(slope, sums.linear, of_shared + (of_levels * r) @ sums.locations)
    return slope
