"""What a fit averages of effects that are not normal; see `heavy_tails` and `matched` of `kernels.fields`."""

import math

import numpy as np
from scipy import special

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.fields.matched import excess
from pymc_austerity.kernels.fields.records import HeavyTails, Matched
from pymc_austerity.mode.fields.passes import nodes_of
from pymc_austerity.target import Matrix, Vector

# The curvature of an averaged quadratic may take so much of that of N(0, 1).
_MOST = 0.9


@entry
def write_excess(matched: Matched, features: Vector, z: Matrix, result: Matrix) -> None:
    """The excess of each effect at some places (k, m)."""
    for k in range(z.shape[0]):
        for j in range(z.shape[1]):
            result[k, j] = excess(matched, k, features, z[k, j])


def excess_at(matched: Matched, features: Vector, z: Matrix) -> Matrix:
    """The excess of each effect at some places (k, m)."""
    result = np.empty(z.shape)
    write_excess(matched, features, z, result)
    return result


def averaged(
    matched: Matched, features: Vector, means: Vector, variances: Vector
) -> tuple[Matrix, Vector, Vector]:
    """Places for averages over effects (k, m), and V_z: slopes at zero, and curvatures.

    By Stein's lemma E f' = E[f t] / sd and E f'' = E[f (t^2 - 1)] / sd^2 for z = mean + sd t.
    """
    nodes, shares = nodes_of(1)
    t, sds = nodes[:, 0], np.sqrt(variances)
    places = means[:, None] + sds[:, None] * t
    values = excess_at(matched, features, places)
    slopes = values @ (shares * t) / sds
    curvatures = np.maximum(-values @ (shares * (t**2 - 1.0)) / variances, -_MOST)
    return places, slopes + curvatures * means, curvatures


def mean_excess(matched: Matched, features: Vector, places: Matrix) -> float:
    """The sum of all excesses, averaged over places."""
    return float((excess_at(matched, features, places) @ nodes_of(1)[1]).sum())


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
