"""Error and data usage as functions of mu_std, computed at a few points and interpolated.

Both change on many scales: near 0 on that of sqrt(pi_1), and up to some 10 / sqrt(pi_1), beyond which the
first batch decides. In x = arcsinh(mu_std / sqrt(pi_1)) they are smooth functions on a short interval, for
which Chebyshev polynomials converge fast.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import ndtri

from pymc_austerity.design.sequential_walk import OperatingCharacteristics, operating_characteristics
from pymc_austerity.target import Array

# Sizes of the polynomials to try, and the size of the last coefficients at which one is good enough.
_SIZES, _TAIL = (136, 272, 544, 1088, 2176), 1e-11
# Beyond the first bound by so many standard deviations no test stops on the wrong side, or goes on.
_CERTAIN = 8.5


class LawCurves:
    """Error and data usage of one test for any mu_std >= 0, to 1e-9.

    Parameters
    ----------
    pi_1, epsilon, boundary : float
        As of `operating_characteristics`.
    """

    def __init__(self, pi_1: float, epsilon: float, boundary: float) -> None:
        self.pi_1, self.reads_all = pi_1, pi_1 == 1.0 or epsilon == 0.0
        # In units of sqrt(pi_1); beyond `end` the first batch decides, and rightly.
        self.unit = math.sqrt(pi_1)
        self.end = 0.0
        if self.reads_all:
            return
        bound = float(-ndtri(epsilon)) * pi_1 ** (0.5 - boundary)
        self.end = (bound + _CERTAIN) * math.sqrt((1.0 - pi_1) / pi_1)
        self._top = math.asinh(self.end / self.unit)
        for size in _SIZES:
            x = np.cos(np.pi * (np.arange(size) + 0.5) / size)
            mu_std = self.unit * np.sinh(0.5 * self._top * (1.0 + x))
            values = operating_characteristics(mu_std, pi_1, epsilon, boundary)
            coefficients = chebyshev.chebvander(x, size - 1).T @ np.stack(values, axis=1) * 2.0 / size
            coefficients[0] /= 2.0
            if np.abs(coefficients[-8:]).max() < _TAIL:
                break
        size_of_rest = np.cumsum(np.abs(coefficients).max(axis=1)[::-1])[::-1]
        self._coefficients = coefficients[: max(1, int(np.sum(size_of_rest > _TAIL)))]

    def __call__(self, mu_std: Array) -> OperatingCharacteristics:
        """Operating characteristics at `mu_std` >= 0, in its shape."""
        if self.reads_all:
            return OperatingCharacteristics(np.zeros_like(mu_std), np.ones_like(mu_std))
        certain = mu_std >= self.end
        x = 2.0 * np.arcsinh(np.where(certain, self.end, mu_std) / self.unit) / self._top - 1.0
        wrong, used = chebyshev.chebval(x, self._coefficients)
        return OperatingCharacteristics(
            np.where(certain, 0.0, np.clip(wrong, 0.0, 0.5)),
            np.where(certain, self.pi_1, np.clip(used, self.pi_1, 1.0)),
        )
