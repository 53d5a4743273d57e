"""What rounding adds to the remainders of a plate, measured.

A log density may hold constants that are much larger than what it changes by, as log y! of a large count. Its
differences have rounding errors then that may be larger than the bounds of small remainders.
"""

import numpy as np

from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.row_function import evenly_spaced
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.mode.plates.expansion import with_phi

# Rows that are looked at; how far they move, as a share of the reach of their group: of a bound that is wrong
# much less is seen there than where a chain goes; and what may be met is some times what was seen.
_ROWS, _NEAR, _MARGIN = 20_000, 1e-4, 16.0


def with_rounding(plate: Plate, expression: Expression) -> Plate:
    """The same plate; its allowance for rounding is at least the most that is seen beyond bounds."""
    rows, bounds = plate.rows, plate.bounds
    some = evenly_spaced(len(rows.predictors), _ROWS)
    reaches = bounds.reaches[0, np.searchsorted(rows.starts, some, side="right") - 1]
    some, t = some[reaches > 0.0], _NEAR * reaches[reaches > 0.0]
    here, data = with_phi(rows.predictors[some], plate.sums.phi), rows.data[:, some]
    moved = np.concatenate([here[:1] + t, here[1:]])
    change = evaluate(expression, moved, data) - evaluate(expression, here, data)
    change = change - t * (rows.slopes[some] + 0.5 * t * rows.curvatures[some])
    if bounds.power == 3:
        change -= t**3 * rows.thirds[some] / 6.0
    excess = np.abs(change) - plate.weights.constants[0, some] * t ** (bounds.power + 1)
    largest = float(excess[excess > 0.0].max(initial=0.0))  # those that are numbers
    return plate._replace(bounds=bounds._replace(rounding=max(bounds.rounding, _MARGIN * largest)))
