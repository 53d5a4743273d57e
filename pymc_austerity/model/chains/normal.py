"""Terms that are quadratic in the present state: what a normal proposal is made of."""

from __future__ import annotations

from collections.abc import Sequence

import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.utils import rewrite_graph

from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.refusal import NO_GRADIENT


def derivatives(
    rows: Variable, present: Sequence[Variable]
) -> tuple[list[Variable], list[list[Variable]]] | None:
    """Gradient and Hessian of each row in the present state; None where there are none.

    Parameters
    ----------
    rows : TensorVariable
        (m,), of which row i depends on element i of each of `present`.
    present : sequence of TensorVariable
        (m,) each.

    Returns
    -------
    gradient : list of TensorVariable
        (m,) for each component.
    hessian : list of list of TensorVariable
        (m,) for each pair of components.
    """
    try:
        gradient = _each(rows, present)
        return gradient, [_each(slope, present) for slope in gradient]
    except NO_GRADIENT:
        return None


def _each(rows: Variable, present: Sequence[Variable]) -> list[Variable]:
    slopes = grad(rows.sum(), list(present), disconnected_inputs="ignore")
    return [pt.as_tensor(slope) for slope in slopes]


def is_quadratic(rows: Variable, present: Sequence[Variable]) -> bool:
    """Is each row a quadratic function of the present state, as the graph of its Hessian shows?"""
    found = derivatives(rows, present)
    if found is None:
        return False
    seconds = [second for line in found[1] for second in line]
    simple = rewrite_graph(seconds, include=("canonicalize", "stabilize", "specialize"), clone=False)
    depends = depends_on(simple, present)
    return not any(depends.get(second, False) for second in simple)
