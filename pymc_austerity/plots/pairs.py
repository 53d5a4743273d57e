"""Pairs (mu, sigma_l) of proposed moves, from whatever holds them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.design.optimal import moves_of


class Pairs(NamedTuple):
    """Log ratios of proposed moves.

    Attributes
    ----------
    mu, sigma_l : ndarray, shape (n_pairs,)
        Log acceptance ratio for each term, and the standard deviation of the terms (divisor N).
    N : int
    """

    mu: npt.NDArray[np.float64]
    sigma_l: npt.NDArray[np.float64]
    N: int

    @property
    def acceptance(self) -> npt.NDArray[np.float64]:
        """Exact probabilities of acceptance."""
        return np.exp(np.minimum(self.N * self.mu, 0.0))


def read_pairs(pairs: Any, N: int | None) -> Pairs:
    """Read a DataTree with the group `log_ratios`, or an object with `mu` and `sigma_l`."""
    if pairs is None:
        raise ValueError("pairs must be given: `pymc_austerity.probe(model, step)` collects them.")
    moves, n_local = moves_of(pairs, N)
    assert moves is not None
    return Pairs(*moves, n_local)
