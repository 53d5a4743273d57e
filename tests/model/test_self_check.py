"""The self-check finds planted faults: in a row, also of many, and in a part of a term."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.factorise import taken_apart
from pymc_austerity.model.field.of_model import factorise
from pymc_austerity.model.graph.log_density import raw_terms, typed_log_density
from pymc_austerity.model.self_check import check_against_model


def regression(n):
    x = np.random.default_rng(1).normal(size=n)
    with pm.Model() as model:
        level = pm.Normal("level")
        pm.Normal("y", level * x, 2.0, observed=x)
    return model


def parts(model, threshold=1000):
    graph = typed_log_density(model, raw_terms(model, None), model.initial_point())
    return taken_apart(graph, None, threshold, True)


@pytest.mark.parametrize("n", [2_000, 250_000])
def test_wrong_row_is_found(n):
    """Planted fault: one row that is larger by a thousandth."""
    model = regression(n)
    whole, pieces = parts(model)
    check_against_model(whole, model, pieces)
    (term,) = whole.locals
    # Of 250,000 rows each third is looked at.
    wrong = replace(term, rows=term.rows + 1e-3 * pt.eq(term.index, 1998))
    with pytest.raises(SelfCheckError, match="term 'y': its rows computed one by one"):
        check_against_model(replace(whole, locals=(wrong,)), model, pieces)


def test_wrong_part_is_found():
    """Planted fault: a part of a term that is larger by a thousandth."""
    with pm.Model() as model:
        level = pm.Normal("level")
        r = level - np.arange(2_000.0)
        pm.Potential("p", -0.5 * (r**2).sum() + 3.0 * level)
    whole, pieces = parts(model)
    check_against_model(whole, model, pieces)
    (short,) = [k for k, piece in enumerate(pieces) if piece.name == "p" and not piece.axes]
    wrong = replace(pieces[short], graph=pieces[short].graph * 1.001)
    with pytest.raises(SelfCheckError, match="term 'p'"):
        check_against_model(whole, model, [*pieces[:short], wrong, *pieces[short + 1 :]])


def test_rows_of_a_failed_check_are_not_compared():
    with pm.Model() as model:
        scale = pm.Normal("scale", 2.0, 0.1)
        # A parameter check makes the full vector -inf, and single rows are not.
        pm.Normal("y", 0.0, scale * np.where(np.arange(2_000) == 7, -1.0, 1.0), observed=np.zeros(2_000))
    assert factorise(model).n_local == 2_000
