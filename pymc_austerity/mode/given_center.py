"""The point that a user gives to expand the local terms at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pymc_austerity.exceptions import warn
from pymc_austerity.mode.block_posterior import BlockPosterior
from pymc_austerity.mode.newton import Maximum, flat_direction
from pymc_austerity.mode.search import Located
from pymc_austerity.model.factorisation import Factorisation

# Standard deviations from the mode at which a given point is called far.
_OFF = 3.0


def require_values(fact: Factorisation, center: Mapping[str, Any]) -> None:
    """Raise ValueError unless `center` has a value of the right shape for each variable of the block."""
    missing = [name for name in fact.var_names if name not in center]
    if missing:
        raise ValueError(
            f"center has no value for {', '.join(missing)}: it needs one for each value variable of the "
            "step, on the unconstrained scale, as in model.initial_point()."
        )
    values = fact.graph.values
    unknown = [name for name in center if name not in values]
    if unknown:
        raise ValueError(
            f"center has values for {', '.join(unknown)}, which are no value variables of the model: "
            f"these are {', '.join(values)}."
        )
    for name in fact.var_names:
        shape = values[name].type.shape
        if np.shape(center[name]) != shape:
            raise ValueError(f"center[{name!r}] must have shape {shape}, got {np.shape(center[name])}.")


def located_at_start(posterior: BlockPosterior) -> Located:
    """Value and curvature at the posterior's own point, and the Newton step from there to the mode.

    Raises
    ------
    ValueError
        If there is no normal approximation.
    """
    q = posterior.start
    value, gradient, hessian = posterior.density()(q[posterior.free])
    if not all(np.all(np.isfinite(part)) for part in (q, value, gradient, hessian)):
        raise ValueError("The log density or a derivative of it is not finite at the given center.")
    flat = flat_direction(-hessian)
    if flat is not None:
        raise ValueError(
            "The log density is not concave at the given center along "
            f"{', '.join(posterior.leading(flat))}: there is no normal approximation there. "
            'Give a point nearer to the mode, or center="mode".'
        )
    step = np.linalg.solve(-hessian, gradient)
    if gradient @ step > _OFF**2:
        warn(
            f"The given center is {np.sqrt(gradient @ step):.3g} standard deviations from the mode, as "
            'far as its curvature tells. Steps will read more rows than with center="mode".'
        )
    found = Maximum(q[posterior.free], value, -hessian, float(np.sqrt(gradient @ step)), step, 1)
    return Located(found, n_starts=0, n_modes=0)
