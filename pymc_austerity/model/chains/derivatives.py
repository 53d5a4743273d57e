"""First and second derivatives of rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.basic import Variable


def derivatives(rows: Variable, columns: Sequence[Variable]) -> tuple[list[Variable], list[Variable]]:
    """Gradient and Hessian of each row in its own numbers.

    Parameters
    ----------
    rows : TensorVariable
        (m,), of which row i depends on number i of each of `columns`.
    columns : sequence of TensorVariable
        n vectors (m,).

    Returns
    -------
    gradient, hessian : list of TensorVariable
        n and n * n entries, (m,) each.

    Raises
    ------
    NotImplementedError, NullTypeGradError, MethodNotDefined
        If an operation has no gradient.
    """
    gradient = _slopes(rows, columns)
    n = len(columns)
    upper = {
        (a, b): second for a in range(n) for b, second in enumerate(_slopes(gradient[a], columns[a:]), a)
    }
    return gradient, [upper[min(a, b), max(a, b)] for a in range(n) for b in range(n)]


def _slopes(rows: Variable, columns: Sequence[Variable]) -> list[Variable]:
    return [pt.as_tensor(x) for x in grad(rows.sum(), list(columns), disconnected_inputs="ignore")]
