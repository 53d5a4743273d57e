"""Values and derivatives of rows at points, beside NumPy and differences; and their sums."""

from itertools import pairwise

import numpy as np
import pytest

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import constant, predictor
from pymc_austerity.bounds.jets.derivatives import add_rows, no_sums, predictors
from pymc_austerity.bounds.jets.source import source_of
from pymc_austerity.model.compile import programs
from pymc_austerity.model.compile.programs import program_of
from tests.bounds.jets.likelihoods import LIKELIHOODS, rows

D, M = 5, 300  # more than two blocks of rows, and a part of one


def design(name, seed=3):
    """Rows (m, p, D + 1), a phi, the predictors there, and data."""
    likelihood, rng = LIKELIHOODS[name], np.random.default_rng(seed)
    eta, directions, data = rows(likelihood, rng, M, D, 1e3)
    phi = rng.normal(size=D) * 0.1
    offsets = eta - directions @ phi
    return likelihood, np.concatenate([directions, offsets[..., None]], axis=2), phi, data


def row_values(expression, eta, data):
    """Rows one by one, at predictors (p, m)."""
    found = []
    for k in range(eta.shape[1]):
        sums = no_sums(1)
        rows = np.stack([np.zeros_like(eta[:, k]), eta[:, k]], axis=-1)[None]
        add_rows(program_of(expression, len(eta)), rows, data[:, k : k + 1], np.zeros(1), sums)
        found.append(sums.value[0])
    return np.array(found)


def values(likelihood, x, phi, data):
    eta = x[..., :-1] @ phi + x[..., -1]
    return np.broadcast_to(evaluate(likelihood.expression, eta.T, data), len(x))


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.covering(3)
def test_values_are_those_of_numpy(name):
    likelihood, x, phi, data = design(name)
    eta = x[..., :-1] @ phi + x[..., -1]
    np.testing.assert_allclose(
        row_values(likelihood.expression, eta.T, data),
        values(likelihood, x, phi, data),
        rtol=1e-10,
        atol=1e-10,
    )


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_sums_are_derivatives_of_each_other(name):
    """The value is that of NumPy; gradient and Hessian are its differences, and those of the gradient."""
    likelihood, x, phi, data = design(name)

    def at(q):
        sums = no_sums(D)
        slopes = add_rows(program_of(likelihood.expression, likelihood.n_predictors), x, data, q, sums)
        lower = sums.hessian
        return sums.value[0], sums.gradient, lower + np.tril(lower, -1).T, slopes

    value, gradient, hessian, slopes = at(phi)
    np.testing.assert_allclose(value, values(likelihood, x, phi, data).sum(), rtol=1e-10)
    assert np.array_equal(np.triu(np.tril(hessian)), np.triu(np.tril(hessian.T)))
    size = 1e-4
    differences = [(at(phi + d), at(phi - d)) for d in size * np.eye(D)]
    near = np.array([(a[0] - b[0]) / (2 * size) for a, b in differences])
    np.testing.assert_allclose(gradient, near, atol=1e-5 * (np.abs(near).max() + 1e-3 * abs(value)))
    near = np.array([(a[1] - b[1]) / (2 * size) for a, b in differences])
    np.testing.assert_allclose(hessian, near, atol=1e-4 * np.abs(near).max())
    # Slopes are by the predictors: with the rows they make up the gradient.
    p = likelihood.n_predictors
    np.testing.assert_allclose(np.einsum("pm,mpd->d", slopes[:p], x[..., :-1]), gradient, rtol=1e-9)
    second = np.empty((p, p, M))
    second[np.triu_indices(p)] = slopes[p:]
    second[np.triu_indices(p)[::-1]] = slopes[p:]
    own = np.einsum("mpd,pqm,mqe->de", x[..., :-1], second, x[..., :-1])
    np.testing.assert_allclose(own, hessian, atol=1e-9 * np.abs(hessian).max())


@pytest.mark.parametrize(
    ("cuts", "rtol"), [((8, 200), 0.0), ((7, 202), 1e-12)], ids=["between fours", "within fours"]
)
def test_sums_do_not_depend_on_the_chunks(cuts, rtol):
    """Rows are added four at a time: other fours are other roundings."""
    likelihood, x, phi, data = design("logistic")
    whole, parts = no_sums(D), no_sums(D)
    program = program_of(likelihood.expression, likelihood.n_predictors)
    add_rows(program, x, data, phi, whole)
    for start, stop in pairwise((0, *cuts, M)):
        add_rows(program, x[start:stop], data[:, start:stop], phi, parts)
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=0.0)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_source_is_what_the_machine_computes(name, monkeypatch):
    likelihood, x, phi, data = design(name)
    p = likelihood.n_predictors
    if source_of(likelihood.expression, p) is None:
        pytest.skip("its source would be long: the machine runs it")
    eta, found = predictors(x, phi), np.empty((2, 1 + p + p * (p + 1) // 2, M))
    program_of(likelihood.expression, p)(eta, data, found[0])
    monkeypatch.setattr(programs, "source_of", lambda *_: None)
    program_of.__wrapped__(likelihood.expression, p)(eta, data, found[1])
    scale = np.abs(found[1]).max(axis=1, keepdims=True)
    np.testing.assert_allclose(found[0] / scale, found[1] / scale, rtol=1e-9, atol=1e-12)


def test_most_likelihoods_have_a_source():
    """The machine takes seconds to compile."""
    without = {
        name for name, one in LIKELIHOODS.items() if source_of(one.expression, one.n_predictors) is None
    }
    assert len(without) < len(LIKELIHOODS) / 2
    assert not without & {"logistic", "poisson", "normal"}


@pytest.mark.parametrize("x", [-1.0, -1e300, np.nan, -np.inf])
def test_outside_of_a_domain_there_is_no_number(x):
    for function in (forms.log, forms.gammaln):
        assert np.isnan(row_values(function(predictor(0)), np.array([[x]]), np.empty((0, 1))))


def test_conditions_choose_row_by_row():
    x = predictor(0)
    inside = forms.both(forms.less(x, constant(1.0)), forms.negated(forms.less(x, constant(-1.0))))
    root = forms.select(inside, forms.exp(x), forms.square(x))
    at = np.array([-2.0, -1.0, 0.5, 1.0, 3.0])
    expected = np.where((at < 1) & (at >= -1), np.exp(at), at**2)
    np.testing.assert_allclose(row_values(root, at[None], np.empty((0, 5))), expected, rtol=1e-14)
