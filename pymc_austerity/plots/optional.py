"""Libraries that only plots need: imported when a plot is drawn."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def optional(name: str) -> Any:
    """Import `name`, or say which extra installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f'Plots need {name.partition(".")[0]}: pip install "pymc_austerity[plots]" ({error}).'
        ) from error
