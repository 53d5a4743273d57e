"""Sums over the rows of a plate for third-order terms, in a pass over all of them."""

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.points import BLOCK, Points, points_for, run_at_points
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.kernels.plates.cubic import Cubic
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.mode.plates.expansion import Expanded
from pymc_austerity.mode.plates.sorted_rows import SortedRows
from pymc_austerity.model.plates.plate_model import PlateModel
from pymc_austerity.target import Index, Matrix, Vector

# Columns that vary within groups, at most: a row has a product of any three of them.
_MOST_VARYING = 12


def are_worth_while(plate: PlateModel, sums: GroupSums) -> bool:
    """Are there third-order terms that sums over groups tell?

    Levels of other factors, slopes and dispersions would need the sums of each of their combinations.
    """
    others = sums.cells.n_factors + len(sums.phi)
    return not plate.is_normal and plate.n_effects == 1 and not others and len(sums.varying) <= _MOST_VARYING


def cubic_sums(
    expression: Expression, rows: SortedRows, at: Expanded, sums: GroupSums
) -> tuple[Cubic, Vector]:
    """The sums, and c_i of all rows: zero in groups that are not expanded."""
    n, n_groups, varying = len(sums.varying), len(sums.slopes), sums.varying
    thirds = np.empty(len(at.predictors))
    program = tape_of(expression, 1, 3)
    _evaluate(program, points_for(program), at.predictors[None], rows.data, thirds)
    cubic = Cubic(
        columns=sums.dense[varying],
        levels=np.zeros(n_groups),
        mixed=np.zeros((n, n_groups)),
        products=np.zeros((n * (n + 1) // 2, n_groups)),
        shared=np.zeros(n * (n + 1) * (n + 2) // 6),
    )
    _add(rows, varying, sums.means, sums.curvatures > 0.0, thirds, cubic)
    return cubic, thirds


@entry
def _evaluate(program: Tape, points: Points, predictors: Matrix, data: Matrix, thirds: Vector) -> None:
    for first in range(0, thirds.shape[0], BLOCK):
        m = run_at_points(program, predictors, data, first, points)
        found = points.coefficients[program.root]
        for lane in range(m):
            thirds[first + lane] = 6.0 * found[3, lane]


@entry
def _add(
    rows: SortedRows,
    varying: Index,
    means: Matrix,
    expanded: npt.NDArray[np.bool_],
    thirds: Vector,
    cubic: Cubic,
) -> None:
    n, x, starts = varying.shape[0], rows.x, rows.starts
    _, levels, mixed, products, shared = cubic
    z, of_group, pairs = np.empty(n), np.empty(n), np.empty(products.shape[0])
    for g in range(levels.shape[0]):
        of_group[:], pairs[:] = 0.0, 0.0
        for i in range(starts[g], starts[g + 1]):
            if not expanded[g]:
                thirds[i] = 0.0
            third = thirds[i]
            levels[g] += third
            pair, triple = 0, 0
            for a in range(n):
                z[a] = x[i, varying[a]] - means[g, varying[a]]
                by_a = third * z[a]
                of_group[a] += by_a
                for b in range(a + 1):
                    times = 1.0 if a == b else 2.0
                    by_pair = by_a * z[b]
                    pairs[pair] += times * by_pair
                    pair += 1
                    for c in range(b + 1):
                        # Orders of three columns: 1, 3 or 6.
                        orders = (1.0 if a == c else 3.0) if a == b or b == c else 6.0
                        shared[triple] += orders * by_pair * z[c]
                        triple += 1
        for a in range(n):
            mixed[a, g] = of_group[a]
        for pair in range(pairs.shape[0]):
            products[pair, g] = pairs[pair]
