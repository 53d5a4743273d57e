"""The only readers of PyMC and PyTensor graphs."""

from pymc_austerity.model.factorisation import Factorisation

__all__ = ["Factorisation"]
