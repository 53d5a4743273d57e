"""Selections of numbers from arrays of expressions, by places that are constants or data."""

from functools import partial
from typing import Any, cast

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import ARange
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import Expression, constant
from pymc_austerity.model.structure.scalar_rules import NoForm
from pymc_austerity.model.structure.tensor_rules import Arrays, elementwise, tensor_rule

# Places by which a row may choose one, at most.
_MOST_CHOICES = 64


@tensor_rule.register(Subtensor)
@tensor_rule.register(AdvancedSubtensor)
def _elements_of_selection(op: Any, node: Apply, args: Arrays) -> np.ndarray:
    x, *rest = args
    entries = _entries(node, node.inputs[0], node.inputs[1:], rest)
    return _selected(x, entries, type(op).__name__)


@tensor_rule.register(IncSubtensor)
@tensor_rule.register(AdvancedIncSubtensor)
def _elements_of_assignment(op: Any, node: Apply, args: Arrays) -> np.ndarray:
    x, y, *rest = args
    entries = _entries(node, node.inputs[0], node.inputs[2:], rest)
    name = type(op).__name__
    if any(_is_array(entry) and _data_places(entry) for entry in entries):
        raise NoForm(name)
    where = tuple(_numbers(entry) for entry in entries)
    cells = np.arange(x.size).reshape(x.shape)[where]
    result, wide = x.copy().reshape(-1), np.broadcast_to(y, np.shape(cells))
    for place in np.ndindex(wide.shape):
        cell = np.asarray(cells)[place]
        result[cell] = wide[place] if op.set_instead_of_inc else forms.add(result[cell], wide[place])
    return result.reshape(x.shape)


def is_every_row(var: Variable) -> bool:
    """Are these the places 0, 1, ..., of which there are as many as rows?"""
    node = var.owner
    if node is None or not isinstance(node.op, ARange) or var.type.shape != (None,):
        return False
    start, _, step = node.inputs
    ends = [int(one.data) if isinstance(one, Constant) else None for one in (start, step)]
    return ends == [0, 1]


def _entries(node: Apply, x: Variable, variables: list[Variable], arrays: Arrays) -> list[Any]:
    """Slices, and arrays of expressions, one for each axis of `x`."""
    place = dict(zip(variables, arrays, strict=True))
    result: list[Any] = []
    for axis, entry in enumerate(indices_from_subtensor(variables, node.op.idx_list)):
        is_rows = x.type.shape[axis] is None
        if isinstance(entry, slice):
            ends = [_end(one, place) for one in (entry.start, entry.stop, entry.step)]
            whole = ends in ([None, None, None], [0, None, None], [0, None, 1], [None, None, 1])
            if is_rows and not whole:
                raise NoForm(type(node.op).__name__)
            result.append(slice(None) if is_rows else slice(*ends))
        elif entry.type.dtype == "bool":
            raise NoForm(type(node.op).__name__)
        elif is_rows:
            if not is_every_row(entry):
                raise NoForm(type(node.op).__name__)
            result.append(np.full(1, constant(0.0), dtype=object))
        else:
            result.append(_counted(place[entry], x.type.shape[axis]))
    return result


def _end(one: Any, place: dict[Variable, np.ndarray]) -> int | None:
    if one is None or isinstance(one, int):
        return one
    if isinstance(one, Constant):
        return None if one.data is None else int(one.data)
    found = place[one].item()
    if found.op != "constant":
        raise NoForm("Subtensor")
    return int(found.value)


def _counted(entry: np.ndarray, length: int) -> np.ndarray:
    """Places counted from the front. Data that may be negative mean both."""

    def from_front(one: Expression) -> Expression:
        if one.op == "constant" and (place := cast(float, one.value)) < 0:
            return constant(place + length)
        return one

    return elementwise(from_front, entry)


def _is_array(entry: Any) -> bool:
    return isinstance(entry, np.ndarray)


def _data_places(entry: np.ndarray) -> bool:
    return any(one.op != "constant" for one in entry.ravel())


def _numbers(entry: Any) -> Any:
    if not _is_array(entry):
        return entry
    return np.array([int(one.value) for one in entry.ravel()], dtype=np.int64).reshape(entry.shape)


def _selected(x: np.ndarray, entries: list[Any], name: str) -> np.ndarray:
    """A selection; where places are data, a choice of selections by what they are."""
    by_data = [k for k, entry in enumerate(entries) if _is_array(entry) and _data_places(entry)]
    if not by_data:
        return np.asarray(x[tuple(_numbers(entry) for entry in entries)], dtype=object)
    axis = by_data[0]
    chosen, length = entries[axis], x.shape[axis]
    if any(one.moves for one in chosen.ravel()):
        raise NoForm(name)
    places = _possible(chosen, length)
    if len(places) > _MOST_CHOICES:
        raise NoForm(name)
    wide = _widened(x, entries, axis)
    result: np.ndarray | None = None
    for place in places:
        fixed = np.full(chosen.shape, constant(place), dtype=object)
        own = _selected(x, [*entries[:axis], fixed, *entries[axis + 1 :]], name)
        if result is not None:
            is_here = elementwise(partial(_is_at, place=place, length=length), wide)
            own = elementwise(forms.select, is_here, own, result)
        result = own
    if result is None:
        raise NoForm(name)
    return result


def _possible(chosen: np.ndarray, length: int) -> list[int]:
    """Places that some row may choose."""
    low = min(max(one.range.low, -length) for one in chosen.ravel())
    high = max(min(one.range.high, length - 1) for one in chosen.ravel())
    return sorted({k % length for k in range(int(low), int(high) + 1)})


def _is_at(one: Expression, place: int, length: int) -> Expression:
    """Whether a number is a place, counted from the front or from the end."""
    here = forms.equal(one, constant(place))
    return forms.either(here, forms.equal(one, constant(place - length))) if one.range.low < 0 else here


def _widened(x: np.ndarray, entries: list[Any], axis: int) -> np.ndarray:
    """Places along `axis` as an array of the shape of the result."""
    arrays = np.broadcast_arrays(*(entry for entry in entries if _is_array(entry)))
    own = np.broadcast_to(entries[axis], arrays[0].shape)
    shape = list(x.shape)
    shape[axis] = own.size
    along = np.arange(own.size).reshape([-1 if k == axis else 1 for k in range(x.ndim)])
    numbers = np.arange(own.size).reshape(own.shape)
    places = [numbers if k == axis else _zeros(entry) for k, entry in enumerate(entries)]
    return own.reshape(-1)[np.broadcast_to(along, shape)[tuple(places)]]


def _zeros(entry: Any) -> Any:
    return np.zeros(entry.shape, dtype=np.int64) if _is_array(entry) else entry
