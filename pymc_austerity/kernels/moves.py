"""From a proposal to a move: the proposed state, and what the test of the local terms has to be offset by.

A move from q to q' is accepted if the sum of the local log ratios exceeds log u - base. `base` has everything
else of the Metropolis-Hastings ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.target import Vector

Move = Callable[[Any, Vector, np.random.Generator, tuple[Any, ...], Any, Any], tuple[Vector, float]]


@register_jitable
def proposed_move(
    proposal: Any, q: Vector, rng: np.random.Generator, args: tuple[Any, ...], propose: Any, target: Any
) -> tuple[Vector, float]:
    """Propose; base is the change of the global terms, and the proposal's own log ratio.

    With a control variate the global terms contain its polynomial.
    """
    q_new, log_hastings = propose(proposal, q, rng)
    return q_new, target.global_log_ratio(q_new, q, args) + log_hastings


@register_jitable
def surrogate_move(
    proposal: Any, q: Vector, rng: np.random.Generator, args: tuple[Any, ...], propose: Any, target: Any
) -> tuple[Vector, float]:
    """Propose by a kernel that is reversible for the global terms (Liu 2001).

    exp(global) K(q, q') is symmetric in q and q', so the change of the global terms and the ratio of the
    proposal densities cancel. If all inner moves were rejected there is nothing to test: base is infinite.
    """
    q_new = propose(proposal, q, rng, args, target)
    return q_new, math.inf if np.all(q_new == q) else 0.0
