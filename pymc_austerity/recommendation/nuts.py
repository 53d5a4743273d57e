"""PyMC's NUTS where it is the best step, with the reasons."""

from __future__ import annotations

import pymc as pm

from pymc_austerity.step_methods.recommendation import Recommendation


class NUTS(pm.NUTS):
    """`pymc.NUTS` as it is, with a record of why it was recommended."""

    recommendation: Recommendation | None = None
