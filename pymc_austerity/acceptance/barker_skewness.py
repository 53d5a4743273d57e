r"""Barker's minibatch test without the error that skewed terms make, to first order (Seita et al. 2017, E).

Let D* = D + e be the estimate of the log ratio D from n of N terms, s^2 its estimated variance, sigma^2 the
true one, k the third cumulant of e, and S the logistic function. The test adds a variable whose distribution
function G_v, at v = s^2, is that of N(0, 1 - v) + X_corr, and accepts with probability G_v(D*). As G_v of x
plus a N(0, v) variable has expectation S(x),

    G_v = exp(-v/2 d^2) S,    E f(D + e) = exp(sigma^2/2 d^2 + k/6 d^3) f(D),    d = d/dx,

for any smooth f. If s^2 = sigma^2 were known the test would accept with probability S + (k/6) S'''. But s^2
is correlated with e, and the derivative of G_v by v is -G_v''/2: that adds -Cov(e, s^2)/2 S'''. With terms
drawn with replacement Cov(e, s^2) = k = N^3 m_3 / n^2, where m_3 is the third central moment of the terms,
and the test errs by -(k/3) S'''(D). Without replacement, with f = n/N,

    k = N^3 m_3 / n^2 (1 - f)(1 - 2f),    Cov(e, s^2) = N^3 m_3 / n^2 (1 - f)^2,

so the error is -g S'''(D) with g = N^3 m_3 / n^2 (1 - f)(1/3 - f/6).

To add g S'''(D*) is not enough, as the noise of D* flattens it: at D = 0 and sigma = .9 its expectation is
-.069 g, where -.125 g is wanted. What has expectation S'''(D) is G_v'''(D*). So the test accepts with
probability

    G_v(D*) + g G_v'''(D*),    v = min(s^2, 1),

with g from the deciding rows, cut off at 0 and 1. As G_v is a sum of normal distribution functions of
variance 1 - v, its third derivative grows without bound as v comes near 1. It is taken at v = .7 there, which
loses up to a third of the correction.

All this is true to first order in the skewness of the mean. It leaves out that g is itself estimated from the
rows of D*, and that s^2 above 1 is cut off.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pymc_austerity.acceptance.barker_correction import Correction
from pymc_austerity.acceptance.barker_noise import noise_variance, skewness_error
from pymc_austerity.acceptance.barker_pilot import AIM
from pymc_austerity.acceptance.base import Sample
from pymc_austerity.acceptance.exact import logistic
from pymc_austerity.compilation import jitable

# Smallest variance of the normal part: below, its distribution function is a step.
_STEP = 1e-12


@jitable
def accept_with_skewness(schedule: Any, sample: Sample, psi: float, rng: np.random.Generator) -> bool:
    """Accept with the probability for which skewed terms make no error to first order."""
    log_ratio = sample.n_local * (sample.mean - psi)
    if sample.n == sample.n_local:
        return log_ratio + logistic(rng) > 0.0
    missing = 1.0 - noise_variance(sample)
    return rng.random() < probability(schedule.correction, log_ratio, missing, skewness_error(sample))


@jitable
def probability(correction: Correction, x: float, missing: float, g: float) -> float:
    """G_v(x) + g G_v'''(x) with v = 1 - `missing`; may be below 0 and above 1."""
    sd, smooth_sd = math.sqrt(max(missing, _STEP)), math.sqrt(max(missing, 1.0 - AIM))
    value = third = below = 0.0
    for k in range(correction.values.shape[0]):
        mass = correction.cumulative[k] - below
        below = correction.cumulative[k]
        # X_corr is symmetric about 0.
        apart = x + correction.values[k]
        value += mass * 0.5 * math.erfc(-apart / sd * math.sqrt(0.5))
        z = apart / smooth_sd
        third += mass * (z * z - 1.0) * math.exp(-0.5 * z * z)
    return value + g * third / (math.sqrt(2.0 * math.pi) * smooth_sd**3)
