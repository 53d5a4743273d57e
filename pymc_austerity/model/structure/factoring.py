"""Move short factors of a product down to the short values that they multiply.

``scale * (X @ weights)`` is not linear in (scale, weights), but ``X @ (scale * weights)`` is in the one
short vector scale * weights. The same for ``tau * z[group]``, ``scale * (a + x * b)`` and the like.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.lift.sparse import RowsTimes
from pymc_austerity.model.structure.affine import core_of

# Linear in the first input; a factor of all of it is one of the result.
_THROUGH = (DimShuffle, Sum, Subtensor, AdvancedSubtensor, Reshape, JoinDims, SplitDims, SpecifyShape)


def distributed(rows: list[Variable], block: Iterable[Variable], short: Iterable[Variable]) -> list[Variable]:
    """The same graphs with short factors moved down, as far as that is possible.

    Parameters
    ----------
    rows : list of TensorVariable
    block : iterable of TensorVariable
        Value variables of the step.
    short : iterable of TensorVariable
        Values of the graphs that depend on the block, and on nothing else that changes from row to row.
    """
    return _Distributor(rows, block, short).result(rows)


class _Distributor:
    """Rebuilds graphs, and knows of every value whether it is short, wide (has rows), or data."""

    def __init__(self, rows: list[Variable], block: Iterable[Variable], short: Iterable[Variable]) -> None:
        self._short = set(short)
        found = depends_on(rows, block)
        self._wide = {var for var, moves in found.items() if moves and var not in self._short}

    def result(self, rows: list[Variable]) -> list[Variable]:
        """Rows rebuilt from the inputs on, with factors moved down."""
        memo: dict[Variable, Variable] = {}
        for node in toposort(rows):
            if not any(out in self._wide for out in node.outputs):
                continue
            inputs = [memo.get(var, var) for var in node.inputs]
            product = self._product(inputs) if _is(node, ps.Mul) else None
            if product is not None:
                memo[node.outputs[0]] = product
            elif inputs != node.inputs:
                new = node.clone_with_new_inputs(inputs, strict=False).outputs
                self._wide.update(new)
                memo.update(zip(node.outputs, new, strict=True))
        return [memo.get(row, row) for row in rows]

    def _product(self, factors: list[Variable]) -> Variable | None:
        """The product with all short factors in one place; None if it is so already."""
        short = [var for var in factors if var in self._short]
        wide = [var for var in factors if var in self._wide]
        data = [var for var in factors if var not in self._short and var not in self._wide]
        if not short or len(short) + len(wide) < 2:
            return None
        if not wide:
            return self._marked(pt.mul(self._marked(pt.mul(*short), self._short), *data), self._wide)
        moved = self._moved(
            self._marked(pt.mul(*short), self._short) if len(short) > 1 else short[0], wide[0]
        )
        others = [*wide[1:], *data]
        return self._marked(pt.mul(moved, *others), self._wide) if others else moved

    def _moved(self, factor: Variable, var: Variable) -> Variable:
        """The product, with the factor as far down as it goes."""
        is_scalar = math.prod(factor.type.shape) == 1
        if is_scalar:
            factor = self._marked(factor.flatten()[0] if factor.type.ndim else factor, self._short)
        if var in self._short:
            return self._marked(factor * var, self._short)
        if var not in self._wide or var.owner is None:
            return self._marked(factor * var, self._wide)
        node, inputs = var.owner, list(var.owner.inputs)
        moving = [k for k, one in enumerate(inputs) if one in self._short or one in self._wide]
        if not moving:  # views of what moves, which broadcasting has put in between
            places = []
        elif _is(node, ps.Add, ps.Sub, ps.Neg, ps.Identity):
            places = list(range(len(inputs)))
        elif _is(node, ps.Mul):
            places = [next((k for k in moving if inputs[k] in self._wide), moving[0])]
        elif _is(node, ps.TrueDiv) and moving == [0]:
            places = [0]
        elif not is_scalar:
            places = []
        elif (
            (isinstance(core_of(node.op), _THROUGH) and moving == [0])
            or (isinstance(core_of(node.op), Dot) and len(moving) == 1)
            or (isinstance(node.op, RowsTimes) and moving == [3])
        ):
            places = moving
        else:
            places = []
        if not places:
            return self._marked(factor * var, self._wide)
        for k in places:
            inputs[k] = self._moved(factor, inputs[k])
        return self._marked(node.clone_with_new_inputs(inputs, strict=False).outputs[0], self._wide)

    def _marked(self, var: Variable, kind: set[Variable]) -> Variable:
        kind.add(var)
        return var


def _is(node: Apply, *scalars: type) -> bool:
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, scalars)
