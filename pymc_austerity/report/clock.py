"""Budgets of steps, the clock that stops a chain when its budget is spent, and interrupts by the user."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, get_args

from pymc_austerity.validation import is_real, is_whole

Kind = Literal["seconds", "terms", "draws"]


@dataclass(frozen=True)
class Budget:
    """Positive amount that all chains of a step together may spend after tuning; draws are of each chain."""

    kind: Kind
    amount: float

    def __str__(self) -> str:
        if self.kind == "draws":
            return f"{self.amount:,.0f} draws of each chain"
        number = f"{self.amount:,.0f}" if self.amount >= 100 else f"{self.amount:.3g}"
        if self.kind == "terms":
            return f"{number} local terms"
        return f"{number} second{'' if number == '1' else 's'}"


def budget_of(given: Any, name: str = "budget") -> Budget:
    """Check what was given as `budget`: seconds, or a dict with one kind and its amount."""
    pairs = {"seconds": given} if is_real(given) else given
    if not isinstance(pairs, Mapping) or len(pairs) != 1 or next(iter(pairs)) not in get_args(Kind):
        raise TypeError(
            f'{name} must be a number of seconds, {{"seconds": s}}, {{"terms": n}} or {{"draws": n}}, '
            f"got {given!r}."
        )
    kind, amount = next(iter(pairs.items()))
    if kind == "draws" and (not is_whole(amount) or amount < 1):
        raise ValueError(f"{name}: draws must be a positive integer, got {amount!r}.")
    if not is_real(amount) or not 0.0 < amount < float("inf"):
        raise ValueError(f"{name}: {kind} must be a positive number, got {amount!r}.")
    return Budget(kind, float(amount))


class UserInterrupt(BaseException):
    """The user stopped a chain. PyMC goes on with the next one after a `KeyboardInterrupt`."""


# Later chains make as many draws as the first. They are stopped before if they take so many times as long.
_PATIENCE = 3.0


class Clock:
    """A callback for `pymc.sample` that measures chains which run one after the other.

    The first chain goes on until its share of the budget is spent, later ones for as many draws: chains of
    different lengths would be cut to the shortest. A chain makes between `fewest` and `most` draws after
    tuning. ``count(statistics of a draw)`` are the local terms that it evaluated, NaN if they are unknown.
    """

    def __init__(
        self, budget: Budget, *, chains: int, tune: int, fewest: int, most: int, count: Callable[..., float]
    ) -> None:
        self._kind, self._share = budget.kind, budget.amount / chains
        self._tune, self._fewest, self._most = tune, fewest, most
        self._count = count
        self._chain = -1
        self._began = self._first = 0.0
        # Sums over all chains; terms are local ones evaluated after tuning.
        self.seconds = self.tuning_seconds = self.terms = 0.0
        self.lengths: list[int] = []  # draws of each chain after tuning
        self.ended = 0  # chains that were stopped here; others were stopped by the user, or by an error

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


@contextmanager
def noting_interrupts() -> Iterator[threading.Event]:
    """Note whether the user presses Ctrl-C, of which `pymc.sample` does not tell.

    It is then handled as it would have been. Only the main thread can be interrupted, and only where an
    interrupt has a handler in Python.
    """
    seen, before = threading.Event(), signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield seen
        return

    def note(signum: int, frame: FrameType | None) -> None:
        seen.set()
        before(signum, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
