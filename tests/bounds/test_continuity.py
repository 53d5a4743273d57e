"""Selects are called continuous if their branches agree at the kink, and only then."""

import numpy as np
import pytest

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.continuity import is_continuous, is_straight, with_kinks_outside
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import constant, data, node, ordered, predictor

ETA, ZETA = predictor(0), predictor(1)
Y = data(0, -3.0, 500.0)
Z = forms.subtract(Y, ETA)


def huber(k, at_kink):
    inner = forms.less_equal(forms.absolute(Z), k)
    outer = forms.subtract(forms.multiply(k, forms.absolute(Z)), at_kink)
    return forms.select(inner, forms.scale(0.5, forms.square(Z)), outer)


def threshold(shift, at=ZETA):
    """Above another predictor the square of eta, less than a number; below it another function."""
    above = forms.add(forms.square(forms.subtract(ETA, at)), constant(shift))
    below = forms.subtract(forms.exp(forms.subtract(ETA, at)), constant(1.0))
    return forms.select(forms.greater(ETA, at), above, below)


def if_data(condition, jump):
    """A jump in rows of which the data say so."""
    above = forms.add(ETA, forms.select(condition, jump, constant(0.0)))
    return node("select", (forms.greater(ETA, constant(0.0)), above, ETA))


YEAR, BEFORE, COUNT = data(2, 1950.0, 1999.0), data(3, 1911.0, 1999.0), data(4, 0.0, 1e4)
HALF = forms.scale(0.5, forms.square(data(1, 0.5, 2.0)))
CASES = {
    "absolute value": (forms.absolute(Z), True),
    "larger one": (forms.maximum(ETA, ZETA), True),
    "Huber": (huber(data(1, 0.5, 2.0), HALF), True),
    "planted fault: another constant": (huber(data(1, 0.5, 2.0), forms.scale(1.001, HALF)), False),
    "kink at another predictor": (threshold(0.0), True),
    "kink at what is not affine": (threshold(0.0, forms.exp(ZETA)), False),
    "planted fault: a small jump": (threshold(1e-4), False),
    "planted fault: a jump in columns of years": (
        forms.select(forms.greater(ETA, YEAR), forms.subtract(ETA, BEFORE), constant(0.0)),
        False,
    ),
    "planted fault: a jump in rows of one count": (
        if_data(forms.equal(COUNT, constant(7.0)), constant(1.0)),
        False,
    ),
    "planted fault: a jump in rows of large counts": (
        if_data(forms.greater(COUNT, constant(9999.0)), forms.subtract(COUNT, constant(9999.0))),
        False,
    ),
    "a column of any size": (forms.absolute(forms.subtract(ETA, data(5, -np.inf, np.inf))), False),
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


SCALED = forms.multiply(forms.exp(forms.negative(ZETA)), forms.absolute(Z))
CHECK = forms.select(forms.greater(Z, constant(0.0)), forms.scale(0.9, Z), forms.scale(-0.1, Z))
STRAIGHT = {
    "Laplace errors with a free scale": (forms.negative(forms.add(SCALED, ZETA)), True),
    "a quantile": (forms.negative(CHECK), True),
    "a jump": (forms.select(forms.greater(Z, constant(0.0)), constant(1.0), constant(0.0)), True),
    "normal errors": (forms.scale(-0.5, forms.square(Z)), False),
    "Huber": (huber(constant(1.0), constant(0.5)), False),
    "Huber in a narrow zone": (huber(constant(0.01), constant(0.00005)), False),
    "a bent line with normal errors": (forms.square(forms.subtract(Y, forms.maximum(ETA, ZETA))), False),
    "a kink that no row is near": (forms.absolute(forms.add(Z, constant(100.0))), False),
}


@pytest.mark.parametrize("name", STRAIGHT)
def test_straight_pieces(name):
    root, expected = STRAIGHT[name]
    rng = np.random.default_rng(5)
    assert is_straight(root, rng.normal(size=(2, 200)), {0: rng.normal(size=200)}) == expected
