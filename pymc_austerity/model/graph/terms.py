"""Split a term of the log density into long vectors and a remainder.

A term is often a vector already (one log density per observation). When it is a scalar, the vector is
inside: `pm.AR` adds the density of its start to a sum over innovations, a `pm.Potential` may be
``-0.5 * (r**2).sum() + c``. `split` opens sums, differences, multiples and checks until it finds
the vectors, so that ``term.sum() == sum of piece.sum()`` over the pieces it returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import SpecifyShape

from pymc_austerity.model.graph.checks import is_elemwise, is_minus_infinity

# Vectors of so many different expressions are not taken apart into as many terms.
_WRITTEN_OUT = 100


def long_axes(var: Variable, threshold: int) -> tuple[int, ...]:
    """The axes of `var` with at least `threshold` rows; if none has, the fewest that have so many cells."""
    shape = var.type.shape
    found = [a for a, k in enumerate(shape) if k >= threshold]
    if not found and math.prod(shape) >= threshold:
        by_length = sorted(range(len(shape)), key=lambda a: -shape[a])
        while math.prod(shape[a] for a in found) < threshold:
            found.append(by_length[len(found)])
    return tuple(sorted(found))


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of a model term."""

    name: str  # Name of the term
    graph: Variable
    # The axes whose cells are local terms: one for a vector or the rows of a table, two for the cells of a
    # table that is long both ways, or in cells alone, none for a part that is evaluated in full
    axes: tuple[int, ...]
    kept: bool  # Whether the part contains a variable of the block

    @property
    def is_local(self) -> bool:
        """Is this a vector of local terms?"""
        return self.kept and bool(self.axes)

    @property
    def lengths(self) -> list[int]:
        """Length of each of `axes`."""
        return [self.graph.type.shape[a] for a in self.axes]

    @property
    def size(self) -> int:
        """Number of local terms."""
        return math.prod(self.lengths)

    @property
    def vector(self) -> Variable:
        """All local terms, computed in full."""
        others = [a for a in range(self.graph.type.ndim) if a not in self.axes]
        return self.graph.sum(axis=others).flatten()


def split(var: Variable, threshold: int) -> list[Variable]:
    """Return pieces whose sums add up to ``var.sum()``, opened as far as that finds long vectors."""
    if long_axes(var, threshold):
        # A short vector of different expressions is taken apart into these.
        is_short = var.type.shape[0] < _WRITTEN_OUT
        is_written_out = var.owner is not None and isinstance(var.owner.op, MakeVector) and is_short
        return list(var.owner.inputs) if is_written_out else [var]
    pieces = _open(var, lambda x: split(x, threshold))
    if pieces is None or not any(long_axes(p, threshold) for p in pieces):
        return [var]
    return pieces


def tables(var: Variable) -> list[Variable]:
    """Return pieces whose sums add up to ``var.sum()``: what is inside of its sums, whatever their sizes.

    A table is not opened further: the summands of a log density of one row belong together.
    """
    return (_open(var, tables) or [var]) if _reaches_sum(var) else [var]


def _reaches_sum(var: Variable) -> bool:
    """Is `var` a sum, or put together from parts, behind operations that sums pass through?"""
    node = var.owner
    if node is None:
        return False
    if isinstance(node.op, Sum | Join) or (_is_product(node.op) and _inner_product(*node.inputs) is not None):
        return True
    if isinstance(node.op, SpecifyShape | DimShuffle | CheckAndRaise) or is_elemwise(var, ps.Neg):
        return _reaches_sum(node.inputs[0])
    if is_elemwise(var, ps.Add, ps.Sub, ps.Mul, ps.TrueDiv):
        return any(_reaches_sum(x) for x in node.inputs)
    return is_elemwise(var, ps.Switch) and _reaches_sum(node.inputs[1])


def _is_product(op: Op) -> bool:
    return isinstance(op, Dot) or (isinstance(op, Blockwise) and isinstance(op.core_op, Dot))


def _open(var: Variable, inner: Callable[[Variable], list[Variable]]) -> list[Variable] | None:
    """Open the outermost operation, if sums pass through it, and what is in it by `inner`."""
    node = var.owner
    if node is None:
        return None
    op, inputs = node.op, node.inputs
    if isinstance(op, Sum | Join):
        joined = inputs[0].owner if isinstance(op, Sum) else node
        parts = joined.inputs if joined is not None and isinstance(joined.op, Join) else inputs
        return [piece.astype(var.type.dtype) for part in parts for piece in inner(part)]
    if isinstance(op, SpecifyShape | DimShuffle):  # axes of length one do not change the sum
        return inner(inputs[0])
    if isinstance(op, CheckAndRaise):
        return [op(piece, *inputs[1:]) for piece in inner(inputs[0])]
    if _is_product(op):
        return _inner_product(*inputs)
    if is_elemwise(var, ps.Neg):
        return [pt.neg(piece) for piece in inner(inputs[0])]
    if is_elemwise(var, ps.Add, ps.Sub) and all(x.type.shape == var.type.shape for x in inputs):
        pieces = list(inner(inputs[0]))
        for x in inputs[1:]:
            pieces += [pt.neg(piece) for piece in inner(x)] if is_elemwise(var, ps.Sub) else inner(x)
        return pieces
    if is_elemwise(var, ps.Mul, ps.TrueDiv):
        return _multiple(var, inner)
    if is_elemwise(var, ps.Switch) and is_single(inputs[0]) and is_minus_infinity(inputs[2]):
        condition = _scalar(inputs[0])
        return [pt.switch(condition, piece, -np.inf) for piece in inner(inputs[1])]
    return None


def _multiple(var: Variable, inner: Callable[[Variable], list[Variable]]) -> list[Variable] | None:
    """C * x and x / c, with c a single number."""
    inputs = var.owner.inputs
    if is_elemwise(var, ps.TrueDiv):
        x, c = inputs
        if is_single(c) and x.type.shape == var.type.shape:
            return [piece / _scalar(c) for piece in inner(x)]
        return None
    for k, x in enumerate(inputs):
        rest = [c for i, c in enumerate(inputs) if i != k]
        if x.type.shape == var.type.shape and all(is_single(c) for c in rest):
            pieces = inner(x)
            if pieces != [x]:
                factor = pt.mul(*[_scalar(c) for c in rest]) if len(rest) > 1 else _scalar(rest[0])
                return [factor * piece for piece in pieces]
    return None


def _inner_product(x: Variable, y: Variable) -> list[Variable] | None:
    """X'y for x of shape (..1, N) and y of shape (..N, 1) is the sum of an element-wise product."""
    *batch_x, rows, _ = x.type.shape
    *batch_y, _, columns = y.type.shape
    if rows != 1 or columns != 1 or any(k != 1 for k in [*batch_x, *batch_y]):
        return None
    return [_vector(x) * _vector(y)]


def _vector(x: Variable) -> Variable:
    kept = [a for a, k in enumerate(x.type.shape) if k != 1] or [x.type.ndim - 1]
    return x.dimshuffle(*kept)


def is_single(var: Variable) -> bool:
    """Is this one number, whatever its axes?"""
    return all(k == 1 for k in var.type.shape)


def _scalar(var: Variable) -> Variable:
    return pt.as_tensor(var).dimshuffle() if var.type.ndim else pt.as_tensor(var)
