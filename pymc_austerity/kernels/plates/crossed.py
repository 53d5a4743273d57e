"""Crossed factors: two plates that are moved in turn, each given the effects of the other.

Effects v_h of the other factor, less their location, are displaced from the center by d_h, and are kept. So a
row moves by t_i = e_g + d_h(i) + z_i . d, and the Taylor polynomials of `coordinates` add up as they do
without d_h, with

    a_g - sum over h of W_gh d_h    in place of a_g,    W_gh = sum of w_i over the rows of a cell,
    c - sum over h of d_h sum of w_i z_i over the rows of h    in place of c,

up to a constant: z_i has the mean zero in each group, and not in each level. Normal residuals of precision
lambda have the sum of squares of f_i' - w_i d_h(i) in their constant. All that follows is that of a plate.

Given d_h, the distribution of theta has another mean than at the center. It is followed by a Newton step from
there, a function of d_h alone: proposals are independent of theta as before.
"""

import math
from typing import Any

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.plates.chain_memory import ChainMemory
from pymc_austerity.kernels.plates.coordinates import locations, quadratic_of_shared
from pymc_austerity.kernels.plates.records import GroupSums, Plate
from pymc_austerity.kernels.plates.sweeps import SweepOutcome, plate_sweeps
from pymc_austerity.target import Target, Vector


@jitable
def crossed_turn(
    n_transitions: int,
    tune: bool,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    plate: Plate,
    memory: ChainMemory,
    target: Target,
) -> SweepOutcome:
    """Sweeps over one of two crossed plates, at the displacements in `plate.crossing`.

    Parameters and what is returned are those of `sweeps.plate_sweeps`.
    """
    given_others(plate)
    return plate_sweeps(n_transitions, tune, rng, q, args, plate, memory, target)


@jitable
def given_others(plate: Plate) -> None:
    """Write a_g, c, the sum of squares and the mean of the proposal, given effects of the other factor."""
    given_displacements(plate)
    crossing, mean = plate.crossing, plate.proposal.mean
    gradient = gradient_of_quadratic(plate.sums, crossing.d, crossing.scale, crossing.log_precision)
    for k in range(mean.shape[0]):
        mean[k] = crossing.mean[k]
        for j in range(gradient.shape[0]):
            mean[k] += crossing.pull[k, j] * (gradient[j] - crossing.base[j])


@jitable
def given_displacements(plate: Plate) -> None:
    """Write all of these but the mean, and the range of d_h in each group; the cells are passed once."""
    crossing, sums = plate.crossing, plate.sums
    d, starts, levels, weights = crossing.displacements, crossing.starts, crossing.levels, crossing.weights
    slopes, middles, farthest, result = crossing.slopes, crossing.middles, crossing.farthest, sums.slopes
    for g in range(slopes.shape[0]):
        low, high, total = math.inf, -math.inf, slopes[g]
        for c in range(starts[g], starts[g + 1]):
            v = d[levels[c]]
            total -= weights[c] * v
            low, high = min(low, v), max(high, v)
        result[g] = total
        if low <= high:  # the group has rows
            middles[g], farthest[g] = 0.5 * (low + high), 0.5 * (high - low)
    for k in range(sums.gradient.shape[0]):
        sums.gradient[k] = crossing.gradient[k]
    square = 0.0
    for h in range(d.shape[0]):
        square += d[h] * (crossing.level_weights[h] * d[h] - 2.0 * crossing.level_slopes[h])
        for k in range(sums.gradient.shape[0]):
            sums.gradient[k] -= d[h] * crossing.cross[h, k]
    sums.other_squares[0] = square


@jitable
def gradient_of_quadratic(sums: GroupSums, d: Vector, tau: float, log_precision: float) -> Vector:
    """Gradient of `coordinates.quadratic` by d, log tau^2 and the log precision of residuals: (n + 2,)."""
    n, t2, precision = d.shape[0], tau * tau, math.exp(log_precision)
    result, nu = np.zeros(n + 2), np.empty(sums.slopes.shape[0])
    for k in range(n):
        result[k] = sums.gradient[k]
        for j in range(n):
            result[k] -= sums.information[k, j] * d[j]
        result[k] *= precision
    # By log lambda: all but log lambda itself is proportional to lambda.
    constant = 0.5 * sums.n_normal * log_precision
    result[n + 1] = quadratic_of_shared(sums, d, log_precision) - constant + 0.5 * sums.n_normal
    locations(sums, d, nu)
    dense, means, moved, located = sums.dense, sums.means, sums.moved, sums.located
    for g in range(nu.shape[0]):
        a, b = precision * sums.slopes[g], precision * sums.curvatures[g]
        r = 1.0 / (1.0 + b * t2)
        weight = r * (a - b * nu[g])
        for j in range(dense.shape[0]):
            result[dense[j]] += weight * means[g, j]
        for j in range(moved.shape[0]):
            result[moved[j]] += weight * located[g, j]
        m, square = (a * t2 + nu[g]) * r, t2 * r
        result[n] += 0.5 * t2 * (weight * weight - b * r)
        result[n + 1] += a * m - 0.5 * b * (m * m + square)
    return result
