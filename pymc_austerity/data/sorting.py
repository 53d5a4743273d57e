"""Sorting on disk: chunks that are sorted each are merged, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


class Merge:
    """The order of all rows, from keys that are sorted within each run.

    Rows with equal keys keep the order that they had.

    Parameters
    ----------
    keys : array, shape (rows,)
        May be mapped.
    run_rows : int
        Rows of a run; the last may have fewer.
    at_once : int
        Rows that are merged at a time.
    """

    def __init__(self, keys: NDArray[Any], run_rows: int, at_once: int) -> None:
        self._keys, self._at_once = keys, at_once
        self._starts = np.arange(0, len(keys), run_rows)
        self._stops = np.minimum(self._starts + run_rows, len(keys))

    def pieces(self) -> Iterator[Positions]:
        """Row numbers in the order of their keys, in pieces."""
        # A stack instead of recursion: ranges of keys in ascending order, the next one on top.
        stack = [(self._starts, self._stops)]
        while stack:
            starts, stops = stack.pop()
            if (stops - starts).sum() <= self._at_once:
                yield self._merged(starts, stops)
            elif (middle := self._split(starts, stops)) is None:
                yield from self._of_one_key(starts, stops)
            else:
                stack += [(middle, stops), (starts, middle)]

    def _merged(self, starts: Positions, stops: Positions) -> Positions:
        rows = _rows_between(starts, stops)
        order: Positions = rows[np.argsort(self._keys[rows], kind="stable")]
        return order

    def _of_one_key(self, starts: Positions, stops: Positions) -> Iterator[Positions]:
        """Rows as they are, no more at a time than elsewhere."""
        for start, stop in zip(starts, stops, strict=True):
            for first in range(start, stop, self._at_once):
                yield np.arange(first, min(first + self._at_once, stop))

    def _split(self, starts: Positions, stops: Positions) -> Positions | None:
        """The first row of the upper keys in each run; None if all keys are equal.

        The pivot is the median over runs, weighted by their rows, of the median of a run: at least a quarter
        of all keys is not above it, and a quarter is not below.
        """
        there = stops > starts
        begins, ends = starts[there], stops[there]
        lowest, highest = self._keys[begins].min(), self._keys[ends - 1].max()
        if lowest == highest:
            return None
        medians = self._keys[(begins + ends) // 2]
        order = np.argsort(medians, kind="stable")
        weights = np.cumsum((ends - begins)[order])
        pivot = medians[order[np.searchsorted(weights, weights[-1] / 2)]]
        # Keys equal to the pivot go up, unless nothing would be left below.
        side = "left" if pivot > lowest else "right"
        middle = starts.copy()
        for run in np.flatnonzero(there):
            found = np.searchsorted(self._keys[starts[run] : stops[run]], pivot, side)  # type: ignore[call-overload]
            middle[run] = starts[run] + found
        return middle


def _rows_between(starts: Positions, stops: Positions) -> Positions:
    """The numbers of the rows of all runs, one run after the other."""
    lengths = stops - starts
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())
