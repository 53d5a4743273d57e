"""What workers import."""

import os
import time
from pathlib import Path

import pymc as pm

from pymc_austerity.exceptions import warn


class Slow(pm.Slice):
    """Chains that can be interrupted."""

    def astep(self, apoint):
        time.sleep(0.01)
        return super().astep(apoint)


class Talks(pm.Slice):
    """Warns while it runs."""

    def astep(self, apoint):
        warn("planted")
        return super().astep(apoint)


def set_store_root(folder):
    """As an administrator would; None takes it away."""
    if folder is None:
        del os.environ["PMA_STORE_ROOT"]
    else:
        os.environ["PMA_STORE_ROOT"] = folder


def numba_files(folder):
    """What numba has kept in a folder."""
    assert os.environ["NUMBA_CACHE_DIR"] == folder
    return len(list(Path(folder).rglob("*.nbc")))


def goes_on_for_ever(content):
    """A call that is lost with its worker."""
    time.sleep(600.0)


def fails_once(content, number):
    """One of two calls fails."""
    if number == 2:
        raise ArithmeticError(f"planted {content.decode()}")
