"""Data that a row reads: copied from where they are stored, if a variable is just that, or else computed."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pytensor.scalar as ps
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_austerity.compilation import entry
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import INTERPRETED, Compiled
from pymc_austerity.target import Index


class DataOfRows(Compiled):
    """Variables that do not depend on the block, for some rows of a term.

    Parameters
    ----------
    fact : Factorisation
    term : LocalTerm
    variables : sequence of TensorVariable

    Attributes
    ----------
    stored : dict of TensorVariable to ndarray
        Arrays whose rows, or numbers that, some of the variables are.
    """

    def __init__(self, fact: Factorisation, term: LocalTerm, variables: Sequence[Variable]) -> None:
        self._fact, self._term = fact, term
        self._arrays = dict(zip((leaf.placeholder for leaf in fact.leaves), fact.leaf_values, strict=True))
        found = {var: self._array(var) for var in variables}
        self.stored = {var: array for var, array in found.items() if array is not None}
        self._computed = [var for var, array in found.items() if array is None]

    def __call__(self, positions: Index) -> dict[Variable, npt.NDArray[Any]]:
        """Each variable at some positions. Those that are stored may be of another type, and are views."""
        which = neighbours(positions)
        values = {var: array[which] if array.ndim else array for var, array in self.stored.items()}
        if self._computed:
            fact = self._fact
            point = fact.point_values(fact.graph.point)
            with np.errstate(all="ignore"):
                found = self._function(*point, positions, *fact.leaf_values)
            values.update(zip(self._computed, found, strict=True))
        return values

    def _array(self, var: Variable) -> npt.NDArray[Any] | None:
        """The array of which a variable is the rows, or a number; None if it is something else."""
        if isinstance(var, Constant):
            return np.asarray(var.data).reshape(()) if np.size(var.data) == 1 else None
        leaf = leaf_of(self._term, var)
        return None if leaf is None else self._arrays.get(leaf)

    @cached_property
    def _function(self) -> Any:
        return self._fact.compile(self._computed, [self._term.index], mode=INTERPRETED)


def leaf_of(term: LocalTerm, var: Variable) -> Variable | None:
    """The array that a variable holds rows of, perhaps in another type of numbers; None if there is none."""
    node = var.owner
    if node is not None and isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Cast):
        return leaf_of(term, node.inputs[0]) if var.type.dtype == "float64" else None
    if node is None or not isinstance(node.op, AdvancedSubtensor) or node.op.idx_list != (0,):
        return None
    array, index = node.inputs
    return array if index is term.index else None


def neighbours(positions: Index) -> Index | slice:
    """Positions as a slice, if they follow upon each other: NumPy copies nothing then, and adds faster."""
    n = len(positions)
    if n and positions[-1] - positions[0] == n - 1 and _increase(positions):
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions


@entry
def _increase(positions: Index) -> bool:
    increase = True
    for i in range(1, positions.shape[0]):
        increase &= positions[i] > positions[i - 1]
    return increase
