"""Chains on a Dask cluster."""

from pymc_austerity.cluster.sample import sample_distributed

__all__ = ["sample_distributed"]
