"""Errors and warnings that a user of the package may meet."""

from __future__ import annotations

import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)


class FactorisationError(ValueError):
    """A term of the model does not split into independently computable rows.

    The message names the model term, the operation that couples its rows, and what to do.
    """


class SubsamplingWarning(UserWarning):
    """Sampling went on, but not in the way that was asked for, or not in a way to be trusted."""


def warn(message: str) -> None:
    """Give a `SubsamplingWarning` that names the line outside the package from which it was called."""
    warnings.warn(message, SubsamplingWarning, skip_file_prefixes=(_PACKAGE,))
