"""Cases that the data decide, with the ranges that the data have in the rows of each.

b + x - 1 is positive in the rows with x > 0, which the range of x over all rows does not tell. Only cases
with something that is perhaps not defined, or decided as variables move, are looked at.
"""

from typing import Any

import numpy as np

from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.guards import is_defined_everywhere, with_domain
from pymc_austerity.bounds.expressions.node import Expression, data, ordered
from pymc_austerity.bounds.expressions.rebuild import rebuilt
from pymc_austerity.bounds.expressions.trees import Path, floats, pruned, select_node
from pymc_austerity.model.factorisation import some_rows
from pymc_austerity.model.structure.affine_expressions import leaves
from pymc_austerity.model.structure.row_data import RowData


def in_cases(root: Expression, columns: RowData, n_rows: int, path: Path = ()) -> Expression:
    """An expression for the rows, whose data have in each case the ranges that they have in its rows."""
    x = pruned(root, path)
    if floats(x):
        atom, yes, no = x.args
        first = in_cases(yes, columns, n_rows, (*path, (atom, True)))
        return select_node(atom, first, in_cases(no, columns, n_rows, (*path, (atom, False))))
    is_plain = is_defined_everywhere(x) and not any(one.op == "select" and one.moves for one in ordered(x))
    if is_plain or not path:
        return x
    ranges = _ranges(x, path, columns, n_rows).get
    found = rebuilt(x, ranges)
    # Terms may cancel once ranges are known, and with them what tells where the row is not defined.
    kept = with_domain(found)
    return found if all(with_domain(rebuilt(one, ranges)) <= kept for one in with_domain(x)) else x


def _ranges(x: Expression, path: Path, columns: RowData, n_rows: int) -> dict[Expression, Expression]:
    """Data of a case, with their ranges in the rows of this case."""
    own: dict[Expression, Any] = {one: one.value for one in ordered(x) if one.op == "data"}  # which columns
    numbers = sorted({k for one in (x, *(atom for atom, _ in path)) for k in leaves(one, "data")})
    if not columns.moved_columns.isdisjoint(numbers):
        return {}
    low, high, has_zero = (dict.fromkeys(own, value) for value in (np.inf, -np.inf, False))
    chosen = columns.chosen(numbers)
    for some in some_rows(n_rows):
        values = dict(zip(numbers, chosen(some), strict=True))
        here = np.ones(len(some), dtype=bool)
        for atom, truth in path:
            here &= (evaluate(atom, [], values) != 0.0) == truth
        for one, column in own.items() if here.any() else ():
            found = values[column][here]
            # Not a number stays not a number, over all chunks.
            low[one], high[one] = np.minimum(low[one], found.min()), np.maximum(high[one], found.max())
            has_zero[one] = has_zero[one] or bool((found == 0.0).any())
    return {
        one: data(column, low[one], high[one], nonzero=not has_zero[one])
        for one, column in own.items()
        if low[one] <= high[one]
    }
