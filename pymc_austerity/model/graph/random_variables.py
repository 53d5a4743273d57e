"""Graphs of random variables of a model, in the value variables of a log density."""

from collections.abc import Callable, Iterable

import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, graph_inputs

from pymc_austerity.model.graph.log_density import LogDensityGraph
from pymc_austerity.model.graph.rewrite import rebuild


def in_values(
    model: pm.Model,
    graph: LogDensityGraph,
    graphs: Iterable[Variable],
    prepared: Callable[[list[Variable]], list[Variable]] = list,
) -> list[Variable]:
    """Graphs of random variables of a model, as functions of the variables and data of its log density.

    `prepared` rewrites them before.
    """
    found = prepared(model.replace_rvs_by_values(list(graphs)))
    memo: dict[Variable, Variable] = {
        var: graph.values[var.name] for var in model.value_vars if var.name in graph.values
    }
    typed = {shared: var for var, shared in graph.data.items()}
    for shared in graph_inputs(found):
        if isinstance(shared, SharedVariable):
            known = typed.get(shared)
            memo[shared] = pt.constant(shared.get_value(borrow=True)) if known is None else known
    return rebuild(found, memo)


def with_constants(graph: LogDensityGraph, graphs: Iterable[Variable]) -> list[Variable]:
    """Graphs with the present values of data in the place of the data that they contain."""
    graphs = list(graphs)
    used = set(ancestors(graphs))
    known = {var: shared for var, shared in graph.data.items() if var in used}
    return rebuild(graphs, {var: pt.constant(shared.get_value(borrow=True)) for var, shared in known.items()})
