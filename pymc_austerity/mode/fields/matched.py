"""What a fit averages of effects that are normal only nearly; see `kernels.fields.matched`."""

import numpy as np

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.fields.matched import excess
from pymc_austerity.kernels.fields.records import Matched
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
