"""Is the log density finite where a chain starts?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pymc_austerity.model.factorisation import CHUNK, Factorisation
from pymc_austerity.model.graph import INTERPRETED, INTERPRETED_STABLE

_NAMED_ROWS = 5


@np.errstate(all="ignore")
def require_finite(factorisation: Factorisation, point: Mapping[str, Any]) -> None:
    """Raise `ValueError` naming the term, and its first rows, that is not finite at `point`.

    Costs one evaluation of every term; nothing is compiled. What is not finite is looked at again after
    PyTensor's rewrites for numerical stability, as PyMC would compute it.
    """
    values = factorisation.point_values(point)
    leaves = factorisation.leaf_values
    for name, graph in factorisation.globals:
        for mode in (INTERPRETED, INTERPRETED_STABLE):
            value = factorisation.compile(graph.sum(), [], mode=mode)(*values, *leaves)
            if np.isfinite(value):
                break
        else:
            raise ValueError(_message(name, float(value), ""))
    for term in factorisation.locals:
        quick = factorisation.compile(term.rows, [term.index], mode=INTERPRETED)
        stable = None
        for start in range(0, term.size, CHUNK):
            index = np.arange(start, min(start + CHUNK, term.size))
            index = index[~np.isfinite(quick(*values, index, *leaves))]
            if not len(index):
                continue
            stable = stable or factorisation.compile(term.rows, [term.index], mode=INTERPRETED_STABLE)
            found = stable(*values, index, *leaves)
            bad = np.flatnonzero(~np.isfinite(found))
            if len(bad):
                first = index[bad[:_NAMED_ROWS]].tolist()
                where = f" in row {first[0]}" if len(bad) == 1 else f" in rows {first}"
                where += ", ..." if len(bad) > _NAMED_ROWS else ""
                raise ValueError(_message(term.name, float(found[bad[0]]), where))


def _message(name: str, value: float, where: str) -> str:
    return (
        f"The log density of the term {name!r} is {value}{where} at the start of the chain. Start from a "
        "point where the density is positive, for example initvals=find_mode(model), and check the "
        "data and the support of the likelihood."
    )
