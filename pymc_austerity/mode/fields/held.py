"""What rows have of effects that a turn holds: second derivatives, and slopes by these."""

from collections.abc import Callable, Iterator

import numpy as np

from pymc_austerity.kernels.fields.records import FieldArrays, Held
from pymc_austerity.mode.fields.layout import Layout
from pymc_austerity.mode.fields.passes import part_of, place_of
from pymc_austerity.mode.row_tables import different, parts
from pymc_austerity.target import Index, Matrix, Vector

# Elements that rows have, their coefficients, and which predictor each is a part of.
_Columns = tuple[Index, Matrix, Index]


def with_elements(layout: Layout, plan: FieldArrays) -> Held:
    """What is held, with its elements of H: with those that move, and for normal rows with each other.

    Their weights are Taylor's, so that what these differ by from V has no such elements.
    """
    held, rows, n = plan.held, plan.rows, len(plan.held.center)
    if not n:
        return held

    def of_held(part: slice) -> _Columns:
        return held.columns[part].astype(np.int64), held.values[part], held.of_columns

    def of_own(part: slice) -> _Columns:
        own = part_of(layout.design, part)
        dense = np.broadcast_to(layout.n_lookups + own.at_dense, own.dense.shape)
        return (
            np.concatenate([own.columns.astype(np.int64), dense], axis=1),
            np.concatenate([own.values, own.dense], axis=1),
            np.append(own.of_columns, own.of_dense),
        )

    def products(columns: Callable[[slice], _Columns], part: slice) -> Iterator[tuple[Index, Vector]]:
        """Codes of pairs of elements, and products, of a part of the rows."""
        (elements, values, of), (others, coefficients, of_others) = columns(part), of_held(part)
        for f, g in np.ndindex(elements.shape[1], others.shape[1]):
            weights = rows.weights[part, place_of(int(of[f]), int(of_others[g]))]
            yield elements[:, f] * n + others[:, g], values[:, f] * weights * coefficients[:, g]

    def sums(columns: Callable[[slice], _Columns]) -> tuple[Index, Index, Vector]:
        """Pairs of elements, and sums over all rows."""
        every = [*parts(layout.n_rows)]
        codes = different(code for part in every for code, _ in products(columns, part))
        found = np.zeros(len(codes))
        for part in every:
            for code, values in products(columns, part):
                np.add.at(found, np.searchsorted(codes, code), values)
        kept = found != 0.0
        return codes[kept] // n, codes[kept] % n, found[kept]

    first, second, hessian = sums(of_own)
    one, other, own_hessian, gradient = first[:0], first[:0], hessian[:0], np.zeros(n)
    if plan.sums.precision >= 0:
        one, other, own_hessian = sums(of_held)
        once = one <= other
        one, other, own_hessian = one[once], other[once], own_hessian[once]
        for part in parts(layout.n_rows):
            for f, k in enumerate(held.of_columns):
                np.add.at(gradient, held.columns[part, f], rows.slopes[part, k] * held.values[part, f])
    return held._replace(
        first=first, second=second, hessian=hessian, one=one, other=other, own_hessian=own_hessian,
        gradient=gradient,
    )  # fmt: skip
