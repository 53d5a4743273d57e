"""Rows that are the same function of their linear predictor.

What a term f_i(eta) has of its row, besides eta, are a few numbers: the response, a weight, an exposure.
Rows in which they agree have one f_i: a million binary responses have two.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort

from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import INTERPRETED, Compiled, depends_on
from pymc_austerity.target import Index


class AlikeRows(Compiled):
    """Sorts rows of a term by the numbers that make them differ.

    Parameters
    ----------
    fact : Factorisation
    term : LocalTerm
    rows : TensorVariable
        The rows of the term as a function of their linear predictor.
    eta : TensorVariable
        The linear predictor, an input of `rows`.
    """

    def __init__(self, fact: Factorisation, term: LocalTerm, rows: Variable, eta: Variable) -> None:
        self._fact, self._term = fact, term
        self._columns = _columns(rows, eta, term.index)

    def __call__(self, positions: Index, point: Mapping[str, Any]) -> tuple[Index, Index]:
        """Rows that stand for all at `positions`, and which of them stands for each.

        Parameters
        ----------
        positions : ndarray of int (m,)
        point : dict
            Values of other variables.

        Returns
        -------
        positions : ndarray of int (n,)
        which : ndarray of int (m,)
        """
        which = np.zeros(len(positions), dtype=np.int64)
        if self._columns is None:
            return positions, np.arange(len(positions))
        values = self._fact.point_values({**self._fact.graph.point, **point})
        for column in self._function(*values, positions, *self._fact.leaf_values):
            # Numbers are compared by their bits: zeros of both signs, say, are not the same number.
            bits = np.ascontiguousarray(np.ravel(column))
            bits = bits.view(f"i{bits.itemsize}")
            _, own = np.unique(bits, return_inverse=True)
            _, which = np.unique(which * len(positions) + own, return_inverse=True)
        _, first = np.unique(which, return_index=True)
        return positions[first], which

    @cached_property
    def _function(self) -> Any:
        return self._fact.compile(self._columns, [self._term.index], mode=INTERPRETED)


def _columns(rows: Variable, eta: Variable, index: Variable) -> list[Variable] | None:
    """What enters the function of `eta` from the rows; None if that is more than a number a row."""
    of_eta, of_row = depends_on([rows], [eta]), depends_on([rows], [index])
    found: dict[Variable, None] = {}
    for node in toposort([rows]):
        if any(of_eta.get(out, False) for out in node.outputs):
            found.update(
                (var, None) for var in node.inputs if of_row.get(var, False) and not of_eta.get(var, False)
            )
    narrow = all(sum(k is None for k in v.type.shape) == 1 and set(v.type.shape) <= {None, 1} for v in found)
    return list(found) if narrow else None
