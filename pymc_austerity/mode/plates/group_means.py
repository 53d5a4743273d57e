"""Products with means of groups, whose columns of levels of other factors are zero but in occupied cells."""

import numpy as np
import numpy.typing as npt

from pymc_austerity.kernels.plates.cells import Cells
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.target import Index, Vector


def mean_shifts(sums: GroupSums, d: Vector) -> Vector:
    """xbar_g . d, of all groups."""
    shifts: Vector = sums.means @ d[sums.dense]
    return shifts + of_cells(sums.cells, sums.shares, d, len(shifts))


def of_cells(cells: Cells, shares: npt.NDArray[np.float64], d: Vector, n_groups: int) -> Vector:
    """The part of `mean_shifts` that comes from levels."""
    shifts = np.zeros(n_groups)
    np.add.at(shifts, _groups(cells), shares * d[cells.columns])
    return shifts


def locations(sums: GroupSums, d: Vector) -> Vector:
    """Prior locations nu_g of all groups at d, (G,)."""
    nu: Vector = sums.offsets + mean_shifts(sums, d) + sums.located @ d[sums.moved]
    some = np.flatnonzero(sums.parents >= 0)
    nu[some] += d[sums.parents[some]]
    return nu


def location_slopes(sums: GroupSums) -> npt.NDArray[np.float64]:
    """Slopes of nu_g by d: (G, P), for all of them."""
    slopes = np.zeros((len(sums.slopes), len(sums.center)))
    slopes[_groups(sums.cells), sums.cells.columns] = sums.shares
    slopes[:, sums.dense] += sums.means
    slopes[:, sums.moved] += sums.located
    some = np.flatnonzero(sums.parents >= 0)
    slopes[some, sums.parents[some]] += 1.0
    return slopes


def slopes_of_locations(sums: GroupSums, weights: Vector) -> Vector:
    """Slope of the sum of weights_g nu_g by d."""
    slope = np.zeros(len(sums.center))
    np.add.at(slope, sums.cells.columns, sums.shares * weights[_groups(sums.cells)])
    slope[sums.dense] += weights @ sums.means
    slope[sums.moved] += weights @ sums.located
    some = np.flatnonzero(sums.parents >= 0)
    np.add.at(slope, sums.parents[some], weights[some])
    return slope


def _groups(cells: Cells) -> Index:
    """The group of each cell."""
    sizes = np.diff(cells.starts[:: max(1, cells.n_factors)])
    return np.repeat(np.arange(len(sizes)), sizes)
