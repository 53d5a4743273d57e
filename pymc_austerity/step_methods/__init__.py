"""Step methods, and what they are told: `DecreasingStepSize` of `SGLD` and `SCIR`."""

from pymc_austerity.step_methods.step_size import DecreasingStepSize

__all__ = ["DecreasingStepSize"]
