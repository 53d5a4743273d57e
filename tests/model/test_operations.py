"""Operations of a pass, counted: rows times dimensions squared, as far as a design has no zeros."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import work
from pymc_austerity.mode.search import BlockPosterior
from pymc_austerity.model.field.of_model import factorise
from pymc_austerity.model.graph.elements import ElementCounts, elements
from pymc_austerity.model.structure.term_derivatives import operations_of_rows
from pymc_austerity.model.structure.term_structure import TermStructure


def test_numbers_of_a_graph():
    """Of each operation the largest of its inputs and outputs; what does not depend on the roots is free."""
    x, q = pt.matrix("x", shape=(None, 4)), pt.vector("q", shape=(4,))
    rows = pt.exp(x * q)  # exp and product: 4 for each row
    total = (rows + pt.log(x)).sum(axis=1)  # a sum of 4, and what it adds up
    assert elements([total], [q]).of_row == 16
    assert elements([pt.exp(q)], [q]) == ElementCounts(0, 4)
    assert elements([pt.log(x)], [q]) == ElementCounts(0, 0)


def test_a_dense_design_costs_the_square_of_its_dimensions():
    def of(n_dim, p=1):
        return operations_of_rows(np.ones((50, p, n_dim + 1)))

    assert of(800) / of(400) == pytest.approx(4.0, rel=0.2)
    assert of(400) == pytest.approx(0.12 * 400**2 / 2 + 3 * 400, rel=0.05)
    assert of(400, 2) == pytest.approx(2 * of(400), rel=0.05)


def test_zeros_of_a_design_cost_their_place_only():
    rows = np.zeros((50, 1, 401))
    rows[:, 0, :2] = 1.0
    assert operations_of_rows(rows) < 0.2 * operations_of_rows(np.ones_like(rows))


@cache
def posterior(n_rows, n_groups, *, is_smooth=True):
    """Effects of groups in a normal likelihood, or in a function of too many predictors."""
    rng = np.random.default_rng(1)
    group, spend = rng.integers(n_groups, size=n_rows), rng.gamma(2.0, size=(n_rows, 9))
    with pm.Model() as model:
        rate, level = pm.HalfNormal("rate", shape=9), pm.Normal("level", shape=n_groups)
        mean = level[group] if is_smooth else level[group] + (1 - pt.exp(-rate * spend)).sum(axis=1)
        pm.Normal("y", mean, 1.0, observed=rng.normal(size=n_rows))
    structure = TermStructure(factorise(model))
    with work.budgeted(1.0):
        return BlockPosterior(structure, model.initial_point(), whole_block=True)


def test_rows_without_predictors_cost_their_graph_for_each_coordinate():
    few, many = (posterior(n, 40, is_smooth=False).likelihood.operations for n in (2000, 8000))
    assert many / few == pytest.approx(4.0, rel=0.05)
    wide = posterior(2000, 84, is_smooth=False).likelihood.operations
    assert wide / few == pytest.approx(93 / 49, rel=0.1)
    # Some ninety numbers of a row, along 49 coordinates, at 7 operations each.
    assert 45 * 49 * 7 < few / 2000 < 135 * 49 * 7


def test_a_density_costs_its_rows_the_prior_and_a_step():
    found = posterior(2000, 40)
    whole, part = found.operations(2000), found.operations(500)
    assert whole - part == pytest.approx(0.75 * found.likelihood.operations)
    assert part > 0.25 * found.likelihood.operations + 0.25 * 49**3
