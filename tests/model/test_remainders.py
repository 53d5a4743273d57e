"""Log ratios of remainders whose rows are data, beside those of the graph."""

import pickle
from copy import copy
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numba import njit

import pymc_austerity as pma
from pymc_austerity.bounds.jets.remainders import RowsOfTerms, log_ratios
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.factorisation import vector_of
from pymc_austerity.packed import Packed

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


def ordered_answers():
    """Cut points whose order is a guard."""
    rng, X, eta = data()
    beta = pm.Normal("beta", shape=3)
    cuts = pm.Normal("cuts", 0, 2, shape=3, transform=pm.distributions.transforms.ordered, initval=[-1, 0, 1])
    y = np.digitize(eta + rng.logistic(size=N), [-1.0, 0.5, 2.0])
    pm.OrderedLogistic("y", eta=X @ beta, cutpoints=cuts, observed=y)


def choices():
    """Three alternatives, each with attributes of its own."""
    rng, _, _ = data()
    Z, beta = rng.normal(size=(N, 3, 4)), pm.Normal("beta", shape=4)
    pm.Categorical("y", logit_p=Z @ beta, observed=rng.integers(0, 3, N))


def weights_of_a_simplex():
    """Features, in which predictors are linear."""
    rng, X, eta = data()
    weights = pm.Dirichlet("weights", np.ones(3))
    pm.Normal("y", X @ weights, pm.HalfNormal("sigma"), observed=eta + rng.normal(size=N))


def whole_numbers():
    """Integers, which are read where they are."""
    rng, _, eta = data()
    counts = rng.integers(-3, 3, size=(N, 6))
    beta = pm.Normal("beta", 0, 0.1, shape=6)
    pm.Poisson("y", pm.math.exp(counts @ beta), observed=rng.poisson(np.exp(0.1 * eta)))


MODELS = (
    poisson_with_levels,
    logistic_by_columns,
    censored_exponential,
    normal_with_free_sigma,
    two_terms,
    ordered_answers,
    choices,
    weights_of_a_simplex,
    whole_numbers,
)


@cache
def target_of(build):
    with pm.Model() as model:
        build()
        with interpreted():  # rows and graph are compared, and no step
            step = pma.TunaMH(model.free_RVs, threshold=1_000)
    return step._engine.target, model.initial_point()


def both(target, point, rows=None):
    """What rows as data and the graph give at some rows of all terms, and two states near the center."""
    fact, rng = target.factorisation, np.random.default_rng(7)
    rows = target._rows if rows is None else rows
    center = rows.terms[0].center
    n_dim = target._q.type.shape[0]
    at = vector_of(fact, point) if n_dim != len(center) or fact.features is not None else center
    q, q_new = at + 0.03 * rng.normal(size=(2, n_dim))
    index = rng.integers(0, fact.n_local, 300)
    functions, args = target.interpreted(), target.args(point)
    theirs = functions.log_ratios(q_new, q, index, args)
    of = (lambda q, args: q) if fact.features is None else functions.features
    return changes(rows, of(q_new, args), of(q, args), index), theirs


@njit
def run(rows, q_new, q, index):
    return log_ratios(rows, q_new, q, index)


def changes(rows, q_new, q, index):
    return run(rows.record, q_new, q, index)


@pytest.mark.parametrize("build", MODELS, ids=lambda one: one.__name__)
@pytest.mark.covering(4)
def test_rows_and_graph_agree(build):
    target, point = target_of(build)
    assert target._rows is not None
    ours, theirs = both(target, point)
    np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-12)
    assert np.abs(ours).max() > 1e-6


def test_a_guard_of_a_part_of_a_row_is_left_to_the_graph():
    """Half of a mixture is impossible where a guard fails, and not the row."""
    y = np.random.default_rng(3).exponential(size=N)
    with pm.Model():
        eta = pm.Normal("a", 1.0, 0.5) + pm.Normal("b", 0, 0.1) * np.linspace(-1.0, 1.0, N)
        one = pt.switch(eta > 0, pt.log(eta) - eta * y, -np.inf)
        pm.Potential("y", pt.logaddexp(np.log(0.5) + one, np.log(0.5) - 0.5 * (y - eta) ** 2))
        with interpreted():
            step = pma.TunaMH(threshold=1_000)
    assert step._engine.target._rows is None
    assert target_of(ordered_answers)[0]._rows is not None


def test_a_polynomial_without_its_second_order_is_noticed():
    """Planted fault: a polynomial without its second order."""
    target, point = target_of(logistic_by_columns)
    rows = target._rows.terms[0]
    own = rows.record._record
    planted = copy(rows)
    planted.record = Packed(own._replace(slopes=own.slopes[:1]))
    ours, theirs = both(target, point, RowsOfTerms([planted], len(planted.center)))
    assert not np.allclose(ours, theirs, rtol=1e-3, atol=1e-12)


def test_an_index_out_of_range_is_an_error():
    """As NumPy's: machine code would read what is elsewhere."""
    target, _ = target_of(poisson_with_levels)
    (rows,) = target._rows.terms
    lookup = next(one for one in rows._arrays if one.dtype.kind == "i" and one.min() < 0)
    before = lookup.copy()
    lookup.flags.writeable = True
    lookup[:] = 17
    with pytest.raises(IndexError, match="looks up"):
        changes(target._rows, np.zeros(8), np.zeros(8), np.arange(3))
    lookup[:] = before


def test_rows_are_made_again_in_another_process():
    target, point = target_of(poisson_with_levels)
    rows = pickle.loads(pickle.dumps(target._rows.terms))
    assert rows[0].record.address != target._rows.terms[0].record.address
    ours, theirs = both(target, point, RowsOfTerms(rows, len(rows[0].center)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-12)
