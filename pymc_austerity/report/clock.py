"""A clock that rides along with `pymc.sample`, and stops a chain when its budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pymc_austerity.report.budget import Budget


class UserInterrupt(BaseException):
    """The user stopped a chain. PyMC goes on with the next one after a `KeyboardInterrupt`."""


# Later chains make as many draws as the first. They are stopped before if they take so many times as long.
_PATIENCE = 3.0


class Clock:
    """A callback for `pymc.sample` that measures chains which run one after the other.

    The first chain goes on until its share of the budget is spent, later ones for as many draws: chains of
    different lengths would be cut to the shortest.

    Parameters
    ----------
    budget : Budget
    chains, tune : int
    fewest, most : int
        Draws after tuning that a chain makes at least, and at most.
    count : callable
        ``(statistics of a draw) -> local terms evaluated``; NaN if they are not counted.

    Attributes
    ----------
    seconds, tuning_seconds : float
        Of all chains together.
    terms : float
        Local terms evaluated after tuning, by all chains.
    lengths : list of int
        Draws of each chain after tuning.
    ended : int
        Chains that were stopped here; others were stopped by the user, or by an error.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        chains: int,
        tune: int,
        fewest: int,
        most: int,
        count: Callable[[Sequence[Mapping[str, Any]]], float],
    ) -> None:
        self._kind, self._share = budget.kind, budget.for_chain(chains)
        self._tune, self._fewest, self._most = tune, fewest, most
        self._count = count
        self._chain = -1
        self._began = self._first = 0.0
        self.seconds = self.tuning_seconds = self.terms = 0.0
        self.lengths: list[int] = []
        self.ended = 0

    def __call__(self, trace: Any, draw: Any) -> None:
        """Note a draw; raise `KeyboardInterrupt`, as PyMC asks for, where the chain has to stop."""
        now = time.perf_counter()
        if draw.chain != self._chain:
            if self.ended < len(self.lengths):
                raise UserInterrupt
            self._chain, self._first, self._began = draw.chain, now, now
            self.lengths.append(0)
            self._spent = self._before = 0.0
        if draw.tuning:
            made = draw.draw_idx + 1
            if made == self._tune:
                # The first draw was not seen to begin.
                self.tuning_seconds += (now - self._first) * made / max(made - 1, 1)
                self._began = now
            return
        self.lengths[-1] += 1
        made = self.lengths[-1]
        elapsed = now - self._began
        if not self._tune:
            elapsed *= made / max(made - 1, 1)
        terms = self._count(draw.stats)
        if self._kind == "terms" and not terms >= 0.0:
            raise ValueError(
                "The step does not count the local terms that it evaluates, so a budget of terms cannot be "
                'kept. Give seconds or {"draws": n}.'
            )
        self.seconds += elapsed - self._before
        self.terms += terms
        self._before = elapsed
        self._spent = elapsed if self._kind == "seconds" else self._spent + terms
        if self._is_over(made):
            self.ended += 1
            raise KeyboardInterrupt

    def _is_over(self, made: int) -> bool:
        if made >= self._most:
            return True
        if made < self._fewest or self._kind == "draws":
            return False
        if len(self.lengths) == 1:
            return self._spent >= self._share
        return made >= self.lengths[0] or self._spent >= _PATIENCE * self._share
