"""Steps with control variates on logistic regression: what they cost, how they mix, and whether they err."""

from dataclasses import dataclass
from typing import NamedTuple

import arviz as az
import numpy as np
import pymc as pm
import pytest
from numba.extending import register_jitable
from scipy.special import expit
from scipy.stats import qmc

import pymc_austerity as pma
from pymc_austerity.acceptance import TTest
from tests.statistical.errors import LIMIT

full_size = pytest.mark.full_size("more rows than 10,000")


# Chains and their Monte Carlo errors ------------------------------------------------------------------


class Moments(NamedTuple):
    """Means and standard deviations with their standard errors, and effective numbers of draws."""

    mean: np.ndarray
    mean_error: np.ndarray
    sd: np.ndarray
    sd_error: np.ndarray
    ess: np.ndarray


def chain(model, step, draws, *, seed, tune=200, start=None):
    with model:
        return pm.sample(
            draws, tune=tune, chains=1, step=step, random_seed=seed, initvals=start, progressbar=False,
            quiet=True, compute_convergence_checks=False,
        )  # fmt: skip


def columns(idata, **maps):
    """Draws as a matrix; keywords are variables, and functions to apply to them or None."""
    parts = []
    for name, function in maps.items():
        x = idata.posterior[name].values[0]
        parts.append((x if function is None else function(x)).reshape(len(x), -1))
    return np.concatenate(parts, axis=1)


def moments(draws):
    """Of one chain, a matrix."""
    data = az.from_dict({"posterior": {"x": draws[None]}}).posterior

    def value(result):
        return result["x"].values

    return Moments(
        draws.mean(axis=0),
        value(az.mcse(data, method="mean")),
        draws.std(axis=0),
        value(az.mcse(data, method="sd")),
        value(az.ess(data, method="bulk")),
    )


def distances(one, two):
    """Differences of means and of standard deviations, in standard errors."""
    means = (one.mean - two.mean) / np.hypot(one.mean_error, two.mean_error)
    sds = (one.sd - two.sd) / np.hypot(one.sd_error, two.sd_error)
    return np.abs([means, sds])


def mean_of(idata, stat):
    return float(idata.sample_stats[stat].mean())


# Logistic regression ----------------------------------------------------------------------------------


def logistic_data(n, n_dim=10, seed=0):
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), rng.normal(size=(n, n_dim - 1))]
    y = rng.random(n) < expit(X @ rng.normal(size=n_dim) / np.sqrt(n_dim))
    return X, y.astype(float)


def logistic_model(X, y):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return model


@pytest.fixture(scope="module")
def logistic():
    """The model for any number of rows; the last few are kept."""
    models = {}

    def make(n):
        if n not in models:
            models[n] = logistic_model(*logistic_data(n))
        return models[n]

    return make


# Cost and mixing --------------------------------------------------------------------------------------

SIZES = [
    pytest.param(10_000, marks=pytest.mark.slow("long chains, at the mode and away from it")),
    pytest.param(100_000, marks=full_size),
    pytest.param(1_000_000, marks=full_size),
]
EXACT_ROWS = 100


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("epsilon", "most"), [(0.01, 150), (0.05, 100)])
@pytest.mark.parametrize(("mix", "least"), [(0, 0.85), (None, 0.65)])
def test_cost_and_mixing_of_austerity(logistic, n, epsilon, most, mix, least):
    step = pma.AusterityMH(
        model=logistic(n),
        epsilon=epsilon,
        control_variate=pma.Taylor(),
        proposal=None if mix is None else pma.Laplace(mix=mix),
    )
    # Now and then a decision reads all rows: the mean of 40,000 decisions at N = 1e6 varies by a third.
    draws = 200_000 if n > 10_000 else 50_000
    idata = chain(logistic(n), step, draws, seed=1)
    ess = moments(columns(idata, beta=None)).ess
    assert mean_of(idata, "n_used") - EXACT_ROWS <= most
    assert ess.min() / draws >= least


@pytest.mark.parametrize("n", SIZES)
def test_cost_and_mixing_of_barker(logistic, n):
    step = pma.MinibatchBarker(
        model=logistic(n), control_variate=pma.Taylor(exact_rows=0), proposal=pma.Laplace(mix=0)
    )
    draws = 100_000
    idata = chain(logistic(n), step, draws, seed=2)
    assert mean_of(idata, "n_used") <= 60
    assert moments(columns(idata, beta=None)).ess.min() / draws >= 0.30


# Bias -------------------------------------------------------------------------------------------------

# The reference has next to no error, so that half as many draws see what two chains of 1e5 would.
DRAWS, ENOUGH = 85_000, 5e4


@register_jitable
def accept_all(schedule, sample, psi, rng):
    return True


@dataclass(frozen=True)
class Credulous(TTest):
    """A planted fault: everything is accepted, so that the chain has the law of its proposal."""

    @property
    def functions(self):
        return super().functions._replace(accept=accept_all)


def by_importance(X, y, replicates=8, points=2**13):
    """Moments from quasi-random draws around the mode, and their errors by differences of replicates."""
    mode = np.zeros(X.shape[1])
    for _ in range(20):
        mu = expit(X @ mode)
        precision = (X.T * (mu * (1 - mu))) @ X + np.eye(len(mode))
        mode = mode + np.linalg.solve(precision, X.T @ (y - mu) - mode)
    wider = 1.1 * np.linalg.inv(precision)
    means, sds = np.empty((2, replicates, len(mode)))
    for k in range(replicates):
        beta = qmc.MultivariateNormalQMC(mode, wider, rng=k).random(points)
        log_weights = -0.5 * (beta**2).sum(axis=1) + beta @ (X.T @ y)
        log_weights += 0.5 / 1.1 * np.einsum("ij,jk,ik->i", beta - mode, precision, beta - mode)
        for part in np.array_split(np.arange(points), 8):
            log_weights[part] -= np.logaddexp(0.0, beta[part] @ X.T).sum(axis=1)
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        means[k] = weights @ beta
        sds[k] = np.sqrt(weights @ (beta - means[k]) ** 2)
    errors = [each.std(axis=0, ddof=1) / np.sqrt(replicates) for each in (means, sds)]
    found = Moments(means.mean(axis=0), errors[0], sds.mean(axis=0), errors[1], np.full(len(mode), np.inf))
    # A third of the error of 1e5 draws at most, most of it far less.
    assert np.all(np.maximum(*errors) < 1e-3 * found.sd)
    return found


@pytest.fixture(scope="module")
def exact():
    """Moments by importance sampling, for any number of rows."""
    found = {}

    def make(n):
        if n not in found:
            found[n] = by_importance(*logistic_data(n))
        return found[n]

    return make


def by_subsampling(model, acceptance):
    step = pma.MetropolisHastings(
        model=model, acceptance=acceptance, control_variate=pma.Taylor(), proposal=pma.Laplace(mix=0.1)
    )
    result = moments(columns(chain(model, step, DRAWS, seed=4), beta=None))
    assert result.ess.min() >= ENOUGH
    return result


@pytest.mark.parametrize(
    "n",
    [
        pytest.param(
            1000,
            marks=pytest.mark.slow("85,000 transitions: errors of a few hundredths of a standard deviation"),
        ),
        pytest.param(3000, marks=pytest.mark.full_size("the same with more rows")),
        pytest.param(10_000, marks=pytest.mark.full_size("the same with more rows, minutes")),
    ],
)
class TestBias:
    @pytest.mark.parametrize("epsilon", [0.01, 0.05])
    def test_posterior(self, logistic, exact, n, epsilon):
        step = pma.AusterityMH(
            model=logistic(n),
            epsilon=epsilon,
            control_variate=pma.Taylor(),
            proposal=pma.Laplace(mix=0.1),
        )
        found = moments(columns(chain(logistic(n), step, DRAWS, seed=5), beta=None))
        assert found.ess.min() >= ENOUGH
        assert distances(found, exact(n)).max() < LIMIT

    def test_accepting_everything_is_noticed(self, logistic, exact, n):
        found = by_subsampling(logistic(n), Credulous(0.05, 50))
        assert distances(found, exact(n))[0].max() > LIMIT
