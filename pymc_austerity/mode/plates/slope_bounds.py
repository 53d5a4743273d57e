"""Units in which levels of groups with random slopes are bounded, and lengths of Z_i in these."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.plates.records import GroupSums, Singles
from pymc_austerity.mode.plates.slope_levels import given_theta
from pymc_austerity.mode.plates.sorted_rows import SortedRows
from pymc_austerity.target import Index, Vector

Matrix = npt.NDArray[np.float64]

# Lengths are rounded to single precision, and up.
_UP = 1.0 + 1e-6


def scales_and_norms(sums: GroupSums, factor: Matrix, precision: float) -> tuple[Vector, Matrix]:
    """s_g, standard deviations of the intercepts given theta, and A_g = s_g F_g^-1, one below the other.

    Parameters
    ----------
    sums : GroupSums
    factor : ndarray (q, q)
        Cholesky factor of the covariance of effects.
    precision : float
        By which all sums are multiplied.
    """
    _, found = given_theta(sums, np.zeros(len(sums.slopes)), factor, precision)
    scales: Vector = np.linalg.norm(found[:, 0], axis=1)
    norms = scales[:, None, None] * np.linalg.inv(found)
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
