"""Step methods for `pymc.sample`."""
