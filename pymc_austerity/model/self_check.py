"""Compare a factorisation with the model it came from, once, at build.

The rules of `lift` were written by people. Each factorisation is therefore checked against PyMC at
one random point: some rows against the full vectors, and the sums of all pieces against PyMC's own
terms. NaN and infinities have to agree too; a finite log density is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.graph import INTERPRETED, LogDensityGraph

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


@np.errstate(all="ignore")
def check_against_model(
    factorisation: Factorisation,
    model: pm.Model,
    whole: Sequence[Variable],
    pieces: Sequence[tuple[str, Variable]],
) -> None:
    """Compare rows with full vectors, and sums with the model.

    Parameters
    ----------
    factorisation : Factorisation
    model : pymc.Model
    whole : sequence of TensorVariable
        The vector of each local term, not lifted.
    pieces : sequence of (str, TensorVariable)
        Everything that the model terms were split into, with the name of the term.

    Raises
    ------
    FactorisationError
        If a row differs from the same row of the full vector, or the pieces of a term do not add up to
        the term as PyMC computes it.
    """
    graph, rng = factorisation.graph, np.random.default_rng(_SEED)
    values = jittered(graph)
    picks = [
        np.unique(np.r_[0, term.size - 1, rng.integers(0, term.size, _ROWS)]) for term in factorisation.locals
    ]
    one_by_one = factorisation.compile(
        [t.rows for t in factorisation.locals],
        [t.index for t in factorisation.locals],
        mode=INTERPRETED,
    )(*values, *picks, *factorisation.leaf_values)
    # One function for all that takes all the data, so that their memory is used once.
    outputs = [
        *(vector[pick] for vector, pick in zip(whole, picks, strict=True)),
        *(piece.sum() for _, piece in pieces),
        *(term.sum() for term in graph.raw.values()),
    ]
    mode = INTERPRETED
    if not model.check_bounds:
        mode = mode.excluding("local_check_parameter_to_ninf_switch").including(
            "local_remove_check_parameter"
        )
    in_full = pytensor.function(
        [*graph.values.values(), *graph.data, *model.value_vars],
        outputs,
        mode=mode,
        on_unused_input="ignore",
    )(*values, *graph.data_values(), *values)
    first_sum, first_raw = len(whole), len(whole) + len(pieces)
    names = [name for name, _ in pieces]
    _compare_rows(factorisation, one_by_one, in_full[:first_sum])
    _compare_sums(graph, names, in_full[first_sum:first_raw], in_full[first_raw:])


def _compare_rows(
    factorisation: Factorisation, one_by_one: Sequence[np.ndarray], in_full: Sequence[np.ndarray]
) -> None:
    for term, rows, expected in zip(factorisation.locals, one_by_one, in_full, strict=True):
        if rows.shape != expected.shape or not _same(rows, expected):
            raise FactorisationError(
                f"Self-check failed for the term {term.name!r}: its rows computed one by one differ "
                f"from those of the full term. {_REPORT}"
            )


def _compare_sums(
    graph: LogDensityGraph,
    names: Sequence[str],
    ours: Sequence[np.ndarray],
    theirs: Sequence[np.ndarray],
) -> None:
    for name, their_sum in zip(graph.raw, theirs, strict=True):
        parts = [float(x) for n, x in zip(names, ours, strict=True) if n == name]
        if not _same(np.array(float(their_sum)), np.array(sum(parts))):
            raise FactorisationError(
                f"Self-check failed for the term {name!r}: its parts add up to {sum(parts)!r}, the model "
                f"gives {float(their_sum)!r}. {_REPORT}"
            )


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=1e-8, atol=1e-9, equal_nan=True))
