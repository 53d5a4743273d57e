"""Rows of a term in which a part of its graph is used.

Rows of vectors that were joined, or written over, are a choice by row number between parts, each of which is
computed for all rows. A row contains what its own part contains, and nothing of the others.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytensor.scalar as ps
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort

from pymc_austerity.model.graph.checks import is_elemwise
from pymc_austerity.model.graph.rewrite import depends_on


def used_rows(rows: Variable, values: Iterable[Variable]) -> dict[Variable, Variable | None]:
    """The rows that use each variable of a graph.

    Parameters
    ----------
    rows : TensorVariable
    values : iterable of TensorVariable
        What changes while sampling: a choice that depends on these counts for all rows.

    Returns
    -------
    dict of Variable to TensorVariable or None
        A vector of bools, True where a row uses it; None for all rows.
    """
    moves = depends_on([rows], values)
    used: dict[Variable, Variable | None] = {rows: None}
    for node in reversed(list(toposort([rows]))):
        ways = [used[out] for out in node.outputs if out in used]
        if not ways:
            continue
        here = _either(ways)
        chosen = _by_row(node.inputs[0], moves) if is_elemwise(node.outputs[0], ps.Switch) else None
        for k, var in enumerate(node.inputs):
            way = here if chosen is None or k == 0 else _both(here, chosen if k == 1 else ~chosen)
            used[var] = _either([used[var], way]) if var in used else way
    return used


def _by_row(condition: Variable, moves: dict[Variable, bool]) -> Variable | None:
    """A condition if it is one number for each row, and always the same."""
    is_fixed = not moves.get(condition, False) and condition.type.shape == (None,)
    return condition.astype("bool") if is_fixed else None


def _either(ways: list[Variable | None]) -> Variable | None:
    result, *others = ways
    for way in others:
        result = None if result is None or way is None else result | way
    return result


def _both(first: Variable | None, second: Variable) -> Variable:
    return second if first is None else first & second
