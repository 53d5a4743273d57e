"""How arrays become machine code: numbers, rows and slices in fewer instructions.

numba copies the record of an array to the stack, and reads all of it, for each number that is read or written
and each reference that is counted. LLVM takes that out again, in most of the time that it needs. What is
written here is what is left then; where an index is something else, numba's own code is.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return,import-untyped,method-assign"

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed
from numba.core.registry import cpu_target
from numba.core.runtime.context import NRTContext
from numba.np import arrayobj

from pymc_austerity.packed import DATA, MEMINFO, PARENT, SHAPE, STRIDES, array_value

_NUMBERS = (types.Integer, types.Float, types.Boolean)
_WORD = ir.IntType(64)


def _from_front(builder: Any, index: Any, size: Any) -> Any:
    """An index counted from the front."""
    is_negative = builder.icmp_signed("<", index, index.type(0))
    return builder.select(is_negative, builder.add(index, size), index)


def _lengths(builder: Any, array: Any, which: int, n: int) -> list[Any]:
    return [builder.extract_value(array, [which, k]) for k in range(n)]


def _address(context: Any, builder: Any, kind: Any, array: Any, index_types: Any, indices: Any) -> Any:
    """The address of a number, or of the row that begins with it."""
    n, given = kind.ndim, len(indices)
    shape = _lengths(builder, array, SHAPE, n)
    own = []
    for k in range(given):
        index = context.cast(builder, indices[k], index_types[k], types.intp)
        own.append(_from_front(builder, index, shape[k]) if index_types[k].signed else index)
    data = builder.extract_value(array, DATA)
    if kind.layout == "C":
        place = own[0]
        for k in range(1, n):
            place = builder.mul(place, shape[k])
            place = builder.add(place, own[k]) if k < given else place
        return builder.gep(data, [place])
    strides = _lengths(builder, array, STRIDES, given)
    offset = builder.mul(own[0], strides[0])
    for k in range(1, given):
        offset = builder.add(offset, builder.mul(own[k], strides[k]))
    return cgutils.pointer_add(builder, data, offset)


def _indices(builder: Any, kind: Any, index: Any) -> tuple[Any, Any]:
    if isinstance(kind, types.BaseTuple):
        own: Any = kind
        return own.types, cgutils.unpack_tuple(builder, index, count=len(kind))
    return (kind,), (index,)


def _is_simple(context: Any, kind: Any, index_types: Any) -> bool:
    """Are these whole numbers, of an array of numbers?"""
    return (
        isinstance(kind.dtype, _NUMBERS)
        and not context.enable_boundscheck
        and 0 < len(index_types) <= kind.ndim
        and all(isinstance(one, types.Integer) for one in index_types)
    )


def _get(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Numbers, rows and slices."""
    (kind, of_index), (array, index) = signature.args, arguments
    index_types, indices = _indices(builder, of_index, index)
    n, given, result = kind.ndim, len(indices), signature.return_type
    if _is_simple(context, kind, index_types):
        address = _address(context, builder, kind, array, index_types, indices)
        if given == n:
            return arrayobj.load_item(context, builder, kind, address)
        shape, strides = (_lengths(builder, array, which, n)[given:] for which in (SHAPE, STRIDES))
        view = array_value(context, builder, result, address, shape, strides, _owner(builder, array))
        return impl_ret_borrowed(context, builder, result, view)
    if n == 1 and _is_slice(of_index):
        address, shape, strides = _slice(builder, kind, array, index)
        view = array_value(context, builder, result, address, shape, strides, _owner(builder, array))
        return impl_ret_borrowed(context, builder, result, view)
    is_tuple = isinstance(of_index, types.BaseTuple)
    by_numba = arrayobj.getitem_array_tuple if is_tuple else arrayobj.getitem_arraynd_intp
    return by_numba(context, builder, signature, arguments)


def _owner(builder: Any, array: Any) -> tuple[Any, Any]:
    return builder.extract_value(array, MEMINFO), builder.extract_value(array, PARENT)


def _is_slice(kind: Any) -> bool:
    return isinstance(kind, types.SliceType) and not kind.has_step


def _slice(builder: Any, kind: Any, array: Any, index: Any) -> tuple[Any, list[Any], list[Any]]:
    """Consecutive numbers of a vector: where they begin, how many there are, and how far apart."""
    size, stride = (builder.extract_value(array, [which, 0]) for which in (SHAPE, STRIDES))
    zero, ends = _WORD(0), []
    for k in range(2):
        end = _from_front(builder, builder.extract_value(index, k), size)
        end = builder.select(builder.icmp_signed("<", end, zero), zero, end)
        ends.append(builder.select(builder.icmp_signed(">", end, size), size, end))
    start, stop = ends
    length = builder.sub(stop, start)
    length = builder.select(builder.icmp_signed("<", length, zero), zero, length)
    data = builder.extract_value(array, DATA)
    if kind.layout == "C":
        return builder.gep(data, [start]), [length], [stride]
    return cgutils.pointer_add(builder, data, builder.mul(start, stride)), [length], [stride]


def _set(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """A number in the place of another, or numbers in the places of a row or slice."""
    (kind, of_index, of_value), (array, index, value) = signature.args, arguments
    index_types, indices = _indices(builder, of_index, index)
    left = kind.ndim - len(indices)
    if left == 0 and isinstance(of_value, _NUMBERS) and _is_simple(context, kind, index_types):
        address = _address(context, builder, kind, array, index_types, indices)
        one = context.cast(builder, value, of_value, kind.dtype)
        return arrayobj.store_item(context, builder, kind, one, address)
    if kind.layout != "C" or not _is_from(kind, of_value):
        return arrayobj.setitem_array(context, builder, signature, arguments)
    if left == 1 and _is_simple(context, kind, index_types):
        address = _address(context, builder, kind, array, index_types, indices)
        length = builder.extract_value(array, [SHAPE, kind.ndim - 1])
    elif kind.ndim == 1 and _is_slice(of_index) and isinstance(kind.dtype, _NUMBERS):
        address, (length,), _ = _slice(builder, kind, array, index)
    else:
        return arrayobj.setitem_array(context, builder, signature, arguments)
    if isinstance(of_value, _NUMBERS):
        one = context.cast(builder, value, of_value, kind.dtype)
        return _fill(context, builder, kind, address, length, one)
    _move(context, builder, kind, address, length, value)
    return None


def _is_from(kind: Any, of_value: Any) -> bool:
    """Are consecutive numbers written from one number, or from as many of the same type?"""
    if isinstance(of_value, _NUMBERS):
        return True
    is_vector = type(of_value) is types.Array and of_value.ndim == 1 and of_value.layout == "C"
    return is_vector and of_value.dtype == kind.dtype


def _fill(context: Any, builder: Any, kind: Any, address: Any, length: Any, one: Any) -> None:
    with cgutils.for_range(builder, length) as loop:
        arrayobj.store_item(context, builder, kind, one, builder.gep(address, [loop.index]))


def _move(context: Any, builder: Any, kind: Any, address: Any, length: Any, source: Any) -> None:
    """Copy a vector; one number is written to all places."""
    given, data = builder.extract_value(source, [SHAPE, 0]), builder.extract_value(source, DATA)
    with builder.if_else(builder.icmp_signed("==", given, length)) as (is_equal, is_other):
        with is_equal:
            size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
            cgutils.raw_memmove(builder, address, data, length, size)
        with is_other:
            with builder.if_then(builder.icmp_signed("!=", given, _WORD(1)), likely=False):
                message = "An array cannot be written to a place of another length."
                context.call_conv.return_user_exc(builder, ValueError, (message,))
            _fill(context, builder, kind, address, length, arrayobj.load_item(context, builder, kind, data))


def _shape(context: Any, builder: Any, kind: Any, array: Any, name: str) -> Any:
    return builder.extract_value(array, SHAPE)


_OF_INDEX = (types.Integer, types.BaseTuple, types.SliceType)
_VERSIONS: dict[Any, dict[Any, Any]] = {
    operator.getitem: {(types.Array, kind): _get for kind in _OF_INDEX},
    operator.setitem: {(types.Array, kind, types.Any): _set for kind in _OF_INDEX},
}
_ATTRIBUTES: dict[str, dict[Any, Any]] = {"shape": {(types.Array,): _shape}}
_counted = NRTContext.get_meminfos


def _owners(self: Any, builder: Any, kind: Any, value: Any) -> Any:
    """What has a count of references within a value: of an array, its first field."""
    if type(kind) is types.Array and isinstance(kind.dtype, _NUMBERS):
        return [(kind, builder.extract_value(value, MEMINFO))]
    return _counted(self, builder, kind, value)


@contextmanager
def short() -> Iterator[None]:
    """Within this context numba's code for arrays is that of this module."""
    context: Any = cpu_target.target_context
    changes = [(context._defns[one], versions) for one, versions in _VERSIONS.items()]
    changes += [(context._getattrs[one], versions) for one, versions in _ATTRIBUTES.items()]
    displaced = [
        (selector, [one for one in selector.versions if one[0] in versions]) for selector, versions in changes
    ]
    added = [(selector, list(versions.items())) for selector, versions in changes]
    _exchange(displaced, added)
    NRTContext.get_meminfos = _owners
    try:
        yield
    finally:
        NRTContext.get_meminfos = _counted
        _exchange(added, displaced)  # others that numba has loaded within stay


def _exchange(old: list[Any], new: list[Any]) -> None:
    """Put versions of numba's functions in the place of others."""
    for (selector, going), (_, coming) in zip(old, new, strict=True):
        selector.versions[:] = [one for one in selector.versions if one not in going] + coming
        selector._cache.clear()
