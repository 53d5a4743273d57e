"""Every proposal leaves a known law alone, and planted bugs do not pass."""

from typing import NamedTuple

import numpy as np
import pytest
from numba.extending import register_jitable

from pymc_austerity import AdaptiveRandomWalk, RandomWalk
from pymc_austerity.proposals.base import BoundProposal, NoState, no_adaptation
from pymc_austerity.testing import check_proposal
from pymc_austerity.testing.targets import LOG_NORMAL

COV = [[0.5, 0.2], [0.2, 0.3]]


def scaled(q, rng):
    """A user's function: all of q times one log-normal number."""
    factor = np.exp(0.5 * rng.standard_normal())
    return q * factor, len(q) * np.log(factor)


def towards_the_middle(q, rng):
    """Autoregressive, so that it is not symmetric."""
    q_new = 0.8 * q + 0.6 * rng.standard_normal(len(q))
    forward, backward = q_new - 0.8 * q, q - 0.8 * q_new
    return q_new, 0.5 * (np.sum(forward**2) - np.sum(backward**2)) / 0.36


def uncompilable(q, rng):
    options = dict(scale=0.7)
    return q + options["scale"] * rng.standard_normal(len(q)), 0.0


class Walker:
    """A user's object with a method."""

    def propose(self, q, rng):
        return q + 0.7 * rng.standard_normal(len(q)), 0.0


RIGHT = {
    "scale": (RandomWalk(0.5), 2),
    "scales": (RandomWalk([0.5, 2.0, 0.1]), 3),
    "cov": (RandomWalk(cov=COV), 2),
    "adaptive": (AdaptiveRandomWalk(), 3),
    "adaptive, one dimension": (AdaptiveRandomWalk(0.6), 1),
    "scaled": (scaled, 2),
    "towards the middle": (towards_the_middle, 2),
    "uncompilable": (uncompilable, 2),
    "object": (Walker(), 2),
}


@pytest.mark.parametrize("name", RIGHT)
def test_proposals(name):
    proposal, n_dim = RIGHT[name]
    check_proposal(proposal, n_dim)


def test_a_proposal_of_positive_numbers():
    check_proposal(scaled, 1, law=LOG_NORMAL)


# Planted bugs -------------------------------------------------------------------------------------


def without_log_hastings(q, rng):
    return scaled(q, rng)[0], 0.0


def of_one_coordinate(q, rng):
    """As if one coordinate had been scaled and not two."""
    factor = np.exp(0.5 * rng.standard_normal())
    return q * factor, np.log(factor)


def the_wrong_way_round(q, rng):
    factor = np.exp(0.5 * rng.standard_normal())
    return q * factor, -len(q) * np.log(factor)


def pulled(q, rng):
    return 0.8 * q + 0.6 * rng.standard_normal(len(q)), 0.0


def too_short(q, rng):
    return np.zeros(1), 0.0


def not_finite(q, rng):
    return q + np.inf, 0.0


def out_of_reach(q, rng):
    return q + 1e6 * rng.standard_normal(len(q)), 0.0


# Where a mean stays, a square or a product changes, and the other way round.
WRONG = {
    "without log_hastings": (without_log_hastings, "log_hastings"),
    "of one coordinate": (of_one_coordinate, "log_hastings"),
    "the wrong way round": (the_wrong_way_round, "log_hastings"),
    "pulled": (pulled, "log_hastings"),
    "too short": (too_short, "length 2"),
    "not finite": (not_finite, "goes to"),
    "out of reach": (out_of_reach, "nothing can be seen"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_function_fails(name):
    proposal, message = WRONG[name]
    with pytest.raises(AssertionError, match=message):
        check_proposal(proposal, 2)


@register_jitable
def in_place(state, q, rng):
    q += 0.5 * rng.standard_normal(len(q))
    return q, 0.0


@register_jitable
def from_a_buffer(state, q, rng):
    state.buffer[:] = q + 0.5 * rng.standard_normal(len(q))
    return state.buffer, 0.0


@register_jitable
def always_learning(state, q, rng):
    state.scale[0] = 0.9 * state.scale[0] + 0.1 * abs(q[0])
    return q + state.scale[0] * rng.standard_normal(len(q)), 0.0


@register_jitable
def from_the_state(state, q, rng):
    return state.buffer, 0.0


class Buffered(NamedTuple):
    scale: np.ndarray
    buffer: np.ndarray


class Of:
    """A proposal made of a function, with one state or a new one for each binding."""

    def __init__(self, propose, shared=False):
        self.propose_, self.state = propose, self._new() if shared else None

    @staticmethod
    def _new():
        return Buffered(np.ones(1), np.ones(2))

    def bind(self, n_dim, target_accept):
        return BoundProposal(self.state or self._new(), self.propose_, no_adaptation)


@register_jitable
def harmless(state, q, rng):
    return q + 0.5 * rng.standard_normal(len(q)), 0.0


@pytest.mark.parametrize(
    ("propose", "message"),
    [
        (in_place, "in place"),
        (from_a_buffer, "only adapt may"),
        (always_learning, "only adapt may"),
        (from_the_state, "shares memory"),
    ],
)
def test_a_proposal_that_works_in_place_fails(propose, message):
    with pytest.raises(AssertionError, match=message):
        check_proposal(Of(propose), 2)


def test_a_shared_state_fails():
    check_proposal(Of(harmless), 2)
    with pytest.raises(AssertionError, match="same arrays twice"):
        check_proposal(Of(harmless, shared=True), 2)


def test_a_proposal_that_says_it_compiles_and_does_not_fails():
    @register_jitable
    def propose(state, q, rng):
        return uncompilable(q, rng)

    class Uncompilable:
        def bind(self, n_dim, target_accept):
            return BoundProposal(NoState(np.ones(1)), propose, no_adaptation)

    with pytest.raises(AssertionError, match="cannot compile"):
        check_proposal(Uncompilable(), 2)
