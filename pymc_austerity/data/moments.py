"""Means and standard deviations of columns, by chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.target import Array


class Moments:
    """Count, means and sums of squared deviations (Chan, Golub and LeVeque, 1983).

    Parameters
    ----------
    shape : tuple of int
        Of one row.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._count = 0
        self.mean: Array = np.zeros(shape)
        self._squares: Array = np.zeros(shape)

    def add(self, rows: NDArray[Any]) -> None:
        """Count some rows, shape (rows, *shape)."""
        values = rows.astype(np.float64, copy=False)
        mean = values.mean(axis=0)
        count = self._count + len(values)
        step = mean - self.mean
        self._squares = (
            self._squares + ((values - mean) ** 2).sum(axis=0) + step**2 * (self._count * len(values) / count)
        )
        self.mean = self.mean + step * (len(values) / count)
        self._count = count

    @property
    def sd(self) -> Array:
        """The standard deviation with divisor N."""
        return np.asarray(np.sqrt(self._squares / self._count))

    def as_json(self) -> list[Any]:
        """Numbers that `restore` takes."""
        return [self._count, self.mean.tolist(), self._squares.tolist()]

    def restore(self, saved: Sequence[Any]) -> None:
        """Go on from saved numbers."""
        self._count = int(saved[0])
        self.mean, self._squares = np.asarray(saved[1], float), np.asarray(saved[2], float)
