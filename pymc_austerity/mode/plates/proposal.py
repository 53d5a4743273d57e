"""What theta is proposed from, as the kernel takes it: the fit, without effects of outer groups."""

import numpy as np

from pymc_austerity.kernels.plates.fitted_proposal import SharedProposal
from pymc_austerity.mode.plates.fit import SharedFit
from pymc_austerity.target import Index

# Share of independent draws; the others are random walks, of this size.
_INDEPENDENT, _SIZE = 0.9, 2.4


def shared_proposal(fit: SharedFit, outer: Index) -> SharedProposal:
    """The proposal of all coordinates of theta but those of outer effects, which follow these."""
    own, mean, factor, moved = fit.map, fit.mean, fit.factor, np.arange(len(fit.mean))
    if len(outer):
        moved = np.setdiff1d(moved, outer)
        # With outer effects integrated out: a block of the covariance.
        lower = factor[moved]
        mean, factor = mean[moved], np.ascontiguousarray(np.linalg.cholesky(lower @ lower.T))
    return SharedProposal(
        moved=moved,
        mapped=own.coordinates,
        scales_at=own.which + fit.first_inner,
        slopes=own.slopes,
        weights=own.weights,
        locations=own.locations,
        basis=np.ascontiguousarray(own.basis),
        others=own.others,
        shear=own.shear,
        mean=mean,
        factor=factor,
        inverse=np.ascontiguousarray(np.linalg.inv(factor)),
        independent=_INDEPENDENT,
        scale=_SIZE / float(np.sqrt(len(mean))),
        hyper=np.searchsorted(moved, fit.hyper),
        spreads=np.linalg.norm(factor, axis=1),
        knots=fit.knots,
    )
