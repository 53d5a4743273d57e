"""Features of the block, and expansions in them: the same density, and remainders by the definition."""

from functools import cache

import mpmath
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from mpmath import mp

from pymc_austerity import factorise
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import point_of
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.local_terms import LocalTerms
from pymc_austerity.model.structure.term_structure import MOST_FEATURES, TermStructure
from tests.model.expansions import Case, Expanded
from tests.model.features import (
    FEATURES,
    GROUPS,
    N,
    bernoulli,
    data,
    non_centred,
    simplex,
    simplex_with_scale,
    two_terms,
)
from tests.models import as_model

EPS = np.finfo(float).eps
every = pytest.mark.parametrize("define", FEATURES, ids=lambda define: define.__name__)


@cache
def case_of(define):
    return Case(define, threshold=1000, most_features=MOST_FEATURES)


# What the features are --------------------------------------------------------------------------------


@every
@pytest.mark.covering(6)
def test_the_number_of_features(define):
    function = case_of(define).function
    assert function.structure.features is not None
    assert len(function.features(function.start)) == FEATURES[define]


def test_what_the_features_are():
    assert case_of(simplex).function.features(np.zeros(3)) == pytest.approx(0.25)
    function = case_of(non_centred).function
    mu, log_tau, z = 0.3, -0.5, np.linspace(-1, 1, GROUPS)
    phi = function.features(np.r_[mu, log_tau, z])
    np.testing.assert_allclose(phi, mu + np.exp(log_tau) * z, rtol=1e-12)


@every
def test_terms_are_functions_of_them(define):
    case = case_of(define)
    inner = case.structure.inner
    assert inner.local_terms == case.fact.local_terms
    q = case.near(2)
    phi = point_of(inner, case.function.features(q), inner.graph.point)
    np.testing.assert_allclose(inner.log_density_terms(phi), LocalTerms(case.fact)(case.at(q)), rtol=1e-12)


def plain():
    bernoulli(pm.math.dot(data()[0], pm.Normal("b", shape=4)))


def location_and_scale():
    pm.Normal("y", pm.Normal("a"), pm.HalfNormal("s"), observed=data()[0][:, 0])


def nonlinear_in_rows():
    waves = [pt.sin(pm.Normal(f"b{k}") * data()[0][:, k]) for k in range(3)]
    bernoulli(sum(waves) + data()[0] @ pm.Dirichlet("w", np.ones(4)))


def product_of_rows():
    x = data()[0]
    bernoulli((x @ pm.Normal("b", shape=4)) * (x @ pm.Normal("c", shape=4)))


def too_many():
    w = pm.Dirichlet("w", np.ones(400))
    bernoulli(w[np.arange(N) % 400])


@pytest.mark.parametrize(
    "define", [plain, location_and_scale, product_of_rows, too_many],
    ids=lambda define: define.__name__,
)  # fmt: skip
def test_none(define):
    """Terms that are linear in q itself, or in no short features, are left as they are."""
    model = as_model(define)()
    fact = factorise(model)
    structure = TermStructure(fact)
    assert structure.features is None
    assert structure.inner is fact
    q = np.arange(3.0)
    assert Differentiable(structure, fact.graph.point).features(q) is q


def test_features_in_which_terms_have_a_few_predictors():
    """They do not have a single one there either."""
    model = as_model(nonlinear_in_rows)()
    structure = TermStructure(factorise(model))
    assert structure.features is not None
    assert [form.predictor for form in structure.forms] == [None]
    assert [function.n_predictors for function in structure.row_functions] == [4]


def test_variables_of_other_steps_are_no_features():
    with pm.Model() as model:
        w, a = pm.Dirichlet("w", np.ones(4)), pm.Normal("a")
        bernoulli(pm.math.dot(data()[0], a * w))
    assert TermStructure(factorise(model)).features is not None
    assert TermStructure(factorise(model, [model["w"]])).features is None
    with pm.Model() as model:
        w, a = pm.Dirichlet("w", np.ones(4)), pm.Normal("a")
        bernoulli(a + pm.math.dot(data()[0], w))
    fact = factorise(model, [model["w"]])
    point = fact.graph.point
    function = Differentiable(TermStructure(fact), point)
    assert function.structure.features is not None
    assert function.likelihood()(function.start).value == pytest.approx(fact.log_density_terms(point).sum())


# Derivatives ------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("some", [None, np.arange(3, N, 7)], ids=["all", "some"])
@pytest.mark.covering(4)
def test_derivatives(define, some):
    """By the chain rule, and by differentiation along coordinates."""
    case = case_of(define)
    q = case.near(2)
    found = case.function.likelihood(some)(q)
    plain = Differentiable(TermStructure(case.fact, most_features=0), case.point).likelihood(some)(q)
    assert found.value == pytest.approx(plain.value, rel=1e-12)
    size = np.abs(plain.hessian).max()
    np.testing.assert_allclose(found.gradient, plain.gradient, atol=1e-11 * size)
    np.testing.assert_allclose(found.hessian, plain.hessian, atol=1e-11 * size)


@every
def test_the_jacobian(define):
    function = case_of(define).function
    q, h = case_of(define).near(2), 1e-6
    for j, e in enumerate(np.eye(function.n_dim)):
        column = (function.features(q + h * e) - function.features(q - h * e)) / (2 * h)
        np.testing.assert_allclose(function.features.jacobian(q)[:, j], column, atol=1e-8)


# Expansions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["gradient", "hessian", "center"])
def test_wrong_expansions_are_noticed(wrong):
    """Planted fault: a millionth more of one part of an expansion."""
    case = case_of(simplex_with_scale)
    right = case.expansion()
    value = getattr(right, wrong)
    expanded = Expanded(case, right._replace(**{wrong: value + 1e-6 * np.abs(value).max()}))
    assert expanded.sum_error() > 1e-11


def test_wrong_features_are_noticed():
    """Planted fault: features that are larger by a thousandth."""
    case = case_of(simplex_with_scale)
    wrong = TermStructure(case.fact)
    sources = (wrong.features.sources[0] * 1.001, *wrong.features.sources[1:])
    vars(wrong)["features"] = wrong.features._replace(sources=sources)
    assert Expanded(case, case.expansion(), wrong).sum_error() > 1e-7


def exact_logistic(eta, eta0, y):
    """l - T but for its constant, in exact arithmetic."""
    eta, eta0, y = mp.mpf(eta), mp.mpf(eta0), mp.mpf(y)

    def term(e):
        return y * e - mpmath.log(1 + mpmath.exp(e))

    _, first, second = mpmath.taylor(term, eta0, 2)
    t = eta - eta0
    return term(eta) - first * t - second * t**2


def exact_weights(q):
    z = [mp.mpf(v) for v in q]
    e = [mpmath.exp(v) for v in [*z, -sum(z)]]
    return [v / sum(e) for v in e]


def test_remainders_in_exact_arithmetic():
    """Of simplex weights, from the definitions of the transform and of the Taylor polynomial."""
    case = case_of(simplex)
    q, x, y = case.near(2), data()[0], data()[2]
    terms = LocalTerms(case.expanded().fact)
    found = terms(case.at(q))
    with mp.workdps(40):
        weights = [exact_weights(each) for each in (q, case.center)]
        for i in range(0, N, 40):
            eta, eta0 = (sum(mp.mpf(a) * b for a, b in zip(x[i], w, strict=True)) for w in weights)
            assert found[i] == pytest.approx(float(exact_logistic(eta, eta0, y[i])), abs=300 * EPS)
    assert np.abs(found - terms(case.at(case.center))).max() > 1e-5


@pytest.mark.slow("compiles for long")
def test_compiled():
    """As functions of q, with the gradient that `Surrogate` follows."""
    case = case_of(two_terms)
    expanded = case.expanded().fact
    compiled = CompiledTarget(expanded)
    target, args = compiled.interpreted(), compiled.args(case.point)
    q, q_new, some = case.near(2), case.near(3), np.arange(0, expanded.n_local, 5)
    np.testing.assert_allclose(target.features(q, args), case.function.features(q), rtol=1e-13)
    terms = LocalTerms(expanded)
    change = (terms(case.at(q_new)) - terms(case.at(q)))[some]
    np.testing.assert_allclose(target.log_ratios(q_new, q, some, args), change, atol=1e-13)
    gradient = case.function.prior(q).gradient
    d = case.function.features(q) - case.expansion().center
    of_phi = case.expansion().gradient + case.expansion().hessian @ d
    expected = gradient + of_phi @ case.function.features.jacobian(q)
    np.testing.assert_allclose(target.global_gradient(q, args), expected, rtol=1e-9, atol=1e-9)
