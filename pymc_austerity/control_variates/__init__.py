"""Control variates: polynomials that take the place of most of a log likelihood."""

from pymc_austerity.control_variates.taylor import Taylor

__all__ = ["Taylor"]
