"""Selects are called continuous if their branches agree at the kink, and only then."""

import numpy as np
import pytest

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.continuity import is_continuous, with_kinks_outside
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import constant, data, ordered, predictor

ETA, ZETA = predictor(0), predictor(1)
Y = data(0, -3.0, 500.0)
Z = forms.subtract(Y, ETA)


def huber(k, at_kink):
    inner = forms.less_equal(forms.absolute(Z), k)
    outer = forms.subtract(forms.multiply(k, forms.absolute(Z)), at_kink)
    return forms.select(inner, forms.scale(0.5, forms.square(Z)), outer)


def threshold(shift):
    """Above exp(zeta) the square of eta, less than a number; below it another function."""
    at = forms.exp(ZETA)
    above = forms.add(forms.square(forms.subtract(ETA, at)), constant(shift))
    return forms.select(
        forms.greater(ETA, at), above, forms.subtract(forms.exp(forms.subtract(ETA, at)), constant(1.0))
    )


HALF = forms.scale(0.5, forms.square(data(1, 0.5, 2.0)))
CASES = {
    "absolute value": (forms.absolute(Z), True),
    "larger one": (forms.maximum(ETA, ZETA), True),
    "Huber": (huber(data(1, 0.5, 2.0), HALF), True),
    "planted fault: another constant": (huber(data(1, 0.5, 2.0), forms.scale(1.001, HALF)), False),
    "kink at a function of another predictor": (threshold(0.0), True),
    "planted fault: a small jump": (threshold(1e-4), False),
    "step": (forms.select(forms.greater(ETA, Y), constant(1.0), constant(0.0)), False),
    "support": (forms.select(forms.greater(ETA, Y), ETA, constant(-np.inf)), False),
}


def selects(root):
    return [one for one in ordered(root) if one.op == "select" and one.args[0].moves]


@pytest.mark.parametrize("name", CASES)
def test_planted_jumps_are_found(name):
    root, expected = CASES[name]
    assert selects(root)
    assert all(map(is_continuous, selects(root))) == expected


def test_kinks_are_brought_to_the_root():
    root = forms.multiply(forms.multiply(Z, forms.sign(Z)), forms.exp(forms.scale(0.3, forms.sign(Z))))
    assert not all(map(is_continuous, selects(root)))
    found = with_kinks_outside(root)
    assert found.op == "select"
    jumps = forms.add(root, forms.sign(Z))
    assert not all(map(is_continuous, selects(with_kinks_outside(jumps))))
    eta, y = np.random.default_rng(1).normal(size=(2, 1, 100))
    for one in (root, jumps):
        np.testing.assert_allclose(evaluate(with_kinks_outside(one), eta, y), evaluate(one, eta, y))
