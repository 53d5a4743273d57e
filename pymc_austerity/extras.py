"""Libraries that only some users need: imported when they are, with the extra that installs them."""

from importlib import import_module
from typing import Any


def imported(name: str, needed_by: str, extra: str) -> Any:
    """Import a library that `needed_by`, things in the plural, need; or say which extra installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise ImportError(
            f'{needed_by} need {library}: pip install "pymc_austerity[{extra}]" ({error}).'
        ) from error
