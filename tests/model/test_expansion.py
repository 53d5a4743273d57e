"""Taylor remainders: exact to rounding, and the same sum as the terms that they stand for."""

from functools import cache

import mpmath
import numpy as np
import pymc as pm
import pytest
from mpmath import mp

from pymc_austerity.mode.expansion import expand
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorise import build
from pymc_austerity.model.field.of_model import factorise
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.local_terms import LocalTerms
from pymc_austerity.model.structure.term_structure import MOST_FEATURES, TermStructure
from pymc_austerity.target import Expansion
from tests.model.expansions import Case, Expanded
from tests.model.features import FEATURES

N, D = 60, 3
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, D))
G = RNG.integers(0, 4, size=N)
OFFSET = RNG.normal(size=N)
COUNTS = RNG.poisson(np.exp(0.5 + 0.6 * X[:, 0]))
BINARY = RNG.integers(0, 2, size=N)
REAL = X @ [1.0, -0.5, 0.2] + RNG.standard_t(4, size=N)
EPS = np.finfo(float).eps


def bernoulli():
    b = pm.Normal("b", shape=D)
    pm.Bernoulli("y", logit_p=X @ b, observed=BINARY)


def poisson():
    b = pm.Normal("b", shape=D)
    pm.Poisson("y", pm.math.exp(X @ b), observed=COUNTS)


def normal():
    b, sigma = pm.Normal("b", shape=D), pm.HalfNormal("sigma")
    pm.Normal("y", X @ b, sigma, observed=REAL)


def student():
    b, sigma = pm.Normal("b", shape=D), pm.HalfNormal("sigma")
    pm.StudentT("y", nu=4, mu=X @ b, sigma=sigma, observed=REAL)


def negative_binomial():
    b, alpha = pm.Normal("b", shape=D), pm.Exponential("alpha", 1.0)
    pm.NegativeBinomial("y", mu=pm.math.exp(X @ b), alpha=alpha, observed=COUNTS)


def two_vectors():
    b, sigma = pm.Normal("b", shape=D), pm.HalfNormal("sigma")
    pm.Poisson("counts", pm.math.exp(X @ b), observed=COUNTS)
    pm.Normal("y", X[:55] @ b, sigma, observed=REAL[:55])


def latent_vector():
    mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
    z = pm.Normal("z", mu, tau, shape=N)
    pm.Poisson("y", pm.math.exp(z), observed=COUNTS)


def groups():
    tau = pm.HalfNormal("tau")
    alpha, b = pm.Normal("alpha", 0.0, tau, shape=4), pm.Normal("b", shape=D)
    pm.Bernoulli("y", logit_p=alpha[G] + X @ b, observed=BINARY)


def several_coefficients():
    a, b, c = pm.Normal("a"), pm.Normal("b", shape=D), pm.Normal("c", shape=2)
    eta = a + X @ b + X[:, :2] ** 2 @ c + pm.Data("offset", OFFSET)
    pm.Bernoulli("y", logit_p=eta, observed=BINARY)


def softmax():
    w = pm.Normal("w", shape=(D, 3))
    pm.Categorical("y", logit_p=X @ w, observed=G % 3)


def mixture():
    mu, w = pm.Normal("mu", shape=2), pm.Dirichlet("w", np.ones(2))
    pm.NormalMixture("y", w=w, mu=mu, sigma=np.array([1.0, 2.0]), observed=REAL)


def zero_inflated():
    """What is stored of the expansion has single numbers in it."""
    a, b, psi = pm.Normal("a"), pm.Normal("b"), pm.Beta("psi", 2, 2)
    pm.ZeroInflatedPoisson("y", psi, pm.math.exp(a + b * X[:, 0]), observed=COUNTS)


def intercept_alone():
    a = pm.Normal("a")
    pm.Bernoulli("y", logit_p=a, observed=BINARY)


MODELS = {f.__name__: f for f in (
    bernoulli, poisson, normal, student, negative_binomial, two_vectors, latent_vector, groups,
    several_coefficients, softmax, mixture, zero_inflated, intercept_alone,
)}  # fmt: skip
IN_FEATURES = {define.__name__: define for define in FEATURES}


@cache
def case_of(name):
    if name in IN_FEATURES:
        return Case(IN_FEATURES[name], threshold=1000, most_features=MOST_FEATURES)
    return Case(MODELS[name])


# 50-digit arithmetic -------------------------------------------------------------------------


def exact_bernoulli(row, q):
    eta = mpmath.fdot(row, q)
    return lambda i: -mpmath.log(1 + mpmath.exp(-eta if BINARY[i] else eta))


def exact_negative_binomial(row, q):
    eta, log_alpha = mpmath.fdot(row, q[:D]), q[D]
    mean, alpha = mpmath.exp(eta), mpmath.exp(log_alpha)
    return lambda i: (
        mpmath.loggamma(int(COUNTS[i]) + alpha)
        - mpmath.loggamma(alpha)
        - mpmath.loggamma(int(COUNTS[i]) + 1)
        + alpha * mpmath.log(alpha / (mean + alpha))
        + int(COUNTS[i]) * mpmath.log(mean / (mean + alpha))
    )


EXACT = {"bernoulli": exact_bernoulli, "negative_binomial": exact_negative_binomial}


def exact_remainders(log_density, center, q):
    """Remainders of order 1 and 2 of all rows, and the largest |l_i|, from derivatives along q - center."""
    start = [mp.mpf(c) for c in center]
    direction = [mp.mpf(a) - c for a, c in zip(q, start, strict=True)]
    result, largest = np.empty((2, N)), 0.0
    for i in range(N):
        row = [mp.mpf(x) for x in X[i]]

        def along(s, row=row, i=i):
            return log_density(row, [c + s * d for c, d in zip(start, direction, strict=True)])(i)

        value, first, second = mpmath.taylor(along, 0, 2)
        there = along(mp.mpf(1))
        result[:, i] = there - value - first, there - value - first - second
        largest = max(largest, abs(float(value)), abs(float(there)))
    return result, largest


@pytest.mark.slow("many digits")
@pytest.mark.parametrize("name", EXACT)
def test_remainders_in_exact_arithmetic(name):
    case = case_of(name)
    q = case.near()
    with mp.workdps(50):
        exact, largest = exact_remainders(EXACT[name], case.center, q)
    assert np.abs(exact).max() > 1e-3
    for order in (1, 2):
        found = case.expanded(order).remainders(q)
        np.testing.assert_allclose(found, exact[order - 1], rtol=0, atol=300 * EPS * largest)


# Properties of remainders --------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", ["bernoulli", "student", "latent_vector", "simplex", "pair"])
def test_decay(name, order):
    """Halving the distance from the center divides remainders by 2^(order + 1)."""
    case = case_of(name)
    direction = np.random.default_rng(3).normal(size=len(case.center))
    steps = 0.01 / 2.0 ** np.arange(4)
    expanded = case.expanded(order)
    size = np.array([np.abs(expanded.remainders(case.center + h * direction)).max() for h in steps])
    np.testing.assert_allclose(np.log2(size[:-1] / size[1:]), order + 1, atol=0.15)


LONG = pytest.mark.slow("the derivatives of a mixture have thousands of nodes")
# Of the first order, some of either form.
FIRST = ["bernoulli", "student", "two_vectors", "simplex", "two_terms"]
ORDERS = [*((name, 1) for name in FIRST), *((name, 2) for name in (*MODELS, *IN_FEATURES))]


@pytest.mark.parametrize(
    ("name", "order"),
    [pytest.param(n, k, marks=LONG if n in ("mixture", "zero_inflated") else []) for n, k in ORDERS],
)
@pytest.mark.covering(8)
def test_sum(name, order):
    case = case_of(name)
    expanded = case.expanded(order)
    assert expanded.sum_error() < 100 * EPS
    assert expanded.fact.is_expanded
    assert not case.fact.is_expanded
    assert expanded.fact.local_terms == case.fact.local_terms


def test_terms_have_the_form_they_are_tested_for():
    """Both ways of expansion are taken: by a predictor, and along the direction."""
    found = {}
    for name in MODELS:
        found[name] = [form.has_one for form in case_of(name).structure.forms_in_block]
    assert found == {
        "bernoulli": [True],
        "poisson": [True],
        "normal": [False],
        "student": [False],
        "negative_binomial": [False],
        "two_vectors": [True, False],
        "latent_vector": [False, True],
        "groups": [True],
        "several_coefficients": [True],
        "softmax": [False],
        "mixture": [False],
        "zero_inflated": [False],
        "intercept_alone": [True],
    }


def test_a_term_of_the_user_may_have_any_name():
    """Whether terms are expanded, and which is the polynomial, is not told from names."""
    with pm.Model() as model:
        weights = pm.Dirichlet("w", np.ones(D))
        pm.Potential("Taylor polynomial", -(weights**2).sum())
        pm.Normal("y", X @ weights, 1.0, observed=REAL)
    fact = build(model, None, threshold=50, initial_point=None, check=True)
    assert fact.global_terms == ["w", "Taylor polynomial"]
    assert not fact.is_expanded
    structure = TermStructure(fact)
    assert structure.features is not None
    function = Differentiable(structure, fact.graph.point)
    center = function.features(function.start)
    total, slopes = function.likelihood().at(center)
    expanded = expand(structure, Expansion(2, center, total.gradient, total.hessian), slopes)
    assert expanded.is_expanded
    assert len(expanded.globals) == len(fact.globals) + 1


def test_temperature():
    """A tempered likelihood has tempered remainders; the prior stays."""
    warm, cold = Case(groups, temperature=5.0), case_of("groups")

    def tempered(point):
        prior = cold.fact.global_log_density(point)
        return prior + (cold.log_density(point) - prior) / 5.0

    assert warm.expanded(2).sum_error(tempered) < 100 * EPS
    q = cold.near()
    expected, found = (case.expanded(2).remainders(q) for case in (cold, warm))
    np.testing.assert_allclose(found, expected / 5.0, rtol=0, atol=1e-14)


def test_variables_outside_the_block():
    """A prior's scale may move: it is in no local term, and the global terms follow it."""
    case = Case(groups, names=["alpha", "b"])
    changes = []
    for tau in (-1.0, 0.0, 2.0):
        new, old = ({**case.at(q), "tau_log__": np.array(tau)} for q in (case.near(), case.center))
        changes.append(case.log_density(new) - case.log_density(old))
        found = case.expanded(2).log_density(new) - case.expanded(2).log_density(old)
        np.testing.assert_allclose(found, changes[-1], rtol=1e-11)
    assert np.ptp(changes) > 1e-3


@pytest.mark.parametrize("order", [1, 2])
def test_linear_terms_have_no_remainder(order):
    def define():
        b = pm.Normal("b", shape=D)
        pm.Potential("p", X[:55] @ b)
        pm.Bernoulli("y", logit_p=X @ b, observed=BINARY)

    case = Case(define)
    found = case.expanded(order).remainders(case.near())
    start = 0 if case.fact.local_terms[0][0] == "p" else N
    np.testing.assert_array_equal(found[start : start + 55], np.zeros(55))
    assert np.abs(found).max() > 1e-4


def test_quadratic_terms_have_no_remainder():
    def define():
        b = pm.Normal("b", shape=D)
        pm.Normal("y", X @ b, 1.0, observed=REAL)

    case = Case(define)
    q = case.near()
    assert np.abs(case.expanded(2).remainders(q)).max() < 1e-13
    assert np.abs(case.expanded(1).remainders(q)).max() > 1e-3


# Totals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.covering(3)
def test_totals(name):
    """Value, gradient and Hessian against PyMC's own density and differences of its gradient."""
    case = case_of(name)
    q = case.near()
    total = case.function.prior(q).plus(case.likelihood(q))
    np.testing.assert_allclose(total.value, case.log_density(case.at(q)), rtol=1e-12)
    expected = case.slope(case.at(q))
    np.testing.assert_allclose(total.gradient, expected, rtol=0, atol=1e-11 * (1.0 + np.abs(expected).max()))
    for d in np.random.default_rng(4).permutation(len(q))[:6]:
        atol = 1e-8 * np.abs(total.hessian).max()
        np.testing.assert_allclose(total.hessian[d], case.column(q, d), rtol=0, atol=atol)


@pytest.mark.parametrize("name", ["groups", "two_vectors"])
def test_totals_of_some_rows(name):
    """Parts of the population add up to all of it."""
    case = case_of(name)
    q = case.near()
    order = np.random.default_rng(5).permutation(case.fact.n_local)
    parts = [case.function.likelihood(np.sort(p))(q) for p in np.array_split(order, 3)]
    whole = case.likelihood(q)
    for field in whole._fields:
        total = sum(getattr(part, field) for part in parts)
        np.testing.assert_allclose(total, getattr(whole, field), rtol=1e-11, atol=1e-11)
    value = LocalTerms(case.fact)(case.at(q))[order[:7]].sum()
    np.testing.assert_allclose(case.function.likelihood(np.sort(order[:7]))(q).value, value)


# Compiled code -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bernoulli", "normal"])
@pytest.mark.covering(1)
def test_compiled(name):
    case = case_of(name)
    expanded = case.expanded(2)
    q_new, q = case.near(0), case.near(1)
    expected = expanded.remainders(q_new) - expanded.remainders(q)
    change = expanded.fact.global_log_density(case.at(q_new)) - expanded.fact.global_log_density(case.at(q))
    positions = np.random.default_rng(6).permutation(case.fact.n_local)[:17]
    for shuffle in (False, True):
        compiled = CompiledTarget(expanded.fact, shuffle=shuffle)
        target, args = compiled.interpreted(), compiled.args(case.point)
        np.testing.assert_allclose(target.global_log_ratio(q_new, q, args), change, rtol=1e-11)
        for some in (positions, positions[:1], positions[-1:]):
            stored = np.concatenate([compiled.stored_at(k) for k in some[:, None]])
            found = target.log_ratios(q_new, q, stored, args)
            np.testing.assert_allclose(found, expected[some], rtol=0, atol=1e-12)
        everything = compiled.stored_at(np.arange(case.fact.n_local))
        np.testing.assert_array_equal(np.sort(everything), np.arange(case.fact.n_local))
    assert not np.array_equal(np.sort(stored), np.sort(some))


# Planted faults --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bernoulli", "student"])
def test_wrong_expansions_are_noticed(name):
    case = case_of(name)
    right = case.expansion(2)
    one = case.function.likelihood(np.array([17]))(case.center)
    wrong = {
        "half the Hessian": right._replace(hessian=0.5 * right.hessian),
        "center moved": right._replace(center=right.center + 1e-3),
        "gradient of a row": right._replace(gradient=right.gradient - one.gradient),
    }
    for what, expansion in wrong.items():
        assert Expanded(case, expansion).sum_error() > 1e-6, what


def test_wrong_totals_are_noticed():
    """Differences of the gradient see a row that is counted twice."""
    case = case_of("bernoulli")
    q = case.near()
    total = case.function.prior(q).plus(case.likelihood(q))
    total = total.plus(case.function.likelihood(np.array([3]))(q))
    assert np.abs(total.hessian[0] - case.column(q, 0)).max() > 1e-4 * np.abs(total.hessian).max()


# Far from the center -------------------------------------------------------------------------


def test_in_the_tails():
    """log(1 - sigmoid(eta)) is not computed as log(0): remainders stay finite and exact."""

    def define():
        b = pm.Normal("b", shape=1)
        pm.Bernoulli("y", p=pm.math.invlogit(80.0 * X[:, :1] @ b), observed=BINARY)

    case = Case(define)
    case.center[:] = 1.0
    q = np.array([1.01])
    found = case.expanded(2).remainders(q)
    with mp.workdps(50):
        exact = []
        for i in range(N):
            sign = 1 if BINARY[i] else -1

            def along(s, sign=sign, x=mp.mpf(X[i, 0])):  # noqa: B008
                eta = 80 * x * (1 + s * (mp.mpf(q[0]) - 1))
                return -mpmath.log(1 + mpmath.exp(-sign * eta))

            exact.append(float(along(mp.mpf(1)) - sum(mpmath.taylor(along, 0, 2))))
    np.testing.assert_allclose(found, exact, rtol=0, atol=300 * EPS * 240.0)


@pytest.mark.parametrize("prior", [lambda: pm.Flat("b", shape=D), lambda: pm.Laplace("b", 0, 1, shape=D)])
def test_a_prior_without_curvature_has_a_hessian_of_zeros(prior):
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=X @ prior(), observed=BINARY)
        fact = factorise(model, threshold=N)
    found = Differentiable(TermStructure(fact), fact.graph.point).prior(np.array([0.3, -0.2, 0.1]))
    np.testing.assert_array_equal(found.hessian, np.zeros((D, D)))
