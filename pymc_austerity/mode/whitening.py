"""Round coordinates of the features of a block, for bounds that are stated in them.

The bounds of `bounds.remainder` hold for any invertible W, and are tight for a W in which the posterior of
phi(q) is round. To first order that has the covariance J S J', with J the Jacobian of phi and S the
covariance of q. In some directions this may be nothing, or much less than what draws of q have: where there
are more features than variables, or J happens to be small at the mode. There the draws tell how far phi goes.
Where that is nothing, too (simplex weights add up to one), W is held back so that it stays invertible.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pymc_austerity.model.structure.feature_map import FeatureMap
from pymc_austerity.target import Vector

# Draws of the fitted distribution.
_DRAWS, _SEED = 2000, 2021
# By how much their second moment along a direction may exceed that to first order. It does, by less, where
# the normal distribution of q is wider than the posterior, as along the ridge of mu + tau z.
_CURVED = 10.0
# Smallest second moment, relative to the largest.
_FLOOR = 1e-12


def feature_factors(
    features: FeatureMap, at: Vector, mode: Vector, unwhiten: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Whitening W and its inverse V, of shape (p, p), for a normal distribution of q.

    Parameters
    ----------
    features : FeatureMap
        phi.
    at : ndarray (D,)
        Where terms are expanded; moments are taken about phi there.
    mode : ndarray (D,)
    unwhiten : ndarray (D, d)
        Draws of q are mode + unwhiten z.

    Returns
    -------
    whitening, directions : ndarray (p, p)
    """
    tangent = features.jacobian(at) @ unwhiten
    z = np.random.default_rng(_SEED).standard_normal((_DRAWS, unwhiten.shape[1]))
    away = np.array([features(mode + unwhiten @ each) for each in z]) - features(at)
    away = away[np.all(np.isfinite(away), axis=1)]
    scale = np.sqrt((tangent**2).sum(axis=1) + (away**2).mean(axis=0))
    scale[~(scale > 0.0)] = 1.0
    tangent, away = tangent / scale[:, None], away / scale
    first_order, vectors = np.linalg.eigh(tangent @ tangent.T)
    seen = ((away @ vectors) ** 2).mean(axis=0)
    moments = np.where(seen > _CURVED * np.maximum(first_order, 0.0), seen, first_order)
    sd = np.sqrt(np.maximum(moments, _FLOOR * moments.max()))
    return np.ascontiguousarray((vectors / sd).T / scale), np.ascontiguousarray(scale[:, None] * vectors * sd)
