"""The record of the distribution from which shared variables are proposed."""

from typing import NamedTuple

from pymc_austerity.target import Index, Matrix, Vector


class SharedProposal(NamedTuple):
    """The fitted distribution of theta, from which it is proposed, in coordinates zeta.

    For inner effects v = V y, y = (a t2 + c) r + sqrt(t2 r) zeta, r = 1 / (1 + b t2), t2 their squared scale;
    some others are x = zeta - S v. Those of `hyper` are functions of normal scores (`scores`).
    """

    moved: Index  # (n,): coordinates that are proposed; others are kept, or follow (`nested`)
    # mapped, scales_at (K,): coordinates of inner effects, and which feature is their scale
    mapped: Index
    scales_at: Index
    # slopes, weights, locations (K,): a, b and c
    slopes: Vector
    weights: Vector
    locations: Vector
    basis: Matrix  # (K, K): V
    others: Index  # (R,)
    shear: Matrix  # (R, K): S
    mean: Vector  # (n,): of zeta; from where the tables of `hyper` are
    # factor, inverse (n, n): lower triangular L with L L' the covariance of scores, and its inverse
    factor: Matrix
    inverse: Matrix
    independent: float  # Share of independent draws. The rest are random walks.
    scale: float  # Of the random walk, in units of L
    hyper: Index  # Which of the n are no coefficients: scales, and what these depend on
    spreads: Vector  # (n,): standard deviations of scores
    # (k, n_knots): for each of `hyper` where it is at equidistant normal scores, in standard deviations from
    # the mean
    knots: Matrix
