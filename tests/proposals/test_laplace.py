"""Proposals from the fitted normal law: what they propose, and log_hastings."""

import math

import numba
import numpy as np
import pytest
from scipy import stats

from pymc_austerity.proposals import Laplace
from pymc_austerity.proposals.base import is_fitted
from pymc_austerity.proposals.laplace import propose_laplace, squared, times_transposed, times_upper
from pymc_austerity.target import QuadraticProxy
from tests.kernels.engines import ScriptedRng
from tests.proposals.moments import COV, worst_z_of_moments
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
