"""A Gaussian mixture by three steps: weights on exact counts, a minibatch of allocations, NUTS for the means.

The allocations are part of the state here. The reference is NUTS on the model with these summed out.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import restricted_nuts
from pymc_austerity.model.conjugacy.allocations import Allocations
from pymc_austerity.step_methods.categorical_gibbs import MinibatchCategoricalGibbs
from pymc_austerity.step_methods.gamma.scir import SCIR
from tests.statistical.errors import LIMIT, error_of_mean, sd_with_error

pytestmark = pytest.mark.slow("long chains of three steps, and the reference by NUTS")

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


def marginalised():
    y = data()
    with pm.Model() as model:
        w, mu = parameters()
        terms = pt.log(w) + pm.logp(pm.Normal.dist(mu, 1), y[:, None])
        pm.Potential("y", pt.logsumexp(terms, axis=1))
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


@pytest.fixture(scope="module")
def reference():
    model = marginalised()
    return posterior(model, pm.NUTS(model=model), 10_000, 31)


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
    for x, y in zip(found, reference, strict=True):
        means.append((x.mean() - y.mean()) / np.hypot(error_of_mean(x), error_of_mean(y)))
        (sd_x, error_x), (sd_y, error_y) = sd_with_error(x), sd_with_error(y)
        ratios.append(sd_x / sd_y)
        errors.append(np.hypot(error_x / sd_x, error_y / sd_y))
    return np.array(means), np.array(ratios), np.array(errors)


def test_same_posterior_as_the_marginalised_model(reference):
    model = with_allocations()
    means, ratios, errors = comparison(posterior(model, compound(model), 12_000, 32), reference)
    assert np.abs(means).max() < LIMIT
    # Ratios are known well enough for the tolerance to mean something.
    assert errors.max() < SD_TOLERANCE / 2
    assert np.abs(ratios - 1).max() < SD_TOLERANCE
    assert np.abs((ratios - 1) / errors).max() < LIMIT


def test_allocations_without_their_prior_are_noticed(reference, monkeypatch):
    """Planted bug; the check at build, which would notice it too, is switched off."""
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
