"""The state of a Dirichlet-process mixture of categorical data, and its bookkeeping. See `dp_slice`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index, Vector


class MixtureState(NamedTuple):
    """Where the sampler is; K components have room in its arrays, C of them are drawn.

    Attributes
    ----------
    log_theta : ndarray of shape (K, D)
        Logarithms of gamma variables: phi_j = theta_j / sum(theta_j).
    log_total : ndarray of shape (K,)
        log sum(theta_j).
    log_sticks : ndarray of shape (K, 2)
        Logarithms of g1 and g2.
    log_w : ndarray of shape (K,)
        Logarithms of the weights.
    members, sizes : ndarray of int, shape (K,)
        Number of units of each component, and of their categories.
    n_drawn : ndarray of int, shape (1,)
        C.
    alpha : ndarray of shape (1,)
    z : ndarray of int, shape (N,)
        Component of each unit.
    order : ndarray of int, shape (N,)
        A permutation; its first elements are the last batch.
    """

    log_theta: Vector
    log_total: Vector
    log_sticks: Vector
    log_w: Vector
    members: Index
    sizes: Index
    n_drawn: Index
    alpha: Vector
    z: Index
    order: Index


class Units(NamedTuple):
    """Categories of all units: those of unit i are ``categories[starts[i] : starts[i + 1]]``.

    Attributes
    ----------
    starts : ndarray of int, shape (N + 1,)
    categories : ndarray of int, shape (M,)
        Repeated as often as observed.
    """

    starts: Index
    categories: Index


@jitable
def with_room(state: MixtureState, j: int) -> MixtureState:
    """`state` if it has room for component j, else a copy with twice the room."""
    old, n_categories = state.log_theta.shape
    if j < old:
        return state
    new = 2 * old
    log_theta, log_total = np.zeros((new, n_categories)), np.zeros(new)
    log_sticks, log_w = np.zeros((new, 2)), np.zeros(new)
    members, sizes = np.zeros(new, np.int64), np.zeros(new, np.int64)
    log_theta[:old], log_total[:old] = state.log_theta, state.log_total
    log_sticks[:old], log_w[:old] = state.log_sticks, state.log_w
    members[:old], sizes[:old] = state.members, state.sizes
    return MixtureState(
        log_theta, log_total, log_sticks, log_w, members, sizes,
        state.n_drawn, state.alpha, state.z, state.order,
    )  # fmt: skip


@jitable
def move(state: MixtureState, units: Units, i: int, j: int) -> None:
    """Put unit i into component j."""
    size = units.starts[i + 1] - units.starts[i]
    state.members[state.z[i]] -= 1
    state.members[j] += 1
    state.sizes[state.z[i]] -= size
    state.sizes[j] += size
    state.z[i] = j


@jitable
def log_likelihood(state: MixtureState, units: Units, i: int, j: int) -> float:
    """Of unit i under component j."""
    result = 0.0
    for c in units.categories[units.starts[i] : units.starts[i + 1]]:
        result += state.log_theta[j, c] - state.log_total[j]
    return result


@jitable
def log_sum(x: Vector) -> float:
    """Logarithm of sum(exp(x))."""
    largest = x.max()
    return float(largest + math.log(np.exp(x - largest).sum()))
