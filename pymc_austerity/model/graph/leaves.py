"""Leaves: the parts of a graph that do not depend on parameters, evaluated once.

Data are leaves, and so is whatever is computed from data alone: standardised columns, cumulated sums,
log-factorials of counts. That is why operations that couple rows are allowed on data.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.type import DenseTensorType

from pymc_austerity.model.graph.checks import behind, is_elemwise
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.log_density import LogDensityGraph
from pymc_austerity.model.graph.rewrite import depends_on, rebuild

# Constants up to this size stay in the graph, unless that is long already.
_SMALL_CONSTANT = 1000


@dataclass(frozen=True, eq=False)
class Leaf:
    """A part of the graph without parameters, and the input that stands for it."""

    placeholder: Variable
    source: Variable


def extract_leaves(
    outputs: list[Variable], changing: list[Variable], threshold: int
) -> tuple[list[Leaf], list[Variable]]:
    """Replace the largest subgraphs that do not depend on `changing` by leaves.

    Short constants stay in the graph, where PyTensor can simplify with them. Leaves are arguments of
    the compiled functions: large constants inside would make these too big to cache.
    """
    limit = min(_SMALL_CONSTANT, threshold - 1)
    sources = [var for var in frontier(outputs, changing) if not _stays_in_graph(var, limit)]
    return _replaced(outputs, sources, "leaf")


def extract_given(
    outputs: list[Variable], moving: list[Variable], threshold: int
) -> tuple[list[Leaf], list[Variable]]:
    """Replace the largest subgraphs that do not depend on `moving` and take long vectors to compute.

    They depend on variables that other steps move, so they are computed once for each draw.
    """
    sources = [
        var
        for var in frontier(outputs, moving)
        if var.owner is not None and any(_longest(a) >= threshold for a in ancestors([var]))
    ]
    return _replaced(outputs, sources, "given")


def _longest(var: Variable) -> float:
    """The longest axis of a variable, infinity if one is unknown."""
    shape = getattr(var.type, "shape", ())
    return max((math.inf if k is None else k for k in shape), default=0)


def frontier(outputs: list[Variable], changing: list[Variable]) -> list[Variable]:
    """The largest subgraphs that do not depend on `changing`."""
    varying = depends_on(outputs, changing, by_shape=True)
    found = {out: None for out in outputs if not varying.get(out, False)}
    for node in toposort(outputs):
        if any(varying.get(o, False) for o in node.outputs):
            found.update((var, None) for var in node.inputs if not varying.get(var, False))
    return list(found)


def _replaced(
    outputs: list[Variable], sources: list[Variable], name: str
) -> tuple[list[Leaf], list[Variable]]:
    leaves = [Leaf(var.type(name=f"{name}{k}"), var) for k, var in enumerate(sources)]
    return leaves, rebuild(outputs, {leaf.source: leaf.placeholder for leaf in leaves})


def _stays_in_graph(var: Variable, limit: int) -> bool:
    if not isinstance(var.type, DenseTensorType):  # a sparse matrix
        return True
    shapes = [a.type.shape for a in ancestors([var]) if hasattr(a.type, "shape")]
    return (
        all(isinstance(i, Constant) for i in graph_inputs([var]))
        and not any(None in shape for shape in shapes)
        and all(np.prod(shape, dtype=np.int64) <= limit for shape in shapes)
    )


def leaf_values(graph: LogDensityGraph, leaves: list[Leaf]) -> list[np.ndarray]:
    """Evaluate the leaves. Plain data are not copied."""
    values: dict[Variable, np.ndarray] = {}
    shared = dict(zip(graph.data, graph.data_values(), strict=True))
    computed = []
    for leaf in leaves:
        if isinstance(leaf.source, Constant):
            values[leaf.source] = np.asarray(leaf.source.data)
        elif leaf.source in shared:
            values[leaf.source] = shared[leaf.source]
        else:
            computed.append(leaf.source)
    if computed:
        function = function_of(list(shared), computed)
        values.update(zip(computed, function(*shared.values()), strict=True))
    return [np.asarray(values[leaf.source]) for leaf in leaves]


def with_infinite_apart(outputs: list[Variable], leaves: Mapping[Variable, np.ndarray]) -> list[Variable]:
    """Rewrite sums with data that are infinite in some rows, as the logarithm of an exposure of zero.

    Such rows are a case of their own, in which nothing moves: ``o + X @ b`` is o where o is infinite. Else
    they would have predictors that are infinite, and remainders of infinity minus infinity.
    """

    @cache
    def infinities(leaf: Variable) -> tuple[float, ...]:
        """Which of the two are among the numbers of a leaf."""
        value = leaves.get(leaf)
        if value is None or value.dtype.kind != "f" or not value.size:
            return ()
        return tuple(end for end in (float(value.min()), float(value.max())) if np.isinf(end))

    memo: dict[Variable, Variable] = {}
    for node in toposort(outputs):
        inputs = [memo.get(var, var) for var in node.inputs]
        is_sum = is_elemwise(node.outputs[0], ps.Add, ps.Sub)
        found = [infinities(behind(v, DimShuffle, AdvancedSubtensor)) for v in inputs] if is_sum else []
        if any(found):
            finite = [
                pt.switch(pt.isinf(x), 0.0, x) if at else x for x, at in zip(inputs, found, strict=True)
            ]
            result = node.op(*finite)
            for place, (x, at) in enumerate(zip(inputs, found, strict=True)):
                sign = -1.0 if place and is_elemwise(node.outputs[0], ps.Sub) else 1.0
                for infinity in dict.fromkeys(at):
                    result = pt.switch(pt.eq(x, infinity), sign * infinity, result)
            memo[node.outputs[0]] = result
        elif inputs != node.inputs:
            memo.update(zip(node.outputs, node.clone_with_new_inputs(inputs).outputs, strict=True))
    return [memo.get(out, out) for out in outputs]
