"""PyMC's NUTS where it is the best step, with the reasons."""

from __future__ import annotations

import pymc as pm
from pytensor.gradient import grad
from pytensor.graph.basic import Variable

from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.step_methods.recommendation import Recommendation


class NUTS(pm.NUTS):
    """`pymc.NUTS` as it is, with a record of why it was recommended."""

    recommendation: Recommendation | None = None


def why_no_gradient(model: pm.Model, block: list[Variable]) -> Exception | None:
    """Reason why there is no gradient, which NUTS needs; None if there is one."""
    try:
        grad(model.logp(), block, disconnected_inputs="ignore")
    except NO_GRADIENT as error:
        return error
    return None
