"""Compare a factorisation with the model it came from, once, at build.

The rules of `lift` were written by people. Each factorisation is therefore checked against PyMC at
one random point: some rows against the full vectors, and the sums of all pieces against PyMC's own
terms. NaN and infinities have to agree too; a finite log density is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.graph import INTERPRETED, LogDensityGraph

if TYPE_CHECKING:
    from pymc_austerity.model.factorisation import Factorisation

_ROWS = 64
_SEED = 2014
_REPORT = "This is a defect of pymc_austerity: please report the model."


def jittered(graph: LogDensityGraph) -> list[np.ndarray]:
    """Return a value for each value variable, near the point at which the graph was built."""
    rng = np.random.default_rng(_SEED)
    return [
        value + rng.uniform(-0.1, 0.1, value.shape) if value.dtype.kind == "f" else value
        for value in graph.point.values()
    ]


def check_rows(factorisation: Factorisation, whole: Sequence[Variable]) -> None:
    """Rows computed one by one equal the same rows of the full vectors `whole`."""
    if not factorisation.locals:
        return
    graph, rng = factorisation.graph, np.random.default_rng(_SEED)
    values = jittered(graph)
    picks = [
        np.unique(np.r_[0, term.size - 1, rng.integers(0, term.size, _ROWS)]) for term in factorisation.locals
    ]
    rows = factorisation.compile(
        [t.rows for t in factorisation.locals],
        [t.index for t in factorisation.locals],
        mode=INTERPRETED,
    )(*values, *picks, *factorisation.leaf_values)
    full = pytensor.function(
        [*graph.values.values(), *graph.data],
        list(whole),
        mode=INTERPRETED,
        on_unused_input="ignore",
    )(*values, *graph.data_values())
    for term, pick, one_by_one, vector in zip(factorisation.locals, picks, rows, full, strict=True):
        if one_by_one.shape != pick.shape or not _same(vector[pick], one_by_one):
            raise FactorisationError(
                f"Self-check failed for the term {term.name!r}: its rows computed one by one differ "
                f"from those of the full term. {_REPORT}"
            )


def check_sums(graph: LogDensityGraph, model: pm.Model, pieces: Sequence[tuple[str, Variable]]) -> None:
    """The pieces of each term add up to the term as PyMC computes it."""
    values = jittered(graph)
    theirs = pytensor.function(
        model.value_vars,
        [term.sum() for term in graph.raw.values()],
        mode=INTERPRETED,
        on_unused_input="ignore",
    )(*values)
    ours = pytensor.function(
        [*graph.values.values(), *graph.data],
        [piece.sum() for _, piece in pieces],
        mode=INTERPRETED,
        on_unused_input="ignore",
    )(*values, *graph.data_values())
    for name, their_sum in zip(graph.raw, theirs, strict=True):
        parts = [float(x) for (n, _), x in zip(pieces, ours, strict=True) if n == name]
        if not _same(np.array(float(their_sum)), np.array(sum(parts))):
            raise FactorisationError(
                f"Self-check failed for the term {name!r}: its parts add up to {sum(parts)!r}, the model "
                f"gives {float(their_sum)!r}. {_REPORT}"
            )


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=1e-8, atol=1e-9, equal_nan=True))
