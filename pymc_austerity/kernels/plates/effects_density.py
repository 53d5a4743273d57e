"""Priors of effects: a standard distribution, moved by a location and stretched by a scale.

u = location + scale x with x ~ p0. The coordinates of a plate are those of a normal prior of the standard
deviation tau = ratio scale, in which u = location + tau y, x = ratio y. What p0 differs by is

    excess(y) = log p0(ratio y) + log(ratio) - log N(y; 0, 1),

one number for each group, which both moves add to their log ratios. It has the normaliser of p0, since that
may depend on sampled degrees of freedom.
"""

import math

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.plates.records import EffectsDensity, GroupSums
from pymc_austerity.target import Vector

NORMAL, STUDENT_T, LAPLACE, LOGISTIC = range(4)

_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)


@jitable
def log_standard(kind: int, shape: float, x: float) -> float:
    """The log of p0 at x; `shape` are the degrees of freedom of Student's t."""
    if kind == STUDENT_T:
        normaliser = math.lgamma(0.5 * (shape + 1.0)) - math.lgamma(0.5 * shape)
        return normaliser - 0.5 * (math.log(shape * math.pi) + (shape + 1.0) * math.log1p(x * x / shape))
    if kind == LAPLACE:
        return -math.log(2.0) - abs(x)
    if kind == LOGISTIC:
        return -abs(x) - 2.0 * math.log1p(math.exp(-abs(x)))
    return -_HALF_LOG_2_PI - 0.5 * x * x


@jitable
def log_excess(density: EffectsDensity, shape: float, y: float) -> float:
    """The log of the density of y over that of N(0, 1)."""
    own = log_standard(density.kind, shape, density.ratio * y) + math.log(density.ratio)
    return own + _HALF_LOG_2_PI + 0.5 * y * y


@jitable
def drawn(rng: np.random.Generator, density: EffectsDensity, shape: float) -> float:
    """A draw of y from the prior."""
    x = 0.0
    if density.kind == STUDENT_T:
        x = rng.standard_normal() * math.sqrt(0.5 * shape / rng.standard_gamma(0.5 * shape))
    elif density.kind == LAPLACE:
        x = rng.standard_exponential() - rng.standard_exponential()
    elif density.kind == LOGISTIC:
        share = rng.random()
        x = math.log(share / (1.0 - share)) if share > 0.0 else -math.inf
    else:
        x = rng.standard_normal()
    return x / density.ratio


@jitable
def standard_coordinates(
    sums: GroupSums, tau: float, log_precision: float, means: Vector, shifts: Vector, roots: Vector
) -> None:
    """Write y_g = shift_g + root_g eps_g; `means` are m_g.

    y = (m + s eps - nu) / tau is tau (a - b m) + sqrt(r) eps, of which nothing is lost as tau goes to 0.
    """
    t2, precision = tau * tau, math.exp(log_precision)
    for g in range(shifts.shape[0]):
        a, b = precision * sums.slopes[g], precision * sums.curvatures[g]
        shifts[g] = tau * (a - b * means[g])
        roots[g] = 1.0 / math.sqrt(1.0 + b * t2)
