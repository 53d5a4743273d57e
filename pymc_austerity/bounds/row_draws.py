"""What a way to draw rows by their bounds is to a kernel.

There are three: bounds c_i M (`remainder`), bounds by groups of whitened coordinates (`group_draws`), and
bounds c_i M of which rows are tried against bounds of their own (`screened_draws`). Each is a record of
functions, so that what compiled code calls is the way of one model, and nothing of the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.target import Index, Vector

Move = Callable[[Any, Vector, Vector], Any]
Draw = Callable[[np.random.Generator, Any, Any, int], Index]
Bounds = Callable[[Any, Any, Index], Vector]


class RowDraws(NamedTuple):
    """Bounds b_i on the remainders of all rows, and how rows are drawn by them, as a kernel sees it."""

    # All that the functions need. It has size N. Every way has the attributes of `remainder.RowSampler`,
    # but for `order`, `whitening` and `tables`.
    state: Any
    # ``(state, phi_new, phi) -> move``, what is known of a pair of states before any row is read.
    # It has `tier`, and `expected`, how many rows will be drawn. It is the same if the states change places.
    move: Move
    # ``(rng, state, move, n) -> rows``: of n rows, drawn independently, those that are evaluated
    draw: Draw
    bounds: Bounds  # ``(state, move, rows) -> b_i`` of some rows


@dataclass(frozen=True)
class BoundedRows:
    """The bounds of a model with a way to draw rows by them; see `RowDraws`."""

    state: Any
    move: Move
    draw: Draw
    bounds: Bounds

    def kernel(self, state: Any) -> RowDraws:
        """The way to draw rows with this state, for a kernel."""
        return RowDraws(state, self.move, self.draw, self.bounds)
