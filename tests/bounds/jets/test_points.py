"""Values and derivatives of rows at points, beside NumPy and differences; and their sums."""

from itertools import pairwise

import numpy as np
import pytest

from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import node, predictor
from pymc_austerity.bounds.jets.derivatives import add_rows, no_sums
from pymc_austerity.bounds.jets.points import points_for, run_at_points
from pymc_austerity.bounds.jets.tape import tape_of
from tests.bounds.jets.exact_functions import taylor
from tests.bounds.jets.likelihoods import LIKELIHOODS, rows

ETA = predictor(0)
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
        add_rows(tape_of(expression, len(eta), 2), rows, data[:, k : k + 1], np.zeros(1), sums)
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
        slopes = add_rows(tape_of(likelihood.expression, likelihood.n_predictors, 2), x, data, q, sums)
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
    program = tape_of(likelihood.expression, likelihood.n_predictors, 2)
    add_rows(program, x, data, phi, whole)
    for start, stop in pairwise((0, *cuts, M)):
        add_rows(program, x[start:stop], data[:, start:stop], phi, parts)
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=0.0)


@pytest.mark.parametrize("op", ["exp", "log", "log1p", "reciprocal", "softplus", "sigmoid", "gammaln"])
@pytest.mark.parametrize("order", [0, 2, 4])
def test_series_of_functions_are_exact(op, order):
    """The commonest are computed for several rows together, also beside rows outside of the domain."""
    x = np.array([0.3, -2.5, 1e-3, 0.0, 7.0])
    tape = tape_of(node(op, (ETA,)), 1, order)
    points = points_for(tape)
    run_at_points(tape, x[None], np.empty((0, len(x))), 0, len(x), points)
    found = points.coefficients[tape.root, : order + 1, : len(x)]
    is_outside = {"log": x <= 0.0, "gammaln": x <= 0.0, "log1p": x <= -1.0, "reciprocal": x == 0.0}
    for k, one in enumerate(x):
        if op in is_outside and is_outside[op][k]:
            assert np.isnan(found[:, k]).all()
        else:
            exact = [float(each) for each in taylor(op, one, order)]
            np.testing.assert_allclose(found[:, k], exact, rtol=1e-12, atol=1e-15)
