"""Proposals for what all groups share: independent draws of a fitted distribution, or a random walk."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.plates.fitted_proposal import SharedProposal
from pymc_austerity.kernels.plates.scores import from_scores, to_scores
from pymc_austerity.target import Target, Vector

# Degrees of freedom of independent draws of theta: with fewer they leave the bounds' radius too often.
_DOF = 20.0


@jitable
def propose_shared(
    rng: np.random.Generator, proposal: SharedProposal, theta: Vector, args: tuple[Any, ...], target: Target
) -> tuple[Vector, float]:
    """A proposal for theta, and the log of its ratio of densities, back over forth.

    It is drawn in coordinates zeta, of which some are functions of normal scores; the ratio has the Jacobian.
    """
    moved = proposal.moved
    q = int(moved.shape[0])
    old, new = theta.copy(), np.empty(theta.shape[0])
    ratio = -to_zeta(proposal, target.features(theta, args), old) - to_scores(proposal, old)
    new[:] = old
    xi = rng.standard_normal(q)
    if rng.random() >= proposal.independent:
        for k in range(q):
            for j in range(k + 1):
                new[moved[k]] += proposal.scale * proposal.factor[k, j] * xi[j]
    else:
        stretch = math.sqrt(_DOF / (2.0 * rng.standard_gamma(0.5 * _DOF)))
        old_square, new_square = 0.0, 0.0
        for k in range(q):
            w, v = 0.0, 0.0
            for j in range(k + 1):
                w += proposal.inverse[k, j] * (old[moved[j]] - proposal.mean[j])
                v += proposal.factor[k, j] * xi[j]
            new[moved[k]] = proposal.mean[k] + stretch * v
            old_square += w * w
            new_square += (stretch * xi[k]) ** 2
        log_ratio = math.log1p(new_square / _DOF) - math.log1p(old_square / _DOF)
        ratio += 0.5 * (_DOF + q) * log_ratio
    ratio += from_scores(proposal, new)
    # Scales depend on coordinates that zeta and theta have in common.
    ratio += to_theta(proposal, target.features(new, args), new)
    return new, ratio


@jitable
def to_theta(proposal: SharedProposal, features: Vector, zeta: Vector) -> float:
    """Write theta over zeta; the log of the determinant of d theta / d zeta."""
    n, total = proposal.mapped.shape[0], 0.0
    y = np.empty(n)
    for j in range(n):
        mean, scale = mean_and_scale(proposal, features, j)
        y[j] = mean + scale * zeta[proposal.mapped[j]]
        total += math.log(scale) if scale > 0.0 else -math.inf
    for i in range(n):
        v = 0.0
        for j in range(n):
            v += proposal.basis[i, j] * y[j]
        zeta[proposal.mapped[i]] = v
    add_shear(proposal, zeta, -1.0)
    return total


@jitable
def to_zeta(proposal: SharedProposal, features: Vector, theta: Vector) -> float:
    """Write zeta over theta; the log of the determinant of d theta / d zeta."""
    n, total = proposal.mapped.shape[0], 0.0
    add_shear(proposal, theta, 1.0)
    y = np.zeros(n)
    for i in range(n):
        v = theta[proposal.mapped[i]]
        for j in range(n):
            y[j] += proposal.basis[i, j] * v
    for j in range(n):
        mean, scale = mean_and_scale(proposal, features, j)
        theta[proposal.mapped[j]] = (y[j] - mean) / scale
        total += math.log(scale)
    return total


@jitable
def mean_and_scale(proposal: SharedProposal, features: Vector, j: int) -> tuple[float, float]:
    """Mean and standard deviation of y_j, coordinate j of the proposal, given the scales."""
    t2 = features[proposal.scales_at[j]] ** 2
    r = 1.0 / (1.0 + proposal.weights[j] * t2)
    return (proposal.slopes[j] * t2 + proposal.locations[j]) * r, math.sqrt(t2 * r)


@jitable
def add_shear(proposal: SharedProposal, theta: Vector, sign: float) -> None:
    """Add S v, or its negative, to the other coefficients."""
    for i in range(proposal.others.shape[0]):
        total = 0.0
        for j in range(proposal.mapped.shape[0]):
            total += proposal.shear[i, j] * theta[proposal.mapped[j]]
        theta[proposal.others[i]] += sign * total
