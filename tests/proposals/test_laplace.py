"""Proposals from the fitted normal law: what they propose, log_hastings, and the law of exact chains."""

import itertools
import math

import numba
import numpy as np
import pytest
from numba.extending import register_jitable
from scipy import stats

from pymc_austerity.proposals import Laplace
from pymc_austerity.proposals.base import is_fitted
from pymc_austerity.proposals.laplace import (
    LaplaceState,
    propose_laplace,
    squared,
    times_transposed,
    times_upper,
)
from pymc_austerity.target import QuadraticProxy
from tests.kernels.engines import ScriptedRng
from tests.proposals.moments import COV, worst_z_of_moments
from tests.proposals.skewed import SHAPES, SHEAR, fit
from tests.statistical.errors import LIMIT, z_of_count

MODE = np.array([1.0, -2.0, 0.5])
PROXY = QuadraticProxy(MODE, np.linalg.inv(COV))
FITTED = stats.multivariate_normal(MODE, COV)
KINDS = {"independence": Laplace(mix=0.0), "pcn": Laplace("pcn", rho=0.7, mix=0.0)}


def state_of(proposal, proxy=PROXY):
    return proposal.bind_to(proxy).state


# Parameters --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"kind": "crank"}, 'kind must be "independence" or "pcn", got \'crank\''),
        ({"kind": None}, "kind must be"),
        ({"rho": 0.5}, r"rho=0.5 is for kind=\"pcn\""),
        ({"kind": "pcn", "rho": 0.0}, r"rho must be in \(0, 1\), got 0.0"),
        ({"mix": 1.0}, r"mix must be in \[0, 1\), got 1.0"),
    ],
)
def test_wrong_parameters_are_refused(parameters, said):
    with pytest.raises(ValueError, match=said):
        Laplace(**parameters)


def test_defaults():
    assert Laplace() == Laplace(kind="independence", rho=None, mix=0.1)
    assert state_of(Laplace()).rho[0] == 0.0
    assert state_of(Laplace("pcn")).rho[0] == 0.5
    assert state_of(Laplace("pcn", rho=0.9)).rho[0] == 0.9
    assert state_of(Laplace()).mix[0] == 0.1
    assert state_of(Laplace()).scale[0] == pytest.approx(2.38 / math.sqrt(3))
    assert is_fitted(Laplace())
    assert not is_fitted(Laplace)


def test_the_factors_are_those_of_the_precision():
    state = state_of(Laplace())
    np.testing.assert_allclose(state.whiten.T @ state.whiten, PROXY.precision, rtol=1e-12)
    np.testing.assert_allclose(state.unwhiten @ state.unwhiten.T, COV, rtol=1e-12)
    np.testing.assert_allclose(state.whiten @ state.unwhiten, np.eye(3), atol=1e-12)
    x = np.array([0.3, -1.0, 2.0])
    np.testing.assert_allclose(times_upper(state.whiten, x), state.whiten @ x, rtol=1e-13)
    np.testing.assert_allclose(times_transposed(state.whiten, x), state.whiten.T @ x, rtol=1e-13)
    assert squared(x) == pytest.approx(x @ x)


# What is proposed ----------------------------------------------------------------------------------------

N_STEPS = 100_000
FROM = np.array([3.0, -1.0, 0.2])


@numba.njit
def many(n, rng, state, q):
    out, extra = np.empty((n, q.shape[0])), np.empty(n)
    for t in range(n):
        out[t], extra[t] = propose_laplace(state, q, rng)
    return out, extra


def parts(proposal, seed=1):
    """Fitted moves, and random-walk moves, whose log_hastings is exactly zero."""
    q = FROM.copy()
    sample, extra = many(N_STEPS, np.random.default_rng(seed), state_of(proposal), q)
    np.testing.assert_array_equal(q, FROM)
    return sample[extra != 0.0], sample[extra == 0.0]


@pytest.mark.parametrize(("kind", "rho"), [("independence", 0.0), ("pcn", 0.3), ("pcn", 0.9)])
@pytest.mark.covering(2)
def test_fitted_moves_have_the_right_moments(kind, rho):
    sample, walks = parts(Laplace(kind, rho=rho or None, mix=0.0))
    assert len(walks) == 0
    mean, cov = MODE + rho * (FROM - MODE), (1 - rho**2) * COV
    assert worst_z_of_moments(sample, mean, cov) < LIMIT
    assert worst_z_of_moments(sample, mean, 1.05 * cov) > LIMIT
    assert worst_z_of_moments(sample, mean + 0.1, cov) > LIMIT
    for k in range(3):
        assert stats.kstest((sample[:, k] - mean[k]) / np.sqrt(cov[k, k]), "norm").pvalue > 1e-4


@pytest.mark.parametrize("kind", ["independence", "pcn"])
def test_random_walk_moves_are_mixed_in(kind):
    sample, walks = parts(Laplace(kind, mix=0.3))
    assert abs(z_of_count(len(walks), N_STEPS, 0.3)) < LIMIT
    rho = 0.5 if kind == "pcn" else 0.0
    assert worst_z_of_moments(sample, MODE + rho * (FROM - MODE), (1 - rho**2) * COV) < LIMIT
    cov = 2.38**2 / 3 * COV
    assert worst_z_of_moments(walks, FROM, cov) < LIMIT
    assert worst_z_of_moments(walks, FROM, 1.05 * cov) > LIMIT


def test_a_transposed_factor_is_noticed():
    """Planted fault: a factor that is transposed."""
    state = state_of(KINDS["independence"])
    wrong = state._replace(unwhiten=np.ascontiguousarray(np.linalg.inv(state.whiten).T))
    sample, _ = many(N_STEPS, np.random.default_rng(1), wrong, FROM)
    assert worst_z_of_moments(sample, MODE, COV) > LIMIT


# log_hastings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_log_hastings_is_the_ratio_of_the_fitted_densities(kind):
    state, rng, points = state_of(KINDS[kind]), np.random.default_rng(4), np.random.default_rng(5)
    for _ in range(300):
        q = FITTED.rvs(random_state=points) + points.normal(size=3)
        q_new, log_hastings = propose_laplace(state, q, rng)
        assert log_hastings == pytest.approx(FITTED.logpdf(q) - FITTED.logpdf(q_new), rel=1e-9, abs=1e-9)


def test_log_hastings_of_a_random_walk_is_zero():
    state = state_of(Laplace("pcn", mix=0.5))
    for u, walks in ((0.0, True), (0.49, True), (0.51, False)):
        q_new, log_hastings = propose_laplace(state, FROM, ScriptedRng([u], [0.3, -1.0, 0.2]))
        assert (log_hastings == 0.0) == walks
        if walks:
            step = state.scale[0] * (state.unwhiten @ [0.3, -1.0, 0.2])
            np.testing.assert_allclose(q_new, FROM + step, rtol=1e-12)


# Detailed balance, without chance ---------------------------------------------------------------------------


def skewed(q):
    """A log density that is skewed and correlated: log gamma laws of shapes 2, 3 and 6."""
    y = SHEAR[: len(q), : len(q)] @ q
    return SHAPES[: len(q)] @ y - np.exp(y).sum()


def flow(propose, state, q, q_new, walk):
    """Log density of going from q to q', and of accepting it; up to a constant of the component."""
    here, there = (state.whiten @ (x - state.mode) for x in (q, q_new))
    rho = 1.0 if walk else state.rho[0]
    spread = state.scale[0] if walk else math.sqrt(1 - rho**2)
    z = (there - rho * here) / spread
    u = 0.5 * state.mix[0] if walk else 0.5 * (1 + state.mix[0])
    found, log_hastings = propose(state, q, ScriptedRng([u], list(z)))
    np.testing.assert_allclose(found, q_new, rtol=1e-9, atol=1e-9)
    ratio = skewed(q_new) - skewed(q) + log_hastings
    return skewed(q) - 0.5 * z @ z + min(0.0, ratio)


def worst_imbalance(propose, proposal, n_dim, proxy):
    state, rng, worst = state_of(proposal, proxy), np.random.default_rng(8), 0.0
    scale = 1 / np.sqrt(np.diag(proxy.precision))
    if n_dim == 1:
        grid = proxy.mode + 4 * scale * np.linspace(-1, 1, 15)[:, None]
        pairs = list(itertools.permutations(grid, 2))
    else:
        pairs = [proxy.mode + scale * rng.standard_normal((2, n_dim)) for _ in range(200)]
    for q, q_new in pairs:
        for walk in (False, True):
            forward = flow(propose, state, q, q_new, walk)
            worst = max(worst, abs(forward - flow(propose, state, q_new, q, walk)))
    return worst


BOTH = {"independence": Laplace(mix=0.2), "pcn": Laplace("pcn", rho=0.6, mix=0.2)}
PROXIES = {"fitted": (0.0, 1.0), "displaced": (0.25, 1.0), "narrow": (0.3, 0.5), "wide": (-0.3, 2.0)}


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("n_dim", [1, 3])
def test_each_component_is_in_detailed_balance(n_dim, kind, proxy):
    """So is their mixture, since which of them it is does not depend on q."""
    assert worst_imbalance(propose_laplace, BOTH[kind], n_dim, fit(n_dim, *PROXIES[proxy])) < 1e-7


# Planted faults -----------------------------------------------------------------------------------------


@register_jitable
def walk_with_the_fitted_ratio(state, q, rng):
    walk = rng.random() < state.mix[0]
    z = rng.standard_normal(len(q))
    w = times_upper(state.whiten, q - state.mode)
    w_new = w + state.scale[0] * z if walk else state.rho[0] * w + math.sqrt(1.0 - state.rho[0] ** 2) * z
    return state.mode + times_upper(state.unwhiten, w_new), 0.5 * (squared(w_new) - squared(w))


@register_jitable
def wrong_sign(state, q, rng):
    q_new, log_hastings = propose_laplace(state, q, rng)
    return q_new, -log_hastings


@register_jitable
def share_depends_on_q(state, q, rng):
    """Walks where the fitted density is low; each component for itself is right."""
    w = times_upper(state.whiten, q - state.mode)
    mix = np.array([0.9 if squared(w) > len(q) else 0.1])
    own = state.mode, state.whiten, state.unwhiten, state.variances, state.deviations
    here = LaplaceState(state.scale, state.rho, mix, *own)
    return propose_laplace(here, q, rng)


@pytest.mark.parametrize("bug", [walk_with_the_fitted_ratio, wrong_sign])
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("n_dim", [1, 3])
def test_planted_faults_break_detailed_balance(n_dim, kind, bug):
    assert worst_imbalance(bug, BOTH[kind], n_dim, fit(n_dim)) > 0.1
