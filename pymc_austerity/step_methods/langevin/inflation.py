r"""How much too wide the stationary distribution of Langevin dynamics is on a normal posterior.

With precision A, a gradient with covariance V, and a preconditioner M = L L', the dynamics are a linear
recursion with normal noise. In coordinates y = L^-1 (q - mode), turned so that L'AL is diagonal with entries
lambda_i, the Lyapunov equation of its stationary covariance S can be solved entry by entry:

    S_ij = (a delta_ij + (a^2/4) V_ij) / ((a/2)(lambda_i + lambda_j) - (a^2/4) lambda_i lambda_j),

with V there the covariance L'VL, turned likewise. The posterior has the covariance diag(1 / lambda_i). In one
dimension the ratio of standard deviations is sqrt((1 + aV/4) / (1 - aA/4)).
"""

import math

import numpy as np

from pymc_austerity.target import Matrix

# Decreasing step sizes: the ratio is computed for so many step sizes in each halving, and interpolated.
_PER_HALVING = 8


class Inflation:
    """The linear recursion in coordinates in which its drift is diagonal.

    `precision` is A, of the posterior at its mode, `factor` L, empty for the identity, and `noise` V, the
    covariance of the gradient. `largest` is the largest step size that will be asked for.
    """

    def __init__(self, precision: Matrix, factor: Matrix, noise: Matrix, largest: float) -> None:
        if factor.size:
            precision, noise = factor.T @ precision @ factor, factor.T @ noise @ factor
        # Eigenvalues of L'AL, (D,), and the covariance of the gradient, (D, D).
        self._rates, axes = np.linalg.eigh(0.5 * (precision + precision.T))
        self._noise, self._largest = axes.T @ noise @ axes, largest
        self._known: dict[int, float] = {}

    @property
    def largest_stable(self) -> float:
        """The step size from which on the recursion has no stationary distribution."""
        return float(4.0 / self._rates.max())

    def sd_ratio(self, a: float) -> float:
        """Largest ratio of stationary to posterior standard deviation, over all directions."""
        x = a * self._rates
        scale = np.sqrt(np.outer(x, x))
        sums = x[:, None] + x[None, :]
        # Everything times lambda^(1/2) from both sides, so that the posterior is the unit matrix.
        driven = np.diag(x) + 0.25 * a * scale * self._noise
        ratio = driven / (0.5 * sums - 0.25 * np.outer(x, x))
        return float(math.sqrt(np.linalg.eigvalsh(ratio)[-1]))

    def __call__(self, a: float) -> float:
        """`sd_ratio` at a step size; between two that were computed, interpolated."""
        place = _PER_HALVING * math.log2(self._largest / a)
        below = math.floor(place + 1e-9)
        share = max(0.0, place - below)
        ratio = self._at(below)
        return ratio if share < 1e-9 else (1.0 - share) * ratio + share * self._at(below + 1)

    def _at(self, k: int) -> float:
        if k not in self._known:
            self._known[k] = self.sd_ratio(self._largest * 2.0 ** (-k / _PER_HALVING))
        return self._known[k]
