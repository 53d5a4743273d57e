"""Where a graph stops to be affine in the block."""

from __future__ import annotations

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, Split, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from pymc_austerity.model.structure.affine import Kind
from pymc_austerity.model.structure.tensor_rules import READ_FIRST, keeps_rows_apart

Kinds = dict[Variable, Kind]

# What only moves numbers to other places, or puts some together.
_RESHAPING = (Reshape, JoinDims, SplitDims)
_PLACING = (
    DimShuffle,
    SpecifyShape,
    TensorFromScalar,
    ScalarFromTensor,
    Join,
    MakeVector,
    Split,
)
_SELECTING = (Subtensor, AdvancedSubtensor, IncSubtensor, AdvancedIncSubtensor)


def read_by(node: Apply) -> list[Variable]:
    """Inputs of which an operation reads the numbers, and not only the length."""
    inputs = node.inputs[:1] if isinstance(node.op, READ_FIRST) else node.inputs
    return [var for var in inputs if isinstance(var.type, TensorType | ScalarType)]


def affine_sources(rows: Variable, kind: Kinds) -> list[Variable]:
    """Affine values of which everything else is made.

    These are what something that is not affine is made of, followed downwards as long as numbers are only
    moved to other places; and where several of these have parts in common, the parts.
    """
    found: dict[Variable, None] = {}
    for node in toposort([rows]):
        if any(kind.get(out) is Kind.NONLINEAR for out in node.outputs):
            found.update((var, None) for var in read_by(node) if kind.get(var) is Kind.AFFINE)
    if kind.get(rows) is Kind.AFFINE:
        found[rows] = None
    sources = _behind(list(found), kind)
    while shared := _shared(sources, kind):
        parts = [part for var in sources for part in (_parts(var, kind) if var in shared else [var])]
        sources = _behind(parts, kind)
    return sources


def _behind(variables: list[Variable], kind: Kinds) -> list[Variable]:
    """Where the numbers of affine values come from, without sums of several."""
    found: dict[Variable, None] = {}
    stack = variables[::-1]
    while stack:
        var = stack.pop()
        parts = _parts(var, kind)
        if parts and (len(parts) == 1 or _is_placing(var.owner)) and not isinstance(var.owner.op, Sum):
            stack += parts[::-1]
        else:
            found[var] = None
    return list(found)


def _parts(var: Variable, kind: Kinds) -> list[Variable]:
    """The affine values of which `var` is made in a simple way; none where there is no such way."""
    node = var.owner
    if node is None or not (isinstance(node.op, Elemwise) or _is_placing(node) or _is_short_sum(node)):
        return []
    return [one for one in node.inputs if kind.get(one) is Kind.AFFINE]


def _is_placing(node: Apply) -> bool:
    """Does an operation move numbers to places that are the same for all rows?"""
    if isinstance(node.op, _SELECTING):
        is_set = isinstance(node.op, IncSubtensor | AdvancedIncSubtensor)
        return all(isinstance(var, Constant) for var in node.inputs[1 + is_set :])
    if isinstance(node.op, _RESHAPING):
        return keeps_rows_apart(node)
    return isinstance(node.op, _PLACING)


def _is_short_sum(node: Apply) -> bool:
    return isinstance(node.op, Sum) and None not in node.inputs[0].type.shape


def _shared(sources: list[Variable], kind: Kinds) -> set[Variable]:
    """Sources that are made of parts of which some are in other sources as well."""
    below = {var: _below(var, kind) for var in sources}
    return {
        var
        for var in sources
        if any(below[var] & (below[other] | {other}) for other in sources if other is not var)
    }


def _below(var: Variable, kind: Kinds) -> set[Variable]:
    found: set[Variable] = set()
    stack = _parts(var, kind)
    while stack:
        one = stack.pop()
        if one not in found:
            found.add(one)
            stack += _parts(one, kind)
    return found
