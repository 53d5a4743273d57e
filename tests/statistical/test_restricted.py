"""Hyperparameters drawn by a restricted step have the posterior that quadrature finds."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_austerity.step_methods.restricted as view
from pymc_austerity import AusterityMH, restricted_nuts, restricted_slice
from tests.sampling import sampled
from tests.statistical.errors import LIMIT, error_of_mean, sd_with_error

pytestmark = [
    pytest.mark.slow("long chains"),
    pytest.mark.filterwarnings("ignore:Tuning ended"),
]
GROUPS, ROWS = 6, 200
GROUP = np.repeat(np.arange(GROUPS), ROWS)


@pytest.fixture(scope="module")
def y():
    rng = np.random.default_rng(20)
    return 0.5 + rng.normal(0, 0.8, GROUPS)[GROUP] + rng.normal(0, 4, GROUPS * ROWS)


@pytest.fixture(scope="module")
def model(y):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        tau = pm.Gamma("tau", 8, 10)
        effect = pm.Normal("effect", mu, tau, shape=GROUPS)
        pm.Normal("y", effect[GROUP], 4, observed=y)
    return model


def posterior(model, step, draws):
    """Draws of mu, log tau and one effect."""
    with model:
        idata = sampled(draws, step, tune=1000, chains=2, random_seed=21, nuts_sampler="pymc")
    found = idata["posterior"]
    return [found["mu"].values, np.log(found["tau"].values), found["effect"].values[..., 0]]


@pytest.fixture(scope="module")
def exact(y):
    """Means and standard deviations of the same three. Given tau, mu and the effects are normal."""
    means, variance = y.reshape(GROUPS, ROWS).mean(axis=1), 16 / ROWS
    tau = np.linspace(0, 6, 60_001)[1:]
    spread = tau**2 + variance  # of the mean of a group around mu
    precision = 1 + GROUPS / spread
    mu, mu_variance = means.sum() / spread / precision, 1 / precision
    # The means of the groups have covariance spread I + 1 1'.
    quadratic = (means @ means - means.sum() ** 2 / (spread + GROUPS)) / spread
    log_det = (GROUPS - 1) * np.log(spread) + np.log(spread + GROUPS)
    log_density = stats.gamma(8, scale=1 / 10).logpdf(tau) - 0.5 * (quadratic + log_det)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    share = tau**2 / spread  # of its own mean in an effect
    effect = share * means[0] + (1 - share) * mu
    effect_variance = share * variance + (1 - share) ** 2 * mu_variance
    result = []
    for center, inner in ((mu, mu_variance), (np.log(tau), 0.0), (effect, effect_variance)):
        mean = weights @ center
        result.append((mean, np.sqrt(weights @ (inner + (center - mean) ** 2))))
    return result


def distances(draws, exact):
    """Differences of means and standard deviations, in standard errors."""
    result = []
    for x, (mean, sd) in zip(draws, exact, strict=True):
        result.append((x.mean() - mean) / error_of_mean(x))
        found, error = sd_with_error(x)
        result.append((found - sd) / error)
    return np.abs(result)


def mixed(model, make):
    hyper = make([model["mu"], model["tau"]], model=model)
    return [AusterityMH([model["effect"]], epsilon=0, steps_per_draw=30, model=model), hyper]


@pytest.mark.parametrize("make", [restricted_nuts, restricted_slice])
def test_same_posterior(model, exact, make):
    assert distances(posterior(model, mixed(model, make), 5000), exact).max() < LIMIT


def test_a_missing_prior_is_noticed(model, exact, monkeypatch):
    """Planted fault: the check fails if a term is left out."""
    complete = view.raw_terms
    monkeypatch.setattr(
        view, "raw_terms", lambda *args: {k: v for k, v in complete(*args).items() if k != "tau"}
    )
    assert distances(posterior(model, mixed(model, restricted_nuts), 5000), exact).max() > 2 * LIMIT
