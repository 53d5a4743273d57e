"""Libraries that only some users need: imported when they are, with the extra that installs them."""

from importlib import import_module
from typing import Any


def imported(name: str, needed_by: str, extra: str) -> Any:
    """Import a library, or say which extra installs it.

    Parameters
    ----------
    name : str
        Of the module.
    needed_by : str
        What needs it, in the plural: the beginning of the message.
    extra : str
        Of this package.

    Raises
    ------
    ImportError
    """
    try:
        return import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise ImportError(
            f'{needed_by} need {library}: pip install "pymc_austerity[{extra}]" ({error}).'
        ) from error
