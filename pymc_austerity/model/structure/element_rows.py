"""Rows that contain an element of a variable.

A predictor with groups, eta_i = x_i . b + u[g_i], has for each row i one element g_i of the long variable u.
A proposal that moves some elements of u changes the rows that contain these, and no others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.target import Index


class Group(NamedTuple):
    """A long variable of which a predictor contains one element for each row.

    Attributes
    ----------
    variable : str
        Name of the value variable.
    n_elements : int
        Its length.
    elements : ndarray of int (n_rows,)
        The element that each row contains.
    """

    variable: str
    n_elements: int
    elements: Index


class ElementRows(NamedTuple):
    """A map from the elements of a variable to the rows that contain them, as a compressed sparse matrix.

    Attributes
    ----------
    starts : ndarray of int (n_elements + 1,)
        Where the rows of each element begin in `rows`.
    rows : ndarray of int (n_rows,)
        Row numbers, sorted by element and increasing within each.
    """

    starts: Index
    rows: Index

    def of(self, elements: npt.ArrayLike) -> Index:
        """Rows that contain one of the different `elements`, element after element."""
        chosen = np.atleast_1d(np.asarray(elements, dtype=np.int64))
        parts = [self.rows[self.starts[k] : self.starts[k + 1]] for k in chosen]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def element_rows(group: Group) -> ElementRows:
    """The rows that contain each element of a group's variable.

    Raises
    ------
    ValueError
        If a row contains an element that the variable does not have.
    """
    elements = group.elements
    if len(elements) and (elements.min() < 0 or elements.max() >= group.n_elements):
        raise ValueError(
            f"Rows contain elements from {elements.min()} to {elements.max()} of {group.variable!r}, which "
            f"has {group.n_elements}."
        )
    counts = np.bincount(elements, minlength=group.n_elements)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return ElementRows(starts, np.argsort(elements, kind="stable").astype(np.int64))
