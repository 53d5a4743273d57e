"""Normal distributions that fitted proposals are checked with."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize

from pymc_austerity.target import QuadraticProxy
from pymc_austerity.testing.targets import Law

# (Shift of the mode, width) of each, in standard deviations. A fit that is poor makes chains slow, not wrong.
FITS = {
    "fitted": (0.0, 1.0),
    "displaced": (0.7, 1.0),
    "too narrow": (-0.3, 0.6),
    "too wide": (0.3, 1.7),
}
# Step of second differences, in standard scores.
_STEP = 1e-3


def proxy_of(law: Law, n_dim: int, shift: float = 0.0, width: float = 1.0) -> QuadraticProxy:
    """The normal distribution at the mode of `law`, or one with another mode and another width.

    Parameters
    ----------
    law : Law
    n_dim : int
    shift : float, default 0.0
        Of the mode, in standard deviations of the normal distribution.
    width : float > 0, default 1.0
        Factor of the standard deviation.
    """

    def density(x: float) -> float:
        return float(law.log_density(np.array([x])))

    def at(z: float) -> float:
        return float(law.from_normal(np.array([z]))[0])

    z = float(optimize.minimize_scalar(lambda z: -density(at(z)), bounds=(-5.0, 5.0), method="bounded").x)
    mode = at(z)
    h = _STEP * (at(z + 1.0) - at(z - 1.0))
    precision = (2.0 * density(mode) - density(mode - h) - density(mode + h)) / (h * h)
    return QuadraticProxy(
        np.full(n_dim, mode + shift / math.sqrt(precision)), np.eye(n_dim) * precision / width**2
    )
