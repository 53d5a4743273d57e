"""The linear predictor that is found on the graph, against the design that was put in."""

import re

import numpy as np
import pymc as pm
import pytensor.sparse as ps
import pytensor.tensor as pt
import pytest
from scipy.sparse import csr_matrix
from scipy.special import expit

from pymc_austerity.model.factorise import build
from pymc_austerity.model.structure.predictor_values import opaque_function
from pymc_austerity.model.structure.term_structure import TermStructure
from tests.models import as_model

N, D = 1200, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
SPARSE = csr_matrix(X * (RNG.random((N, D)) < 0.3))
G = RNG.integers(0, 4, size=N)
T = RNG.normal(size=N)
Y = RNG.integers(0, 2, size=N)
ONE_HOT = np.eye(4)[G]
NO = np.zeros(N)


def factorisation(model, names):
    return build(model, [model[n] for n in names], threshold=1000, initial_point=None, check=True)


def predictor_of(model, names):
    (form,) = TermStructure(factorisation(model, names)).forms_in_block
    return opaque_function(form)


def bernoulli(eta):
    pm.Bernoulli("y", logit_p=eta, observed=Y)


def vector():
    return pm.Normal("b", shape=D)


def scalar(name):
    return pm.Normal(name)


# name: (predictor, expected rows and offset)
SPELLINGS = {
    "matmul": (lambda: X @ vector(), X, NO),
    "math_dot": (lambda: pm.math.dot(X, vector()), X, NO),
    "dot_of_data": (lambda: pm.Data("X", X) @ vector(), X, NO),
    "line": (lambda: scalar("a") + scalar("b") * T, np.c_[np.ones(N), T], NO),
    "slope": (lambda: scalar("b") * T, T[:, None], NO),
    "intercept": (lambda: scalar("a"), np.ones((N, 1)), NO),
    "intercept_and_offset": (lambda: scalar("a") + pm.Data("o", T), np.ones((N, 1)), T),
    "groups": (lambda: pm.Normal("a", shape=4)[G] + X @ vector(), np.c_[ONE_HOT, X], NO),
    "offset": (lambda: X @ vector() + pm.Data("o", T), X, T),
    "two_vectors": (lambda: X @ vector() + ONE_HOT @ pm.Normal("c", shape=4), np.c_[X, ONE_HOT], NO),
    "sum_of_products": (lambda: (X * vector()).sum(-1), X, NO),
    "centred": (lambda: (X - X.mean(0)) @ vector(), X - X.mean(0), NO),
    "divided": (lambda: 3.0 - (X @ vector()) / 2.0, -X / 2, NO + 3.0),
    "zero_sum": (lambda: pm.ZeroSumNormal("z", shape=4)[G], None, NO),
    "stacked": (lambda: X @ pt.stack([scalar("a"), scalar("b"), scalar("c")]), X, NO),
    "concatenated": (lambda: X @ pt.concatenate([[scalar("a")], pm.Normal("b", shape=2)]), X, NO),
    "matrix": (lambda: (pm.Normal("w", shape=(4, D))[G] * X).sum(axis=1), None, NO),
    "column": (lambda: (X @ pm.Normal("w", shape=(D, 1)))[:, 0], X, NO),
    "sparse": (lambda: ps.dot(SPARSE, vector()[:, None])[:, 0], SPARSE.toarray(), NO),
    "switched": (lambda: pt.where(T > 0, scalar("a"), scalar("b")), np.c_[T > 0, T <= 0], NO),
    "assigned": (lambda: X @ pt.set_subtensor(pt.zeros(D)[1:], pm.Normal("b", shape=2)), X[:, 1:], NO),
    "powers": (lambda: scalar("a") * T + scalar("b") * T**2, np.c_[T, T**2], NO),
    "einsum": (lambda: pt.einsum("ij,j->i", X, vector()), X, NO),
    "loop": (lambda: sum(X[:, k] * b for k, b in enumerate([scalar("a"), scalar("b"), scalar("c")])), X, NO),
    "non_centred": (lambda: 2.0 + X @ (0.5 * vector() + 1.0), 0.5 * X, 2.0 + X.sum(1)),
}


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.covering(5)
def test_rows_of_the_design(name):
    make, rows, offset = SPELLINGS[name]
    model = as_model(lambda: bernoulli(make()))()
    fact = factorisation(model, [v.name for v in model.free_RVs])
    found = opaque_function(TermStructure(fact).forms_in_block[0])
    positions = RNG.permutation(N)[:700]
    got = found.rows(positions)[:, 0]
    if rows is not None:
        np.testing.assert_allclose(got[:, :-1], rows[positions], rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(got[:, -1], offset[positions], rtol=1e-13, atol=1e-15)
    assert (found.n_rows, found.offset_fixed, found.others) == (N, True, ())
    q = RNG.normal(size=found.n_dim)
    eta = got @ np.append(q, 1.0)
    expected = np.where(Y[positions] == 1, np.log(expit(eta)), np.log(expit(-eta)))
    np.testing.assert_allclose(terms_at(fact, q, positions), expected, rtol=1e-9)


def terms_at(fact, q, positions=None, point=None):
    """Local terms at the vector q."""
    point, start = dict(fact.graph.point if point is None else point), 0
    for name in fact.var_names:
        shape = fact.graph.values[name].type.shape
        size = int(np.prod(shape))
        point[name] = q[start : start + size].reshape(shape)
        start += size
    return fact.log_density_terms(point, positions)


POSITIONS = np.arange(0, N, 7)


def test_scale_of_another_step_and_offset_of_another_step():
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma")
        u = pm.Normal("u", shape=4)
        pm.Normal("y", X @ vector() + u[G], sigma, observed=T)
    found = predictor_of(model, ["b"])
    assert (found.others, found.offset_fixed) == (("sigma_log__", "u"), False)
    np.testing.assert_allclose(np.abs(found.rows(POSITIONS)[:, 0][:, :-1]), np.abs(X[POSITIONS]))
    # Together they are one block of an offset that is fixed.
    both = predictor_of(model, ["b", "u"])
    assert (both.others, both.offset_fixed, both.n_dim) == (("sigma_log__",), True, D + 4)


def test_term_that_is_affine_itself():
    found = predictor_of(as_model(lambda: pm.Potential("y", 2.0 * (X @ vector()) + T))(), ["b"])
    np.testing.assert_allclose(found.rows(POSITIONS)[:, 0], np.c_[2.0 * X, T][POSITIONS])


def test_digits_survive_a_large_offset():
    found = predictor_of(as_model(lambda: bernoulli(1e-6 * X @ vector() + 1e9))(), ["b"])
    np.testing.assert_allclose(found.rows(POSITIONS)[:, 0][:, :-1], 1e-6 * X[POSITIONS], rtol=1e-13)


# A term "y", and what is said; all variables are in the block, but for those of the last one.
REFUSED = {
    "scale_in_the_block": (
        lambda: pm.Normal("y", X @ vector(), pm.HalfNormal("sigma"), observed=T),
        "'sigma_log__' enters the term 'y' through Exp",
    ),
    "hierarchical_product": (
        lambda: pm.Normal("y", pm.HalfNormal("tau") * pm.Normal("u", shape=4)[G], 1.0, observed=T),
        "'tau_log__' enters the term 'y' through Exp",
    ),
    "two_products": (
        lambda: pm.Normal("y", scalar("tau") * pm.Normal("u", shape=4)[G], 1.0, observed=T),
        "the term 'y' through Mul",
    ),
    "softmax": (
        lambda: pm.Categorical("y", logit_p=X @ pm.Normal("w", shape=(D, 4)), observed=G),
        "'w' enters the term 'y' through",
    ),
    "mixture": (
        lambda: pm.NormalMixture("y", [0.3, 0.7], mu=pm.Normal("m", shape=2), sigma=1.0, observed=T),
        "'m' enters the term 'y' through",
    ),
    "discrete": (
        lambda: pm.Normal("y", pm.Bernoulli("k", 0.5) * T, 1.0, observed=T),
        "'k', which enters the term 'y', is discrete",
    ),
    "two_predictors": (
        lambda: pm.Normal("y", X @ vector(), pt.exp(T * scalar("c")), observed=T),
        "the term 'y' through (Exp|Sub)",
    ),
    "product_with_another_step": (
        lambda: pm.Normal(
            "y", (pm.Normal("tau", shape=4)[G] * (ONE_HOT * pm.Normal("u", shape=4)).T).sum(0), observed=T
        ),
        "'u' enters the term 'y' through Mul",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_variable(name):
    make, message = REFUSED[name]
    model = as_model(make)()
    names = ["u"] if name == "product_with_another_step" else [v.name for v in model.free_RVs]
    fact = factorisation(model, names)
    structure = TermStructure(fact)
    assert not structure.forms_in_block[0].has_one
    assert re.search(message, structure.forms_in_block[0].obstacle)


def test_variables_that_are_added_as_they_are():
    """Their gradients are one variable of PyTensor, which its derivative along both would count once."""
    group = np.arange(1200) % 3
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b", shape=3)
        pm.Normal("y", (a + b)[group], 1.0, observed=np.zeros(1200))
    predictor = opaque_function(TermStructure(factorisation(model, "ab")).forms_in_block[0])
    np.testing.assert_array_equal(
        np.abs(predictor.rows(np.arange(3))[:, 0]), [[1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 0, 0, 1, 0]]
    )


def test_rows_that_nothing_moves():
    """A parameter gives no more than the shape."""
    with pm.Model() as model:
        b = pm.Normal("b", shape=1200)
        pm.Potential("z", pt.exp(pt.zeros_like(b) + 2.0) * np.arange(1200))
    structure = TermStructure(factorisation(model, "b"))
    forms = [form for form in structure.forms_in_block if form.term.name == "z"]
    assert all(form.has_one for form in forms)
    for form in forms:
        np.testing.assert_array_equal(opaque_function(form).rows(np.arange(2))[..., :-1], 0.0)
    assert [row.n_predictors for row in structure.row_functions if row.name == "z"] == [1] * len(forms)
