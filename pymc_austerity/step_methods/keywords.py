"""Which keywords a step takes; others are refused by name."""

import inspect
from collections.abc import Iterable
from typing import Any, Unpack, get_args, get_origin, get_type_hints

from pymc_austerity.validation import nearest

_PACKAGE = __name__.partition(".")[0]


def keywords_of(step: type) -> list[str]:
    """Names of the keywords of a step: those of `__init__`, and those that it hands on."""
    names: dict[str, None] = {}
    for owner in step.__mro__:
        init: Any = vars(owner).get("__init__")
        if init is None:
            continue
        parameters = list(inspect.signature(init).parameters.values())[1:]
        others = [p.name for p in parameters if p.kind is p.VAR_KEYWORD]
        names |= dict.fromkeys(
            p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
        )
        if not others:
            break
        # Annotations of a class of somebody else may not be known: what it hands on are those of its base.
        hint = get_type_hints(init).get(others[0]) if owner.__module__.startswith(_PACKAGE) else None
        if get_origin(hint) is Unpack:
            names |= dict.fromkeys(get_type_hints(get_args(hint)[0]))
            break
    return list(names)


def refuse_unknown(step: type, given: Iterable[str]) -> None:
    """Raise `TypeError` naming the first keyword that a step does not have, and the nearest that it has."""
    known = keywords_of(step)
    for name in given:
        if name not in known:
            raise TypeError(
                f"{step.__name__} has no option {name!r}.{nearest(name, known)} Its options: "
                f"{', '.join(known)}."
            )
