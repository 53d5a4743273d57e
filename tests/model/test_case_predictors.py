"""Predictors are as many as the largest case of an expression needs: by the smallest cut of a graph."""

from itertools import combinations

import numpy as np
import pytest

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import constant, data, ordered, predictor
from pymc_austerity.model.structure.case_predictors import case_predictors, smallest_cut

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


# The smallest cut of a graph, against all sets of nodes ---------------------------------------------------


def random_graph(rng, n):
    """Inputs of nodes 0, ..., n - 1, each made of earlier ones."""
    return {
        k: sorted(rng.choice(k, size=min(k, rng.integers(1, 4)), replace=False).tolist()) if k > 2 else []
        for k in range(n)
    }


def is_cut(inputs, sources, root, nodes):
    """Does no way lead from a source to the root without one of the nodes?"""
    reached = {one for one in sources if one not in nodes}
    for k, args in inputs.items():
        if k not in nodes and any(arg in reached for arg in args):
            reached.add(k)
    return root not in reached


def brute(inputs, sources, root, allowed):
    """All smallest cuts."""
    for size in range(len(allowed) + 1):
        found = [set(some) for some in combinations(allowed, size) if is_cut(inputs, sources, root, some)]
        if found:
            return found
    return []


@pytest.mark.parametrize("seed", range(60))
def test_as_few_as_of_all_sets(seed):
    rng = np.random.default_rng(seed)
    inputs = random_graph(rng, 11)
    allowed = [k for k in inputs if rng.random() < 0.7]
    expected = brute(inputs, [0, 1, 2], 10, allowed)
    found = smallest_cut(inputs, [0, 1, 2], 10, allowed)
    if not expected:
        assert found is None
        return
    assert found in expected
    # On the way to it everything has passed through any other smallest cut.
    for other in expected:
        assert all(node in other or is_cut(inputs, [0, 1, 2], node, other) for node in found)


def test_of_several_the_one_nearest_to_the_root():
    chain = {"x": [], "a": ["x"], "b": ["a"], "root": ["b"]}
    assert smallest_cut(chain, ["x"], "root", {"x", "a", "b"}) == {"b"}
    assert smallest_cut(chain, ["x"], "root", {"x"}) == {"x"}
    assert smallest_cut(chain, ["x"], "root", set(chain)) == {"root"}


def test_one_value_that_is_used_twice_counts_once():
    graph = {"x": [], "y": [], "eta": ["x", "y"], "a": ["eta"], "b": ["eta"], "root": ["a", "b"]}
    assert smallest_cut(graph, ["x", "y"], "root", {"x", "y", "eta"}) == {"eta"}
    assert smallest_cut(graph, ["x", "y"], "root", {"x", "y"}) == {"x", "y"}


def test_no_cut():
    assert smallest_cut({"x": [], "root": ["x"]}, ["x"], "root", set()) is None
