r"""Stochastic-gradient Riemannian Langevin dynamics on gamma variables (Patterson & Teh 2013).

The Euler discretisation of the Cox-Ingersoll-Ross process, reflected at zero:

    theta' = |theta + h (a - theta) + sqrt(2 h theta) xi|,    xi ~ N(0, 1).

h is that of the exact transition (`cir`), half of the epsilon of Patterson & Teh. They write the drift of a
Dirichlet's gamma variables as alpha_j - theta_j + (N / n) sum_i (z_ij - w_j), with w = theta / sum(theta):
the total is then drawn to the sum of alpha, not to the number of observations. Either may be given.

Guarantee
---------
None at fixed h: the bias is O(h), and the stationary distribution becomes the gamma distribution only as h
goes to 0.

When it fails
-------------
Near zero, where most components of a sparse Dirichlet distribution are. A step from zero ends at h a, and
values below that are rare, while most of a gamma distribution with a small shape lies far below.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.target import Vector


@jitable
def sgrld_transition(rng: np.random.Generator, theta: float, drift: float, step_size: float) -> float:
    """One step, equation (12) of Patterson & Teh (2013) with epsilon = 2 h.

    Parameters
    ----------
    rng : numpy.random.Generator
    theta : float
        The state, not negative.
    drift : float
        a - theta, or an estimate of it.
    step_size : float
        h; positive.

    Returns
    -------
    float
        The next state.
    """
    noise = math.sqrt(2.0 * step_size * theta) * rng.standard_normal()
    return abs(theta + step_size * drift + noise)


@jitable
def sgrld_transitions(rng: np.random.Generator, theta: Vector, drift: Vector, step_size: float) -> Vector:
    """Independent steps of several variables.

    Parameters
    ----------
    rng : numpy.random.Generator
    theta : ndarray of shape (n,)
        The states.
    drift : ndarray of shape (n,)
        a - theta of each, or estimates.
    step_size : float
        h, the same for all.

    Returns
    -------
    ndarray of shape (n,)
        The next states.
    """
    result = np.empty(theta.shape[0])
    for j in range(theta.shape[0]):
        result[j] = sgrld_transition(rng, theta[j], drift[j], step_size)
    return result
