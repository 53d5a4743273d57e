"""Which parts of a graph are affine in some of its inputs, with coefficients that are data.

A value is *affine in the block* if it is A q + c, where A is data: neither the block nor variables of other
steps can change it. c may change with variables of other steps. One rule for each kind of operation;
whatever has no rule is nonlinear as soon as it depends on the block.
"""

from collections.abc import Callable, Container, Iterable
from enum import Enum

import numpy as np
import pytensor.scalar as ps
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.sparse.math import Dot as SparseDot
from pytensor.sparse.math import StructuredDot
from pytensor.tensor.basic import ExtractDiag, Split
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Shape, Shape_i

from pymc_austerity.model.graph.checks import is_infinite
from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.lift.sparse import RowsTimes
from pymc_austerity.model.structure.operations import ADDING, JOINING, MOVING, WRITING, core_of


class Kind(Enum):
    """How a value depends on the block."""

    FREE = "does not depend on the block"
    AFFINE = "affine in the block"
    NONLINEAR = "anything else"


# Linear in the first input; the others say where things go.
_LINEAR_IN_FIRST = (*MOVING, ViewOp, DeepCopyOp, ExtractDiag, Sum, Repeat, Split)
_PRODUCTS = (Dot, BatchedDot, SparseDot, StructuredDot)


def kinds(
    outputs: Iterable[Variable], block: Iterable[Variable], others: Iterable[Variable]
) -> dict[Variable, Kind]:
    """Classify every variable of the graphs that is not a constant or input, and the block itself."""
    outputs = list(outputs)
    moved = depends_on(outputs, others)
    result = dict.fromkeys(block, Kind.AFFINE)

    def kind(var: Variable) -> Kind:
        return result.get(var, Kind.FREE)

    def is_data(var: Variable) -> bool:
        return kind(var) is Kind.FREE and not moved.get(var, False)

    for node in toposort(outputs):
        if not any(var in result for var in node.inputs) or _is_shaped(node, result):
            continue
        affine = is_affine(node, kind, is_data) and all(_is_real(out) for out in node.outputs)
        result.update(dict.fromkeys(node.outputs, Kind.AFFINE if affine else Kind.NONLINEAR))
    return result


def is_affine(node: Apply, kind: Callable[[Variable], Kind], is_data: Callable[[Variable], bool]) -> bool:
    """Is the result of `node` affine in the block?"""
    op, inputs = core_of(node.op), node.inputs

    def none_nonlinear(vars: Iterable[Variable]) -> bool:
        return all(kind(v) is not Kind.NONLINEAR for v in vars)

    def all_data(vars: Iterable[Variable]) -> bool:
        return all(is_data(v) for v in vars)

    def is_product(vars: list[Variable]) -> bool:
        varying = [v for v in vars if not is_data(v)]
        return len(varying) == 1 and none_nonlinear(varying)

    if isinstance(op, Elemwise):
        scalar = op.scalar_op
        if isinstance(scalar, ADDING):
            return none_nonlinear(inputs)
        if isinstance(scalar, ps.Mul):
            return is_product(inputs)
        if isinstance(scalar, ps.TrueDiv):
            return none_nonlinear(inputs[:1]) and is_data(inputs[1])
        if isinstance(scalar, ps.Switch):
            # Rows that are infinite are no predictors.
            return is_data(inputs[0]) and none_nonlinear(inputs[1:]) and not any(map(is_infinite, inputs[1:]))
        if isinstance(scalar, ps.Second):  # takes only the shape of the first
            return none_nonlinear(inputs[1:])
        return False
    if isinstance(op, _PRODUCTS):
        return is_product(inputs)
    if isinstance(op, RowsTimes):  # its matrix comes in three parts
        return none_nonlinear(inputs[3:4]) and all_data(v for k, v in enumerate(inputs) if k != 3)
    if isinstance(op, CheckAndRaise):
        return none_nonlinear(inputs[:1])
    if isinstance(op, CumOp):
        return op.mode == "add" and none_nonlinear(inputs)
    if isinstance(op, JOINING):
        return none_nonlinear(inputs)
    if isinstance(op, WRITING):
        return none_nonlinear(inputs[:2]) and all_data(inputs[2:])
    if isinstance(op, _LINEAR_IN_FIRST):
        return none_nonlinear(inputs[:1]) and all_data(inputs[1:])
    return False


def _is_shaped(node: Apply, moving: Container[Variable]) -> bool:
    """Does a node read the shape of what moves, and not its numbers?"""
    is_second = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Second)
    return isinstance(node.op, Shape | Shape_i) or (is_second and node.inputs[1] not in moving)


def _is_real(var: Variable) -> bool:
    """Rounding to integers, or to single precision, is not affine."""
    return np.dtype(getattr(var.type, "dtype", object)) == np.float64
