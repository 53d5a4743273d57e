"""Cases that the data decide know the ranges of their own rows; long sums are interpreted."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_austerity import factorise
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.guards import is_defined_everywhere
from pymc_austerity.bounds.expressions.node import ordered
from pymc_austerity.model.factorisation import CHUNK
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE
from pymc_austerity.model.structure.term_structure import TermStructure

N = 2000


def function_of(define, n=N):
    x = np.random.default_rng(8).poisson(1.0, n)
    with pm.Model() as model:
        b = pm.HalfNormal("b")
        pm.Potential("rows", define(b, x))
    (found,) = TermStructure(factorise(model)).row_functions  # values are compared with those of the graph
    return found


def expression_of(define):
    return function_of(define).expression


def data_and_rows(found):
    """Data of an expression, with the rows of the case that they are in."""
    columns = list(found.data(np.arange(found.n_rows)))

    def walk(x, here):
        if x.op == "data":
            yield x, columns[x.value][here]
        elif x.op == "select" and not x.args[0].moves:
            holds = np.broadcast_to(evaluate(x.args[0], [], columns) != 0.0, here.shape)
            yield from walk(x.args[1], here & holds)
            yield from walk(x.args[2], here & ~holds)
        else:
            for arg in x.args:
                yield from walk(arg, here)

    return list(walk(found.expression, np.ones(found.n_rows, dtype=bool)))


def in_cases(b, x, wrong=None):
    """Cases within cases, whose data are others in the second chunk."""
    rng, late = np.random.default_rng(9), np.arange(len(x)) > CHUNK
    z = rng.uniform(5.0, 10.0, len(x)) + 80.0 * late
    z[::7] -= np.round(z[::7])
    if wrong is not None:
        z[np.flatnonzero(x > 2)[-1]] = wrong  # of the last chunk
    return (
        pt.switch(x > 0, pt.switch(x > 2, pt.log(b + z + 9.0), pt.log(b + x - 0.5)), pt.log(b + x + 1.0)) - b
    )


@pytest.mark.parametrize("wrong", [None, np.nan])
def test_ranges_hold_the_data_of_their_rows(wrong):
    found = data_and_rows(function_of(lambda b, x: in_cases(b, np.where(x > 1, 3, x), wrong), 3 * CHUNK))
    assert any(one.range.high == 1.0 for one, _ in found)  # of x, where it is above 0 and not above 2
    for one, values in found:
        if np.isnan(values).any():
            assert (one.range.low, one.range.high) == (-np.inf, np.inf)
        elif values.size:
            assert one.range.low <= values.min() <= values.max() <= one.range.high
            assert not (one.range.nonzero and (values == 0.0).any())


def test_what_cancels_in_a_case_takes_no_domain_along():
    """log(c) - log(c x) is a number where x is positive, but not defined for negative c."""

    def define(b, x):
        c = pm.Normal("c")
        return pt.switch(x > 0, pt.log(c) - pt.log(c * x) - c**2, -(c**2)) - b

    found = expression_of(define)
    has_guard = any(one.op == "select" and one.args[0].moves for one in ordered(found))
    assert has_guard or not is_defined_everywhere(found)


def test_a_pole_that_rows_of_a_case_do_not_reach():
    found = expression_of(lambda b, x: pt.log(pt.exp(-b) + pt.switch(x > 0, 1.0 / (b + x - 1), 0.0)))
    assert is_defined_everywhere(found)
    assert not any(one.op == "select" and one.args[0].moves for one in ordered(found))


def test_a_pole_that_some_rows_reach_stays():
    found = expression_of(lambda b, x: pt.log(pt.exp(-b) + pt.switch(x < 3, 1.0 / (b + x - 1), 0.0)))
    assert not is_defined_everywhere(found)


def test_sums_of_many_terms_are_interpreted():
    xs = [pt.dvector(f"x{k}") for k in range(40)]
    for node in (pt.add(*xs), pt.mul(*xs)):
        function = pytensor.function(xs, node, mode=INTERPRETED_STABLE)
        expected = 40.0 if node.owner.op.scalar_op.name == "add" else 1.0
        np.testing.assert_array_equal(function(*[np.ones(3)] * 40), np.full(3, expected))
