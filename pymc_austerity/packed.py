"""Records of many arrays that Python hands to compiled code as one pointer.

To numba a NamedTuple is the numbers of all its arrays: each function that is handed one takes hundreds of
arguments, and most of the time to compile it is spent on these. In place of a record, compiled code has the
address of a *table*: of each array the address and the shape, of each number the number, and the fields of
records within one after the other. What a function needs is read where it says ``record.field``.

Tables do not change, which the machine code relies on. The arrays are on loan: Python keeps `Packed`, and
with it the record, for as long as a call lasts, and references to them are not counted.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return,untyped-decorator,override,import-untyped"

import hashlib
import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import (
    AbstractTemplate,
    AttributeTemplate,
    Signature,
    infer_getattr,
    infer_global,
    signature,
)
from numba.extending import NativeValue, intrinsic, lower_builtin, models, register_model, typeof_impl, unbox
from numba.np.numpy_support import from_dtype

_WORD = ir.IntType(64)
_NUMBERS = (
    ((bool, np.bool_), types.boolean), ((int, np.integer), types.int64), ((float, np.floating), types.float64)
)  # fmt: skip


class RecordType(types.Type):
    """Numba's type of a record in a table: the type of each field, and where in the table it begins.

    A tuple is a record whose fields have numbers.
    """

    def __init__(self, name: str, fields: dict[Any, tuple[types.Type, int]], size: int) -> None:
        self.fields, self.size = fields, size
        layout = hashlib.blake2b(repr(fields).encode(), digest_size=8).hexdigest()
        super().__init__(f"{name}_{layout}")


class Packed:
    """A record as compiled code has it.

    Parameters
    ----------
    record : NamedTuple
        Of numbers, C-contiguous arrays, None, and records and tuples of records of these.
    kept : optional
        What the record has addresses of, which lives as long.
    """

    def __init__(self, record: Any, kept: Any = None) -> None:
        words: list[Any] = []
        kinds: list[Any] = []
        _add_fields(record, words, kinds)
        key = tuple(kinds)
        if key not in _TYPES:
            _TYPES[key] = _type_of(record)
        self._record, self._kept, self._table = record, kept, np.array(words, dtype=np.uint64)
        self.address, self.kind = self._table.ctypes.data, _TYPES[key]

    def __getattr__(self, name: str) -> Any:
        """A field, for a kernel that runs interpreted."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._record, name)


# The types of records, by their classes and the kinds of all their fields, in order.
_TYPES: dict[Any, RecordType] = {}


def kind_of(record: Any) -> RecordType:
    """The type of a record in compiled code."""
    return Packed(record).kind


def packed(*arguments: Any) -> list[Any]:
    """Arguments of a compiled function, with records packed."""
    return [Packed(one) if hasattr(one, "_fields") else one for one in arguments]


def _add_fields(record: Any, words: list[Any], kinds: list[Any]) -> None:
    """Add the words of a record, and what its type is made of."""
    kinds.append(type(record))
    for value in record:
        if isinstance(value, np.ndarray):
            if not value.flags.c_contiguous:
                name = next(name for name, one in zip(_names(record), record, strict=True) if one is value)
                raise ValueError(f"{name} of {type(record).__name__} is not C-contiguous.")
            words.append(value.ctypes.data)
            words += value.shape
            kinds.append((value.dtype, value.ndim))
        elif isinstance(value, tuple):
            _add_fields(value, words, kinds)
        elif value is None:
            kinds.append(None)
        else:
            words.append(_word(value))
            kinds.append(type(value))


def _word(value: Any) -> Any:
    """A number in 64 bits."""
    if isinstance(value, float | np.floating):
        return np.float64(value).view(np.uint64)
    if isinstance(value, int | np.integer | np.bool_):
        return int(value) % 2**64
    raise TypeError(f"A record with a {type(value).__name__} cannot be packed.")


def _names(record: Any) -> Any:
    return getattr(record, "_fields", range(len(record)))


def _type_of(record: Any) -> RecordType:
    """The type of a record."""
    fields: dict[Any, tuple[Any, int]] = {}
    place = 0
    for name, value in zip(_names(record), record, strict=True):
        kind, size = _field_of(value)
        fields[name] = kind, place
        place += size
    return RecordType(type(record).__name__, fields, place)


def _field_of(value: Any) -> tuple[Any, int]:
    """The type of a field, and its words."""
    if isinstance(value, np.ndarray):
        return types.Array(from_dtype(value.dtype), value.ndim, "C"), 1 + value.ndim
    if isinstance(value, tuple):
        kind = _type_of(value)
        return kind, kind.size
    if value is None:
        return types.none, 0
    return next(of for kinds, of in _NUMBERS if isinstance(value, kinds)), 1


@typeof_impl.register(Packed)
def _typeof(value: Packed, context: Any) -> RecordType:
    return value.kind


@register_model(RecordType)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: RecordType) -> None:
        super().__init__(manager, kind, _WORD.as_pointer())


@unbox(RecordType)
def _unbox(kind: RecordType, value: Any, c: Any) -> NativeValue:
    number = c.pyapi.object_getattr_string(value, "address")
    address = c.pyapi.long_as_ulonglong(number)
    c.pyapi.decref(number)
    return NativeValue(c.builder.inttoptr(address, _WORD.as_pointer()))


@infer_getattr
class _Fields(AttributeTemplate):
    key = RecordType

    def generic_resolve(self, record: RecordType, name: str) -> types.Type | None:
        return record.fields[name][0] if name in record.fields else None


@lower_getattr_generic(RecordType)
def _field(context: Any, builder: Any, record: RecordType, table: Any, name: str) -> Any:
    kind, place = record.fields[name]
    if isinstance(kind, RecordType):
        return builder.gep(table, [context.get_constant(types.intp, place)])
    if isinstance(kind, types.Array):
        return array_of_table(context, builder, kind, table, place)
    if kind == types.none:
        return context.get_dummy_value()
    word = word_of_table(context, builder, table, place)
    if kind == types.float64:
        return builder.bitcast(word, ir.DoubleType())
    return builder.icmp_unsigned("!=", word, word.type(0)) if kind == types.boolean else word


@infer_global(operator.getitem)
class _Items(AbstractTemplate):
    def generic(self, arguments: Any, names: Any) -> Any:
        record, index = arguments
        if isinstance(record, RecordType) and isinstance(index, types.Integer):
            kinds = {kind for kind, _ in record.fields.values()}
            if len(kinds) == 1 and isinstance(record.fields.get(0, (None,))[0], RecordType):
                return signature(kinds.pop(), record, index)
        return None


@lower_builtin(operator.getitem, RecordType, types.Integer)
def _item(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """One of several records of the same type."""
    table, index = arguments
    number = context.cast(builder, index, signature.args[1], types.intp)
    return builder.gep(table, [builder.mul(number, _WORD(signature.return_type.size))])


def record_at(kind: RecordType) -> Any:
    """A function of compiled code: the record of a type whose table is at an address."""

    @intrinsic
    def at(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.inttoptr(values[0], _WORD.as_pointer())

        return kind(types.int64), generate

    return at


# Types of numbers that `number_at` reads, in the order of their codes.
NUMBERS = {
    "float64": types.float64, "float32": types.float32, "int64": types.int64, "int32": types.int32,
    "int8": types.int8, "uint8": types.uint8, "bool": types.uint8,
}  # fmt: skip


@intrinsic
def _number_at(typing_context: Any, address: Any, code: Any) -> Any:
    """The number at an address, whose type has a code, in double precision."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place, number = values
        result = cgutils.alloca_once(builder, ir.DoubleType())
        end = builder.append_basic_block("read")
        switch = builder.switch(number, end)
        for code, kind in enumerate(NUMBERS.values()):
            block = builder.append_basic_block(f"read_{kind}_{code}")
            switch.add_case(_WORD(code), block)
            with builder.goto_block(block):
                of = context.get_data_type(kind)
                value = builder.load(builder.inttoptr(place, of.as_pointer()))
                builder.store(context.cast(builder, value, kind, types.float64), result)
                builder.branch(end)
        builder.position_at_end(end)
        return builder.load(result)

    return types.float64(types.int64, types.int64), generate


number_at: Any = _number_at


def caller(of: Signature) -> Any:
    """A function of compiled code, ``(address, arguments)``, that calls machine code of a signature.

    What many kernels call is compiled once so, and not again within each of them.
    """

    @intrinsic
    def call(typing_context: Any, address: Any, arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            parts = zip(cgutils.unpack_tuple(builder, values[1]), arguments.types, of.args, strict=True)
            own = [context.cast(builder, value, given, kind) for value, given, kind in parts]
            return call_at(context, builder, values[0], of.return_type, of.args, own)

        return of.return_type(types.int64, arguments), generate

    return call


def call_at(
    context: Any, builder: Any, address: Any, result: Any, kinds: tuple[Any, ...], values: list[Any]
) -> Any:
    """Call a function of these types, that numba has made machine code of, at an address."""
    kind = context.call_conv.get_function_type(result, kinds).as_pointer()
    function = builder.inttoptr(address, kind)
    status, value = context.call_conv.call_function(builder, function, result, kinds, values)
    with cgutils.if_unlikely(builder, status.is_error):
        context.call_conv.return_status_propagate(builder, status)
    return value


def address_of(function: Any, of: Signature) -> int:
    """The address of the machine code of a compiled function, which is made if need be; 0 if interpreted."""
    if not hasattr(function, "overloads"):
        return 0
    if of.args not in function.overloads:
        function.compile(of)
    compiled = function.overloads[of.args]
    address: int = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    if address == 0:
        raise RuntimeError(f"numba has made no machine code of {function.__name__!r}.")
    return address


def word_of_table(context: Any, builder: Any, table: Any, place: int) -> Any:
    """A number of a table, which is the same for as long as the code runs."""
    word = builder.load(builder.gep(table, [context.get_constant(types.intp, place)]))
    word.set_metadata("invariant.load", builder.module.add_metadata([]))
    return word


def array_of_table(context: Any, builder: Any, kind: types.Array, table: Any, place: int) -> Any:
    """The array whose address and shape are at a place of a table. It is the caller's; nothing is counted."""
    first, *shape = (word_of_table(context, builder, table, place + k) for k in range(1 + kind.ndim))
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides = [_WORD(size)] * kind.ndim
    for k in range(kind.ndim - 1, 0, -1):
        strides[k - 1] = builder.mul(strides[k], shape[k])
    address = builder.inttoptr(first, context.get_data_type(kind.dtype).as_pointer())
    return array_value(context, builder, kind, address, shape, strides)


# Where compiled code has the parts of an array.
MEMINFO, PARENT, N_ITEMS, ITEM_SIZE, DATA, SHAPE, STRIDES = range(7)


def array_value(
    context: Any,
    builder: Any,
    kind: types.Array,
    data: Any,
    shape: list[Any],
    strides: list[Any],
    owner: tuple[Any, Any] | None = None,
) -> Any:
    """The record of an array at an address; `owner` are its two fields of that, by default none."""
    record = context.get_value_type(kind)
    item_size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    n_items = _WORD(1)
    for one in shape:
        n_items = builder.mul(n_items, one)
    if owner is None:
        owner = tuple(ir.Constant(record.elements[k], None) for k in (MEMINFO, PARENT))
    fields: list[Any] = [*zip((MEMINFO, PARENT), owner, strict=True)]
    fields += [(N_ITEMS, n_items), (ITEM_SIZE, _WORD(item_size)), (DATA, data)]
    fields += [([SHAPE, k], one) for k, one in enumerate(shape)]
    fields += [([STRIDES, k], one) for k, one in enumerate(strides)]
    result = ir.Constant(record, ir.Undefined)
    for where, value in fields:
        result = builder.insert_value(result, value, where)
    return result
