"""Global terms and features as data: changes, gradients and values against those of PyTensor's graphs."""

import pickle
from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_austerity
from pymc_austerity import factorise
from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.remainders import global_gradient, global_log_ratio
from pymc_austerity.model.factorisation import point_of, vector_of
from pymc_austerity.model.graph.rewrite import INTERPRETED, one_vector
from pymc_austerity.model.structure.row_programs import feature_rows, global_rows
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.target import Expansion

N = 1200
RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=N)
GROUP = np.arange(N) % 70


def rows_of(*means):
    pm.Normal("y", sum(means, start=pt.zeros(N)), 1.0, observed=Y)


def families():
    every = [
        pm.Normal("normal", 1.0, 2.0),
        pm.StudentT("student", 3.0, mu=0.5, sigma=2.0),
        pm.Cauchy("cauchy", 0.0, 1.0),
        pm.Laplace("laplace", 0.0, 2.0),
        pm.Logistic("logistic", 0.0, 1.0),
        pm.SkewNormal("skew", alpha=2.0, mu=0.0, sigma=1.0),
        pm.Gumbel("gumbel", 0.0, 1.0),
        pm.HalfNormal("half", 2.0),
        pm.HalfCauchy("half_cauchy", 1.0),
        pm.Exponential("exponential", 3.0),
        pm.Gamma("gamma", 2.0, 0.7),
        pm.InverseGamma("inverse", 2.0, 0.7),
        pm.LogNormal("lognormal", 0.3, 1.5),
        pm.Weibull("weibull", 1.5, 2.0),
        pm.Beta("beta", 2.0, 0.7),
        pm.Uniform("uniform", -1.0, 3.0),
        pm.TruncatedNormal("truncated", 0.0, 1.0, lower=-1.0, upper=2.0),
        pm.Triangular("triangular", -1.0, 2.0, 0.5),
    ]
    rows_of(*every)


def vectors():
    """Data for each element, in one dimension and two; a vector whose scale is another."""
    tau = pm.HalfNormal("tau", shape=2)
    table = pm.Normal("table", np.arange(6.0).reshape(3, 2), tau, shape=(3, 2))
    vector = pm.Normal("vector", np.linspace(-1, 1, 5), np.arange(1.0, 6.0), shape=5)
    rows_of(table.sum(), vector.sum(), pm.Laplace("few", 0.0, tau[0], shape=3).sum())


def groups():
    """Many elements: more than the machine takes at once."""
    tau, mu = pm.HalfNormal("tau"), pm.Normal("mu")
    rows_of(pm.Normal("u", mu, tau, shape=70)[GROUP])


def ordered():
    ordered = pm.distributions.transforms.ordered
    cuts = pm.Normal("cuts", 0, 2, shape=4, transform=ordered, initval=[-1.0, 0.0, 1.0, 2.0])
    rows_of(cuts.sum())


def potentials():
    a, b = pm.Normal("a"), pm.Normal("b")
    pm.Potential("bound", -0.5 * pt.sqr(a - b) - pt.exp(a) * pt.log1p(pt.sqr(b)))
    pm.Potential("penalty", pt.switch(a > 0.2, -a, -pt.sqr(a)))
    rows_of(a, b)


KNOWN = {one.__name__: one for one in (families, vectors, groups, ordered, potentials)}


def made(function):
    with pm.Model() as model:
        function()
    return factorise(model)


def states(fact, n=4):
    """Vectors q near the start, and further away."""
    q, rng = vector_of(fact, fact.graph.point), np.random.default_rng(1)
    return [q + scale * rng.normal(size=len(q)) for scale in np.linspace(0.1, 1.5, n)]


def density(fact, q):
    return fact.global_log_density(point_of(fact, q, fact.graph.point))


@entry
def change(own, q_new, q):
    return global_log_ratio(own, q_new, q, q_new, q)


@entry
def slopes(own, q):
    return global_gradient(own, q, q, 0)


def by_differences(f, q, h=1e-6):
    return np.array([(f(q + h * e) - f(q - h * e)) / (2.0 * h) for e in np.eye(len(q))])


@pytest.mark.parametrize("name", KNOWN)
def test_changes_and_gradients_are_those_of_the_graph(name):
    fact = made(KNOWN[name])
    rows = global_rows(fact, TermStructure(fact).of_globals)
    first, *others = states(fact)
    for q in others:
        expected = density(fact, q) - density(fact, first)
        # PyMC's skew normal has a constant of eight digits.
        assert change(rows.record, q, first) == pytest.approx(expected, rel=1e-8, abs=1e-8)
        expected = by_differences(lambda x: density(fact, x), q)
        np.testing.assert_allclose(slopes(rows.differentiated().record, q), expected, rtol=1e-5, atol=1e-5)
        expected = rows.without_polynomial()(q).sum() - rows.without_polynomial()(first).sum()
        assert change(rows.record, q, first) == pytest.approx(expected, rel=1e-10, abs=1e-10)
    again = pickle.loads(pickle.dumps(rows))
    assert change(again.record, q, first) == change(rows.record, q, first)


def test_a_lost_term_is_found():
    """Planted fault."""
    fact = made(vectors)
    terms, n_dim, nothing = global_rows(fact, TermStructure(fact).of_globals)._given
    fewer = type(global_rows(fact, TermStructure(fact).of_globals))(terms[1:], n_dim, nothing)
    first, q = states(fact, 2)
    assert abs(change(fewer.record, q, first) - density(fact, q) + density(fact, first)) > 1e-3


@pytest.mark.parametrize("order", [1, 2])
def test_the_polynomial_is_added(order):
    fact, rng = made(vectors), np.random.default_rng(2)
    first, q, *_ = states(fact)
    n = len(q)
    center, gradient, half = rng.normal(size=n), rng.normal(size=n), rng.normal(size=(n, n))
    hessian = half + half.T
    expanded = global_rows(fact, TermStructure(fact).of_globals)
    terms, n_dim, _ = expanded._given
    whole = type(expanded)(terms, n_dim, Expansion(order, center, gradient, hessian))

    def polynomial(x):
        d = x - center
        return gradient @ d + (0.5 * d @ hessian @ d if order == 2 else 0.0)

    expected = density(fact, q) - density(fact, first) + polynomial(q) - polynomial(first)
    assert change(whole.record, q, first) == pytest.approx(expected, rel=1e-10)
    expected = by_differences(lambda x: density(fact, x) + polynomial(x), q)
    np.testing.assert_allclose(slopes(whole.differentiated().record, q), expected, rtol=1e-5, atol=1e-5)


def covariance():
    """A density that is no sum over elements."""
    rows_of(pm.MvNormal("u", np.zeros(70), np.eye(70) + 0.1)[GROUP])


def tabulated():
    table = pt.as_tensor(np.linspace(0.0, 1.0, 7))
    mu = pm.Normal("mu")
    pm.Potential("table", table[pt.clip(pt.floor(mu), 0, 6).astype("int64")])
    rows_of(mu)


# Not defined, or asked about numbers that are none, where a chain may be: at zero it begins.
EDGES = {
    "root": lambda a, b: -pt.sqrt(pt.sqr(a) + pt.sqr(b)),
    "power": lambda a, b: -(pt.abs(a) ** 1.5),
    "power of another": lambda a, b: -(pt.abs(a) ** pt.exp(b)),
    "log": lambda a, b: -pt.abs(a) * pt.log(pt.abs(a)),
    "gammaln": lambda a, b: pt.gammaln(a),
    "reciprocal": lambda a, b: -1.0 / pt.sqr(a),
    "isnan": lambda a, b: pt.switch(pt.isnan(pt.log(a)), 0.0, -pt.sqr(b)),
    "isinf": lambda a, b: pt.switch(pt.isinf(pt.exp(1000.0 * a)), -5.0, -pt.sqr(b)),
    "equal": lambda a, b: pt.switch(pt.eq(pt.exp(1000.0 * a), np.inf), -5.0, -pt.sqr(b)),
}


def at_an_edge(name):
    a, b = pm.Normal("a"), pm.Normal("b")
    pm.Potential("edge", EDGES[name](a, b))
    rows_of(a, b)


@pytest.mark.parametrize("function", [covariance, tabulated, *(partial(at_an_edge, name) for name in EDGES)])
def test_what_is_no_function_of_few_numbers_everywhere_is_left_to_pytensor(function):
    fact = made(function)
    assert global_rows(fact, TermStructure(fact).of_globals) is None


@pytest.mark.parametrize("name", ["root", "power"])
def test_a_chain_leaves_an_edge(name):
    """Zero, where a variable begins, with a density there, but without a second derivative."""
    with pm.Model():
        at_an_edge(name)
        step = pymc_austerity.AusterityMH(rng=1, proposal=pymc_austerity.RandomWalk(0.03))
        idata = pm.sample(20, tune=0, chains=1, step=step, progressbar=False, random_seed=1)
    assert len(np.unique(idata.posterior["a"])) > 3


def test_variables_of_other_steps_are_left_to_pytensor():
    with pm.Model() as model:
        tau = pm.HalfNormal("tau")
        rows_of(pm.Normal("a", 0.0, tau))
    fact = factorise(model, vars=["a"])
    assert global_rows(fact, TermStructure(fact).of_globals) is None


def test_outside_of_the_support_all_is_minus_infinity():
    with pm.Model() as model:
        rows_of(pm.Uniform("a", 0.0, 1.0, default_transform=None))
    fact = factorise(model)
    rows = global_rows(fact, TermStructure(fact).of_globals)
    inside, outside = np.array([0.5]), np.array([1.5])
    assert change(rows.record, outside, inside) == -np.inf
    assert np.isnan(change(rows.record, outside, outside))


def test_features_are_those_of_the_graph():
    fact = made(ordered)
    (cuts,) = fact.graph.values.values()
    sources = [pt.constant(1.0), pt.exp(cuts[:2]), cuts[0] + pt.cumsum(pt.exp(cuts[1:])), cuts[3] * cuts[0]]
    rows = feature_rows(fact, sources)
    graph = fact.compile(one_vector(sources), [], mode=INTERPRETED)
    for q in states(fact):
        expected = graph(*fact.point_values(point_of(fact, q, fact.graph.point)), *fact.leaf_values)
        np.testing.assert_allclose(rows(q), expected, rtol=1e-12)


def test_the_gradient_goes_through_features():
    fact = made(ordered)
    (cuts,) = fact.graph.values.values()
    features = feature_rows(fact, [cuts[0] + pt.cumsum(pt.exp(cuts[1:])), cuts[3] * cuts[0]])
    expanded = global_rows(fact, TermStructure(fact).of_globals)
    terms, n_dim, _ = expanded._given
    p, rng = 4, np.random.default_rng(4)
    center, gradient, half = rng.normal(size=p), rng.normal(size=p), rng.normal(size=(p, p))
    whole = type(expanded)(terms, n_dim, Expansion(2, center, gradient, half + half.T))

    def total(q):
        d = features(q) - center
        return density(fact, q) + gradient @ d + 0.5 * d @ (half + half.T) @ d

    @entry
    def through(own, q, phi, address):
        return global_gradient(own, q, phi, address)

    for q in states(fact):
        found = through(whole.differentiated().record, q, features(q), features.record.address)
        np.testing.assert_allclose(found, by_differences(total, q), rtol=1e-5, atol=1e-4)


def test_a_feature_that_is_not_defined_everywhere_is_left_to_pytensor():
    """A value of minus infinity would be taken for one."""
    fact = made(potentials)
    a, b = fact.graph.values.values()
    assert feature_rows(fact, [pt.exp(pt.log(a)), b]) is None
    assert feature_rows(fact, [pt.cumsum(pt.concatenate([pt.stack([a, b])] * 10))]) is None  # many graphs
