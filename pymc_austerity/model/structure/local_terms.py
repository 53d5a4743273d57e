"""All local terms at a state as one vector."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pymc_austerity.model.factorisation import CHUNK, Factorisation
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE
from pymc_austerity.target import Index, Vector


class LocalTerms:
    """All l_i at a state as one vector; graphs are interpreted, nothing is compiled."""

    def __init__(self, factorisation: Factorisation) -> None:
        self._fact = factorisation
        self._functions = [
            factorisation.compile(term.rows, [term.index], mode=INTERPRETED_STABLE, stabilised=True)
            for term in factorisation.locals
        ]

    def __call__(self, point: Mapping[str, Any], positions: Index | None = None) -> Vector:
        """Local terms at `positions` of the population, in order; by default all, of shape (N,)."""
        values, leaves = self._fact.point_values(point), self._fact.leaf_values
        parts, first = [], 0
        with np.errstate(all="ignore"):
            for term, function in zip(self._fact.locals, self._functions, strict=True):
                own = np.arange(term.size) if positions is None else rows_within(positions, first, term.size)
                for start in range(0, len(own), CHUNK):
                    parts.append(function(*values, own[start : start + CHUNK], *leaves))
                first += term.size
        return np.concatenate(parts) if parts else np.empty(0)


def rows_within(positions: Index, first: int, size: int) -> Index:
    """The positions of the population that belong to a term, counted within it."""
    inside: Index = positions[(positions >= first) & (positions < first + size)] - first
    return inside
