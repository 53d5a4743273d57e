"""Sums over the rows of a plate of columns of levels of other factors, about the means of groups.

Such a column has a one where a row has the level. Its mean over a group is the share s of its cell, and sums
of products are sums over cells. A factor that has one level in a group does not vary there, and adds nothing.
"""

from __future__ import annotations

import numpy as np

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.mode.plates.sorted_rows import SortedRows
from pymc_austerity.target import Matrix, Vector


@entry
def add_levels(
    rows: SortedRows,
    slopes: Vector,
    curvatures: Vector,
    of_groups: tuple[Vector, Vector, Vector],
    of_all: tuple[Vector, Matrix],
) -> None:
    """Write shares of cells that are not all of their group, and add to the gradient and the information.

    Of the information either triangle of an element is written to. Sums of groups are known already, and
    curvatures are zero in those that are not expanded.
    """
    (a, b, shares), (gradient, information) = of_groups, of_all
    cells, n_factors = rows.cells, rows.cells.n_factors
    weight, slope = np.zeros(gradient.shape[0]), np.zeros(gradient.shape[0])
    for g in range(a.shape[0]):
        first, last = rows.starts[g], rows.starts[g + 1]
        total = b[g] if b[g] > 0.0 else float(last - first)
        for f in range(n_factors):
            begin, end = cells.starts[g * n_factors + f], cells.starts[g * n_factors + f + 1]
            if end - begin < 2:
                continue
            for i in range(first, last):
                weight[rows.levels[f, i]] -= curvatures[i] if b[g] > 0.0 else -1.0
                slope[rows.levels[f, i]] += slopes[i]
            for c in range(begin, end):
                k = cells.columns[c]
                shares[c] = weight[k] / total
                gradient[k] += slope[k] - a[g] * shares[c]
                information[k, k] += b[g] * shares[c]
                weight[k] = slope[k] = 0.0
                for other in range(begin, c + 1):
                    information[k, cells.columns[other]] -= b[g] * shares[c] * shares[other]
            for e in range(f):
                before, after = cells.starts[g * n_factors + e], cells.starts[g * n_factors + e + 1]
                if after - before < 2:
                    continue
                for i in range(first, last):
                    information[rows.levels[f, i], rows.levels[e, i]] -= curvatures[i]
                for c in range(begin, end):
                    for other in range(before, after):
                        product = shares[c] * shares[other]
                        information[cells.columns[c], cells.columns[other]] -= b[g] * product
