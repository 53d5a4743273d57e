"""Chains on a Dask cluster."""
