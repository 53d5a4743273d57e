"""Interval jets of likelihoods beside derivatives in 60 digits."""

import math

import numpy as np
import pytest
from mpmath import mpf

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import constant, data, node, predictor
from pymc_austerity.bounds.jets.derivative_norms import Effort, derivative_norms
from pymc_austerity.bounds.jets.machine import LANES, Block, Box, run, slots_for
from pymc_austerity.bounds.jets.ranges import WORK
from pymc_austerity.bounds.jets.tape import tape_of
from tests.bounds.jets.exact_jets import ExactJets
from tests.bounds.jets.likelihoods import LIKELIHOODS, rows

# Boxes of nothing but rounding, and of moves at N = 10^6 and at N = 10^3 or so.
HALVES = (0.0, 0.003, 0.1)
RHO = 1.5


def enclosed(expression, block, box, order):
    """Midpoints and radii of all coefficients, in all lanes."""
    tape = tape_of(expression, block.eta.shape[0], order)
    slots = slots_for(tape)
    run(tape, block, box, slots, np.empty(WORK))
    return slots.middle[tape.root, : tape.n_coefficients], slots.radius[tape.root, : tape.n_coefficients]


def block_of(likelihood, rng):
    eta, _, columns = rows(likelihood, rng, LANES, 1, 1.0)
    p = likelihood.n_predictors
    factor = np.tril(0.4 * rng.normal(size=(LANES, p, p)))
    return Block(eta.T.copy(), np.moveaxis(factor, 0, -1).copy(), columns)


def points_in(box, rng):
    """Points of the box that are in the ball: any, and corners."""
    p = len(box.at)
    step = rng.uniform(-1, 1, p) if rng.random() < 0.5 else rng.choice([-1, 1], p)
    z = box.at + box.half * step
    return z if np.linalg.norm(z) <= box.rho else box.at


def exact(expression, block, lane, z, order):
    predictors = [
        (sum((mpf(a) * mpf(b) for a, b in zip(slopes, z, strict=True)), mpf(eta)), slopes)
        for eta, slopes in zip(block.eta[:, lane], block.factor[:, :, lane], strict=True)
    ]
    return ExactJets(predictors, block.data[:, lane], order).coefficients(expression)


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.covering(11)
def test_no_derivative_is_outside(name):
    likelihood, rng = LIKELIHOODS[name], np.random.default_rng(6)
    p = likelihood.n_predictors
    order = {1: 5, 2: 5, 3: 4}.get(p, 3)
    wrong, n_known = [], 0
    for half in HALVES:
        block = block_of(likelihood, rng)
        at = np.zeros(p) if half == 0.0 else rng.uniform(-0.5, 0.5, p)
        box = Box(at, np.full(p, half), max(half, RHO))
        middle, radius = enclosed(likelihood.expression, block, box, order)
        for lane in range({1: 16, 2: 10, 3: 6}.get(p, 4)):
            values = exact(likelihood.expression, block, lane, points_in(box, rng), order)
            for k, value in enumerate(values):
                n_known += radius[k, lane] < math.inf
                if abs(value - middle[k, lane]) > radius[k, lane]:
                    wrong.append((half, lane, k, float(value), middle[k, lane], radius[k, lane]))
    assert not wrong, wrong[:5]
    assert n_known > 0


def test_enclosures_are_not_much_wider_than_rounding_at_points():
    """So that a radius that is far too large is seen."""
    rng = np.random.default_rng(7)
    for likelihood in LIKELIHOODS.values():
        block = block_of(likelihood, rng)
        middle, radius = enclosed(
            likelihood.expression, block, Box(*np.zeros((2, likelihood.n_predictors)), RHO), 3
        )
        assert np.all(radius <= 1e-8 * np.abs(middle).max(axis=0))


# Conditions

X, Y, COLUMN = predictor(0), predictor(1), data(0, -10.0, 10.0)
# What a condition on data alone is, for columns -1, 0, 3 and 4.
OF_DATA = {
    "equal": (forms.equal(COLUMN, constant(3.0)), (False, False, True, False)),
    "not equal": (forms.not_equal(COLUMN, constant(3.0)), (True, True, False, True)),
    "less": (forms.less(COLUMN, constant(3.0)), (True, True, False, False)),
    "at most": (forms.less_equal(COLUMN, constant(3.0)), (True, True, True, False)),
    "greater": (forms.greater(COLUMN, constant(0.0)), (False, False, True, True)),
    "at least": (forms.greater_equal(COLUMN, constant(0.0)), (False, True, True, True)),
    "not": (forms.negated(forms.less(COLUMN, constant(3.0))), (False, False, True, True)),
    "and": (
        forms.both(forms.less(COLUMN, constant(4.0)), forms.greater(COLUMN, constant(0.0))),
        (False, False, True, False),
    ),
    "or": (
        forms.either(forms.less(COLUMN, constant(0.0)), forms.greater(COLUMN, constant(3.0))),
        (True, False, False, True),
    ),
}


def lanes_of(values):
    return np.resize(np.array(values, dtype=np.float64), LANES)


def selected(condition, eta, half, columns=(0.0,)):
    """Midpoints and radii of the value and the slope of a selection: 2 x and 5 x + 1."""
    two, five = forms.multiply(constant(2.0), X), forms.add(forms.multiply(constant(5.0), X), constant(1.0))
    eta = np.array([lanes_of(one) for one in eta])
    factor = np.repeat(np.eye(len(eta))[:, :, None], LANES, axis=2)
    block = Block(eta, factor, lanes_of(columns)[None])
    return enclosed(
        node("select", (condition, two, five)),
        block,
        Box(np.zeros(len(eta)), np.full(len(eta), half), half),
        1,
    )


@pytest.mark.parametrize("name", OF_DATA)
def test_conditions_on_data_are_exact(name):
    condition, expected = OF_DATA[name]
    middle, radius = selected(condition, [[1.5]], 0.1, (-1.0, 0.0, 3.0, 4.0))
    np.testing.assert_array_equal(middle[1], np.where(lanes_of(expected) != 0.0, 2.0, 5.0))
    assert np.all(radius[1] < 1e-12)


def test_numbers_next_to_each_other_are_not_equal():
    columns = (3.0, np.nextafter(3.0, 4.0), np.nextafter(3.0, 2.0))
    middle, _ = selected(OF_DATA["equal"][0], [[1.5]], 0.1, columns)
    np.testing.assert_array_equal(middle[1, :3], [2.0, 5.0, 5.0])


# With x within 0.1 of each of these, the condition holds, does not, or is open (None).
MOVING = {
    "positive": (node("positive", (X,)), {0.2: True, -0.2: False, 0.05: None, 0.1: None}),
    "nonnegative": (node("nonnegative", (X,)), {0.2: True, -0.2: False, -0.05: None, -0.1: None}),
    "zero": (node("zero", (X,)), {0.2: False, -0.2: False, 0.0: None}),
    "not": (node("not", (node("positive", (X,)),)), {0.2: False, -0.2: True, 0.05: None}),
}


@pytest.mark.parametrize("name", MOVING)
def test_moving_conditions_are_decided_for_the_whole_box(name):
    condition, cases = MOVING[name]
    for x, expected in cases.items():
        middle, radius = selected(condition, [[x]], 0.1)
        if expected is None:
            assert np.all(radius == math.inf), x
        else:
            assert np.all(middle[1] == (2.0 if expected else 5.0)), x
            assert np.all(radius[1] < 1e-12)


@pytest.mark.parametrize("op", ["and", "or"])
def test_one_open_condition_may_not_matter(op):
    """All nine pairs of true, false and open."""
    truth = {0.5: True, -0.5: False, 0.0: None}
    condition = node(op, (node("positive", (X,)), node("positive", (Y,))))
    for x, first in truth.items():
        for y, second in truth.items():
            strong = op == "or"
            if strong in (first, second):
                expected = strong
            else:
                expected = None if None in (first, second) else not strong
            middle, radius = selected(condition, [[x], [y]], 0.1)
            if expected is None:
                assert np.all(radius == math.inf)
            else:
                assert np.all(middle[1] == (2.0 if expected else 5.0)), (x, y)
                assert np.all(radius[1] < 1e-12)


def test_an_open_condition_gives_an_infinite_bound():
    expression = node("select", (node("positive", (X,)), forms.square(X), constant(0.0)))
    tape = tape_of(expression, 1, 3)
    eta, directions = np.array([[0.0], [5.0]]), np.ones((2, 1, 1))
    c = derivative_norms(tape, eta, directions, np.empty((0, 2)), 0.1, 3, Effort(0, (1,)))
    assert c[0] == math.inf
    assert c[1] < 1e-9
