"""Compare a factorisation with the model it came from, once, at build.

The rules of `lift` were written by people. Each factorisation is therefore checked against PyMC at one
random point: rows against the vectors of PyMC (of many rows some, at equal distances), and of terms that
were split the sums of all pieces against PyMC's own.
NaN and infinities have to agree too; a finite log density is not needed. Where a graph was rewritten so
that less is lost to rounding (`graph.partial_sums`), the two differ by PyMC's rounding, which is small there.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm

from pymc_austerity.distributions.uniform_stiefel import orthonormal_names
from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.factorisation import Factorisation, distance_of_rows, some_rows
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.log_density import LogDensityGraph
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.graph.terms import Piece
from pymc_austerity.model.starting_point import jittered_point

_SEED = 2014
# Rows of a term that are computed one by one.
_ENOUGH_ROWS = 100_000
REPORT = "This is a defect of pymc_austerity: please report the model."


def jittered(graph: LogDensityGraph) -> list[np.ndarray]:
    """Return a value for each value variable, near the point at which the graph was built."""
    rng = np.random.default_rng(_SEED)
    return list(jittered_point(graph.point, rng, 0.1, orthonormal_names(graph.raw.values())).values())


@np.errstate(all="ignore")
def check_against_model(factorisation: Factorisation, model: pm.Model, pieces: Sequence[Piece]) -> None:
    """Compare rows with those of the model, and the sums of terms that were split with the model's.

    `pieces` are all that the model terms were split into. `SelfCheckError` is raised if a row differs from
    the same row of the full vector, or the pieces of a term do not add up to the term as PyMC computes it.
    """
    graph = factorisation.graph
    values = jittered(graph)
    # Terms that are vectors of rows as PyMC has them: where rows agree, so do their sums.
    times = Counter(p.name for p in pieces)
    whole = {p.name for p in pieces if p.is_local and times[p.name] == 1 and graph.raw[p.name].type.ndim == 1}
    # Of many rows some are compared.
    local = [
        (graph.raw[p.name] if p.name in whole else p.vector)[:: distance_of_rows(p.size, _ENOUGH_ROWS)]
        for p in pieces
        if p.is_local
    ]
    global_ = [p.graph.sum() for p in pieces if p.kept and not p.is_local]
    split = [p for p in pieces if p.name not in whole]
    sums = [p.graph.sum() for p in split]
    theirs = {name: term.sum() for name, term in graph.raw.items() if name not in whole}
    # One function for all that takes all the data, so that their memory is used once.
    mode = INTERPRETED
    if not model.check_bounds:
        mode = mode.excluding("local_check_parameter_to_ninf_switch").including(
            "local_remove_check_parameter"
        )
    found = function_of(
        [*graph.values.values(), *graph.data, *model.value_vars],
        [*local, *global_, *sums, *theirs.values()],
        mode=mode,
    )(*values, *graph.data_values(), *values)
    vectors, rest = found[: len(local)], found[len(local) :]
    _compare_rows(factorisation, values, vectors)
    _compare_globals(factorisation, values, rest[: len(global_)])
    ours = rest[len(global_) :]
    for name, their_sum in zip(theirs, ours[len(sums) :], strict=True):
        parts = [float(x) for p, x in zip(split, ours, strict=False) if p.name == name]
        if not same(np.array(float(their_sum)), np.array(sum(parts))):
            raise SelfCheckError(
                f"Self-check failed for the term {name!r}: its parts add up to {sum(parts)!r}, the model "
                f"gives {float(their_sum)!r}. {REPORT}"
            )


@np.errstate(all="ignore")
def check_change(
    graph: LogDensityGraph,
    model: pm.Model,
    points: Sequence[Mapping[str, np.ndarray]],
    ours: Sequence[float],
    what: tuple[str, str, str],
) -> None:
    """Compare the change of a log density between two points with that of the model's own terms.

    These need all rows, and know nothing of what was done here. `what` says of what the check is, what
    changes the log density, and whose terms `ours` are sums of.
    """
    full = function_of(model.value_vars, [t.sum() for t in graph.raw.values()], mode=INTERPRETED)
    theirs = [float(np.sum(full(*(point[v.name] for v in model.value_vars)))) for point in points]
    change, expected = float(ours[0] - ours[1]), theirs[0] - theirs[1]
    # Differences of sums of many terms have the rounding errors of these sums.
    error = 1e-8 * (1.0 + max(map(abs, theirs)))
    if np.isfinite(change) and np.isfinite(expected) and abs(change - expected) > error:
        name, moved, whose = what
        raise SelfCheckError(
            f"Self-check failed for {name}: {moved} the log density by {expected!r}, and the terms of "
            f"{whose} by {change!r} (terms {', '.join(graph.raw)}). {REPORT}"
        )


def _compare_rows(
    factorisation: Factorisation, values: Sequence[np.ndarray], vectors: Sequence[np.ndarray]
) -> None:
    for term, vector in zip(factorisation.locals, vectors, strict=True):
        if np.all(vector == -np.inf):  # a parameter check failed, which makes single rows -inf here
            continue
        rows = factorisation.compile(term.rows, [term.index], mode=INTERPRETED)
        start = 0
        for index in some_rows(term.size, _ENOUGH_ROWS):
            found = rows(*values, index, *factorisation.leaf_values)
            expected = vector[start : start + len(index)]
            start += len(index)
            if found.shape != index.shape or found.shape != expected.shape or not same(found, expected):
                raise SelfCheckError(
                    f"Self-check failed for the term {term.name!r}: its rows computed one by one differ "
                    f"from those of the full term. {REPORT}"
                )


def _compare_globals(
    factorisation: Factorisation, values: Sequence[np.ndarray], sums: Sequence[np.ndarray]
) -> None:
    graphs = [term.sum() for _, term in factorisation.globals]
    found = factorisation.compile(graphs, [], mode=INTERPRETED)(*values, *factorisation.leaf_values)
    for (name, _), ours, expected in zip(factorisation.globals, found, sums, strict=True):
        if not same(ours, expected):
            raise SelfCheckError(
                f"Self-check failed for the term {name!r}: its global part is {float(ours)!r}, not "
                f"{float(expected)!r}. {REPORT}"
            )


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Are all numbers the same, but for rounding?"""
    return bool(np.allclose(a, b, rtol=1e-8, atol=1e-9, equal_nan=True))
