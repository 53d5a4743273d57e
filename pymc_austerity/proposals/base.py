"""What a proposal is to a kernel.

Like a decision rule, a built-in proposal is a small frozen object for the user, and binds to a state of plain
arrays with two pure functions, `propose` and `adapt`, that numba can compile. A user may also hand in any
function ``(q, rng) -> (q_new, log_hastings)``, or an object with such a method `propose`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.target import QuadraticProxy, Vector

Propose = Callable[..., Any]
Adapt = Callable[[Any, Vector, bool], None]


class BoundProposal(NamedTuple):
    """A proposal ready for D dimensions.

    Attributes
    ----------
    state : NamedTuple of ndarrays
        Everything that adaptation changes, in place. It is part of the step's sampling state. A field
        `accepted` may note what the last move did, for `adapt`.
    propose : callable
        ``(state, q, rng) -> (q_new, log_hastings)``, with log_hastings = log q(q | q_new) - log q(q_new | q).
    adapt : callable
        ``(state, q, accepted) -> None``, called after each transition while tuning; q is the state of the
        chain after the transition.
    compilable : bool
        Whether the two functions are known to compile. A user's function is tried, and runs
        interpreted, with a warning, if it does not.
    plain : callable, optional
        A user's function ``(q, rng) -> (q_new, log_hastings)`` as it was given.
    is_surrogate : bool, default False
        Whether `propose` is ``(state, q, rng, args, target) -> q_new``, reversible for the global terms.
    """

    state: Any
    propose: Propose
    adapt: Adapt
    compilable: bool = True
    plain: Callable[..., Any] | None = None
    is_surrogate: bool = False


class Proposal(Protocol):
    """A built-in proposal, as a user gives it to a step."""

    def bind(self, n_dim: int, target_accept: float) -> BoundProposal:
        """Return the initial state and the functions for D = `n_dim`.

        `target_accept` is the acceptance rate that suits the decision rule, for proposals that adapt.
        """


class FittedProposal(Protocol):
    """A built-in proposal that starts from a normal approximation of the posterior."""

    def bind_to(self, proxy: QuadraticProxy) -> BoundProposal:
        """Return the initial state and the functions."""


def is_fitted(proposal: Any) -> bool:
    """Does the proposal need a normal approximation of the posterior?"""
    return hasattr(proposal, "bind_to") and not isinstance(proposal, type)


class NoState(NamedTuple):
    """State of a proposal that does not adapt. `scale` is reported in the sample statistics."""

    scale: Vector


@register_jitable
def no_adaptation(state: Any, q: Vector, accepted: bool) -> None:
    """Leave the proposal as it is."""


def bind(
    proposal: Any, n_dim: int, target_accept: float, proxy: QuadraticProxy | None = None
) -> BoundProposal:
    """Bind a built-in proposal, or wrap a user's function or object."""
    if proxy is not None and is_fitted(proposal):
        fitted: BoundProposal = proposal.bind_to(proxy)
        return fitted
    if hasattr(proposal, "bind") and not isinstance(proposal, type):
        bound: BoundProposal = proposal.bind(n_dim, target_accept)
        return bound
    function = getattr(proposal, "propose", proposal)
    if not callable(function) or isinstance(proposal, type):
        raise TypeError(
            f"proposal must be RandomWalk, AdaptiveRandomWalk, Laplace, Surrogate, a function (q, rng) -> "
            f"(q_new, log_hastings) or an object with such a method `propose`, got {proposal!r}."
        )

    plain = function
    if inspect.isfunction(function):
        function = register_jitable(function)

    @register_jitable
    def propose(state: NoState, q: Vector, rng: np.random.Generator) -> tuple[Vector, float]:
        # Copies, because the user's function may work in place, or use a buffer again.
        q_new, log_hastings = function(q.copy(), rng)
        return q_new.copy(), log_hastings

    state = NoState(np.array([np.nan]))
    return BoundProposal(state, propose, no_adaptation, compilable=False, plain=plain)
