"""Checks of parameters leave an expression, and bounds hold where they do."""

import math

import numpy as np
import pytest

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.guards import guards_of_all, without_guards
from pymc_austerity.bounds.expressions.node import constant, data, ordered, predictor
from pymc_austerity.bounds.row_constants import BoundsByJets, ExpansionCoordinates
from pymc_austerity.bounds.row_function import RowFunction

A, B = predictor(0), predictor(1)
NEVER = constant(-math.inf)


def guarded(condition, inside=None):
    return forms.select(condition, forms.exp(A) if inside is None else inside, NEVER)


@pytest.mark.parametrize(
    ("condition", "guards"),
    [
        (forms.greater(B, A), [forms.subtract(B, A)]),
        (forms.less_equal(B, constant(2.0)), [forms.subtract(constant(2.0), B)]),
        (forms.negated(forms.greater(A, B)), [forms.subtract(B, A)]),
        (forms.both(forms.greater(A, B), forms.greater(B, constant(0.0))), [forms.subtract(A, B), B]),
        # Functions that increase are compared by their arguments.
        (forms.greater(forms.sigmoid(B), forms.sigmoid(A)), [forms.subtract(B, A)]),
        (forms.greater(forms.exp(B), constant(math.e)), [forms.subtract(B, constant(1.0))]),
    ],
)
def test_affine_conditions_become_guards(condition, guards):
    expression, found = without_guards(guarded(condition))
    assert expression is forms.exp(A)
    assert set(found) == set(guards)


@pytest.mark.parametrize(
    "condition",
    [
        forms.greater(forms.add(forms.exp(A), B), constant(0.0)),  # not affine
        forms.equal(A, B),  # no inequality
        forms.greater(data(0, 0.0, 1.0), constant(0.5)),  # of data
    ],
)
def test_other_conditions_stay(condition):
    expression, found = without_guards(guarded(condition))
    assert expression is guarded(condition)
    assert found == ()


def test_only_branches_of_minus_infinity_leave():
    whole = forms.select(forms.greater(A, B), forms.exp(A), forms.exp(B))
    assert without_guards(whole) == (whole, ())


def test_guards_inside_cases_and_sums():
    inner = guarded(forms.greater(B, A), forms.exp(B))
    case = forms.select(forms.equal(data(0, 0.0, 3.0), constant(0.0)), inner, forms.exp(A))
    expression, found = without_guards(forms.add(case, A))
    assert found == (forms.select(case.args[0], forms.subtract(B, A), constant(1.0)),)  # in the other none
    assert guards_of_all(forms.add(case, A)) == set(found)
    assert not any(node is NEVER for node in ordered(expression))


def test_a_guard_of_both_cases_is_one_of_all_rows():
    condition = forms.equal(data(0, 0.0, 3.0), constant(0.0))
    case = forms.select(condition, *(guarded(forms.greater(B, A), one) for one in (forms.exp(B), A)))
    expression, found = without_guards(case)
    assert found == (forms.subtract(B, A),)
    assert guards_of_all(case) == set(found)
    assert expression is forms.select(condition, forms.exp(B), A)


def test_a_row_is_not_bounded_where_its_guard_may_fail():
    """The guard is above zero for |w| below 1, 2 and 3."""
    margins = np.array([1.0, 2.0, 3.0])
    radii = np.array([0.5, 1.5, 2.5, math.inf])
    coordinates = ExpansionCoordinates(2, np.zeros(1), np.eye(1), np.eye(1))
    designs = np.concatenate([np.full((3, 1, 1), 0.1), np.zeros((3, 1, 1))], axis=2)
    guards = np.stack([np.stack([np.ones(3), margins], axis=-1)], axis=1)
    function = RowFunction(
        name="y",
        n_rows=3,
        n_dim=1,
        n_predictors=1,
        rows=lambda positions: designs[positions],
        data=lambda positions: np.empty((0, len(positions))),
        form=forms.softplus(A),
        others=(),
        offset_fixed=True,
        guards=lambda positions: guards[positions],
    )
    bounds = BoundsByJets(function, coordinates, radii)
    rows = np.arange(3), np.zeros((3, 1)), designs[..., :-1]
    finite = np.isfinite(bounds.constants(*rows))
    np.testing.assert_array_equal(finite, radii[:, None] < margins)
    unguarded = BoundsByJets(function._replace(guards=None), coordinates, radii)
    assert np.all(np.isfinite(unguarded.constants(*rows)))


def test_guards_without_which_all_is_minus_infinity():
    """Planted fault: those of a part of a mixture, or of some rows, are not."""
    own, other = guarded(forms.greater(B, A)), forms.square(A)
    some = forms.greater(data(0, 0.0, 1.0), constant(0.5))
    in_one = forms.select(some, own, other)
    for root in (own, in_one, forms.add(other, own), forms.select(some, own, forms.add(other, own))):
        assert guards_of_all(root) == set(without_guards(root)[1]) != set()
    for root in (forms.logaddexp(own, other), forms.logaddexp(in_one, other), forms.scale(-1.0, own)):
        assert without_guards(root)[1]
        assert not guards_of_all(root)
