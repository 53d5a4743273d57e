"""Differences of a cumulative sum, as sums.

`pm.LKJCholeskyCov` takes the squared scale of each row of its factor as the difference of two cumulative sums
over all rows. Where a scale is less than 1e-8 of the one before, nothing is left of it, and the log density
is plus infinity instead of a moderate number. The sum of the row's own squares loses nothing.
"""

from __future__ import annotations

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_austerity.model.graph.checks import is_elemwise

# Sums are rows of a matrix of zeros and ones, with this many numbers at most.
_MOST = 10_000


def difference_of_sums(node: Apply, inputs: list[Variable]) -> Variable | None:
    """The sums that a difference of elements of one cumulative sum is; None if it is not that.

    Parameters
    ----------
    node : Apply
    inputs : list of TensorVariable
        In the place of its own.
    """
    if len(inputs) != 2 or not is_elemwise(node.outputs[0], ps.Sub):
        return None
    of_last, of_first = (_elements(x) for x in inputs)
    if of_last is None or of_first is None:
        return None
    (last, source), (first, other) = of_last, of_first
    if source is not other or len(last) != len(first):
        return None
    (n,) = source.type.shape
    if n is None or n * len(last) > _MOST:
        return None
    if any(np.any((k < -n) | (k >= n)) for k in (last, first)) or source.type.dtype != "float64":
        return None
    last, first, places = last % n, first % n, np.arange(n)
    if np.any(last < first):
        return None
    is_summed = (places > first[:, None]) & (places <= last[:, None])
    return pt.switch(pt.constant(is_summed), source, 0.0).sum(axis=-1)


def _elements(x: Variable) -> tuple[np.ndarray, Variable] | None:
    """Numbers of elements of a cumulative sum, and its summands; None if a vector is no such selection."""
    if x.owner is None or not isinstance(x.owner.op, AdvancedSubtensor):
        return None
    summed, *index = x.owner.inputs
    op = getattr(summed.owner, "op", None)
    if not isinstance(op, CumOp) or op.mode != "add" or summed.type.ndim != 1 or len(index) != 1:
        return None
    if not isinstance(index[0], Constant) or index[0].type.ndim != 1 or index[0].type.dtype == "bool":
        return None
    return index[0].data.astype(np.int64), summed.owner.inputs[0]
