"""Scalar expressions: what a row of a local term computes from its predictors and its data.

An expression is a graph of scalar operations. Equal expressions are one object, so that they are compared,
and kept in dictionaries, by identity. Every expression knows a range that contains its values for all rows
and all values of the predictors.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import NamedTuple
from weakref import WeakValueDictionary


class Range(NamedTuple):
    """A range of numbers; with `nonzero` zero is left out of it."""

    low: float
    high: float
    nonzero: bool = False

    @property
    def is_positive(self) -> bool:
        """Whether all numbers are above zero."""
        return self.low > 0.0 or (self.low == 0.0 and self.nonzero)

    @property
    def is_negative(self) -> bool:
        """Whether all numbers are below zero."""
        return self.high < 0.0 or (self.high == 0.0 and self.nonzero)


EVERYWHERE = Range(-math.inf, math.inf)


class Expression:
    """A node of a graph of scalar operations; made by `node`, never directly.

    Attributes
    ----------
    op : str
        What is computed: see `forms`.
    args : tuple of Expression
    value : hashable
        Of a constant, its number; of a predictor or a column of data, which one; of a sum, the
        coefficients of the arguments and the constant that is added.
    range : Range
        Contains all values.
    moves : bool
        Whether it depends on a predictor.
    """

    __slots__ = ("__weakref__", "args", "moves", "op", "range", "value")

    def __init__(self, op: str, args: tuple[Expression, ...], value: object, range: Range) -> None:
        self.op, self.args, self.value, self.range = op, args, value, range
        self.moves: bool = op == "predictor" or any(arg.moves for arg in args)

    def __repr__(self) -> str:
        inside = [repr(arg) for arg in self.args]
        if self.value is not None:
            inside.append(repr(self.value))
        return f"{self.op}({', '.join(inside)})"


_KNOWN: WeakValueDictionary[tuple[object, ...], Expression] = WeakValueDictionary()


def node(
    op: str, args: tuple[Expression, ...] = (), value: object = None, range: Range = EVERYWHERE
) -> Expression:
    """The one expression with this operation, arguments and value."""
    key = (op, args, value, range)
    found = _KNOWN.get(key)
    if found is None:
        found = _KNOWN[key] = Expression(op, args, value, range)
    return found


def constant(value: float) -> Expression:
    """A number that is the same for all rows."""
    value = float(value) + 0.0  # no negative zero
    return node("constant", value=value, range=Range(value, value, value != 0.0))


def predictor(number: int) -> Expression:
    """Predictor number `number`, affine in the block or in its features."""
    return node("predictor", value=number)


def data(column: int, low: float, high: float, *, nonzero: bool = False) -> Expression:
    """A column of data, whose numbers are between `low` and `high`."""
    return node("data", value=column, range=Range(float(low), float(high), nonzero))


def ordered(root: Expression, cut: Collection[Expression] = ()) -> Iterator[Expression]:
    """All nodes of an expression, arguments first, down to those of a cut and no further."""
    seen: set[Expression] = set()
    stack = [(root, False)]
    while stack:
        one, is_done = stack.pop()
        if is_done:
            yield one
        elif one not in seen:
            seen.add(one)
            stack.append((one, True))
            if one not in cut:
                stack.extend((arg, False) for arg in one.args)
