"""Offsets that are infinite in some rows, as the logarithm of an exposure of zero.

Such rows are a case of their own, in which nothing moves: ``o + X @ b`` is o where o is infinite. Else they
would have predictors that are infinite, and remainders of infinity minus infinity.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_austerity.model.graph.checks import is_elemwise


def with_infinite_apart(outputs: list[Variable], leaves: Mapping[Variable, np.ndarray]) -> list[Variable]:
    """Rewrite sums with data that are infinite in some rows as a choice by these data.

    Parameters
    ----------
    outputs : list of TensorVariable
    leaves : dict of TensorVariable to ndarray
        Data of the graphs.
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
        found = [infinities(_source(var)) for var in inputs] if is_sum else []
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


def _source(var: Variable) -> Variable:
    """The variable that another one is a selection from, in another shape perhaps."""
    while var.owner is not None and isinstance(var.owner.op, DimShuffle | AdvancedSubtensor):
        var = var.owner.inputs[0]
    return var
