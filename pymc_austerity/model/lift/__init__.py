"""Rows of a graph as a graph: an index of rows, or of cells, is pushed down to the data.

Importing a file of rules registers them.
"""

from pymc_austerity.model.lift import arithmetic, indexing, sparse

__all__ = ["arithmetic", "indexing", "sparse"]
