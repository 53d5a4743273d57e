"""A Gaussian mixture by three steps: weights on exact counts, a minibatch of allocations, NUTS for the means.

The allocations are part of the state here. The reference is importance sampling with these summed out.
"""

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp

from pymc_austerity import restricted_nuts
from pymc_austerity.model.conjugacy.allocations import Allocations
from pymc_austerity.step_methods.categorical_gibbs import MinibatchCategoricalGibbs
from pymc_austerity.step_methods.gamma.scir import SCIR
from tests.statistical.errors import LIMIT, error_of_mean, sd_with_error
from tests.statistical.references import Moments, fit_normal, weigh

pytestmark = pytest.mark.slow("long chains of three steps")

N, K = 400, 3
CENTRES = np.array([-3.0, 0.0, 3.5])
WEIGHTS = np.array([0.5, 0.15, 0.35])
ALPHA = 2.0
# How far a standard deviation may be off, in shares of itself.
SD_TOLERANCE = 0.05


def data():
    rng = np.random.default_rng(12)
    return CENTRES[rng.choice(K, p=WEIGHTS, size=N)] + rng.normal(size=N)


def parameters():
    """Weights and means; the prior holds the labels apart."""
    w = pm.Dirichlet("w", np.full(K, ALPHA))
    return w, pm.Normal("mu", CENTRES, 1.0, shape=K, initval=CENTRES)


def with_allocations():
    y = data()
    with pm.Model() as model:
        w, mu = parameters()
        start = np.abs(y[:, None] - CENTRES).argmin(axis=1)
        z = pm.Categorical("z", p=w, shape=N, initval=start)
        pm.Normal("y", mu[z], 1, observed=y)
    return model


def posterior(model, step, draws, seed):
    """Draws of the means and weights, a list of (chain, draw) arrays."""
    with model:
        idata = pm.sample(
            draws, tune=1000, chains=2, cores=1, step=step, random_seed=seed, progressbar=False, quiet=True,
            nuts_sampler="pymc", compute_convergence_checks=False, var_names=["w", "mu"],
        )  # fmt: skip
    found = idata["posterior"]
    return [found[name].values[..., k] for name in ("w", "mu") for k in range(K)]


def log_weights(q):
    """Of the log odds of the first weights against the last."""
    odds = np.c_[q[:, : K - 1], np.zeros(len(q))]
    return odds - logsumexp(odds, axis=1, keepdims=True)


def log_density(q):
    """Of the log odds (with the Jacobian) and the means; allocations are summed out."""
    log_w, mu, y = log_weights(q), q[:, K - 1 :], data()
    parts = []
    for a, b in zip(*(np.array_split(part, len(q) // 500 + 1) for part in (log_w, mu)), strict=True):
        terms = a[:, None] - 0.5 * (y[:, None] - b[:, None]) ** 2
        parts.append(logsumexp(terms, axis=2).sum(axis=1))
    return np.concatenate(parts) + ALPHA * log_w.sum(axis=1) - 0.5 * ((mu - CENTRES) ** 2).sum(axis=1)


@pytest.fixture(scope="module")
def reference():
    """Of the weights and the means, in the order of `posterior`."""

    def weights(q):
        w = np.exp(log_weights(q))
        return w, w**2

    fit = fit_normal(log_density, np.r_[np.log(WEIGHTS[:-1] / WEIGHTS[-1]), CENTRES])
    found = weigh(log_density, fit, 40_000, hidden=weights)
    order = np.r_[2 * K - 1 : 3 * K - 1, K - 1 : 2 * K - 1]
    return Moments(*(part[order] for part in found))


def compound(model, batch_size=100, steps_per_draw=10):
    allocate = MinibatchCategoricalGibbs(
        [model["z"]], batch_size=batch_size, steps_per_draw=steps_per_draw, model=model
    )
    # Exact counts of allocations: every transition is exact, and a large step all but an independent draw.
    weights = SCIR([model["w"]], step_size=3.0, model=model)
    return [allocate, weights, restricted_nuts([model["mu"]], model=model)]


def comparison(found, reference):
    """Differences of means in standard errors, ratios of standard deviations, and errors of the ratios."""
    means, ratios, errors = [], [], []
    for x, mean, mean_error, sd_y, error_y in zip(found, *reference[:4], strict=True):
        means.append((x.mean() - mean) / np.hypot(error_of_mean(x), mean_error))
        sd_x, error_x = sd_with_error(x)
        ratios.append(sd_x / sd_y)
        errors.append(np.hypot(error_x / sd_x, error_y / sd_y))
    return np.array(means), np.array(ratios), np.array(errors)


def test_same_posterior_as_the_marginalised_model(reference):
    model = with_allocations()
    means, ratios, errors = comparison(posterior(model, compound(model), 8000, 32), reference)
    assert np.abs(means).max() < LIMIT
    # Ratios are known well enough for the tolerance to mean something.
    assert errors.max() < SD_TOLERANCE / 2
    assert np.abs(ratios - 1).max() < SD_TOLERANCE
    assert np.abs((ratios - 1) / errors).max() < LIMIT


def test_allocations_without_their_prior_are_noticed(reference, monkeypatch):
    """Planted fault; the check at build, which would notice it too, is switched off."""
    complete = Allocations._as_function_of_category
    monkeypatch.setattr(
        Allocations,
        "_as_function_of_category",
        lambda self, term, z: complete(self, term, z) * float(term.name != "z"),
    )
    monkeypatch.setattr(Allocations, "_compare_with_model", lambda *args: None)
    model = with_allocations()
    means, _, _ = comparison(posterior(model, compound(model), 4000, 33), reference)
    assert np.abs(means).max() > 2 * LIMIT
