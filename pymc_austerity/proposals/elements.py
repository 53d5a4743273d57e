"""Proposals for one element of a variable: a random walk with a scale of its own, or another category.

Of their `BoundProposal` and `ProposalKernel`, ``propose(state, rng, e, q_new, start, stop)`` writes a
symmetric proposal for element e over the coordinates from `start` to `stop`. ``adapt(state, e, accepted)`` is
called while tuning. There is no `move`: the kernel calls the target.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index, Vector


class ElementWalk(NamedTuple):
    """State of random walks of E elements."""

    scale: Vector  # (E,)
    seen: Index  # (E,): moves that each has learnt from
    target_accept: Vector  # (1,)


class OtherCategory(NamedTuple):
    """State of the proposal of another category."""

    scale: Vector  # (1,): not a number: it is reported as of other proposals
    n_categories: Index  # (E,)


@jitable
def walk(state: ElementWalk, rng: np.random.Generator, e: int, q_new: Vector, start: int, stop: int) -> None:
    """Step by scale * z, with z ~ N(0, 1) for each coordinate."""
    for k in range(start, stop):
        q_new[k] += state.scale[e] * rng.standard_normal()


@jitable
def learn_scale(state: ElementWalk, e: int, accepted: bool) -> None:
    """Follow the acceptance rate by Robbins-Monro steps."""
    state.seen[e] += 1
    gain = 1.0 / math.sqrt(state.seen[e])
    state.scale[e] *= math.exp(gain * ((1.0 if accepted else 0.0) - state.target_accept[0]))


@jitable
def other_category(
    state: OtherCategory, rng: np.random.Generator, e: int, q_new: npt.NDArray[Any], start: int, stop: int
) -> None:
    """One of the K - 1 other categories, each as likely; of two, the other."""
    k = state.n_categories[e]
    for place in range(start, stop):
        new = int(rng.random() * (k - 1)) if k > 2 else 0
        q_new[place] = new if new < q_new[place] else new + 1
