"""Bounds that are looked up in tables: never below the truth, hardly above it; and where tables end."""

import numpy as np
import pytest

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import constant, data, predictor
from pymc_austerity.bounds.jets import efforts
from pymc_austerity.bounds.jets.efforts import TabulatedBounds, separated
from tests.bounds.curvatures import curvature
from tests.bounds.jets.likelihoods import LIKELIHOODS, rows
from tests.bounds.jets.test_derivative_norms import bounds_of

ETA = predictor(0)
RADII = np.array([1.0, 20.0])
TABULATED = ["logistic", "poisson", "negative binomial", "gamma"]


def sample(name, n=400, reach=0.05):
    likelihood, rng = LIKELIHOODS[name], np.random.default_rng(5)
    eta, _, columns = rows(likelihood, rng, n, 3, 1e5)
    return likelihood, eta[:, 0].copy(), reach * rng.uniform(0.1, 1.0, n), columns


@pytest.mark.parametrize("degree", [2, 3])
@pytest.mark.parametrize("name", TABULATED)
def test_hardly_above_the_closed_form(name, degree):
    likelihood, eta, length, columns = sample(name)
    table = TabulatedBounds.of(likelihood.expression, degree, eta.min() - 3.0, eta.max() + 3.0)
    found = table(eta, length, RADII, columns)
    for ours, own in zip(found, np.outer(RADII, length), strict=True):
        exact = curvature(name, columns[0], eta - own, eta + own, degree)
        assert np.all(ours >= exact * (1.0 - 1e-9))
        assert ours.sum() <= 1.01 * exact.sum()


@pytest.mark.parametrize("degree", [2, 3])
@pytest.mark.parametrize("name", ["logistic", "poisson", "gamma"])
def test_an_elementary_function_needs_no_table(name, degree):
    likelihood, eta, length, columns = sample(name)
    found = TabulatedBounds.without_table(likelihood.expression, degree)(eta, length, RADII, columns)
    for ours, own in zip(found, np.outer(RADII, length), strict=True):
        exact = curvature(name, columns[0], eta - own, eta + own, degree)
        np.testing.assert_allclose(ours, exact, rtol=1e-9)
        assert np.all(ours >= exact * (1.0 - 1e-13))


def test_elementary_functions_of_what_is_affine():
    """softplus(b eta + c): b^2 / 4 where b eta + c reaches zero, and less beyond."""
    function = forms.multiply(
        data(0, 0.0, 9.0), forms.softplus(forms.add(constant(3.0), forms.multiply(constant(2.0), ETA)))
    )
    at, length = np.array([-1.5, -1.0, 4.0]), np.array([0.0, 1.0, 1.0])
    found = TabulatedBounds.without_table(function, 2)(
        at, length, np.array([0.5]), np.array([[1.0, 3.0, 2.0]])
    )
    far = 1.0 / (1.0 + np.exp(10.0))
    np.testing.assert_allclose(found[0], [1.0, 3.0, 8.0 * far * (1.0 - far)], rtol=1e-9)
    assert TabulatedBounds.without_table(forms.add(forms.exp(ETA), forms.softplus(ETA)), 2) is None
    assert TabulatedBounds.without_table(forms.multiply(data(0, 0.0, 1.0), ETA), 2) is None


def test_one_elementary_function_or_the_other():
    """By a condition on the data, as in a Bernoulli likelihood: no row has both."""
    y = data(0, 0.0, 1.0)
    no, yes = forms.softplus(ETA), forms.softplus(forms.negative(ETA))
    chosen = forms.select(forms.greater(y, constant(0.5)), forms.multiply(constant(3.0), yes), no)
    at, length, columns = np.array([0.3, -2.0]), np.array([0.1, 0.5]), np.array([[1.0, 0.0]])
    found = TabulatedBounds.without_table(chosen, 2)(at, length, np.ones(1), columns)[0]
    one = 1.0 / (1.0 + np.exp(-np.array([0.2, -1.5])))
    np.testing.assert_allclose(found, [3.0, 1.0] * one * (1.0 - one), rtol=1e-9)
    both = forms.add(chosen, forms.exp(ETA))
    assert TabulatedBounds.without_table(both, 2) is None
    assert TabulatedBounds.without_table(forms.exp(forms.exp(ETA)), 2) is None


def test_a_table_that_is_too_small_is_found_out(monkeypatch):
    """The test above sees a table that forgets the cells at both ends."""
    # Planted fault: a table without the cells at both ends.
    look_up = efforts._look_up.py_func
    monkeypatch.setattr(
        efforts, "_look_up", lambda table, eta, length, *others: look_up(table, eta, 0.9 * length, *others)
    )
    with pytest.raises(AssertionError):
        test_hardly_above_the_closed_form("negative binomial", 3)


def test_beyond_the_table_only_what_holds_everywhere_is_known():
    logistic = TabulatedBounds.of(forms.negative(forms.softplus(ETA)), 3, -1.0, 1.0)
    everywhere = 1.0 / (6.0 * np.sqrt(3.0))
    at = np.array([0.0, 5.0, 0.0])
    found = logistic(at, np.array([0.1, 0.1, np.inf]), np.ones(1), np.empty((0, 3)))[0]
    assert found[0] < everywhere
    np.testing.assert_allclose(found[1:], everywhere, rtol=1e-9)
    poisson = TabulatedBounds.of(forms.negative(forms.exp(ETA)), 3, -1.0, 1.0)
    assert np.isinf(poisson(np.array([5.0]), np.array([0.1]), np.ones(1), np.empty((0, 1)))).all()


def test_what_is_separable():
    y, z = data(0, 0.0, 9.0), data(1, 0.5, 2.0)
    assert separated(forms.add(forms.multiply(y, ETA), constant(3.0))) == []
    (one,) = separated(forms.subtract(forms.multiply(y, ETA), forms.multiply(z, forms.exp(ETA))))
    assert one.function is forms.exp(ETA)
    chosen = forms.select(forms.greater(y, constant(1.0)), forms.exp(ETA), forms.softplus(ETA))
    assert {one.function for one in separated(chosen)} == {forms.exp(ETA), forms.softplus(ETA)}
    assert separated(forms.softplus(forms.multiply(y, ETA))) is None


def test_bounds_of_many_rows_are_those_of_jets(monkeypatch):
    """With tables and without: the same but for the width of a cell; rows beyond the tables are in order."""
    likelihood, rng = LIKELIHOODS["negative binomial"], np.random.default_rng(7)
    eta, directions, columns = rows(likelihood, rng, 3000, 4, 1e4)
    eta[1] += 40.0
    plain, _ = bounds_of(likelihood, eta, directions, columns, 3, (7.0, 56.0, np.inf))
    monkeypatch.setattr(efforts, "_MANY_ROWS", 100)
    made, old = [], TabulatedBounds.of
    monkeypatch.setattr(
        TabulatedBounds, "of", classmethod(lambda cls, *args: made.append(old(*args)) or made[-1])
    )
    ours, _ = bounds_of(likelihood, eta, directions, columns, 3, (7.0, 56.0, np.inf))
    assert isinstance(made[0], TabulatedBounds)
    assert np.all(ours[:2] >= plain[:2] * (1.0 - 2e-3))
    np.testing.assert_allclose(ours[:2].sum(axis=1), plain[:2].sum(axis=1), rtol=0.02)
    assert np.isfinite(ours[0]).all()
    np.testing.assert_array_equal(np.isinf(ours[2]), np.isinf(plain[2]))
