"""Subsampled Markov chain Monte Carlo for unmodified PyMC models."""

from pymc_austerity._version import __version__
from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.factorisation import Factorisation, factorise

__all__ = ["Factorisation", "FactorisationError", "__version__", "factorise"]
