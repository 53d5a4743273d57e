"""What workers import."""

import os
import time

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
