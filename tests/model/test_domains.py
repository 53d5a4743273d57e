"""Rows are minus infinity where an operation of the model is not defined, whatever became of it."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import factorise
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.jets.efforts import row_bounds
from pymc_austerity.model.structure.term_structure import TermStructure

N = 1100
RNG = np.random.default_rng(3)
X, Y = RNG.uniform(-1, 1, N), RNG.normal(size=N)


def of(function):
    """A term that is a function of 2 + b x, which may be negative for b beyond 2."""
    with pm.Model() as model:
        b = pm.Normal("b", initval=0.1)
        pm.Potential("y", -((Y - function(2.0 + b * X)) ** 2))
    (found,) = TermStructure(factorise(model)).row_functions
    return found


LOST = {
    "exp of log": lambda v: pt.exp(pt.log(v)),
    "square of root": lambda v: pt.sqrt(v) ** 2,
    "sigmoid of log": lambda v: pt.sigmoid(pt.log(v)),
    "softplus of log": lambda v: pt.softplus(pt.log(v)),
    "expm1 of log1p": lambda v: pt.expm1(pt.log1p(v - 1.0)),
    "power of power": lambda v: (v**0.5) ** 4.0,
    "log minus log": lambda v: pt.log(v) - pt.log(v) + v,
}
KEPT = {"log": pt.log, "root": pt.sqrt, "power": lambda v: v**1.5}
NONE = {"exp": pt.exp, "square": lambda v: v**2, "log of exp": lambda v: pt.log(pt.exp(v))}


def bounds_at(function, b, radius):
    """Third derivatives of all rows for coefficients within a radius of b."""

    def rows(positions):
        design = function.rows(positions)
        return design[..., 0] * b + design[..., 1], design[..., :1], function.data(positions)

    every = np.arange(N)
    return row_bounds(function, 3, np.array([radius]), rows)(*rows(every))[0]


@pytest.mark.parametrize("name", LOST)
def test_a_domain_that_was_lost_is_a_guard(name):
    function = of(LOST[name])
    assert function.guards is not None
    guards = function.guards(np.arange(N))
    for b in (0.5, 3.0):
        allowed = np.all(guards[..., 0] * b + guards[..., 1] > 0.0, axis=1)
        np.testing.assert_array_equal(allowed, 2.0 + b * X > 0.0)


def lost(v):
    return pt.exp(pt.log(v - 1.0))


CHOSEN = {
    "switch": lambda v: pt.switch(X > 0.5, lost(v), v),
    "index": lambda v: pt.stack([lost(v), v], axis=1)[np.arange(N), (X <= 0.5).astype(int)],
    "switches": lambda v: pt.switch((X > 0.5)[:, None], pt.stack([lost(v), v], axis=1), v[:, None]).sum(
        axis=1
    ),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_domain_is_that_of_the_rows_that_use_it(name):
    function = of(CHOSEN[name])
    guards = function.guards(np.arange(N))
    for b in (-1.5, 0.5, 3.0):
        allowed = np.all(guards[..., 0] * b + guards[..., 1] > 0.0, axis=1)
        np.testing.assert_array_equal(allowed, (X <= 0.5) | (1.0 + b * X > 0.0))


def test_a_domain_that_is_kept_where_it_counts_is_none():
    assert of(lambda v: pt.switch(X > 0.5, pt.log(pt.exp(v) + X - 0.5), v)).guards is None


def test_a_domain_that_a_moving_condition_implies_is_none():
    assert of(lambda v: pt.switch(v > 0.0, pt.exp(2.0 * pt.log(v)), 0.0)).guards is None


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.covering(2)
def test_a_domain_that_is_kept_needs_no_guard(name):
    function = of(KEPT[name])
    assert function.guards is None
    reaches_zero = 2.0 - 3.0 * np.abs(X) <= 0.0
    np.testing.assert_array_equal(np.isinf(bounds_at(function, 0.0, 3.0)), reaches_zero)


@pytest.mark.parametrize("name", NONE)
def test_functions_that_are_defined_everywhere(name):
    function = of(NONE[name])
    assert function.guards is None
    assert np.all(np.isfinite(bounds_at(function, 0.0, 3.0)))


def test_a_curved_argument_is_decided_on_the_box():
    """exp(log(v)) for v = exp(b x) - 1/2, which is positive for b x above -log(2)."""
    function = of(lambda v: pt.exp(pt.log(pt.exp(v - 2.0) - 0.5)))
    rows, data = function.rows(np.arange(N)), function.data(np.arange(N))
    values = evaluate(function.expression, (rows[..., 0] * 2.0 + rows[..., 1]).T, data)
    fine = np.exp(2.0 * X) > 0.5
    if function.guards is not None:
        guards = function.guards(np.arange(N))
        values = np.where(np.all(guards[..., 0] * 2.0 + guards[..., 1] > 0.0, axis=1), values, -np.inf)
    np.testing.assert_array_equal(np.isfinite(values), fine)
