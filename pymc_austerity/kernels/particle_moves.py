"""How the particles of a chain of states go on: normal transitions, for a step of `kernels.particle_gibbs`.

The states of n particles are one vector, ordered by component. So the target takes them as they are.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.target import Matrix, Vector

Parents = npt.NDArray[np.int32]


class LinearMoves(NamedTuple):
    """Transitions whose mean is a linear function of the state before, and their weights a quadratic one.

    Attributes
    ----------
    mean, slope, root, weight, curvature : ndarray, shapes (n_sites, D), or (n_sites, D, D)
        From x, the next state has mean ``mean + slope @ x`` and precision ``root @ root.T``; it adds
        ``weight @ x + x @ curvature @ x`` to the log weight of x. Of first states nothing is read.
    """

    mean: Any
    slope: Any
    root: Any
    weight: Any
    curvature: Any


@jitable
def add_links(
    here: Vector, mean: Matrix, root: Matrix, log_det: Vector, is_linear: bool, log_weights: Vector
) -> None:
    """Add the log densities of the transitions from all particles to the present state.

    Parameters
    ----------
    here : ndarray, shape (D n,)
        States, of which the present one is the first.
    mean, root, log_det : ndarray
        The transition of each particle; `root` is the same for all if these are linear.
    is_linear : bool
    log_weights : ndarray, shape (n,)
    """
    n, n_dim = mean.shape
    for i in range(n):
        k = 0 if is_linear else i
        if not is_linear:
            log_weights[i] += log_det[i]
        for a in range(n_dim):
            z = 0.0
            for b in range(a, n_dim):
                z += root[k, b, a] * (here[b * n] - mean[i, b])
            log_weights[i] -= 0.5 * z * z


@jitable
def draw_states(
    rng: np.random.Generator, parents: Parents, mean: Matrix, root: Matrix, is_shared: bool, here: Vector
) -> None:
    """Draw the states of all particles but the first, each from the transition of its parent."""
    n, n_dim = parents.shape[0], root.shape[1]
    for i in range(1, n):
        parent = parents[i]
        k = 0 if is_shared else parent
        for a in range(n_dim - 1, -1, -1):
            z = rng.standard_normal()
            for b in range(a + 1, n_dim):
                z -= root[k, b, a] * (here[b * n + i] - mean[parent, b])
            here[a * n + i] = mean[parent, a] + z / root[k, a, a]


@jitable
def linear_moves(
    site: int,
    here: Vector,
    table: LinearMoves,
    has_constants: bool,
    mean: Matrix,
    root: Matrix,
    log_weights: Vector,
) -> None:
    """Write how each state goes on to a site, and add what that weighs."""
    n, n_dim = mean.shape
    for a in range(n_dim):
        for b in range(n_dim):
            root[0, a, b] = table.root[site, a, b]
    for i in range(n):
        for a in range(n_dim):
            x = table.mean[site, a]
            for b in range(n_dim):
                x += table.slope[site, a, b] * here[b * n + i]
            mean[i, a] = x
    if has_constants:
        for i in range(n):
            for a in range(n_dim):
                slope = table.weight[site, a]
                for b in range(n_dim):
                    slope += table.curvature[site, a, b] * here[b * n + i]
                log_weights[i] += slope * here[a * n + i]


@jitable
def factorise_move(i: int, found: Vector, start: int, mean: Matrix, root: Matrix, log_det: Vector) -> bool:
    """Turn gradient and precision of transition number i into its mean and factor; False if it has none."""
    n, n_dim = mean.shape
    precision = start + n_dim * n + i
    log_det[i] = 0.0
    for a in range(n_dim):
        for b in range(a + 1):
            left = found[precision + (a * n_dim + b) * n]
            for c in range(b):
                left -= root[i, a, c] * root[i, b, c]
            if a > b:
                root[i, a, b] = left / root[i, b, b]
            elif 0.0 < left < math.inf:
                root[i, a, a] = math.sqrt(left)
            else:
                return False
        log_det[i] += math.log(root[i, a, a])
        x = found[start + a * n + i]
        for c in range(a):
            x -= root[i, a, c] * mean[i, c]
        mean[i, a] = x / root[i, a, a]
    return True


@jitable
def called_moves(
    here: Vector,
    found: Vector,
    has_constants: bool,
    mean: Matrix,
    root: Matrix,
    log_det: Vector,
    log_weights: Vector,
) -> None:
    """Write how each state goes on, as the target says, and add what that weighs."""
    n, n_dim = mean.shape
    for i in range(n):
        if not factorise_move(i, found, n if has_constants else 0, mean, root, log_det):
            log_weights[i] = -math.inf
            continue
        if has_constants:
            log_weights[i] += found[i] - log_det[i]
            for a in range(n_dim):
                log_weights[i] += 0.5 * mean[i, a] * mean[i, a]
        for a in range(n_dim - 1, -1, -1):
            x = mean[i, a]
            for c in range(a + 1, n_dim):
                x -= root[i, c, a] * mean[i, c]
            mean[i, a] = x / root[i, a, a]
        for a in range(n_dim):
            mean[i, a] += here[a * n + i]
