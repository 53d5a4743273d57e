"""Units in which levels of groups with random slopes are bounded, and lengths of Z_i in these."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.mode.plates.group_means import location_slopes
from pymc_austerity.mode.plates.slope_levels import curvature_matrices, given_theta
from pymc_austerity.mode.plates.sorted_rows import SortedRows
from pymc_austerity.target import Index, Matrix, Singles, Vector

# Lengths are rounded to single precision, and up.
_UP = 1.0 + 1e-6


def scales_and_norms(
    sums: GroupSums, factor: Matrix, precision: float, covariance: Matrix
) -> tuple[Vector, Matrix]:
    """s_g, standard deviations of the intercepts, and A_g = s_g F^-1, one below the other.

    F F' is the covariance of e_g: given theta, and what m_g moves by with theta. The latter is the larger
    where a scale is near zero.

    Parameters
    ----------
    sums : GroupSums
    factor : ndarray (q, q)
        Cholesky factor of the covariance of effects.
    precision : float
        By which all sums are multiplied.
    covariance : ndarray (P, P)
        Of d.
    """
    _, found = given_theta(sums, np.zeros(len(sums.slopes)), factor, precision)
    given, q = found @ found.transpose(0, 2, 1), sums.n_effects
    slopes = location_slopes(sums).reshape(len(given), q, -1)
    slopes -= given @ (precision * curvature_matrices(sums) @ slopes)
    root = np.linalg.cholesky(given + slopes @ covariance @ slopes.transpose(0, 2, 1))
    scales = root[:, 0, 0].copy()
    norms = scales[:, None, None] * np.linalg.inv(root)
    return scales, np.ascontiguousarray(norms.reshape(-1, sums.n_effects))


def lengths_of_covariates(rows: SortedRows, norms: Matrix) -> Singles:
    """rho_i = |A_g'^-1 Z_i|, rounded up; ones where there are no slopes."""
    result = np.ones(len(rows.offsets), np.float32)
    if len(norms):
        q = norms.shape[1]
        _lengths(rows.covariates, rows.starts, np.linalg.inv(norms.reshape(-1, q, q)), result)
    return result


@entry
def _lengths(covariates: Matrix, starts: Index, inverses: npt.NDArray[np.float64], result: Singles) -> None:
    q = inverses.shape[1]
    for g in range(starts.shape[0] - 1):
        for i in range(starts[g], starts[g + 1]):
            total = 0.0
            for k in range(q):
                w = inverses[g, 0, k]
                for j in range(1, q):
                    w += covariates[i, j - 1] * inverses[g, j, k]
                total += w * w
            result[i] = np.float32(np.sqrt(total) * _UP)
