"""What integrating out effects of outer groups adds to the log density of the other shared variables."""

from __future__ import annotations

import numpy as np

from pymc_austerity.kernels.plates.outer import Outer
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.mode.plates.theta_density import SharedAt
from pymc_austerity.model.plates.inner_effects import first_inner
from pymc_austerity.model.structure.derivatives import Derivatives


def log_scales(outer: Outer, sums: GroupSums, at: SharedAt) -> Derivatives:
    """The sum of log S_h (`kernels.plates.nested`) with derivatives by theta.

    In v the density is normal, with these scales. So its maximum over v, times the scales, is what is left
    when v is integrated out, and the maximum of that and the sum here is at the mode of the marginal.
    """
    log_square, log_precision = at.log_square, at.log_precision
    log_prior = at.inner[outer.scale_at - first_inner(1)]
    t2, square = np.exp(log_square.value), np.exp(log_prior.value)
    b = np.exp(log_precision.value) * sums.curvatures
    r = 1.0 / (1.0 + b * t2)
    # B_h, and its derivatives by log tau^2 and log lambda.
    of_groups = np.array(
        [
            b * r,
            -b * r * (1.0 - r),
            b * r * r,
            b * r * (1.0 - r) * (1.0 - 2.0 * r),
            -2.0 * b * r * r * (1.0 - r),
            b * r * r * (2.0 * r - 1.0),
        ]
    )
    some = outer.parents >= 0
    n = len(outer.columns)
    big, by_0, by_1, by_00, by_01, by_11 = (
        np.bincount(outer.parents[some], one[some], minlength=n) for one in of_groups
    )
    q = 1.0 / (1.0 + big * square)
    first, second, mixed = -0.5 * square * q, 0.5 * (square * q) ** 2, -0.5 * square * q * q
    gradient = np.array([(first * by_0).sum(), (first * by_1).sum(), 0.5 * q.sum()])
    hessian = np.empty((3, 3))
    hessian[0, 0] = (first * by_00 + second * by_0**2).sum()
    hessian[0, 1] = hessian[1, 0] = (first * by_01 + second * by_0 * by_1).sum()
    hessian[1, 1] = (first * by_11 + second * by_1**2).sum()
    hessian[0, 2] = hessian[2, 0] = (mixed * by_0).sum()
    hessian[1, 2] = hessian[2, 1] = (mixed * by_1).sum()
    hessian[2, 2] = -0.5 * (q * (1.0 - q)).sum()
    features = log_square, log_precision, log_prior
    jacobian = np.array([one.gradient for one in features])
    curved = sum(g * one.hessian for g, one in zip(gradient, features, strict=True))
    value = 0.5 * float((log_prior.value + np.log(q)).sum())
    return Derivatives(value, gradient @ jacobian, jacobian.T @ hessian @ jacobian + curved)
