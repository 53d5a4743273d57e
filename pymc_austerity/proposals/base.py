"""What a proposal is to a kernel.

Like a decision rule, a built-in proposal is a small frozen object for the user, and binds to a state of plain
arrays with pure functions, `propose` and `adapt`, that numba can compile. A user may also hand in any
function ``(q, rng) -> (q_new, log_hastings)``, or an object with such a method `propose`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.target import QuadraticProxy, Target, Vector

Propose = Callable[..., Any]
Adapt = Callable[[Any, Any, bool], None]
Move = Callable[[Any, Vector, np.random.Generator, tuple[Any, ...], Target], tuple[Vector, float]]


@jitable
def no_adaptation(state: Any, moved: Any, accepted: bool) -> None:
    """Leave the proposal as it is; what has moved is a state, or the number of an element."""


class ProposalKernel(NamedTuple):
    """A proposal as a kernel sees it."""

    state: Any  # everything that adaptation changes, in place
    # ``(state, q, rng) -> (q_new, log_hastings)``, with log_hastings = log q(q | q_new) - log q(q_new | q).
    # Of one element, see `elements`.
    propose: Propose
    # ``(proposal, q, rng, args, target) -> (q_new, base)``, where `proposal` is this record and `base` the
    # log of the Metropolis-Hastings ratio without the local terms. A base of infinity, with q_new = q, says
    # that there is nothing to decide.
    move: Move
    # ``(state, q, accepted) -> None``, called after each transition while tuning; q is the state of the chain
    # after the transition.
    adapt: Adapt
    # Of `jumps`: ``(state.given, x, accepted) -> None``, with x the continuous variables after another move
    learn: Adapt = no_adaptation


@jitable
def proposed_move(
    proposal: ProposalKernel, q: Vector, rng: np.random.Generator, args: tuple[Any, ...], target: Target
) -> tuple[Vector, float]:
    """Propose; `base` is the change of the global terms, and the proposal's own log ratio.

    With a control variate the global terms contain its polynomial.
    """
    q_new, log_hastings = proposal.propose(proposal.state, q, rng)
    return q_new, target.global_log_ratio(q_new, q, args) + log_hastings


@dataclass(frozen=True)
class BoundProposal:
    """A proposal ready for D dimensions."""

    # As of `ProposalKernel`. The state is part of the step's sampling state. A field `accepted` may note what
    # the last move did, for `adapt`.
    state: Any
    propose: Propose
    adapt: Adapt
    plain: Callable[..., Any] | None = None  # a user's ``(q, rng) -> (q_new, log_hastings)`` as it was given
    # A proposal that needs the global terms of the target has a `move` of its own, and may lack `propose`.
    move: Move = proposed_move
    target_functions: tuple[str, ...] = ("global_log_ratio",)  # functions of the `Target` that `move` calls
    learn: Adapt = no_adaptation

    @property
    def compilable(self) -> bool:
        """Whether the functions are known to compile.

        A user's function is tried, and runs interpreted, with a warning, if it does not.
        """
        return self.plain is None

    @property
    def is_surrogate(self) -> bool:
        """Whether moves are reversible for the global terms, instead of having a density of their own."""
        return self.move is not proposed_move

    def kernel(self, state: Any) -> ProposalKernel:
        """The proposal with this state, for a kernel."""
        return ProposalKernel(state, self.propose, self.move, self.adapt, self.learn)


class Block(NamedTuple):
    """Facts about the block that a proposal moves."""

    n_dim: int  # D, the length of q
    n_local: int  # N, the number of local terms
    # Rows and columns of the matrices with orthonormal columns in q, if these are all of it.
    matrices: tuple[tuple[int, int], ...] = ()

    @property
    def n_free(self) -> int:
        """Dimensions in which q can move."""
        return max(1, self.n_dim - sum(k * (k + 1) // 2 for _, k in self.matrices))


def is_fitted(proposal: Any) -> bool:
    """Does the proposal need a normal approximation of the posterior?"""
    return hasattr(proposal, "bind_to") and not isinstance(proposal, type)


class NoState(NamedTuple):
    """State of a proposal that does not adapt. `scale` is reported in the sample statistics."""

    scale: Vector


@jitable
def no_density(state: Any, q: Vector, rng: np.random.Generator) -> tuple[Vector, float]:
    """Stub of `ProposalKernel.propose`, for proposals whose q_new depends on the target."""
    raise NotImplementedError("This proposal needs the target: it has a move of its own.")


def bind(
    proposal: Any,
    n_dim: int,
    target_accept: float,
    proxy: QuadraticProxy | None = None,
    block: Block | None = None,
) -> BoundProposal:
    """Bind a built-in proposal, or wrap a user's function or object.

    A built-in one has ``bind(n_dim, target_accept)``, which returns the initial state and the functions for
    D = `n_dim`; `target_accept` is the acceptance rate that suits the decision rule, for those that adapt.
    One for some kinds of blocks only, or that reads local terms, has ``bind_to_block(block, target_accept)``
    in its place; one that starts from a normal approximation of the posterior, ``bind_to(proxy)``.
    """
    if hasattr(proposal, "bind_to_block") and not isinstance(proposal, type):
        if block is None:
            raise TypeError(
                f"{type(proposal).__name__} needs to know the block that it moves, and the model: try it "
                "in a step, with testing.check_step."
            )
        return cast(BoundProposal, proposal.bind_to_block(block, target_accept))
    if proxy is not None and is_fitted(proposal):
        return cast(BoundProposal, proposal.bind_to(proxy))
    if hasattr(proposal, "bind") and not isinstance(proposal, type):
        return cast(BoundProposal, proposal.bind(n_dim, target_accept))
    function = getattr(proposal, "propose", proposal)
    if isinstance(proposal, type):
        raise TypeError(f"proposal must be an object: write {proposal.__name__}(...), got {proposal!r}.")
    if not callable(function):
        raise TypeError(
            f"proposal must be RandomWalk, AdaptiveRandomWalk, Laplace, Surrogate, Langevin, StiefelWalk, a "
            f"function (q, rng) -> (q_new, log_hastings) or an object with such a method `propose`, got "
            f"{proposal!r}."
        )

    move = jitable(function) if inspect.isfunction(function) else function

    @jitable
    def propose(state: NoState, q: Vector, rng: np.random.Generator) -> tuple[Vector, float]:
        # Copies, because the user's function may work in place, or use a buffer again.
        q_new, log_hastings = move(q.copy(), rng)
        return q_new.copy(), log_hastings

    state = NoState(np.array([np.nan]))
    return BoundProposal(state, propose, no_adaptation, function)
