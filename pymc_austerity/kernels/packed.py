"""Records of many arrays that Python hands to compiled code as one pointer.

Of a record numba looks at every array in every call, which takes longer than many a function: half a
microsecond for each. What is packed has been looked at once. The arrays themselves are shared.

Compiled code has its arrays on loan: Python keeps the `Packed` for as long as a call lasts. So references to
them are not counted, which would be done anew in every function that is handed the record.
"""

# mypy: disable-error-code="no-untyped-call,call-arg,arg-type,var-annotated,misc,no-any-return"

from typing import Any

from numba.core import cgutils, types
from numba.experimental import structref
from numba.extending import intrinsic, overload

from pymc_austerity.compilation import entry


@structref.register
class PackedType(types.StructRef):
    """Numba's type of `Packed`."""


class Packed(structref.StructRefProxy):
    """A record as compiled code has it: `pack` makes one."""


structref.define_boxing(PackedType, Packed)
structref.define_attributes(PackedType)
structref.define_constructor(Packed, PackedType, ["record"])


@entry
def pack(record: Any) -> Any:
    """Pack a record, or a tuple of records."""
    return Packed(record)


def unpacked(record: Any) -> Any:
    """The record of a `Packed`, in compiled code; others as they are."""
    return record


@intrinsic
def _on_loan(typing_context: Any, record: Any) -> Any:
    """A record of arrays without owners: numba counts no references to them."""

    def lend(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if isinstance(kind, types.BaseTuple):
            for k, of_part in enumerate(kind):
                part = lend(context, builder, of_part, builder.extract_value(value, k))
                value = builder.insert_value(value, part, k)
        elif isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, value)
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            value = array._getvalue()
        return value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return lend(context, builder, record, arguments[0])

    return record(record), generate


# numba compares parameters and their annotations with those of the implementation.
@overload(unpacked)
def _unpacked(record):  # type: ignore[no-untyped-def]
    def of_packed(record):  # type: ignore[no-untyped-def]
        return _on_loan(record.record)

    def itself(record):  # type: ignore[no-untyped-def]
        return record

    return of_packed if isinstance(record, PackedType) else itself
