"""Draws of fitted distributions, and evidence, against closed forms, quadrature and exact draws."""

import re
from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy import integrate, stats
from scipy.special import logsumexp

import pymc_austerity as pma
from pymc_austerity.exceptions import SubsamplingWarning, UnsuitableError
from pymc_austerity.mode.fields import order
from pymc_austerity.sampling import evidence
from pymc_austerity.sampling.approximate import compared
from pymc_austerity.step_methods.metropolis import fitted
from tests.mode.fields import fields
from tests.models import as_model

LIMIT = 4.5
RNG = np.random.default_rng(2)
N, G = 2000, 100
X = RNG.normal(size=N)
BINARY = (RNG.random(N) < 1.0 / (1.0 + np.exp(-(0.3 + 0.5 * X)))).astype(int)
OF = np.arange(N) % G
COUNTS = (RNG.random(N) < 1.0 / (1.0 + np.exp(-RNG.normal(0, 0.5, size=G)[OF]))).astype(int)
REAL = RNG.normal(size=N) + 0.4 * RNG.normal(size=G)[OF]


# Models with their evidence -------------------------------------------------------------------------------


@as_model
def regression():
    a, b = pm.Normal("a", 0, 1), pm.Exponential("b", 1.0)
    pm.Bernoulli("y", logit_p=a + b * X, observed=BINARY)


def of_regression():
    a, b = np.linspace(-0.2, 0.8, 81), np.linspace(0.05, 1.0, 81)
    eta = a[:, None, None] + b[:, None] * X
    log_p = (BINARY * eta - np.logaddexp(0.0, eta)).sum(axis=-1) + stats.norm.logpdf(a)[:, None] - b
    return by_quadrature(log_p, a, b)


def by_quadrature(log_p, *axes):
    values = np.exp(log_p - log_p.max())
    for axis in reversed(axes):
        values = integrate.simpson(values, x=axis)
    return log_p.max() + np.log(values)


@as_model
def centred():
    a = pm.Normal("a", pm.Normal("mu", 0, 1), pm.HalfNormal("tau", 1), shape=G)
    pm.Normal("y", a[OF], 1.0, observed=REAL)


def of_normal_groups():
    n, tau = N / G, np.linspace(0.2, 0.8, 501)
    means, v = np.bincount(OF, REAL) / n, 1.0 / n + tau[:, None] ** 2
    within = (
        -0.5 * (REAL @ REAL - n * means @ means)
        - 0.5 * N * np.log(2 * np.pi)
        + 0.5 * G * np.log(2 * np.pi / n)
    )
    precision, pull = G / v[:, 0] + 1.0, (means / v).sum(axis=1)
    log_p = within + stats.norm.logpdf(means, 0.0, np.sqrt(v)).sum(axis=1) + stats.halfnorm.logpdf(tau)
    return by_quadrature(log_p + 0.5 * pull**2 / precision - 0.5 * np.log(precision), tau)


@as_model
def binary_groups():
    a = pm.Normal("a", pm.Normal("mu", 0, 1), pm.HalfNormal("tau", 1), shape=G)
    pm.Bernoulli("y", logit_p=a[OF], observed=COUNTS)


def of_binary_groups():
    places, weights = np.polynomial.hermite_e.hermegauss(40)
    mu, tau = np.linspace(-0.5, 0.5, 51), np.linspace(0.1, 1.2, 111)
    eta = mu[:, None, None] + tau[:, None] * places
    ones = np.bincount(OF, COUNTS)[:, None, None, None]
    log_p = logsumexp(ones * eta - N / G * np.logaddexp(0.0, eta) + np.log(weights / weights.sum()), axis=-1)
    log_p = log_p.sum(axis=0) + stats.norm.logpdf(mu)[:, None] + stats.halfnorm.logpdf(tau)
    return by_quadrature(log_p, mu, tau)


@as_model
def summing_to_zero():
    """The narrow prior of the intercept sees the mean that the effects lose."""
    a = pm.ZeroSumNormal("a", pm.HalfNormal("tau", 1), shape=G)
    pm.Normal("y", pm.Normal("mu", 0, 0.05) + a[OF], 1.0, observed=REAL)


def of_effects_that_sum_to_zero():
    n, tau = N / G, np.linspace(0.2, 0.8, 501)
    means = np.bincount(OF, REAL) / n
    within = (
        -0.5 * (REAL @ REAL - n * means @ means)
        - 0.5 * N * np.log(2 * np.pi)
        + 0.5 * G * np.log(2 * np.pi / n)
    )
    along, across = means.sum() / np.sqrt(G), means.var() * G
    log_p = within + stats.norm.logpdf(along, 0.0, np.sqrt(1 / n + G * 0.05**2)) + stats.halfnorm.logpdf(tau)
    v = 1.0 / n + tau**2
    return by_quadrature(log_p - 0.5 * across / v - 0.5 * (G - 1) * np.log(2 * np.pi * v), tau)


@as_model
def slopes():
    """Effects with a scale of each, and a matrix: no closed form."""
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=2))
    u = pm.math.dot(pm.Normal("z", shape=(G, 2)), chol.T)
    pm.Bernoulli("y", logit_p=u[OF, 0] + u[OF, 1] * X, observed=COUNTS)


CASES = {
    regression: of_regression,
    centred: of_normal_groups,
    binary_groups: of_binary_groups,
    summing_to_zero: of_effects_that_sum_to_zero,
}


@cache
def run(build, draws=500):
    model = build()
    step = pma.recommend(model, verbose=False, progressbar=False)
    idata = pma.sample(model, draws, tune=100, step=step, chains=2, random_seed=1, quiet=True)
    return model, step, idata


@pytest.mark.slow("a set-up for each, and a chain")
@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_evidence_is_that_of_quadrature(build):
    model, step, idata = run(build)
    found = pma.log_evidence(idata, model, step=step, random_seed=1)
    assert found.draws == 400
    assert 1e-8 < found.error < 0.03
    assert abs(found.value - CASES[build]()) < LIMIT * found.error


@pytest.mark.slow("two set-ups, and chains")
def test_planted_faults_in_a_fitted_density(monkeypatch):
    """The slopes of theta by its scores left out, and the units of effects."""
    model, step, idata = run(binary_groups)
    right = pma.log_evidence(idata, model, step=step, random_seed=1)
    monkeypatch.setattr(fitted, "theta_of_scores", lambda law, scores: (scores, 0.0))
    wrong = pma.log_evidence(idata, model, step=step, random_seed=1)
    assert abs(wrong.value - right.value) > 20.0 * right.error
    monkeypatch.undo()
    monkeypatch.setattr(fitted, "matrix_of", lambda entries, features, shape: np.eye(*shape))
    wrong = pma.log_evidence(idata, model, step=step, random_seed=1)
    assert abs(wrong.value - right.value) > 20.0 * right.error


@pytest.mark.full_size("8,000 evaluations of all rows: a longer run than those beside quadrature")
def test_a_longer_bridge_agrees():
    model, step, idata = run(slopes, 2000)
    short, long = (
        pma.log_evidence(idata, model, step=step, draws=n, random_seed=k) for k, n in enumerate((200, 2000))
    )
    assert long.error < 0.5 * short.error < 0.1
    assert abs(short.value - long.value) < LIMIT * np.hypot(short.error, long.error)


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_bridge_of_normal_densities(shift):
    """Constants e^3, with a distribution that is fitted badly; dropped: 100 times the error."""
    rng, deviations = np.random.default_rng(4), []
    for _ in range(200):
        exact, other = rng.normal(shift, 1.2, size=(2, 200)), rng.normal(size=400)
        at_exact, at_fitted = (
            3.0 + stats.norm.logpdf(x, shift, 1.2) - stats.norm.logpdf(x) for x in (exact, other)
        )
        value, error = evidence.bridge(at_exact, at_fitted)
        deviations.append((value - 3.0) / error)
    assert abs(np.mean(deviations)) < LIMIT / np.sqrt(200)
    assert 0.85 < np.std(deviations) < 1.15


def test_what_has_no_evidence():
    with pm.Model() as flat:
        pm.Normal("y", pm.Flat("a"), 1.0, observed=REAL)
    idata = pma.sample(flat, 20, tune=0, chains=1, random_seed=1, quiet=True)
    with pytest.raises(ValueError, match="The prior of a is improper"):
        pma.log_evidence(idata, flat)
    with pm.Model() as proper:
        pm.Normal("y", pm.Normal("b"), 1.0, observed=REAL)
    with pytest.raises(ValueError, match="The posterior has no 'b', on which densities depend"):
        pma.log_evidence(idata, proper)
    idata = pma.sample(proper, 5, tune=0, chains=1, random_seed=1, quiet=True)
    with pytest.raises(ValueError, match="idata has 5 draws, and fewer than 20"):
        pma.log_evidence(idata, proper)
    idata = pma.sample(proper, 50, tune=0, chains=2, random_seed=1, quiet=True)
    idata["posterior"]["b"][1, 0] = np.nan
    with pytest.raises(ValueError, match="no finite log density, as number 0 of those looked at in chain 1"):
        pma.log_evidence(idata, proper, progressbar=False)
    with pm.Model() as other:
        pm.Normal("y", pm.Normal("b"), 1.0, observed=-REAL)
    with pytest.raises(ValueError, match="The data 'y' of the model are not those of idata"):
        pma.log_evidence(idata, other)


def test_draws_in_the_form_of_bambi_are_refused():
    """Its intercept is that of predictors that are not centred: a wrong place, without a sign."""
    model, _, idata = run(regression, 50)
    tree = idata.copy()
    tree["posterior"].attrs["modeling_interface"] = "bambi"
    for function in (pma.log_evidence, pma.loo):
        with pytest.raises(ValueError, match="in the form of Bambi's fit"):
            function(tree, model)


def test_few_overlapping_draws_are_told(monkeypatch):
    model, step, idata = run(regression, 50)
    monkeypatch.setattr(evidence, "_LARGE", 0.0)
    with pytest.warns(SubsamplingWarning, match="hardly overlap"):
        pma.log_evidence(idata, model, step=step, draws=20)


# Draws ----------------------------------------------------------------------------------------------------


def test_draws_and_comparison(caplog):
    model = regression()
    with caplog.at_level("INFO", "pymc.austerity"):
        found = pma.approximate(model, draws=300, random_seed=1, progressbar=False)
    assert dict(found.posterior.sizes) == {"chain": 1, "draw": 300}
    assert set(found.posterior) == {"a", "b"}
    assert np.all(found.posterior["b"] > 0.0)
    assert abs(found.comparison["a_shift"]) < LIMIT * found.comparison["a_shift_error"]
    assert re.search(r"beside 400 exact draws, means are off by 0\.\d\d \(noise alone: 0\.0\d\)", caplog.text)
    same = pma.approximate(model, draws=300, random_seed=1, checked=0, quiet=True)
    assert "comparison" not in same
    np.testing.assert_array_equal(same.posterior["a"], found.posterior["a"])


def test_a_wrong_distribution_is_seen():
    """Planted fault: means that are off by half a standard deviation."""
    model, step, idata = run(regression)
    draws = pma.approximate(model, step=step, checked=0, random_seed=1, quiet=True).posterior.to_dataset()
    right, wrong = (compared(one, idata.posterior.to_dataset()) for one in (draws, draws + 0.5 * draws.std()))
    assert abs(right["a_shift"]) < LIMIT * right["a_shift_error"]
    assert abs(wrong["a_shift"]) > LIMIT * wrong["a_shift_error"]


def test_what_is_not_approximated():
    with pm.Model() as few:
        pm.Normal("y", pm.Normal("a"), 1.0, observed=REAL[:50])
    with pytest.raises(UnsuitableError, match="recommend.. chooses NUTS: .*Use sample"):
        pma.approximate(few, quiet=True)
    with pm.Model() as discrete:
        pm.Normal("y", pm.Normal("a") + pm.Bernoulli("on", 0.5), 1.0, observed=REAL)
    with pytest.raises(UnsuitableError):
        pma.approximate(discrete, quiet=True)
    model = regression()
    with pytest.raises(UnsuitableError, match="AusterityMH has no distribution that is fitted"):
        pma.approximate(model, step=pma.AusterityMH(model=model), quiet=True)


@pytest.mark.slow("a chain, and determinants of all rows")
def test_evidence_of_crossed_effects_that_are_moved_in_turns(monkeypatch):
    rng, n, sizes = np.random.default_rng(3), 1000, (150, 120)
    of = [rng.integers(size, size=n) for size in sizes]
    y = (
        0.5
        + sum(rng.normal(size=size)[own] for size, own in zip(sizes, of, strict=True))
        + rng.normal(size=n)
    )
    with pm.Model() as model:
        tau = pm.HalfNormal("tau")
        effects = [pm.Normal(f"u{size}", 0, tau, shape=size) for size in sizes]
        mean = pm.Normal("a", 0, 2) + effects[0][of[0]] + effects[1][of[1]]
        pm.Normal("y", mean, 1.0, observed=y)
    step = pma.TunaMH(model=model, progressbar=False)
    assert len(step.engine.turns) == 2
    assert pma.approximate(model, step=step, checked=0, draws=20, quiet=True).posterior.sizes["draw"] == 20
    idata = pma.sample(
        model, 500, tune=100, chains=2, step=step, random_seed=1, quiet=True, progressbar=False
    )
    found = pma.log_evidence(idata, model, step=step, random_seed=1, progressbar=False)

    own = sum(np.equal.outer(one, one).astype(float) for one in of)

    def density(log_tau):
        covariance = np.eye(n) + np.exp(2.0 * log_tau) * own + 4.0
        prior = stats.halfnorm.logpdf(np.exp(log_tau)) + log_tau
        return stats.multivariate_normal.logpdf(y, cov=covariance) + prior

    middle, sd = np.log(idata.posterior["tau"]).mean().item(), np.log(idata.posterior["tau"]).std().item()
    grid = middle + sd * np.linspace(-6.0, 6.0, 17)
    exact = logsumexp([density(at) for at in grid]) + np.log(grid[1] - grid[0])
    assert found.error < 0.01
    assert abs(found.value - exact) < LIMIT * found.error + 1e-5

    monkeypatch.setattr(order, "_OF_A_DENSITY", 0.0)
    with pytest.raises(
        UnsuitableError, match="drawn in turns, which have no density.*meet in too many pairs"
    ):
        pma.log_evidence(idata, model, step=step, progressbar=False)


@pytest.mark.full_size("100,000 rows, and 8,000 exact draws of each")
@pytest.mark.parametrize("name", ["regression", "plain", "bym2"])
def test_at_full_size(name):
    n = 100_000
    if name == "regression":
        rng = np.random.default_rng(5)
        design = rng.normal(size=(n, 10))
        with pm.Model() as model:
            beta = pm.Normal("beta", shape=10)
            pm.Poisson(
                "y", pm.math.exp(design @ beta), observed=rng.poisson(np.exp(design @ np.full(10, 0.1)))
            )
    else:
        model = fields.one_factor(n, 1000) if name == "plain" else fields.bym2(n, 32, 0.001)
    found = pma.approximate(model, draws=8000, checked=8000, random_seed=1)
    for what, middle in (("shift", 0.0), ("ratio", 1.0)):
        for key in found.comparison:
            if key.endswith(f"_{what}"):
                error = LIMIT * found.comparison[f"{key}_error"]
                assert np.all(np.abs(found.comparison[key] - middle) < 0.05 + error), key
