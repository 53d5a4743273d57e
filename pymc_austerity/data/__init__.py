"""Rows that stay on disk: written once by chunks, read by position from a map."""

from pymc_austerity.data.row_store import Rows, RowStore

__all__ = ["RowStore", "Rows"]
