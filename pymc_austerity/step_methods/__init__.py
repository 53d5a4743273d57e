"""Step methods for `pymc.sample`."""

from pymc_austerity.step_methods.austerity import AusterityMH
from pymc_austerity.step_methods.restricted import restricted_nuts, restricted_slice

__all__ = ["AusterityMH", "restricted_nuts", "restricted_slice"]
