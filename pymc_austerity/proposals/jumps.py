"""Moves between sub-models: a coefficient comes or goes, or one comes for another.

The state is q = (gamma, beta, others): p numbers 0 or 1, p coefficients, and r more variables. A coefficient
with gamma_j = 0, a *dummy*, is distributed as its slab, whatever the data. Every jump draws all dummies anew,
so that their densities cancel, and `base` has those of the active coefficients alone (Green 1995, with a
state of fixed dimension as of Carlin & Chib 1995).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.proposals.base import (
    Adapt,
    BoundProposal,
    Move,
    NoState,
    ProposalKernel,
    Propose,
    no_adaptation,
    no_density,
)
from pymc_austerity.proposals.slab import drawn_from_slab, log_slab
from pymc_austerity.proposals.submodel import (
    Submodel,
    coordinates_of,
    drawn,
    given_the_others,
    log_density,
    submodel,
)
from pymc_austerity.target import Index, Target, Vector

# Kinds of moves, their names, and what is counted of each.
BIRTH, DEATH, SWAP, OTHER = 0, 1, 2, 3
KINDS = ("births", "deaths", "swaps", "others")
COUNTS = ("proposed", "accepted", "used")

Redraw = Literal["all", "one"]


@dataclass(frozen=True)
class Jumps:
    """How a step moves between sub-models; see `ReversibleJump`.

    Attributes
    ----------
    jump, swap : float
        Share of the jumps among the moves, and of the swaps among the jumps.
    redraw : "all" or "one"
    other : Proposal or None
        What else moves the continuous variables; None for the redraw without a jump.
    """

    jump: float
    swap: float
    redraw: Redraw
    other: Any = None


class SubmodelExpansion(NamedTuple):
    """Expansion at the mode of the full model; b and H as in `proposals.submodel`.

    Attributes
    ----------
    family : int
        Of the slab.
    center : ndarray of shape (p + d,)
        A state with gamma = 1 and the mode: where slabs are looked at that depend on the state.
    linear, precision : ndarray of shape (d,) and (d, d)
    """

    family: int
    center: Vector
    linear: Vector
    precision: npt.NDArray[np.float64]


class JumpState(NamedTuple):
    """State of the jumps.

    Attributes
    ----------
    scale : ndarray of shape (1,)
        Not a number: it is reported as of other proposals.
    shares : ndarray of shape (2,)
        `jump` and `swap`.
    numbers : ndarray of int, shape (2,)
        Family of the slab, and whether all coordinates are redrawn.
    center, linear, precision : ndarray
        See `SubmodelExpansion`.
    kind : ndarray of int, shape (1,)
        What the last move was.
    tally : ndarray of shape (4, 3)
        By kind: moves proposed, moves accepted and terms read since the last draw.
    given : NamedTuple of ndarrays
        State of the proposal of the other moves.
    """

    scale: Vector
    shares: Vector
    numbers: Index
    center: Vector
    linear: Vector
    precision: npt.NDArray[np.float64]
    kind: Index
    tally: npt.NDArray[np.float64]
    given: Any

    def forget(self) -> None:
        """Begin to count anew."""
        self.kind[0] = OTHER
        self.tally[:] = 0.0


class JumpKernel(NamedTuple):
    """A `ProposalKernel` of jumps, as their kernel sees it.

    Attributes
    ----------
    state, propose, move, adapt
        See `ProposalKernel`; `propose` and `learn` are of the proposal of the other moves, and take its
        state.
    learn : callable
        ``(state.given, x, accepted) -> None``, with x the d continuous variables after one of its moves.
    """

    state: Any
    propose: Propose
    move: Move
    adapt: Adapt
    learn: Adapt


@dataclass(frozen=True)
class BoundJumps(BoundProposal):
    """Jumps with their state; `learn` is what the proposal of the other moves does while the chain tunes."""

    learn: Adapt = no_adaptation

    def kernel(self, state: Any) -> Any:
        """The jumps with this state, for a kernel."""
        return JumpKernel(state, self.propose, self.move, self.adapt, self.learn)


def bound_jumps(jumps: Jumps, expansion: SubmodelExpansion, given: BoundProposal | None = None) -> BoundJumps:
    """Jumps with their state; `given` is the proposal of the other moves, for the d continuous variables."""
    state = JumpState(
        scale=np.array([np.nan]),
        shares=np.array([jumps.jump, jumps.swap]),
        numbers=np.array([expansion.family, jumps.redraw == "all"], dtype=np.int64),
        center=expansion.center,
        linear=expansion.linear,
        precision=expansion.precision,
        kind=np.array([OTHER]),
        tally=np.zeros((len(KINDS), len(COUNTS))),
        given=NoState(np.array([np.nan])) if given is None else given.state,
    )
    functions = ("global_log_ratio", "slab")
    if given is None:
        return BoundJumps(state, no_density, no_adaptation, move=jump_or_redraw, target_functions=functions)
    return BoundJumps(
        state,
        given.propose,
        no_adaptation,
        compilable=given.compilable,
        plain=given.plain,
        move=jump_or_given,
        target_functions=functions,
        learn=given.adapt,
    )


@jitable
def jump_or_redraw(
    proposal: ProposalKernel, q: Vector, rng: np.random.Generator, args: tuple[Any, ...], target: Target
) -> tuple[Vector, float]:
    """A jump, or coefficients and other variables redrawn without one."""
    gamma_new, is_possible = chosen_indicators(proposal.state, q, rng)
    if not is_possible:
        return q.copy(), -math.inf
    return redrawn(proposal.state, gamma_new, q, rng, args, target)


@jitable
def jump_or_given(
    proposal: ProposalKernel, q: Vector, rng: np.random.Generator, args: tuple[Any, ...], target: Target
) -> tuple[Vector, float]:
    """A jump, or a move of all continuous variables, dummies included, by the given proposal."""
    state = proposal.state
    gamma_new, is_possible = chosen_indicators(state, q, rng)
    if not is_possible:
        return q.copy(), -math.inf
    if state.kind[0] != OTHER:
        return redrawn(state, gamma_new, q, rng, args, target)
    p = len(gamma_new)
    x_new, log_hastings = proposal.propose(state.given, q[p:].copy(), rng)
    q_new = q.copy()
    for i in range(len(x_new)):
        q_new[p + i] = x_new[i]
    return q_new, target.global_log_ratio(q_new, q, args) + log_hastings


@jitable
def chosen_indicators(state: JumpState, q: Vector, rng: np.random.Generator) -> tuple[Vector, bool]:
    """Choose the kind of the next move, and the sub-model that it goes to. Is there one?

    A coefficient is chosen with probability 1/p, and a pair with probability 1/(k (p - k)), there and back.
    Where all coefficients are in, or none, there is no pair. That move is rejected: were it a flip
    instead, sub-models next to these would be left for them less often than the other way round.
    """
    p = len(q) - len(state.linear)
    gamma = q[:p].copy()
    state.kind[0] = OTHER
    if rng.random() >= state.shares[0]:
        return gamma, True
    if rng.random() >= state.shares[1]:
        j = int(rng.random() * p)
        state.kind[0] = BIRTH if gamma[j] == 0.0 else DEATH
        gamma[j] = 1.0 - gamma[j]
        return gamma, True
    state.kind[0] = SWAP
    k = 0
    for j in range(p):
        k += gamma[j] != 0.0
    if k == 0 or k == p:
        return gamma, False
    leaves, comes = int(rng.random() * k), int(rng.random() * (p - k))
    for j in range(p):
        if gamma[j] != 0.0:
            if leaves == 0:
                gamma[j] = 0.0
            leaves -= 1
        else:
            if comes == 0:
                gamma[j] = 1.0
            comes -= 1
    return gamma, True


@jitable
def redrawn(
    state: JumpState,
    gamma_new: Vector,
    q: Vector,
    rng: np.random.Generator,
    args: tuple[Any, ...],
    target: Target,
) -> tuple[Vector, float]:
    """Draw the coordinates of the new sub-model, and its dummies.

    `base` is the change of the global terms, without the slabs of the dummies, plus log q(old | gamma) -
    log q(new | gamma_new).
    """
    p, family = len(gamma_new), state.numbers[0]
    q_new = q.copy()
    for j in range(p):
        q_new[j] = gamma_new[j]
    new, old = there_and_back(state, q, gamma_new, rng, target.slab(state.center, args))
    x_new, x_old = drawn(new, rng), np.empty(len(old.mean))
    for a in range(len(x_new)):
        q_new[p + new.coordinates[a]] = x_new[a]
    for a in range(len(x_old)):
        x_old[a] = q[p + old.coordinates[a]]
    slab = target.slab(q_new, args)
    for j in range(p):
        if gamma_new[j] == 0.0:
            q_new[p + j] = drawn_from_slab(family, slab, j, rng)
    base = target.global_log_ratio(q_new, q, args)
    base -= log_slab_of_dummies(family, slab, q_new)
    base += log_slab_of_dummies(family, target.slab(q, args), q)
    return q_new, base + log_density(old, x_old) - log_density(new, x_new)


@jitable
def there_and_back(
    state: JumpState, q: Vector, gamma_new: Vector, rng: np.random.Generator, slab: Vector
) -> tuple[Submodel, Submodel]:
    """Distribution that the new coordinates are drawn from, and that of the old ones on the way back."""
    p, n_dim, family = len(gamma_new), len(state.linear), state.numbers[0]
    gamma, x = q[:p], q[p:]
    to, back = coordinates_of(gamma_new, n_dim), coordinates_of(gamma, n_dim)
    if state.numbers[1]:
        new = submodel(state.linear, state.precision, family, slab, to)
        return new, submodel(state.linear, state.precision, family, slab, back)
    comes, leaves = one_coordinate(gamma_new, gamma, to, rng)
    new = given_the_others(state.linear, state.precision, family, slab, to, comes, x)
    return new, given_the_others(state.linear, state.precision, family, slab, back, leaves, x)


@jitable
def one_coordinate(gamma_new: Vector, gamma: Vector, to: Index, rng: np.random.Generator) -> tuple[int, int]:
    """The coefficients that come and go; without a jump any coordinate, the same before and after."""
    comes = leaves = -1
    for j in range(len(gamma)):
        if gamma_new[j] > gamma[j]:
            comes = j
        if gamma_new[j] < gamma[j]:
            leaves = j
    if comes < 0 and leaves < 0 and len(to) > 0:
        comes = leaves = to[int(rng.random() * len(to))]
    return comes, leaves


@jitable
def log_slab_of_dummies(family: int, slab: Vector, q: Vector) -> float:
    """Sum of the log densities of the coefficients that are not in the model."""
    p, total = len(slab) // 3, 0.0
    for j in range(p):
        if q[j] == 0.0:
            total += log_slab(family, slab, j, q[p + j])
    return total
