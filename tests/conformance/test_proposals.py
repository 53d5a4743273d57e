"""Every proposal leaves a known law alone, and planted faults do not pass."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from numba.extending import register_jitable

from pymc_austerity import RandomWalk
from pymc_austerity.proposals import AdaptiveRandomWalk, Laplace, Surrogate
from pymc_austerity.proposals.base import BoundProposal, NoState, no_adaptation
from pymc_austerity.testing import check_proposal
from pymc_austerity.testing.proposals import check_invariance, check_memory, check_moves, proxy_of
from pymc_austerity.testing.targets import LOG_NORMAL, NORMAL
from tests.proposals.test_laplace import share_depends_on_q, walk_with_the_fitted_ratio, wrong_sign

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
    "independence": (Laplace(mix=0.0), 2),
    "independence with walks": (Laplace(), 3),
    "pcn": (Laplace("pcn", mix=0.0), 2),
    "pcn with walks": (Laplace("pcn", rho=0.8), 3),
    "pcn, one dimension": (Laplace("pcn", rho=0.3), 1),
    # Of positive numbers, and where the law is not the fitted one.
    "scaled, positive": (scaled, 1, LOG_NORMAL),
    "independence, not normal": (Laplace(), 2, LOG_NORMAL),
    "pcn, not normal": (Laplace("pcn"), 2, LOG_NORMAL),
}


@pytest.mark.parametrize("name", RIGHT)
def test_proposals(name):
    proposal, n_dim, law = (*RIGHT[name], NORMAL)[:3]
    check_proposal(proposal, n_dim, law=law)


def test_the_parts_bind_a_fitted_proposal_to_the_law():
    for check in (check_moves, check_memory, check_invariance):
        check(Laplace(), 2)


def test_the_fitted_law_is_that_at_the_mode():
    proxy = proxy_of(NORMAL, 3)
    np.testing.assert_allclose(proxy.mode, 1.5, rtol=1e-5)
    np.testing.assert_allclose(proxy.precision, np.eye(3), atol=1e-5)
    # -(log x / .7)^2 / 2 - log x has its mode at exp(-.49), with curvature 1 / (.49 x^2) there.
    proxy = proxy_of(LOG_NORMAL, 1)
    np.testing.assert_allclose(proxy.mode, np.exp(-0.49), rtol=1e-4)
    np.testing.assert_allclose(proxy.precision, np.exp(0.98) / 0.49, rtol=1e-3)
    other = proxy_of(NORMAL, 2, 0.7, 2.0)
    np.testing.assert_allclose(other.mode, 2.2, rtol=1e-5)
    np.testing.assert_allclose(other.precision, np.eye(2) / 4, atol=1e-5)


def test_a_surrogate_needs_a_slope():
    with pytest.raises(TypeError, match="slope of the global terms"):
        check_proposal(Surrogate(), 2)


# Planted faults -------------------------------------------------------------------------------------


def of_one_coordinate(q, rng):
    """As if one coordinate had been scaled and not two."""
    factor = np.exp(0.5 * rng.standard_normal())
    return q * factor, np.log(factor)


def the_wrong_way_round(q, rng):
    factor = np.exp(0.5 * rng.standard_normal())
    return q * factor, -len(q) * np.log(factor)


# Where a mean stays, a square or a product changes, and the other way round.
WRONG = {
    "without log_hastings": (lambda q, rng: (scaled(q, rng)[0], 0.0), "log_hastings"),
    "of one coordinate": (of_one_coordinate, "log_hastings"),
    "the wrong way round": (the_wrong_way_round, "log_hastings"),
    "pulled": (lambda q, rng: (0.8 * q + 0.6 * rng.standard_normal(len(q)), 0.0), "log_hastings"),
    "too short": (lambda q, rng: (np.zeros(1), 0.0), "length 2"),
    "not finite": (lambda q, rng: (q + np.inf, 0.0), "goes to"),
    "out of reach": (lambda q, rng: (q + 1e6 * rng.standard_normal(len(q)), 0.0), "nothing can be seen"),
}


class Fitted:
    """A fitted proposal with another function."""

    def __init__(self, laplace, propose):
        self.laplace, self.propose_ = laplace, propose

    def bind_to(self, proxy):
        return replace(self.laplace.bind_to(proxy), propose=self.propose_)


@pytest.mark.parametrize("kind", ["independence", "pcn"])
@pytest.mark.parametrize(
    "propose", [wrong_sign, walk_with_the_fitted_ratio, share_depends_on_q], ids=lambda f: f.__name__
)
def test_a_wrong_fitted_proposal_fails(propose, kind):
    with pytest.raises(AssertionError, match="With a normal distribution that is .* log_hastings"):
        check_proposal(Fitted(Laplace(kind, mix=0.3), propose), 2)


def test_a_proposal_that_keeps_the_arrays_of_its_fit_fails():
    class Keeping(Laplace):
        def bind_to(self, proxy):
            bound = super().bind_to(proxy)
            return replace(bound, state=bound.state._replace(mode=proxy.mode))

    with pytest.raises(AssertionError, match="keeps the arrays|same arrays"):
        check_proposal(Keeping(), 2)


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
