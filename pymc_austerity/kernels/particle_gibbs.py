"""Conditional sequential Monte Carlo with ancestor sampling, for chains of states.

The log density of the states x_1, ..., x_T of a series, given all else, is written as

    log M_1(x_1) + sum over t > 1 of log M_t(x_t | x_{t-1}) + sum over t of log w_t(x_t),

where M_t is a normal density. n particles are drawn from M_1, M_2, ..., and weighted by w_t. The first of
them is the present path, which is kept; it is given a new past at every time. One path is drawn in the end.
That leaves the distribution of the path invariant for any n > 1: Lindsten, Jordan & Schoen (2014).

The states of n particles are one vector, ordered by component. So the target takes them as they are.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import CompiledError
from pymc_austerity.target import Matrix, Target, Vector

Parents = npt.NDArray[np.int32]


class ImpossibleStateError(CompiledError):
    """No particle can be at a site."""

    sentence = "no particle has a positive, finite density at site {0}"


class Chains(NamedTuple):
    """Elements that the states of chains are in, and how first states are drawn."""

    starts: Any  # (n_series + 1,): first site of each series, and the number of sites
    elements: Any  # (n_sites, D): places of the states in the vector of all states
    weighted: Any  # (n_sites,): where there are weights besides those of transitions
    mean: Any  # (n_series, D): of first states
    root: Any  # (n_series, D, D): Cholesky factors of the precision of first states


class LinearMoves(NamedTuple):
    """Transitions whose mean is a linear function of the state before, and their weights a quadratic one."""

    # mean, slope, root, weight, curvature (n_sites, D), or (n_sites, D, D): from x, the next state has mean
    # ``mean + slope @ x`` and precision ``root @ root.T``; it adds ``weight @ x + x @ curvature @ x`` to the
    # log weight of x. Of first states nothing is read.
    mean: Any
    slope: Any
    root: Any
    weight: Any
    curvature: Any


class ParticleFilter(NamedTuple):
    """How paths are drawn."""

    n_particles: Any  # n
    is_linear: Any  # Whether transitions are `LinearMoves`. Else the target is asked for them.
    has_constants: Any  # Whether transitions come with weights


class ParticleOutcome(NamedTuple):
    """Outcome of several sweeps in a row."""

    n_moved: int  # States that are others than before the sweep, over all sweeps
    smallest_ess: float  # The smallest effective sample size of the weights of a time


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
    last: int = sums.shape[0] - 1
    chosen = min(int(np.searchsorted(sums, rng.random() * sums[last], side="right")), last)
    while chosen > 0 and sums[chosen] == sums[chosen - 1]:  # rounding may lead to a weight of zero
        chosen -= 1
    return chosen


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
    """Draw all states, which change in place: each series anew given its present states and all else.

    `args` are handed to the functions of `target`. Of m sites in `index`: ``log_terms(q, index, args)`` are m
    log weights of the states q there. If transitions are not linear, ``transitions(q, index, args)`` is for
    each transition from a state of q, at the site before, its log density at this same state (if there are
    constants), its gradient and its negative Hessian there. States are ordered by component: m first
    components, then m second ones.

    Raises `ImpossibleStateError` if at some site no particle has a positive, finite weight.
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
    # Of the transition of each particle; log_det is of use where these are not all alike.
    mean, root, log_det = np.empty((n, n_dim)), np.empty((n, n_dim, n_dim)), np.zeros(n)
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
            add_links(here, mean, root, log_det, log_weights)
            if normalise(log_weights, sums) < 0.0:
                raise ImpossibleStateError(site)
            parents[t, 0] = draw_index(rng, sums)
        draw_states(rng, parents[t], mean, root, here)
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
        ess = normalise(log_weights, sums)
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


@jitable
def add_links(here: Vector, mean: Matrix, root: Matrix, log_det: Vector, log_weights: Vector) -> None:
    """Add the log densities of the transitions from all particles to the present state.

    That is the first of the states `here` (D n,).
    """
    n, n_dim = mean.shape
    for i in range(n):
        log_weights[i] += log_det[i]
        for a in range(n_dim):
            z = 0.0
            for b in range(a, n_dim):
                z += root[i, b, a] * (here[b * n] - mean[i, b])
            log_weights[i] -= 0.5 * z * z


@jitable
def draw_states(rng: np.random.Generator, parents: Parents, mean: Matrix, root: Matrix, here: Vector) -> None:
    """Draw the states of all particles but the first, each from the transition of its parent."""
    n, n_dim = parents.shape[0], root.shape[1]
    for i in range(1, n):
        parent = parents[i]
        for a in range(n_dim - 1, -1, -1):
            z = rng.standard_normal()
            for b in range(a + 1, n_dim):
                z -= root[parent, b, a] * (here[b * n + i] - mean[parent, b])
            here[a * n + i] = mean[parent, a] + z / root[parent, a, a]


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
    for i in range(n):
        for a in range(n_dim):
            x = table.mean[site, a]
            for b in range(n_dim):
                root[i, a, b] = table.root[site, a, b]
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
