"""Cases that the data decide know the ranges of their own rows; long sums are interpreted."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc_austerity import factorise
from pymc_austerity.bounds.expressions.guards import is_defined_everywhere
from pymc_austerity.bounds.expressions.node import ordered
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE
from pymc_austerity.model.structure.term_structure import TermStructure

N = 2000


def expression_of(define):
    rng = np.random.default_rng(8)
    x = rng.poisson(1.0, N)
    with pm.Model() as model:
        b = pm.HalfNormal("b")
        pm.Potential("rows", define(b, x))
    (found,) = TermStructure(factorise(model)).row_functions  # values are compared with those of the graph
    return found.expression


def test_a_pole_that_rows_of_a_case_do_not_reach():
    found = expression_of(lambda b, x: pt.log(pt.exp(-b) + pt.switch(x > 0, 1.0 / (b + x - 1), 0.0)))
    assert is_defined_everywhere(found)
    assert not any(one.op == "select" and one.args[0].moves for one in ordered(found))


def test_a_pole_that_some_rows_reach_stays():
    found = expression_of(lambda b, x: pt.log(pt.exp(-b) + pt.switch(x < 3, 1.0 / (b + x - 1), 0.0)))
    assert not is_defined_everywhere(found) or any(one.op == "select" for one in ordered(found))


def test_sums_of_many_terms_are_interpreted():
    xs = [pt.dvector(f"x{k}") for k in range(40)]
    for node in (pt.add(*xs), pt.mul(*xs)):
        function = pytensor.function(xs, node, mode=INTERPRETED_STABLE)
        expected = 40.0 if node.owner.op.scalar_op.name == "add" else 1.0
        np.testing.assert_array_equal(function(*[np.ones(3)] * 40), np.full(3, expected))
