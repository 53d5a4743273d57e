"""Log ratios of remainders that are written as source, beside those of the graph."""

import math
from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_austerity as pma
from pymc_austerity.model.compile.remainders import log_ratios_source

N = 2_500


def data(seed=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3))
    return rng, X, X @ [0.3, -0.2, 0.1]


def poisson_with_levels():
    """An offset, negative and positive indices, a matrix in single precision."""
    rng, X, eta = data()
    level, exposure = rng.integers(-4, 4, N), rng.gamma(3.0, size=N)
    a, beta, u = pm.Normal("a"), pm.Normal("beta", shape=3), pm.Normal("u", shape=4)
    mu = exposure * pm.math.exp(a + X.astype("float32") @ beta - u[level])
    pm.Poisson("y", mu, observed=rng.poisson(exposure * np.exp(eta)))


def logistic_by_columns():
    rng, X, eta = data()
    a, b, c = pm.Normal("a"), pm.Normal("b"), pm.Normal("c")
    pm.Bernoulli(
        "y", logit_p=a + b * X[:, 0] - 2.0 * c * X[:, 1], observed=rng.random(N) < 0.5 + 0.1 * np.tanh(eta)
    )


def normal_with_free_sigma():
    """Two predictors."""
    rng, X, eta = data()
    beta, log_sigma = pm.Normal("beta", shape=3), pm.Normal("log_sigma")
    pm.Normal("y", X @ beta, pm.math.exp(log_sigma), observed=eta + rng.normal(size=N))


def censored_exponential():
    """Booleans among the data of rows, which numba cannot make floats."""
    rng, X, eta = data()
    beta, end = pm.Normal("beta", shape=3), rng.exponential(3.0, N)
    life = pm.Exponential.dist(lam=pm.math.exp(X @ beta))
    y = np.minimum(np.exp(-eta) * rng.exponential(size=N), end)
    pm.Censored("y", life, lower=None, upper=end, observed=y)


def two_terms():
    rng, X, eta = data()
    beta = pm.Normal("beta", shape=3)
    pm.Poisson("counts", pm.math.exp(X @ beta), observed=rng.poisson(np.exp(eta)))
    pm.Bernoulli("y", logit_p=X @ beta, observed=rng.random(N) < 0.5)


MODELS = (poisson_with_levels, logistic_by_columns, censored_exponential, normal_with_free_sigma, two_terms)


@cache
def target_of(build):
    with pm.Model() as model:
        build()
        step = pma.TunaMH(model.free_RVs, threshold=1_000)
    return step._engine.target, model.initial_point()


def both(target, point, source_from=log_ratios_source):
    """What source and graph give at some rows of all terms, and two states near the center."""
    fact, rng = target.factorisation, np.random.default_rng(7)
    args = target.args(point)
    (center,) = {id(term.source.center): term.source.center for term in fact.locals}.values()
    terms = [(term.size, term.source) for term in fact.locals]
    places = {leaf: k for k, leaf in enumerate(target._args)}
    n_dim = target._q.type.shape[0]
    source = source_from(terms, n_dim, lambda leaf: f"table[{places[leaf]}]")
    environment = {"np": np, "math": math}
    exec(source, environment)
    at = args[places[center]]
    q, q_new = at + 0.03 * rng.normal(size=n_dim), at + 0.03 * rng.normal(size=n_dim)
    index = rng.integers(0, fact.n_local, 300)
    theirs = target.interpreted().log_ratios(q_new, q, index, args)
    return environment["log_ratios"](q_new, q, index, args), theirs


@pytest.mark.parametrize("build", MODELS, ids=lambda one: one.__name__)
@pytest.mark.covering(2)
def test_source_and_graph_agree(build):
    target, point = target_of(build)
    assert target._written is not None
    ours, theirs = both(target, point)
    np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-12)
    assert np.abs(ours).max() > 1e-6


@pytest.mark.slow("a planted fault, in steps of its own")
def test_a_polynomial_without_its_second_order_is_noticed():
    """Planted fault: a polynomial without its second order."""
    target, point = target_of(logistic_by_columns)

    def planted(terms, *rest):
        return log_ratios_source([(n, one._replace(slopes=one.slopes[:1])) for n, one in terms], *rest)

    ours, theirs = both(target, point, planted)
    assert not np.allclose(ours, theirs, rtol=1e-3, atol=1e-12)


def test_an_index_out_of_range_is_an_error():
    """As NumPy's: machine code would read what is elsewhere."""
    target, point = target_of(poisson_with_levels)
    fact = target.factorisation
    args = [value.copy() for value in target.args(point)]
    lookup = next(k for k, value in enumerate(args) if value.dtype.kind == "i" and value.min() < 0)
    args[lookup][:] = 17
    places = {leaf: k for k, leaf in enumerate(target._args)}
    terms = [(term.size, term.source) for term in fact.locals]
    environment = {"np": np, "math": math}
    exec(log_ratios_source(terms, 8, lambda leaf: f"table[{places[leaf]}]"), environment)
    with pytest.raises(IndexError, match="looks up"):
        environment["log_ratios"](np.zeros(8), np.zeros(8), np.arange(3), args)
