"""Rows that stay on disk: written once by chunks, read by position from a map."""

from pymc_austerity.data.row_store import RowStore
from pymc_austerity.data.rows import Rows

__all__ = ["RowStore", "Rows"]
