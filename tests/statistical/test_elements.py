"""Effects of groups and mixtures of experts, one element at a time, against quadrature and enumeration."""

import math

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit, log_expit

from pymc_austerity import AusterityMH, MetropolisHastings, MinibatchCategoricalGibbs, restricted_slice
from pymc_austerity.testing.compare import error_of_mean
from tests.sampling import sampled

# Two hundred groups ------------------------------------------------------------------------------------

# Mean and standard deviation by quadrature: of tau, and of the effects of groups of 6, 92 and 2978 rows.
TAU = (0.9026, 0.0539)
EFFECTS = {6: (-0.386, 0.625), 92: (0.834, 0.221), 2978: (-0.0322, 0.0366)}


def many_groups():
    rng = np.random.default_rng(30)
    n = np.round(np.exp(rng.uniform(np.log(5), np.log(3000), 200))).astype(int)
    a = 0.8 * rng.normal(size=200)
    y = rng.random(n.sum()) < expit(np.repeat(a, n))
    return n, np.repeat(np.arange(200), n), y


@pytest.mark.slow("550 sweeps over 103,000 rows")
@pytest.mark.parametrize("epsilon", [0.0, 0.01])
def test_groups_of_very_different_sizes(epsilon):
    n, group, y = many_groups()
    with pm.Model():
        tau = pm.HalfNormal("tau", 1.0)
        a = pm.Normal("a", 0.0, tau, shape=200)
        pm.Bernoulli("y", logit_p=a[group], observed=y)
        step = AusterityMH([a], epsilon=epsilon, elementwise=True)
        idata = sampled(400, [step, restricted_slice([tau])], tune=150, chains=1, random_seed=2)
    used = idata.sample_stats["n_used"].to_numpy() * 200
    assert np.all(used <= len(y) * (1 + 1e-12))
    if epsilon == 0.0:
        np.testing.assert_allclose(used, len(y))
    draws = {"tau": idata.posterior["tau"].to_numpy()[0]}
    expected = {"tau": TAU}
    for size, moments in EFFECTS.items():
        rows = y[group == np.flatnonzero(n == size)[0]]
        # Of several groups of one size, the one whose data are those of the reference.
        candidates = np.flatnonzero(n == size)
        shares = [y[group == k].mean() for k in candidates]
        chosen = candidates[int(np.argmin(np.abs(np.array(shares) - expit(moments[0]))))]
        assert len(rows) == size
        draws[str(size)], expected[str(size)] = idata.posterior["a"].to_numpy()[0, :, chosen], moments
    for name, x in draws.items():
        mean, sd = expected[name]
        slack = 0.15 if epsilon else 0.0
        assert abs(x.mean() - mean) < 4 * error_of_mean(x) + slack * sd
        error_of_sd = error_of_mean((x - x.mean()) ** 2) / (2 * sd)
        assert abs(x.std() - sd) < 4 * error_of_sd + (0.05 + slack) * sd


# Experts with known components -----------------------------------------------------------------------------


def known_components(n=60, seed=7):
    rng = np.random.default_rng(seed)
    z = (rng.random(n) < 0.6).astype(int)
    x = rng.normal(np.array([-1.0, 1.0])[z], 1.0)
    y = (rng.random(n) < expit(np.array([-1.5, 2.0])[z] * x)).astype(int)
    return x, y


def quadrature(x, y):
    """Means and standard deviations of B_0, B_1 with z summed out."""
    grid = np.linspace(-9.0, 9.0, 361)
    weight = np.array([0.4, 0.6]) * np.exp(-0.5 * (x[:, None] - np.array([-1.0, 1.0])) ** 2)
    sign = np.where(y == 1, 1.0, -1.0)[:, None]
    likelihood = np.exp(log_expit(sign * x[:, None] * grid))
    log_density = np.zeros((len(grid), len(grid)))
    for i in range(len(x)):
        log_density += np.log(weight[i, 0] * likelihood[i][:, None] + weight[i, 1] * likelihood[i])
    log_density -= (grid[:, None] ** 2 + grid**2) / 8.0
    p = np.exp(log_density - log_density.max())
    p /= p.sum()
    moments = []
    for k in range(2):
        marginal = p.sum(axis=1 - k)
        mean = marginal @ grid
        moments.append((mean, math.sqrt(marginal @ (grid - mean) ** 2)))
    return moments


@pytest.mark.slow("4,000 sweeps of a mixture")
def test_experts_with_known_components():
    x, y = known_components()
    with pm.Model():
        z = pm.Categorical("z", np.array([0.4, 0.6]), shape=len(x))
        B = pm.Normal("B", 0.0, 2.0, shape=2)
        pm.Normal("x", pm.math.constant(np.array([-1.0, 1.0]))[z], 1.0, observed=x)
        pm.Bernoulli("y", logit_p=B[z] * x, observed=y)
        steps = [MinibatchCategoricalGibbs([z]), MetropolisHastings([B], elementwise=True)]
        idata = sampled(4000, steps, tune=500, chains=1, random_seed=3)
    for draws, (mean, sd) in zip(idata.posterior["B"].to_numpy()[0].T, quadrature(x, y), strict=True):
        assert abs(draws.mean() - mean) < 4 * error_of_mean(draws)
        assert abs(draws.std() - sd) < 4 * error_of_mean((draws - draws.mean()) ** 2) / (2 * sd)
