"""How large are the Deterministics that PyMC computes at every draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm

from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.rewrite import INTERPRETED


def deterministic_sizes(model: pm.Model, point: Mapping[str, Any]) -> dict[str, int]:
    """Number of elements of each Deterministic. What the graph does not tell is measured at `point`."""
    sizes, unknown = {}, []
    for det in model.deterministics:
        shape: Any = getattr(det.type, "shape", (None,))
        if None in shape:
            unknown.append(det)
        else:
            sizes[det.name] = int(np.prod(shape, dtype=np.int64))
    if unknown:
        graphs = model.replace_rvs_by_values([det + 0 for det in unknown])
        measure = function_of(model.value_vars, [graph.size for graph in graphs], mode=INTERPRETED)
        found = measure(*(np.asarray(point[v.name], dtype=v.type.dtype) for v in model.value_vars))
        sizes.update({det.name: int(size) for det, size in zip(unknown, found, strict=True)})
    return sizes
