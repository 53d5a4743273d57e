"""Conditional sequential Monte Carlo with ancestor sampling, for chains of states.

The log density of the states x_1, ..., x_T of a series, given all else, is written as

    log M_1(x_1) + sum over t > 1 of log M_t(x_t | x_{t-1}) + sum over t of log w_t(x_t),

where M_t is a normal density. n particles are drawn from M_1, M_2, ..., and weighted by w_t. The first of
them is the present path, which is kept; it is given a new past at every time. One path is drawn in the end.
That leaves the distribution of the path invariant for any n > 1: Lindsten, Jordan & Schoen (2014).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import CompiledError
from pymc_austerity.kernels.particle_moves import LinearMoves, called_moves, draw_states, linear_moves
from pymc_austerity.target import Matrix, Target, Vector


class ImpossibleStateError(CompiledError):
    """No particle can be at a site."""

    sentence = "no particle has a positive, finite density at site {0}"


class Chains(NamedTuple):
    """Elements that the states of chains are in, and how first states are drawn.

    Attributes
    ----------
    starts : ndarray of int, shape (n_series + 1,)
        First site of each series, and the number of sites.
    elements : ndarray of int, shape (n_sites, D)
        Places of the states in the vector of all states.
    weighted : ndarray of bool, shape (n_sites,)
        Where there are weights besides those of transitions.
    mean : ndarray, shape (n_series, D)
        Of first states.
    root : ndarray, shape (n_series, D, D)
        Cholesky factors of the precision of first states.
    """

    starts: Any
    elements: Any
    weighted: Any
    mean: Any
    root: Any


class ParticleFilter(NamedTuple):
    """How paths are drawn.

    Attributes
    ----------
    n_particles : int
        n.
    is_linear : bool
        Whether transitions are `LinearMoves`. Else the target is asked for them.
    has_constants : bool
        Whether transitions come with weights.
    normalise : callable
        `normalise`.
    link : callable
        `add_links`.
    """

    n_particles: Any
    is_linear: Any
    has_constants: Any
    normalise: Callable[[Vector, Vector], float]
    link: Callable[[Vector, Matrix, Matrix, Vector, bool, Vector], None]


class ParticleOutcome(NamedTuple):
    """Outcome of several sweeps in a row.

    Attributes
    ----------
    n_moved : int
        States that are others than before the sweep, over all sweeps.
    smallest_ess : float
        The smallest effective sample size of the weights of a time.
    """

    n_moved: int
    smallest_ess: float


@jitable
def normalise(log_weights: Vector, sums: Vector) -> float:
    """Write the cumulated weights; their effective sample size, or -1 if none is positive and finite."""
    n = log_weights.shape[0]
    largest = -math.inf
    for i in range(n):
        if math.isnan(log_weights[i]):  # as a density of zero, which is how PyMC's steps take it
            log_weights[i] = -math.inf
        largest = max(largest, log_weights[i])
    if math.isinf(largest):
        return -1.0
    total, squares = 0.0, 0.0
    for i in range(n):
        weight = math.exp(log_weights[i] - largest)
        total += weight
        squares += weight * weight
        sums[i] = total
    return total * total / squares


@jitable
def draw_index(rng: np.random.Generator, sums: Vector) -> int:
    """Draw a number in proportion to weights, of which the cumulated sums are given."""
    last = sums.shape[0] - 1
    u = rng.random() * sums[last]
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        if u < sums[middle]:
            high = middle
        else:
            low = middle + 1
    while low > 0 and sums[low] == sums[low - 1]:  # rounding may lead to a weight of zero
        low -= 1
    return low


@jitable
def particle_gibbs(
    n_sweeps: int,
    rng: np.random.Generator,
    states: Vector,
    args: tuple[Any, ...],
    chains: Chains,
    linear: LinearMoves,
    rule: ParticleFilter,
    target: Target,
) -> ParticleOutcome:
    """Draw the states of all series, each anew given its present states and all else.

    Parameters
    ----------
    n_sweeps : int
    rng : numpy.random.Generator
    states : ndarray
        All states, changed in place.
    args : tuple
        Handed to the functions of `target`.
    chains : Chains
    linear : LinearMoves
    rule : ParticleFilter
    target : Target
        Of m sites in `index`: ``log_terms(q, index, args)`` are m log weights of the states q there. If
        transitions are not linear, ``transitions(q, index, args)`` is for each transition from a state of q,
        at the site before, its log density at this same state (if there are constants), its gradient and its
        negative Hessian there. States are ordered by component: m first components, then m second ones.

    Returns
    -------
    ParticleOutcome

    Raises
    ------
    ImpossibleStateError
        If at some site no particle has a positive, finite weight.

    Notes
    -----
    Resampling is multinomial, at every time. Costs O(n T) evaluations and O(n T) memory, T being the longest
    series.
    """
    n_moved, smallest_ess = 0, float(rule.n_particles)
    for _ in range(n_sweeps):
        for series in range(chains.starts.shape[0] - 1):
            moved, ess = draw_path(series, rng, states, args, chains, linear, rule, target)
            n_moved += moved
            smallest_ess = min(smallest_ess, ess)
    return ParticleOutcome(n_moved, smallest_ess)


@jitable
def draw_path(
    series: int,
    rng: np.random.Generator,
    states: Vector,
    args: tuple[Any, ...],
    chains: Chains,
    linear: LinearMoves,
    rule: ParticleFilter,
    target: Target,
) -> tuple[int, float]:
    """Draw the states of one series; how many of them moved, and the smallest effective sample size."""
    first, n_times = chains.starts[series], chains.starts[series + 1] - chains.starts[series]
    n, n_dim = rule.n_particles, chains.elements.shape[1]
    particles, parents = np.empty((n_times, n_dim * n)), np.zeros((n_times, n), dtype=np.int32)
    mean, root, log_det = np.empty((n, n_dim)), np.empty((n, n_dim, n_dim)), np.empty(n)
    log_weights, sums, index = np.empty(n), np.empty(n), np.empty(n, dtype=np.int64)
    smallest_ess = float(n)
    mean[0], root[0] = chains.mean[series], chains.root[series]
    for t in range(n_times):
        site, here = first + t, particles[t]
        for a in range(n_dim):
            here[a * n] = states[chains.elements[site, a]]
        if t > 0:
            for i in range(1, n):
                parents[t, i] = draw_index(rng, sums)
            # The path that is kept gets a past: one that leads to its state, in proportion.
            rule.link(here, mean, root, log_det, rule.is_linear, log_weights)
            if rule.normalise(log_weights, sums) < 0.0:
                raise ImpossibleStateError(site)
            parents[t, 0] = draw_index(rng, sums)
        draw_states(rng, parents[t], mean, root, rule.is_linear, here)
        log_weights[:] = 0.0
        if chains.weighted[site]:
            index[:] = site
            log_weights[:] = target.log_terms(here, index, args)
        if t + 1 < n_times:
            if rule.is_linear:
                linear_moves(site + 1, here, linear, rule.has_constants, mean, root, log_weights)
            else:
                index[:] = site + 1
                found = target.transitions(here, index, args)
                called_moves(here, found, rule.has_constants, mean, root, log_det, log_weights)
        ess = rule.normalise(log_weights, sums)
        if ess < 0.0:
            raise ImpossibleStateError(site)
        smallest_ess = min(smallest_ess, ess)
    chosen, n_moved = draw_index(rng, sums), 0
    for t in range(n_times - 1, -1, -1):
        moved = 0
        for a in range(n_dim):
            element, x = chains.elements[first + t, a], particles[t, a * n + chosen]
            moved = 1 if states[element] != x else moved
            states[element] = x
        n_moved += moved
        chosen = parents[t, chosen]
    return n_moved, smallest_ess
