"""Rows that look up an element which is not there: an index of data outside of what it indexes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.subtensor import AdvancedSubtensor, indices_from_subtensor

from pymc_austerity.model.graph.log_density import raw_terms
from pymc_austerity.model.graph.rewrite import INTERPRETED


@contextmanager
def lookups_explained(model: pm.Model) -> Iterator[None]:
    """Within it, an index out of bounds becomes an error that names term, value and row."""
    try:
        yield
    except IndexError:
        try:
            require_lookups(model)
        except ValueError as why:
            raise why from None
        raise


def require_lookups(model: pm.Model) -> None:
    """Raise `ValueError` naming the first row that looks up an element which is not there."""
    for name, term in raw_terms(model, None).items():
        for node in dict.fromkeys(var.owner for var in ancestors([term]) if var.owner is not None):
            if isinstance(node.op, AdvancedSubtensor):
                _require(model, name, node)


def _require(model: pm.Model, term: str, node: Apply) -> None:
    looked_up, *given = node.inputs
    for axis, index in enumerate(indices_from_subtensor(given, node.op.idx_list)):
        size = looked_up.type.shape[axis]
        if (
            not isinstance(index, Variable)
            or index.type.dtype == "bool"
            or size is None
            or not _is_data(index)
        ):
            continue
        values = np.asarray(pytensor.function([], index, mode=INTERPRETED)())
        wrong = np.argwhere((values < -size) | (values >= size))
        if not len(wrong):
            continue
        row = tuple(int(k) for k in wrong[0])
        where = f"row {row[0] if len(row) == 1 else row}"
        more = f" ({len(wrong):,} of {values.size:,} rows)" if len(wrong) > 1 else ""
        raise ValueError(
            f"The index {_name(index)}in {where}{more} of the term {term!r} is {values[row]}, and "
            f"{_looked_up(model, looked_up)} has {size:,} elements (0, ..., {size - 1}). Correct the index, "
            "or the shape of the variable."
        )


def _is_data(index: Variable) -> bool:
    return all(
        isinstance(source, Constant) or hasattr(source, "get_value") for source in graph_inputs([index])
    )


def _name(index: Variable) -> str:
    names = [str(source.name) for source in graph_inputs([index]) if source.name]
    return f"{names[0]!r} " if names else ""


def _looked_up(model: pm.Model, var: Variable) -> str:
    """The variable of the model that elements are looked up of, or is nearest to it."""
    names = {value: str(rv.name) for rv, value in model.rvs_to_values.items()}
    used = ancestors([var])
    if var in names:
        return repr(names[var])
    found = [names[v] for v in used if v in names and v.type.shape[:1] == var.type.shape[:1]]
    found = found or [names[v] for v in used if v in names]
    return f"what is looked up of {found[0]!r}" if found else "what is looked up"
