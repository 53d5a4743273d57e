"""Steps that workers import."""

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
