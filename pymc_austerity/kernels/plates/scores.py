"""Tables that make a normal variable of a coordinate of theta, and back: see `mode.plates.normal_scores`."""

import math

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.plates.fitted_proposal import SharedProposal
from pymc_austerity.target import Vector

# Knots are equidistant in scores; beyond the last ones the straight lines go on.
LAST, N_KNOTS = 6.0, 49
_SPACING = 2.0 * LAST / (N_KNOTS - 1)


@jitable
def from_scores(proposal: SharedProposal, zeta: Vector) -> float:
    """Write zeta over scores; the log of the determinant of d zeta / d scores."""
    total = 0.0
    for i in range(proposal.hyper.shape[0]):
        k = proposal.hyper[i]
        mean, spread, place = proposal.mean[k], proposal.spreads[k], proposal.moved[k]
        z = (zeta[place] - mean) / spread
        j = int(min(max((z + LAST) / _SPACING, 0.0), N_KNOTS - 2.0))
        first = proposal.knots[i, j]
        slope = (proposal.knots[i, j + 1] - first) / _SPACING
        zeta[place] = mean + spread * (first + slope * (z + LAST - j * _SPACING))
        total += math.log(slope)
    return total


@jitable
def to_scores(proposal: SharedProposal, zeta: Vector) -> float:
    """Write scores over zeta; the log of the determinant of d zeta / d scores."""
    total = 0.0
    for i in range(proposal.hyper.shape[0]):
        k = proposal.hyper[i]
        mean, spread, place = proposal.mean[k], proposal.spreads[k], proposal.moved[k]
        x, low, high = (zeta[place] - mean) / spread, 0, N_KNOTS - 1
        while high - low > 1:
            middle = (low + high) // 2
            if proposal.knots[i, middle] <= x:
                low = middle
            else:
                high = middle
        first = proposal.knots[i, low]
        slope = (proposal.knots[i, low + 1] - first) / _SPACING
        zeta[place] = mean + spread * (low * _SPACING - LAST + (x - first) / slope)
        total += math.log(slope)
    return total
