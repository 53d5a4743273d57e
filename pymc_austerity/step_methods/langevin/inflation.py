r"""How much too wide the stationary distribution of Langevin dynamics is on a normal posterior.

With precision A, a gradient with covariance V, and a preconditioner M = L L', the dynamics are a linear
recursion with normal noise. In coordinates y = L^-1 (q - mode), turned so that L'AL is diagonal with entries
lambda_i, the Lyapunov equation of its stationary covariance S can be solved entry by entry:

    S_ij = (a delta_ij + (a^2/4) V_ij) / ((a/2)(lambda_i + lambda_j) - (a^2/4) lambda_i lambda_j),

with V there the covariance L'VL, turned likewise. The posterior has the covariance diag(1 / lambda_i). In one
dimension the ratio of standard deviations is sqrt((1 + aV/4) / (1 - aA/4)).
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.target import Matrix

# Decreasing step sizes: the ratio is computed for so many step sizes in each halving, and interpolated.
_PER_HALVING = 8


class LinearDynamics(NamedTuple):
    """The linear recursion in coordinates in which its drift is diagonal."""

    rates: npt.NDArray[np.float64]  # (D,): eigenvalues of L'AL
    noise: Matrix  # (D, D): covariance of the gradient, in these coordinates

    @property
    def largest_stable(self) -> float:
        """The step size from which on the recursion has no stationary distribution."""
        return float(4.0 / self.rates.max())

    def sd_ratio(self, a: float) -> float:
        """Largest ratio of stationary to posterior standard deviation, over all directions."""
        x = a * self.rates
        scale = np.sqrt(np.outer(x, x))
        sums = x[:, None] + x[None, :]
        # Everything times lambda^(1/2) from both sides, so that the posterior is the unit matrix.
        driven = np.diag(x) + 0.25 * a * scale * self.noise
        ratio = driven / (0.5 * sums - 0.25 * np.outer(x, x))
        return float(math.sqrt(np.linalg.eigvalsh(ratio)[-1]))


def linear_dynamics(precision: Matrix, factor: Matrix, noise: Matrix) -> LinearDynamics:
    """Turn coordinates so that the drift is diagonal.

    Parameters
    ----------
    precision : ndarray of shape (D, D)
        A, of the posterior at its mode.
    factor : ndarray of shape (D, D) or (0, 0)
        L; empty for the identity.
    noise : ndarray of shape (D, D)
        V, the covariance of the gradient.
    """
    if factor.size:
        precision, noise = factor.T @ precision @ factor, factor.T @ noise @ factor
    rates, axes = np.linalg.eigh(0.5 * (precision + precision.T))
    return LinearDynamics(rates, axes.T @ noise @ axes)


class Inflation:
    """`LinearDynamics.sd_ratio` at many step sizes, each computed once.

    Parameters
    ----------
    dynamics : LinearDynamics or None
        None if no mode is known: ratios are NaN.
    largest : float
        The largest step size that will be asked for; ratios there are exact.
    """

    def __init__(self, dynamics: LinearDynamics | None, largest: float) -> None:
        self._dynamics, self._largest = dynamics, largest
        self._known: dict[int, float] = {}

    def __call__(self, a: float) -> float:
        """The ratio at a step size; between two that were computed, interpolated."""
        if self._dynamics is None:
            return math.nan
        place = _PER_HALVING * math.log2(self._largest / a)
        below = math.floor(place + 1e-9)
        share = max(0.0, place - below)
        ratio = self._at(below)
        return ratio if share < 1e-9 else (1.0 - share) * ratio + share * self._at(below + 1)

    def _at(self, k: int) -> float:
        assert self._dynamics is not None
        if k not in self._known:
            self._known[k] = self._dynamics.sd_ratio(self._largest * 2.0 ** (-k / _PER_HALVING))
        return self._known[k]
