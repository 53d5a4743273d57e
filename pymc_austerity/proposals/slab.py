"""Slabs: the prior of coefficients, whether they are in the model or not.

A slab is of one of three families, with a location, a scale and degrees of freedom for each coefficient.
`Target.slab` has these as one vector of 3 p numbers.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.target import Vector

# Families of slabs.
NORMAL, LAPLACE, STUDENT_T = 0, 1, 2


@jitable
def log_slab(family: int, slab: Vector, j: int, x: float) -> float:
    """Log density of coefficient j at x.

    Parameters
    ----------
    family : int
    slab : ndarray of shape (3 p,)
    j : int
    x : float
    """
    p = len(slab) // 3
    scale, degrees = float(slab[p + j]), float(slab[2 * p + j])
    z = (x - float(slab[j])) / scale
    if family == LAPLACE:
        return -abs(z) - math.log(2.0 * scale)
    if family == STUDENT_T:
        constant = math.lgamma(0.5 * (degrees + 1.0)) - math.lgamma(0.5 * degrees)
        constant -= 0.5 * math.log(degrees * math.pi) + math.log(scale)
        return constant - 0.5 * (degrees + 1.0) * math.log1p(z * z / degrees)
    return -0.5 * z * z - math.log(scale) - 0.5 * math.log(2.0 * math.pi)


@jitable
def drawn_from_slab(family: int, slab: Vector, j: int, rng: np.random.Generator) -> float:
    """A draw of coefficient j."""
    p = len(slab) // 3
    if family == LAPLACE:
        z = rng.standard_exponential()
        z = z if rng.random() < 0.5 else -z
    elif family == STUDENT_T:
        z = rng.standard_t(slab[2 * p + j])
    else:
        z = rng.standard_normal()
    return float(slab[j] + slab[p + j] * z)


@jitable
def slab_precision(family: int, slab: Vector, j: int) -> float:
    """Precision of the normal distribution that stands for a slab in proposals.

    Of a double exponential distribution it has its variance, of Student's t the Fisher information of the
    location.
    """
    p = len(slab) // 3
    scale, degrees = float(slab[p + j]), float(slab[2 * p + j])
    if family == LAPLACE:
        return 0.5 / (scale * scale)
    if family == STUDENT_T:
        return (degrees + 1.0) / (degrees + 3.0) / (scale * scale)
    return 1.0 / (scale * scale)
