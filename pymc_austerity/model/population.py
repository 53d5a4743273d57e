"""Rows of several terms at positions of the population that they form together."""

from collections.abc import Sequence

import pytensor.tensor as pt
from pytensor.graph.basic import Variable


class Positions:
    """Positions of the population, told apart by the term that they fall into.

    Not every operation can be evaluated on no rows. A term that no position falls into is therefore evaluated
    on one surplus row, its first or last, whose result is dropped. Other terms have no surplus row.

    Parameters
    ----------
    index : TensorVariable
        Positions, an integer vector of any length m.
    sizes : sequence of int
        Number of rows of each term, in the order of the population.

    Attributes
    ----------
    rows : list of TensorVariable
        For each term, row numbers within it: those that `index` asks for, or a single surplus one.
    """

    def __init__(self, index: Variable, sizes: Sequence[int]) -> None:
        self._sizes = list(sizes)
        self._index = index
        self._places: list[Variable] = []
        self.rows = [index]
        if len(self._sizes) > 1:
            self._tell_apart()

    def _tell_apart(self) -> None:
        # The surplus row has the last place, which no position has.
        n_wanted = self._index.shape[0]
        last = pt.expand_dims(n_wanted, 0)
        extended = pt.concatenate([self._index, pt.zeros(1, dtype="int64")])
        self.rows = []
        start = 0
        for size in self._sizes:
            inside = ((self._index >= start) & (self._index < start + size)).nonzero()[0]
            places = pt.concatenate([inside, last])[: pt.maximum(inside.shape[0], 1)]
            self._places.append(places)
            self.rows.append(pt.clip(extended[places] - start, 0, size - 1))
            start += size

    def in_order(self, results: Sequence[Variable]) -> Variable:
        """The results of all terms, each of the length of its `rows`, in the order of the positions; (m,)."""
        if not self._places:
            return pt.as_tensor(results[0])
        # Set, not joined and sliced: PyTensor would push the slice down to the rows, and none would be left.
        joined = pt.zeros(self._index.shape[0] + 1)
        for places, result in zip(self._places, results, strict=True):
            joined = pt.set_subtensor(joined[places], result)
        return joined[:-1]
