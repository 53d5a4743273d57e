"""Libraries that only plots need: imported when a plot is drawn."""

from __future__ import annotations

from typing import Any

from pymc_austerity.extras import imported


def optional(name: str) -> Any:
    """Import `name`, or say which extra installs it."""
    return imported(name, "Plots", "plots")
