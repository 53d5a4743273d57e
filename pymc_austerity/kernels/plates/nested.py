"""Nested groups, as classes in schools: coordinates in which outer effects are independent, and their move.

The effects v_h of outer groups are among the shared variables theta; let theta_s be the others. The prior
location of a group of the plate is nu_g = v_h(g) + k_g, in which k_g is a function of theta_s. With the
levels of the plate integrated out, the polynomials and priors are normal in all v_h, which are independent
given theta_s. For r_g = 1 / (1 + b_g tau^2) and v_h ~ N(n_h, T^2), as in `coordinates` one floor up,

    B_h = sum of r_g b_g,    A_h = sum of r_g (a_g - b_g k_g),    over the groups of h,
    v_h | theta_s ~ N(M_h, S_h^2),    S_h^2 = T^2 / (1 + B_h T^2),    M_h = (A_h T^2 + n_h) / (1 + B_h T^2).

So the tree is eliminated from its leaves in O(G), and v_h = M_h + S_h delta_h. In (theta_s, delta, eps) the
posterior is independent but for the remainders. There are two moves of these coordinates.

1. The shared move proposes theta_s' and keeps delta and eps: v_h' = M_h' + S_h' (v_h - M_h) / S_h, with the
   Jacobian prod S_h' / S_h. All else of its ratio is that of any other proposal for theta.
2. All delta_h are proposed at once, given theta_s and eps. Rows of h contain v_h alone, so that each outer
   group decides for itself, on rows of its groups: log p is -delta_h^2 / 2 + the sum of their remainders
   (`outer_move`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.plates.coordinates import displacement, locations
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.target import Target, Vector


@jitable
def outer_moments(
    plate: Plate, theta: Vector, d: Vector, features: Vector, means: Vector, scales: Vector
) -> None:
    """Write M_h, as a displacement from the center, and S_h; d is that of theta."""
    sums, outer = plate.sums, plate.outer
    t2, precision, prior_square = features[0] ** 2, math.exp(features[1]), features[outer.scale_at] ** 2
    nu = np.empty(sums.slopes.shape[0])
    locations(sums, d, nu)
    parents, columns = outer.parents, outer.columns
    means[:], scales[:] = 0.0, 0.0
    for g in range(nu.shape[0]):
        h = parents[g]
        if h < 0:
            continue
        a, b = precision * sums.slopes[g], precision * sums.curvatures[g]
        r = 1.0 / (1.0 + b * t2)
        means[h] += r * (a - b * (nu[g] - d[columns[h]]))
        scales[h] += r * b
    for h in range(means.shape[0]):
        location = outer.base[h] - sums.center[columns[h]]
        for k in range(outer.moved.shape[0]):
            location += outer.locations[h, k] * theta[outer.moved[k]]
        r = 1.0 / (1.0 + scales[h] * prior_square)
        means[h] = (means[h] * prior_square + location) * r
        scales[h] = math.sqrt(prior_square * r)


@jitable
def keep_outer(
    plate: Plate, old: Vector, old_d: Vector, theta: Vector, args: tuple[Any, ...], target: Target
) -> float:
    """Write outer effects that have the same delta_h at theta as at `old`; the log of prod S_h' / S_h."""
    outer, sums = plate.outer, plate.sums
    n, d = outer.columns.shape[0], np.empty(old_d.shape[0])
    means, scales, new_means, new_scales = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    outer_moments(plate, old, old_d, target.features(old, args), means, scales)
    displacement(sums, theta, d)
    outer_moments(plate, theta, d, target.features(theta, args), new_means, new_scales)
    total = 0.0
    for h in range(n):
        k = outer.columns[h]
        if not new_scales[h] > 0.0:  # or not a number
            return -math.inf
        ratio = new_scales[h] / scales[h]
        theta[sums.linear[k]] = sums.center[k] + new_means[h] + ratio * (old_d[k] - means[h])
        total += math.log(ratio)
    return total
