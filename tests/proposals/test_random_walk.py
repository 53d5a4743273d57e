"""Random walks and users' proposals: what they propose, what they learn, and where it leads."""

import math
from copy import deepcopy
from functools import cache
from itertools import pairwise, product

import numba
import numpy as np
import pytest
from numba.extending import register_jitable
from scipy import stats

from pymc_austerity.acceptance import Barker, Concentration, Exact, ExactBarker, TTest
from pymc_austerity.kernels.subsample import rows_of
from pymc_austerity.proposals import AdaptiveRandomWalk, RandomWalk
from pymc_austerity.proposals.base import BoundProposal, bind, no_adaptation
from pymc_austerity.proposals.random_walk import (
    AdaptiveWalk,
    CorrelatedWalk,
    adapt,
    propose_correlated,
    propose_scaled,
)
from pymc_austerity.target import Target
from tests.kernels.engines import compiled_trace
from tests.proposals.moments import COV, worst_z_of_moments
from tests.proposals.skewed import zeros
from tests.statistical.errors import LIMIT, z_of_mean

# What is proposed -----------------------------------------------------------------------------------

N_STEPS = 100_000


@cache
def loop(propose):
    @numba.njit
    def run(n, rng, state, q):
        out, extra = np.empty((n, q.shape[0])), np.empty(n)
        for t in range(n):
            q_new, extra[t] = propose(state, q, rng)
            out[t] = q_new - q
        return out, extra

    return run


def steps(bound, seed=1):
    """Steps proposed from one place, and the log_hastings that came with them."""

    q = np.array([10.0, -3.0, 0.5])
    out = loop(bound.propose)(N_STEPS, np.random.default_rng(seed), bound.state, q)
    np.testing.assert_array_equal(q, [10.0, -3.0, 0.5])
    return out


@pytest.mark.parametrize(
    ("proposal", "cov"),
    [
        (RandomWalk(0.3), 0.09 * np.eye(3)),
        (RandomWalk(scale=[0.1, 2.0, 1e-3]), np.diag([0.01, 4.0, 1e-6])),
        (RandomWalk(cov=COV), COV),
        (AdaptiveRandomWalk(), 2.38**2 / 3 * np.eye(3)),
    ],
)
@pytest.mark.covering(2)
def test_steps_have_the_given_covariance(proposal, cov):
    sample, extra = steps(proposal.bind(3, 0.234))
    np.testing.assert_array_equal(extra, 0.0)
    assert worst_z_of_moments(sample, 0.0, cov) < LIMIT
    assert worst_z_of_moments(sample, 0.0, 1.05 * cov) > LIMIT
    for k in range(3):
        assert stats.kstest(sample[:, k] / np.sqrt(cov[k, k]), "norm").pvalue > 1e-4


def test_a_transposed_factor_is_noticed():
    state = CorrelatedWalk(np.ones(1), np.linalg.cholesky(COV))
    sample, _ = steps(BoundProposal(state, propose_correlated, no_adaptation))
    assert worst_z_of_moments(sample, 0.0, COV) < LIMIT

    @register_jitable
    def transposed(state, q, rng):
        return q + state.factor.T @ rng.standard_normal(q.shape[0]), 0.0

    sample, _ = steps(BoundProposal(state, transposed, no_adaptation))
    assert worst_z_of_moments(sample, 0.0, COV) > LIMIT


def test_an_adapted_walk_uses_scale_and_factor():
    state = AdaptiveRandomWalk().bind(3, 0.234).state
    state.scale[0], state.factor[:] = 0.5, np.linalg.cholesky(COV)
    sample, _ = steps(BoundProposal(state, propose_correlated, adapt))
    assert worst_z_of_moments(sample, 0.0, 0.25 * COV) < LIMIT


# Validation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "either scale or cov, and not both"),
        ({"scale": 1.0, "cov": np.eye(2)}, "either scale or cov, and not both"),
        ({"scale": 0.0}, "scale must be a positive number .* got 0.0"),
        ({"scale": -1.0}, "scale .* got -1.0"),
        ({"scale": math.nan}, "scale .* got nan"),
        ({"scale": math.inf}, "scale .* got inf"),
        ({"scale": [1.0, 0.0]}, r"scale .* got \[1.0, 0.0\]"),
        ({"scale": np.eye(2)}, "scale must be a positive number or a vector"),
        ({"cov": [1.0, 2.0]}, r"cov must be a symmetric matrix, got shape \(2,\)"),
        ({"cov": np.ones((2, 3))}, r"cov must be a symmetric matrix, got shape \(2, 3\)"),
        ({"cov": [[1.0, 0.5], [0.0, 1.0]]}, "cov must be a symmetric matrix"),
        ({"cov": [[1e-9, 9e-10], [0.0, 1e-9]]}, "cov must be a symmetric matrix"),
        ({"cov": [[1.0, 2.0], [2.0, 1.0]]}, "cov must be positive definite; .* is -1"),
        ({"cov": np.zeros((2, 2))}, "cov must be positive definite; .* is 0"),
        ({"cov": [[math.nan, 0.0], [0.0, 1.0]]}, "cov must be"),
    ],
)
def test_a_wrong_random_walk_is_refused(parameters, said):
    with pytest.raises(ValueError, match=said):
        RandomWalk(**parameters)


@pytest.mark.parametrize(
    ("proposal", "said"),
    [
        (RandomWalk(scale=[1.0, 2.0]), r"scale must have length 1001, got shape \(2,\)"),
        (RandomWalk(cov=np.eye(2)), r"cov must have shape \(1001, 1001\), got \(2, 2\)"),
        (AdaptiveRandomWalk(), "1001 x 1001 covariance"),
    ],
)
def test_another_dimension_is_refused(proposal, said):
    with pytest.raises(ValueError, match=said):
        proposal.bind(1001, 0.234)


def test_a_wrong_target_is_refused():
    with pytest.raises(ValueError, match=r"target_accept must be in \(0, 1\), got 1.0"):
        AdaptiveRandomWalk(target_accept=1.0)


METROPOLIS, BARKER = (Exact(), TTest(), Concentration()), (ExactBarker(), Barker())


@pytest.mark.parametrize(
    ("rules", "targets"),
    [
        (METROPOLIS, {1: 0.44, 2: 0.44, 3: 0.234, 30: 0.234}),
        (BARKER, {1: 0.27, 2: 0.23, 4: 0.21, 10: 0.19, 20: 0.17, 21: 0.16, 500: 0.16}),
    ],
)
def test_default_targets(rules, targets):
    for rule, (n_dim, target) in product(rules, targets.items()):
        assert rule.target_accept(n_dim) == target
        for proposal, expected in ((AdaptiveRandomWalk(), target), (AdaptiveRandomWalk(0.3), 0.3)):
            assert bind(proposal, n_dim, target).state.target_accept[0] == expected


# What is learnt -------------------------------------------------------------------------------------


@register_jitable
def gaussian(q_new, q, args):
    """N(0, inverse of args[0]), all of it in the global part."""
    precision = args[0]
    total = 0.0
    for i in range(q.shape[0]):
        for j in range(q.shape[0]):
            total += precision[i, j] * (q[i] * q[j] - q_new[i] * q_new[j])
    return 0.5 * total


def covariance(n_dim, rotated):
    """Variances from 1e-6 to 1e-2, along the axes or along random directions."""
    variances = np.logspace(-6, -2, n_dim)
    if not rotated:
        return np.diag(variances)
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(n_dim, n_dim)))[0]
    return axes * variances @ axes.T


def chain(n, tune, cov, state, rng, q):
    trace = compiled_trace(propose_correlated, adapt, Exact().functions, Target(gaussian, zeros))
    precision, schedule = np.linalg.inv(cov), Exact().bind(2)
    return trace(n, tune, rng, q, (precision,), rows_of(schedule), state, schedule)


def learn(n_dim, rotated, n_tune, seed, target=None):
    """Tune from a draw of the target. Returns state, tuning trace and frozen trace."""
    cov, rng = covariance(n_dim, rotated), np.random.default_rng(seed)
    state = AdaptiveRandomWalk(target).bind(n_dim, Exact().target_accept(n_dim)).state
    start = np.linalg.cholesky(cov) @ rng.standard_normal(n_dim)
    tuning = chain(n_tune, True, cov, state, rng, start)
    learnt = deepcopy(state)
    frozen = chain(40_000, False, cov, state, rng, tuning.q[-1].copy())
    for before, after in zip(learnt, state, strict=True):
        np.testing.assert_array_equal(before, after)  # frozen when tune is False
    return state, tuning, frozen


def windows(n):
    """Ends of the windows of 50, 75, 112, ... transitions, up to n."""
    ends, length = [0], 50
    while ends[-1] + length <= n:
        ends.append(ends[-1] + length)
        length += length // 2
    return ends


def learnt_independently(q, accepted, n_dim, target):
    """What `adapt` should have learnt from a chain: factor, scale, and the unfinished window."""
    ends = windows(len(q))
    factor, scale = np.eye(n_dim), 2.38 / np.sqrt(n_dim)
    for start, end in pairwise([*ends, len(q)]):
        t = np.arange(1, end - start + 1)
        gain = np.minimum(1, 10 / (t + 0.1 * (start + t)))
        scale *= np.exp(gain @ (accepted[start:end] - target))
        if end in ends[1:] and end > start:
            suited = scale**2 * n_dim / 2.38**2 * factor @ factor.T
            counted = np.cov(q[start:end].T, bias=True) * (end - start)
            learnt = (counted + 3 * n_dim * suited) / (end - start + 3 * n_dim)
            factor, scale = np.linalg.cholesky(learnt), 2.38 / np.sqrt(n_dim)
    return factor, scale, q[ends[-1] :]


@pytest.mark.parametrize("n_dim", [1, 2, 10])
@pytest.mark.parametrize("n_tune", [1, 49, 50, 51, 125, 3000])
@pytest.mark.covering(11)
def test_adaptation_equals_the_covariance_of_whole_windows(n_dim, n_tune):
    cov = covariance(n_dim, True) if n_dim > 1 else np.eye(1)
    state = AdaptiveRandomWalk().bind(n_dim, Exact().target_accept(n_dim)).state
    trace = chain(n_tune, True, cov, state, np.random.default_rng(2), np.zeros(n_dim))
    factor, scale, window = learnt_independently(trace.q, trace.accepted, n_dim, state.target_accept[0])
    np.testing.assert_allclose(state.scale[0], scale, rtol=1e-9)
    np.testing.assert_allclose(state.factor, factor, rtol=1e-6, atol=1e-9 * factor.max())
    assert state.counts[0] == len(window)
    assert windows(n_tune)[-1] + state.counts[1] == windows(10 * n_tune + 100)[len(windows(n_tune))]
    if len(window):
        np.testing.assert_allclose(state.mean, window.mean(axis=0), rtol=1e-9, atol=1e-15)
        scatter = np.tril((window - window.mean(axis=0)).T @ (window - window.mean(axis=0)))
        np.testing.assert_allclose(state.scatter, scatter, rtol=1e-7, atol=1e-9 * scatter.max())
    else:
        assert not state.mean.any()
        assert not state.scatter.any()


def test_a_chain_that_never_moves_makes_its_steps_smaller():
    state, bound = AdaptiveRandomWalk().bind(2, 0.44).state, []
    for _ in range(4000):
        adapt(state, np.array([3.0, 4.0]), False)
        bound.append(state.scale[0] * state.factor[1, 1])
    assert np.all(np.isfinite(state.factor))
    assert np.all(np.linalg.eigvalsh(state.factor @ state.factor.T) > 0)
    assert bound[-1] < 1e-3 * bound[0]


# Ends far into a window, so that the scale had the time to follow the acceptance rate.
N_TUNE = 28_000


@pytest.mark.parametrize(("n_dim", "target"), [(2, 0.44), (2, 0.3), (10, 0.234), (10, 0.4)])
@pytest.mark.parametrize("rotated", [False, True])
def test_the_acceptance_rate_reaches_its_target(n_dim, target, rotated):
    _, _, frozen = learn(n_dim, rotated, N_TUNE, seed=4, target=target)
    assert frozen.accepted.mean() == pytest.approx(target, abs=0.03)


@pytest.mark.parametrize("n_dim", [2, 10])
@pytest.mark.parametrize("rotated", [False, True])
def test_the_covariance_is_learnt(n_dim, rotated):
    """And the tuned chain samples its target. Planted fault: the last row of the factor twice as large."""
    whiten = np.linalg.inv(np.linalg.cholesky(covariance(n_dim, rotated)))
    state, _, frozen = learn(n_dim, rotated, N_TUNE, seed=5)
    learnt = np.linalg.svd(whiten @ state.factor, compute_uv=False)
    assert 0.85 < learnt.min() < learnt.max() < 1.17
    for z in (frozen.q @ whiten.T).T:
        assert abs(z_of_mean(z, 0.0)) < LIMIT
        assert abs(z_of_mean(z**2, 1.0)) < LIMIT
    state.factor[-1] *= 2
    assert np.linalg.svd(whiten @ state.factor, compute_uv=False).max() > 1.17


# Users' proposals -----------------------------------------------------------------------------------


class Drift:
    """An object with a method `propose`."""

    def propose(self, q, rng):
        return q + rng.standard_normal(len(q)), 0.25


def test_functions_and_objects_are_bound():
    drift = Drift()
    for proposal in (drift, drift.propose, lambda q, rng: drift.propose(q, rng)):
        bound = bind(proposal, 2, 0.44)
        q_new, log_hastings = bound.propose(bound.state, np.zeros(2), np.random.default_rng(8))
        np.testing.assert_array_equal(q_new, np.random.default_rng(8).standard_normal(2))
        assert log_hastings == 0.25
        assert math.isnan(bound.state.scale[0])
        bound.adapt(bound.state, q_new, True)
    assert bind(RandomWalk(2.0), 3, 0.234).propose is propose_scaled
    assert isinstance(bind(AdaptiveRandomWalk(), 3, 0.234).state, AdaptiveWalk)
