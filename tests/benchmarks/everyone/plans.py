"""What is known of a method before it runs, and how long it may."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

FEWEST_DRAWS = 50


@dataclass(frozen=True)
class Method:
    """A sampler.

    `units` is how many gradients a draw takes while tuning, more or less, or 1 for other methods. `tune` is
    the least number of draws for tuning and the most, which may depend on D; `many` is the share of the
    draws that are asked for.
    """

    label: str
    run: Callable
    exact: bool
    tune: tuple = (200, lambda dim: 200)
    units: int = 1
    many: float = 1.0
    needs: str = "pymc_austerity"
    is_peer: bool = False


@dataclass(frozen=True)
class Plan:
    """How long to run; `seconds` of CPU after set-up."""

    tune: int
    draws: int
    seconds: float


def pilot(method, draws):
    """A few draws, to fill the caches of compiled code and to see what a draw takes.

    Code for JAX depends on how many draws are made at once.
    """
    return Plan(method.tune[0], int(method.many * draws), 0.0) if method.is_peer else Plan(5, 5, np.inf)


def plan(method, dim, draws, budget, unit_seconds):
    """Tuning takes up to two fifths of the budget. None if the least takes five budgets."""
    low, high = method.tune[0], method.tune[1](dim)
    draw_seconds = max(method.units * unit_seconds, 1e-9)
    if (low + FEWEST_DRAWS) * draw_seconds > 5 * budget:
        return None
    tune = int(np.clip(0.4 * budget / draw_seconds, low, max(low, high)))
    most = method.many * draws
    if method.units > 1:  # nutpie cannot be stopped after a number of draws
        most = min(most, budget / draw_seconds)
    return Plan(tune, max(FEWEST_DRAWS, int(most)), budget)


class Clock:
    """Callback of `pm.sample`: CPU time after each draw, and the end when the budget is spent."""

    def __init__(self, plan):
        self.plan, self.times = plan, []

    def __call__(self, trace, draw):
        now = time.process_time()
        self.times.append(now)
        enough = len(self.times) >= self.plan.tune + min(FEWEST_DRAWS, self.plan.draws)
        if enough and now - self.times[0] > self.plan.seconds:
            raise KeyboardInterrupt
