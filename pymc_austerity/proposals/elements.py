"""Proposals for one element of a variable: a random walk with a scale of its own, or another category."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index, Vector


class ElementWalk(NamedTuple):
    """State of random walks of E elements.

    Attributes
    ----------
    scale : ndarray of float, shape (E,)
    seen : ndarray of int, shape (E,)
        Moves that each has learnt from.
    target_accept : ndarray of float, shape (1,)
    """

    scale: Vector
    seen: Index
    target_accept: Vector


class OtherCategory(NamedTuple):
    """State of the proposal of another category.

    Attributes
    ----------
    scale : ndarray of float, shape (1,)
        Not a number: it is reported as of other proposals.
    n_categories : ndarray of int, shape (E,)
    """

    scale: Vector
    n_categories: Index


@dataclass(frozen=True)
class BoundElements:
    """A proposal for elements, with its state.

    Attributes
    ----------
    state : NamedTuple of ndarrays
        Part of the step's sampling state.
    propose, adapt : callable
        See `kernels.elements.ElementProposal`.
    record : callable
        Makes the record for the kernel from the state and the two functions.
    compilable : bool
    target_functions : tuple of str
        None: the kernel calls the target.
    """

    state: Any
    propose: Callable[..., None]
    adapt: Callable[..., None]
    record: Callable[..., Any]
    compilable: bool = True
    target_functions: tuple[str, ...] = ()

    def kernel(self, state: Any) -> Any:
        """The proposal with this state, for a kernel."""
        return self.record(state, self.propose, self.adapt)


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
def stay(state: Any, e: int, accepted: bool) -> None:
    """Learn nothing from a move of an element."""


@jitable
def other_category(
    state: OtherCategory, rng: np.random.Generator, e: int, q_new: npt.NDArray[Any], start: int, stop: int
) -> None:
    """One of the K - 1 other categories, each as likely; of two, the other."""
    k = state.n_categories[e]
    for place in range(start, stop):
        new = int(rng.random() * (k - 1)) if k > 2 else 0
        q_new[place] = new if new < q_new[place] else new + 1
