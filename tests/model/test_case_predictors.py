"""Predictors are as many as the largest case of an expression needs."""

import numpy as np
import pytest

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import constant, data, ordered, predictor
from pymc_austerity.model.structure.case_predictors import case_predictors

Y = data(0, 0.0, 3.0)
A, B, C = predictor(0), predictor(1), predictor(2)


def when(number, yes, no):
    return forms.select(forms.equal(Y, constant(number)), yes, no)


def check(expression, n, moved=frozenset()):
    """The expression of the predictors that were found has the values of the given one."""
    found = case_predictors(expression, moved)
    assert len(found.values) == n
    rng = np.random.default_rng(1)
    given, column = rng.normal(size=(3, 40)), np.arange(40) % 4.0
    columns = [column, rng.normal(size=40)]
    values = [np.broadcast_to(evaluate(one, given, columns), 40) for one in found.values]
    np.testing.assert_allclose(
        evaluate(found.expression, values, columns), evaluate(expression, given, columns)
    )
    return found


def test_one_case():
    check(forms.exp(forms.add(A, B)), 1)
    check(forms.multiply(forms.exp(A), forms.softplus(B)), 2)


def test_predictors_of_different_cases_share_a_place():
    """The ends of an ordered scale need one cutpoint, its middle two."""
    middle = forms.multiply(forms.exp(A), forms.softplus(B))
    check(when(0, forms.exp(A), middle), 2)
    check(when(0, forms.exp(C), middle), 2)
    check(when(0, forms.exp(C), when(1, forms.softplus(B), middle)), 2)


def test_a_predictor_keeps_its_place():
    middle = forms.multiply(forms.exp(A), forms.softplus(B))
    found = check(when(0, forms.softplus(B), middle), 2)
    assert B in found.values
    assert A in found.values


def test_a_case_without_predictors():
    check(when(0, constant(1.0), forms.exp(A)), 1)
    check(constant(1.0), 1)


def test_data_that_other_steps_move_are_no_coefficients():
    x = data(1, -1.0, 1.0)
    expression = forms.exp(forms.add(A, forms.multiply(x, B)))
    check(expression, 1)
    check(expression, 2, frozenset({1}))


@pytest.mark.parametrize("n_cases", [2, 3, 4])
def test_every_case_is_there(n_cases):
    expression = forms.exp(C)
    for k in range(n_cases - 1):
        expression = when(k, forms.softplus(forms.add(forms.multiply(constant(k + 1.0), A), B)), expression)
    found = check(expression, 1)
    assert any(node.op == "softplus" for node in ordered(found.expression))
