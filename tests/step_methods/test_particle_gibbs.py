"""`ParticleGibbs` as a step: against a smoother, and refusals; see `tests/conformance`, too."""

import logging
import time

import arviz as az
import numpy as np
import pymc as pm
import pytest
from numba import njit

from pymc_austerity import FactorisationError, ParticleGibbs
from pymc_austerity.testing.models import Solved
from pymc_austerity.testing.steps import move

LIMIT = 4.0
PHI, Q = 0.9, 0.5


def smoothed(y, seen):
    """Means and standard deviations of the states, with y ~ N(h, 1) where it was seen."""
    n = len(y)
    precision = np.diag(seen.astype(float))
    precision[0, 0] += (1 - PHI**2) / Q**2
    for t in range(1, n):
        precision[t - 1 : t + 1, t - 1 : t + 1] += np.outer([-PHI, 1], [-PHI, 1]) / Q**2
    covariance = np.linalg.inv(precision)
    return covariance @ np.where(seen, y, 0.0), np.sqrt(np.diag(covariance))


def linear_gaussian(n=300, seed=24, share_seen=0.9):
    """A model with missing observations, and its posterior."""
    rng = np.random.default_rng(seed)
    h = np.zeros(n)
    for t in range(1, n):
        h[t] = PHI * h[t - 1] + Q * rng.normal()
    y, seen = h + rng.normal(size=n), rng.random(n) < share_seen
    with pm.Model() as model:
        start = pm.Normal.dist(0, Q / np.sqrt(1 - PHI**2))
        states = pm.AR("h", rho=[PHI], sigma=Q, init_dist=start, shape=n)
        # Written so that it is no part of the proposal: weights are what is tested.
        residual = pm.math.abs(y[seen] - states[np.flatnonzero(seen)])
        pm.Potential("y", -0.5 * residual**2)
    mean, sd = smoothed(y, seen)
    return Solved(model, {"h": mean}, {"h": sd})


def draws_of(step, point, n):
    """States and statistics of n steps."""
    points, stats = move(step, point, n)
    return np.stack([point["h"] for point in points]), stats


LONGER = pytest.mark.full_size("tens of thousands of sweeps, with errors of sds of at most .02")
SLOW = pytest.mark.slow("35,000 sweeps")
LENGTHS = [
    (5, 4000),
    pytest.param(20, 35_000, marks=SLOW),
    *(pytest.param(*each, marks=LONGER) for each in ((5, 50_000), (100, 8000))),
]


@pytest.mark.parametrize(("particles", "n"), LENGTHS)
@pytest.mark.slow("builds and compiles several steps")
def test_a_smoother_says_the_same(particles, n):
    problem = linear_gaussian(n=100)
    step = ParticleGibbs(["h"], particles=particles, model=problem.model, rng=particles)
    found, stats = draws_of(step, {"h": problem.mean["h"]}, n)
    found = found[n // 20 :]
    error = [float(az.mcse(x[None], method="mean")) for x in found.T]
    z = (found.mean(axis=0) - problem.mean["h"]) / error
    assert np.abs(z).max() < LIMIT
    assert np.sqrt(np.mean(z**2)) < 1.3
    ratio = np.log(found.std(axis=0) / problem.sd["h"])
    error = [1 / np.sqrt(2 * float(az.ess(x[None], method="sd"))) for x in found.T]
    assert max(error) < 0.02 or n < 5000
    assert np.abs(ratio / error).max() < LIMIT
    assert abs(ratio.mean()) < 0.02
    moved = np.mean([each["moved"] for each in stats])
    assert moved > 1 - 1.5 / particles - 0.2
    assert all(1.0 <= each["smallest_ess"] <= particles for each in stats)


@pytest.mark.slow("builds and compiles several steps")
def test_statistics():
    problem = linear_gaussian(n=40)
    step = ParticleGibbs(["h"], model=problem.model, rng=1, steps_per_draw=2)
    _, (stats,) = step.step({"h": problem.mean["h"]})
    assert stats["n_used"] == 40 + (problem.model["y"].eval({"h": np.zeros(40)}).size)
    assert stats["fraction_used"] == 1.0
    assert 0.0 <= stats["moved"] <= 1.0
    assert step.configuration["particles"] == 20
    assert "particles=20" in repr(step)


def test_what_changes_a_parameter_changes_the_states():
    """The transitions are those of the present value of sigma."""
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        pm.AR("h", rho=[0.9], sigma=sigma, init_dist=pm.Normal.dist(0, sigma), shape=200)
    step = ParticleGibbs(["h"], model=model, rng=1)
    sds = []
    for log_sigma in (-3.0, 0.0):
        found, _ = draws_of(step, {"h": np.zeros(200), "sigma_log__": np.array(log_sigma)}, 200)
        sds.append(np.diff(found[20:], axis=1).std())
    expected = np.exp([-3.0, 0.0]) * np.sqrt(2 / 1.9)
    np.testing.assert_allclose(sds, expected, rtol=0.05)


class TestRefusals:
    def test_several_variables(self):
        with pm.Model() as model:
            for name in "hg":
                pm.AR(name, rho=[0.5], sigma=1, init_dist=pm.Normal.dist(0, 1), shape=5)
        with pytest.raises(ValueError, match="got h, g"):
            ParticleGibbs(["h", "g"], model=model)

    def test_discrete_states(self):
        with pm.Model() as model:
            pm.Poisson("h", 3, shape=5)
        with pytest.raises(ValueError, match="discrete: h"):
            ParticleGibbs(["h"], model=model)

    def test_a_chain_of_order_two(self):
        with pm.Model() as model:
            pm.AR("h", rho=[0.5, 0.2], sigma=1, init_dist=pm.Normal.dist(0, 1, shape=2), shape=5)
        with pytest.raises(FactorisationError, match=r"h\[0\], h\[1\], h\[2\]"):
            ParticleGibbs(["h"], model=model)

    def test_an_impossible_time_is_named(self):
        with pm.Model() as model:
            h = pm.AR("h", rho=[0.5], sigma=1, init_dist=pm.Normal.dist(0, 1), shape=(2, 5))
            closed = np.zeros((2, 5))
            closed[1, 3] = 1.0
            pm.Potential("gate", pm.math.switch(closed * (h < 1e9) > 0, -np.inf, 0.0))
        step = ParticleGibbs(["h"], model=model, rng=1)
        with pytest.raises(ValueError, match=r"h\[1, 3\].*terms h, gate"):
            step.step({"h": np.zeros((2, 5))})

    def test_another_shape(self):
        step = ParticleGibbs(["h"], model=linear_gaussian(n=5).model, rng=1)
        with pytest.raises(ValueError, match=r"must have shape \(5,\), got \(4,\)"):
            step.step({"h": np.zeros(4)})


@njit
def by_hand(rng, h, x, phi, sigma, n):
    """The same sweep, written for stochastic volatility alone."""
    n_times = len(h)
    particles, parents = np.empty((n_times, n)), np.zeros((n_times, n), np.int32)
    log_weights, sums, linked = np.empty(n), np.empty(n), np.empty(n)
    for t in range(n_times):
        particles[t, 0] = h[t]
        if t == 0:
            particles[0, 1:] = rng.standard_normal(n - 1) * sigma
        else:
            for i in range(1, n):
                k = np.searchsorted(sums, rng.random() * sums[-1])
                parents[t, i] = k
                particles[t, i] = phi * particles[t - 1, k] + sigma * rng.standard_normal()
            for i in range(n):
                linked[i] = log_weights[i] - 0.5 * ((h[t] - phi * particles[t - 1, i]) / sigma) ** 2
            parents[t, 0] = np.searchsorted(np.cumsum(np.exp(linked - linked.max())), rng.random())
            parents[t, 0] = min(parents[t, 0], n - 1)
        for i in range(n):
            log_weights[i] = -0.5 * (particles[t, i] + x[t] ** 2 * np.exp(-particles[t, i]))
        largest, total = log_weights.max(), 0.0
        for i in range(n):
            total += np.exp(log_weights[i] - largest)
            sums[i] = total
    k = np.searchsorted(sums, rng.random() * sums[-1])
    for t in range(n_times - 1, -1, -1):
        h[t] = particles[t, k]
        k = parents[t, k]


@pytest.mark.full_size("a benchmark: 30 sweeps over 100,000 states")
def test_a_long_chain_takes_at_most_twice_the_time_of_a_loop_by_hand():
    n_times, rng = 100_000, np.random.default_rng(1)
    x = rng.normal(size=n_times)
    with pm.Model() as model:
        phi, sigma = pm.Beta("phi", 5, 1), pm.HalfNormal("sigma", 1)
        h = pm.AR("h", rho=[phi], sigma=sigma, init_dist=pm.Normal.dist(0, sigma), shape=n_times)
        pm.Normal("x", 0, pm.math.exp(h / 2), observed=x)
    step = ParticleGibbs(["h"], model=model, rng=1)
    point = model.initial_point()
    states = np.zeros(n_times)

    def seconds(run):
        began = time.process_time()
        run()
        return time.process_time() - began

    runs = [lambda: step.step(point), lambda: by_hand(rng, states, x, 0.8, 0.3, 20)]
    for run in runs:
        run()
    ours, theirs = np.median([[seconds(run) for run in runs] for _ in range(15)], axis=0)
    logging.getLogger(__name__).info("%.2f and %.2f microseconds a state", 10 * ours, 10 * theirs)
    assert ours < 2.0 * theirs


def test_effective_draws_are_many():
    """Ancestor sampling moves early states as often as late ones."""
    problem = linear_gaussian()
    step = ParticleGibbs(["h"], particles=5, model=problem.model, rng=2)
    found, _ = draws_of(step, {"h": problem.mean["h"]}, 2000)
    ess = [float(az.ess(found[None, :, t])) for t in (0, 150, 299)]
    assert min(ess) > 200
