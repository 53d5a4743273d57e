"""Records of many arrays that Python hands to compiled code as one pointer.

Of a record numba looks at every array in every call, which takes longer than many a function: half a
microsecond for each. What is packed has been looked at once. The arrays themselves are shared.
"""

# mypy: disable-error-code="no-untyped-call,misc,no-any-return"

from typing import Any

from numba.core import types
from numba.experimental import structref
from numba.extending import overload

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


# numba compares parameters and their annotations with those of the implementation.
@overload(unpacked)
def _unpacked(record):  # type: ignore[no-untyped-def]
    def of_packed(record):  # type: ignore[no-untyped-def]
        return record.record

    def itself(record):  # type: ignore[no-untyped-def]
        return record

    return of_packed if isinstance(record, PackedType) else itself
