"""Distributions that PyMC does not have."""

from pymc_austerity.distributions.uniform_stiefel import UniformStiefel

__all__ = ["UniformStiefel"]
