"""The record of the distribution from which shared variables are proposed."""

from __future__ import annotations

from typing import NamedTuple

from pymc_austerity.target import Index, Matrix, Vector


class SharedProposal(NamedTuple):
    """The fitted distribution of theta, from which it is proposed, in coordinates zeta.

    For inner effects v = V y, y = (a t2 + c) r + sqrt(t2 r) zeta, r = 1 / (1 + b t2), t2 their squared scale;
    some others are x = zeta - S v. Those of `hyper` are functions of normal scores (`scores`).

    Attributes
    ----------
    moved : ndarray of int (n,)
        Coordinates that are proposed; others are kept, or follow (`nested`).
    mapped, scales_at : ndarray of int (K,)
        Coordinates of inner effects, and which feature is their scale.
    slopes, weights, locations : ndarray (K,)
        a, b and c.
    basis : ndarray (K, K)
        V.
    others : ndarray of int (R,)
    shear : ndarray (R, K)
        S.
    mean : ndarray (n,)
        Of zeta; from where the tables of `hyper` are.
    factor, inverse : ndarray (n, n)
        Lower triangular L with L L' the covariance of scores, and its inverse.
    independent : float
        Share of independent draws. The rest are random walks.
    scale : float
        Of the random walk, in units of L.
    hyper : ndarray of int
        Which of the n are no coefficients: scales, and what these depend on.
    spreads : ndarray (n,)
        Standard deviations of scores.
    knots : ndarray (k, n_knots)
        For each of `hyper` where it is at equidistant normal scores, in standard deviations from the mean.
    """

    moved: Index
    mapped: Index
    scales_at: Index
    slopes: Vector
    weights: Vector
    locations: Vector
    basis: Matrix
    others: Index
    shear: Matrix
    mean: Vector
    factor: Matrix
    inverse: Matrix
    independent: float
    scale: float
    hyper: Index
    spreads: Vector
    knots: Matrix
