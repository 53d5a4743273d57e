"""What a fit expects of the precisions of heavy-tailed effects; see `kernels.fields.heavy_tails`."""

import math

import numpy as np
from scipy import special

from pymc_austerity.kernels.fields.records import HeavyTails
from pymc_austerity.mode.fields.passes import nodes_of
from pymc_austerity.target import Vector


def expected_precisions(
    tails: HeavyTails, features: Vector, means: Vector, variances: Vector
) -> tuple[Vector, Vector]:
    """Precisions with which effects say of their scales what they say on average; and E[log lambda].

    They are E[lambda t^2] / E[t^2] for normal t: the fixed point of expectation and maximisation. The
    logarithms are those of Student's distribution, whose degrees of freedom may be sampled; else they are 0.
    """
    sds, is_student = np.sqrt(variances), tails.degrees > 0.0
    nodes, shares = nodes_of(1)
    squares = (means[:, None] + sds[:, None] * nodes[:, 0]) ** 2
    nu = (tails.degrees * features[tails.numbers])[:, None]
    with np.errstate(all="ignore"):
        student = (nu + 1.0) * (squares / (nu + squares)) @ shares
        logs = special.digamma(0.5 * (nu[:, 0] + 1.0)) - np.log(0.5 * (nu + squares)) @ shares
    laplace = sds * math.sqrt(2.0 / math.pi) * np.exp(-0.5 * (means / sds) ** 2)  # E |t|
    laplace += means * special.erf(means / sds / math.sqrt(2.0))
    return np.where(is_student, student, laplace) / (squares @ shares), np.where(is_student, logs, 0.0)


def mean_log_prior(tails: HeavyTails, features: Vector, precisions: Vector, logs: Vector) -> float:
    """Expected log density of precisions, as far as degrees of freedom are parts of theta."""
    own = np.flatnonzero((tails.numbers > 0) & (tails.degrees > 0.0))
    half = 0.5 * tails.degrees[own] * features[tails.numbers[own]]
    with np.errstate(all="ignore"):
        value = half * np.log(half) - special.gammaln(half) + half * (logs[own] - precisions[own])
    return float(np.sum(value))
