"""Stochastic-gradient Langevin dynamics, of which every move is accepted (Welling & Teh 2011).

    q' = q + (a/2) M g + N(0, a M)

with g the gradient of the global terms plus N/n times that of n local terms, drawn without replacement, and
M = L L' a fixed preconditioner. The step size a = h (1 + m / tau)^(-kappa) may decrease.

Guarantee
---------
None at a fixed step size. On a normal posterior the stationary distribution is known
(`step_methods.langevin`).

When it fails
-------------
Where a step overshoots: near kinks, and where curvatures are larger than at the mode.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import CompiledError
from pymc_austerity.proposals.langevin import distinct_positions, estimated_gradient
from pymc_austerity.proposals.laplace import times_transposed, times_upper
from pymc_austerity.target import Index, Matrix, Target, Vector


class DivergedError(CompiledError):
    """A state is no longer finite; its numbers are the coordinate, the step size and the transition."""

    sentence = "Coordinate {0} is no longer finite after a step of size {1} (transition {2} of the chain)."


class Dynamics(NamedTuple):
    """Settings that the transitions of a chain have in common."""

    # h, tau, kappa: of the step size
    h: float
    tau: float
    kappa: float
    # n, n_local: rows of a minibatch, and all
    n: int
    n_local: int
    factor: Matrix  # (D, D) or (0, 0): L, upper triangular; empty for the identity


class LangevinOutcome(NamedTuple):
    """Outcome of several transitions in a row; `step_size` is that of the last."""

    q: Vector
    n_used: int
    step_size: float


@jitable
def langevin_transitions(
    n_transitions: int,
    first: int,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    dynamics: Dynamics,
    target: Target,
) -> LangevinOutcome:
    """Run transitions number `first`, `first` + 1, ... of a chain from `q`, of shape (D,).

    `args` are handed to the functions of `target`, of which `global_gradient` and `local_gradient` are
    called. Raises DivergedError.
    """
    n, factor = dynamics.n, dynamics.factor
    a = dynamics.h
    for m in range(first, first + n_transitions):
        a = dynamics.h * (1.0 + m / dynamics.tau) ** -dynamics.kappa
        batch = distinct_positions(rng, n, dynamics.n_local)
        gradient = estimated_gradient(q, batch, dynamics.n_local, args, target)
        z = rng.standard_normal(len(q))
        if factor.shape[0] == 0:
            q = q + 0.5 * a * gradient + math.sqrt(a) * z
        else:
            q = q + times_upper(factor, 0.5 * a * times_transposed(factor, gradient) + math.sqrt(a) * z)
        for d in range(len(q)):
            if not math.isfinite(q[d]):
                raise DivergedError(d, a, m)
    return LangevinOutcome(q, n_transitions * n, a)


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
    products: Matrix,
    target: Target,
) -> GradientsSeen:
    """Add the gradients of l_i at `state` (D,) to a running mean and its sum of products (Welford 1962).

    The rows are those of `index`, one after the other. `mean` (D,) and `products` (D, D) are zero before.
    They are written over; of the products the lower triangle, with the sum of (g - mean)(g - mean)'. `rng` is
    not used; every kernel has one.
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
