"""What rounding adds to the remainders of a plate, measured.

A log density may hold constants that are much larger than what it changes by, as log y! of a large count. Its
differences have rounding errors then that may be larger than the bounds of small remainders.
"""

from __future__ import annotations

import numpy as np

from pymc_austerity.bounds.chunks import evenly_spaced
from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.points import BLOCK
from pymc_austerity.kernels.plates.evaluation import changes
from pymc_austerity.kernels.plates.records import GroupedRows, Matrix, Plate, Singles, Workspace
from pymc_austerity.kernels.plates.thinning import to_power
from pymc_austerity.target import Index, Vector

# Rows that are looked at; how far they move, as a share of the reach of their group: of a bound that is wrong
# much less is seen there than where a chain goes; and what may be met is some times what was seen.
_ROWS, _NEAR, _MARGIN = 20_000, 1e-4, 16.0


def with_rounding(plate: Plate) -> Plate:
    """The same plate; its allowance for rounding is at least the most that is seen beyond bounds."""
    rows = evenly_spaced(len(plate.rows.predictors), _ROWS)
    groups = np.searchsorted(plate.rows.starts, rows, side="right") - 1
    reaches = plate.bounds.reaches[0, groups]
    expanded = reaches > 0.0
    phi = np.stack([plate.sums.phi, np.zeros_like(plate.sums.phi)])
    bounds = plate.weights.constants[0], plate.bounds.power
    excess = _largest_excess(plate.rows, plate.room, bounds, phi, rows[expanded], _NEAR * reaches[expanded])
    rounding = max(plate.bounds.rounding, _MARGIN * excess)
    return plate._replace(bounds=plate.bounds._replace(rounding=rounding))


@entry
def _largest_excess(
    rows: GroupedRows,
    room: Workspace,
    bounds: tuple[Singles, int],
    phi: Matrix,
    which: Index,
    steps: Vector,
) -> float:
    """By how much remainders of some rows exceed their bounds, at most, as predictors move by steps."""
    (constants, power), largest = bounds, 0.0
    index, old, new, found = np.zeros(BLOCK, np.int64), np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK)
    for start in range(0, which.shape[0], BLOCK):
        m = min(BLOCK, which.shape[0] - start)
        for k in range(m):
            index[BLOCK - m + k], new[BLOCK - m + k] = which[start + k], steps[start + k]
        changes(rows, room, index, m, (old, phi), (new, phi), found)
        for k in range(BLOCK - m, BLOCK):
            bound = np.float64(constants[index[k]]) * new[k] * to_power(new[k], power)
            if abs(found[k]) - bound > largest:  # and is a number
                largest = abs(found[k]) - bound
    return largest
