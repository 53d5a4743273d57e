"""States of a chain: from a run of a step, or from the posterior draws of a result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pymc.initial_point import PointType

from pymc_austerity.step_methods.metropolis.base import SubsampledStep


def states_of_run(step: SubsampledStep, point: PointType, n: int, draws: int) -> list[PointType]:
    """States that are spread over `draws` draws of the step's own chain."""
    keep = set(spread(n, draws).tolist())
    states = []
    for k in range(draws):
        point, _ = step.step(point)
        if k in keep:
            states.append({name: np.array(value) for name, value in point.items()})
    return states


def states_of_result(model: pm.Model, idata: Any, n: int) -> list[PointType]:
    """States that are spread over the draws of a result, as values of the value variables.

    Raises
    ------
    ValueError
        If there are fewer draws, or a variable of the model is not among them.
    """
    if "posterior" not in getattr(idata, "children", {}):
        raise ValueError("idata has no group posterior: give the result of pm.sample for this model.")
    posterior = idata["posterior"].to_dataset()
    missing = [rv.name for rv in model.free_RVs if rv.name not in posterior]
    if missing:
        raise ValueError(
            f"The posterior of idata lacks {', '.join(missing)} of the model: sample without var_names=, or "
            "leave idata out."
        )
    total = posterior.sizes["chain"] * posterior.sizes["draw"]
    if n > total:
        raise ValueError(f"n_pairs must be at most the {total} draws of idata, got {n}.")
    to_values = _to_values(model)
    names = [value.name for value in model.value_vars]
    dtypes = [value.type.dtype for value in model.value_vars]
    draws = [
        np.concatenate(posterior[rv.name].transpose("chain", "draw", ...).values) for rv in model.free_RVs
    ]
    states = []
    for k in spread(n, total):
        values = to_values(*(x[k].astype(rv.type.dtype) for x, rv in zip(draws, model.free_RVs, strict=True)))
        states.append(
            {name: np.asarray(v, dtype) for name, v, dtype in zip(names, values, dtypes, strict=True)}
        )
    return states


def spread(n: int, total: int) -> np.ndarray:
    """Positions of n draws of `total`, evenly spread, the last one included."""
    return (np.arange(1, n + 1) * total) // n - 1


def _to_values(model: pm.Model) -> Any:
    """A function from the random variables of a model to its value variables."""
    values = []
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        values.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
    return pytensor.function(model.free_RVs, values, on_unused_input="ignore")
