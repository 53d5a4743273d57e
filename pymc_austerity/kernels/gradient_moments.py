"""The covariance of the gradients of single local terms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index, Target, Vector


class GradientsSeen(NamedTuple):
    """Number of rows whose gradients were seen."""

    n_rows: int


@jitable
def gradient_moments(
    rng: np.random.Generator,
    state: Vector,
    args: tuple[Any, ...],
    index: Index,
    mean: Vector,
    products: npt.NDArray[np.float64],
    target: Target,
) -> GradientsSeen:
    """Add the gradients of l_i at `state` to a running mean and its sum of products (Welford 1962).

    Parameters
    ----------
    rng : numpy.random.Generator
        Not used; every kernel has one.
    state : ndarray of shape (D,)
    args : tuple
    index : ndarray of int
        Rows, one after the other.
    mean : ndarray of shape (D,)
        Zero before; written over.
    products : ndarray of shape (D, D)
        Zero before; the lower triangle is written over with the sum of (g - mean)(g - mean)'.
    target : Target
        Its `local_gradient` is called.

    Returns
    -------
    GradientsSeen
    """
    n_dim = state.shape[0]
    for k in range(index.shape[0]):
        gradient = target.local_gradient(state, index[k : k + 1], args)
        before = gradient - mean
        for i in range(n_dim):
            mean[i] += before[i] / (k + 1)
        for i in range(n_dim):
            for j in range(i + 1):
                products[i, j] += (gradient[i] - mean[i]) * before[j]
    return GradientsSeen(index.shape[0])
