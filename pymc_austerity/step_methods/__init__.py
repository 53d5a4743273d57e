"""Step methods for `pymc.sample`."""

from pymc_austerity.step_methods.austerity import AusterityMH

__all__ = ["AusterityMH"]
