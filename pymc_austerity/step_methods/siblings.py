"""Steps that move the same variable side by side: PyMC does not tell a step of the others.

It sets the steps of a `CompoundStep` up one after the other, before any of them moves, with generators that
are spawned from one: by that they are known to each other. The number of a generator among those that were
spawned tells a step from one of an earlier run with the same seed, which was broken off before it moved.
"""

from typing import Any
from weakref import ref

from pytensor.graph.basic import Variable

# Steps that were set up with generators of one parent, and have not moved yet.
_waiting: dict[Any, list[tuple[int, Any]]] = {}


def refuse_shared(step: Any, variables: list[Variable], rng: Any) -> None:
    """Raise `ValueError` if another step that was set up with this one moves one of its variables."""
    seeds = getattr(getattr(rng, "bit_generator", None), "seed_seq", None)
    spawn_key = getattr(seeds, "spawn_key", ())
    if not spawn_key:
        return
    parent = (str(getattr(seeds, "entropy", "")), *spawn_key[:-1])
    number = spawn_key[-1]
    # The first of a compound begins anew.
    others = [
        (n, each) for n, each in _waiting.get(parent, []) if 0 < number != n and each() not in (None, step)
    ]
    _waiting.clear()
    _waiting[parent] = [*others, (number, ref(step))]
    for _, reference in others:
        other = reference()
        shared = [v for v in other.own_vars if v in variables]
        if shared:
            _waiting.clear()
            names = ", ".join(repr(str(step.model.values_to_rvs[v].name)) for v in shared)
            raise ValueError(
                f"{names} would be moved by two steps, {type(other).__name__} and {type(step).__name__}. "
                f"Give each variable to one step: {type(other).__name__}(vars=[...])."
            )


def has_moved() -> None:
    """Forget the steps that wait to move: those that are set up from now on belong to another chain."""
    _waiting.clear()
