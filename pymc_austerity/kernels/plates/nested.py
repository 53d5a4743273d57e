"""Nested groups, as classes in schools: coordinates in which outer effects are independent, and their move.

The effects v_h of outer groups are among the shared variables theta; let theta_s be the others. The prior
location of a group of the plate is nu_g = v_h(g) + k_g, in which k_g is a function of theta_s. With the
levels of the plate integrated out, the polynomials and priors are normal in all v_h, which are independent
given theta_s. For r_g = 1 / (1 + b_g tau^2) and v_h ~ N(n_h, T^2), as in `coordinates` one floor up,

    B_h = sum of r_g b_g,    A_h = sum of r_g (a_g - b_g k_g),    over the groups of h,
    v_h | theta_s ~ N(M_h, S_h^2),    S_h^2 = T^2 / (1 + B_h T^2),    M_h = (A_h T^2 + n_h) / (1 + B_h T^2).

So the tree is eliminated from its leaves in O(G). With R_h = 1 / (1 + B_h T^2) and K_h = A_h - B_h n_h

    v_h = M_h + S_h delta_h = n_h + T z_h,    z_h = T R_h K_h + sqrt(R_h) delta_h,

of which nothing is lost as T goes to 0. In (theta_s, delta, eps) the posterior is independent but for the
remainders: its log density has log prior(theta_s) + the sum of (log R_h - z_h^2) / 2, in which the Jacobian
of delta -> v has taken away log T of the prior of v. There are two moves of these coordinates.

1. The shared move proposes theta_s' and keeps delta and eps.
2. All delta_h are proposed at once, given theta_s and eps. Rows of h contain v_h alone, so that each outer
   group decides for itself, on rows of its groups: log p is -delta_h^2 / 2 + the sum of their remainders
   (`outer_move`).
"""

import math

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.plates.coordinates import locations
from pymc_austerity.kernels.plates.outer import Outer
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.target import Vector


@jitable
def outer_terms(
    sums: GroupSums,
    outer: Outer,
    theta: Vector,
    d: Vector,
    features: Vector,
    means: Vector,
    pulls: Vector,
    shares: Vector,
) -> None:
    """Write n_h, as a displacement from the center, K_h and R_h; d is that of theta, with any v_h."""
    t2, precision, prior_square = features[0] ** 2, math.exp(features[1]), features[outer.scale_at] ** 2
    nu = np.empty(sums.slopes.shape[0])
    locations(sums, d, nu)
    parents, columns = outer.parents, outer.columns
    pulls[:], shares[:] = 0.0, 0.0
    for g in range(nu.shape[0]):
        h = parents[g]
        if h < 0:
            continue
        a, b = precision * sums.slopes[g], precision * sums.curvatures[g]
        r = 1.0 / (1.0 + b * t2)
        pulls[h] += r * (a - b * (nu[g] - d[columns[h]]))
        shares[h] += r * b
    for h in range(means.shape[0]):
        means[h] = outer.base[h] - sums.center[columns[h]]
        for k in range(outer.moved.shape[0]):
            means[h] += outer.locations[h, k] * theta[outer.moved[k]]
        pulls[h] -= shares[h] * means[h]
        shares[h] = 1.0 / (1.0 + shares[h] * prior_square)


@jitable
def write_outer(
    sums: GroupSums, outer: Outer, theta: Vector, d: Vector, features: Vector, delta: Vector, z: Vector
) -> float:
    """Write v_h, in theta and in d, and z_h; the sum of (log R_h - z_h^2) / 2."""
    n, scale = delta.shape[0], features[outer.scale_at]
    means, pulls, shares, total = np.empty(n), np.empty(n), np.empty(n), 0.0
    outer_terms(sums, outer, theta, d, features, means, pulls, shares)
    for h in range(n):
        z[h] = scale * shares[h] * pulls[h] + math.sqrt(shares[h]) * delta[h]
        total += 0.5 * (math.log(shares[h]) - z[h] * z[h])
        k = outer.columns[h]
        d[k] = means[h] + scale * z[h]
        theta[sums.linear[k]] = sums.center[k] + d[k]
    return total


@jitable
def standardised_outer(
    sums: GroupSums, outer: Outer, theta: Vector, d: Vector, features: Vector, z: Vector
) -> None:
    """Write z_h = (v_h - n_h) / T."""
    n = z.shape[0]
    means, pulls, shares = np.empty(n), np.empty(n), np.empty(n)
    outer_terms(sums, outer, theta, d, features, means, pulls, shares)
    for h in range(n):
        z[h] = (d[outer.columns[h]] - means[h]) / features[outer.scale_at]


@jitable
def delta_of(
    sums: GroupSums, outer: Outer, theta: Vector, d: Vector, features: Vector, z: Vector, delta: Vector
) -> None:
    """Write delta_h of z_h."""
    n = z.shape[0]
    means, pulls, shares = np.empty(n), np.empty(n), np.empty(n)
    outer_terms(sums, outer, theta, d, features, means, pulls, shares)
    for h in range(n):
        delta[h] = (z[h] - features[outer.scale_at] * shares[h] * pulls[h]) / math.sqrt(shares[h])
