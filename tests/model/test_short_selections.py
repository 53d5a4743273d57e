"""Short terms that select rows of a long expression compute these rows only."""

import numpy as np
import pymc as pm
import pytest
from pytensor.graph.traversal import toposort

from pymc_austerity import FactorisationError, factorise
from pymc_austerity.model.graph.rewrite import depends_on

from .catalogue import MODELS
from .catalogue_fields_c import censored_rows_by_a_mask_in_data

BUILD = {entry.name: entry.build for entry in MODELS}


def longest(fact, name):
    """The longest axis of what a global term computes from the block."""
    term = sum(graph.sum() for n, graph in fact.globals if n == name)
    moves = depends_on([term], [fact.graph.values[n] for n in fact.var_names])
    shapes = [out.type.shape for node in toposort([term]) for out in node.outputs if moves[out]]
    assert not any(None in shape for shape in shapes)
    return max(max(shape, default=1) for shape in shapes)


@pytest.mark.parametrize(
    "kind", ["censored_rows_by_a_mask", "censored_rows_by_their_numbers", "censored_rows_by_a_mask_in_data"]
)
def test_rows_that_are_computed(kind):
    fact = factorise(BUILD[kind]()[0])
    assert longest(fact, "censored") == 400
    assert longest(fact, "ridge") == 400


def test_cells_that_are_computed():
    fact = factorise(BUILD["cells_of_a_table_by_a_mask_in_data"]()[0])
    assert longest(fact, "few") < 160


def test_another_mask():
    """The mask in `pm.Data` is evaluated at build: with new data, the terms are other rows."""
    model, _ = censored_rows_by_a_mask_in_data()
    fact = factorise(model)
    point = model.initial_point() | {"beta": np.array([0.3, -0.2, 0.1])}
    with model:
        pm.set_data({"mask": np.roll(model["mask"].get_value(), 7)})
    with pytest.raises(ValueError, match="'mask' were replaced"):
        fact.global_log_density(point)
    again = factorise(model)
    total = again.log_density_terms(point).sum() + again.global_log_density(point)
    np.testing.assert_allclose(total, model.compile_logp()(point), rtol=1e-10)


def test_selection_by_a_parameter_is_refused():
    """Which rows are wanted is not known at build."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=1500)
    with pm.Model() as model:
        slope = pm.Normal("slope")
        eta = slope * x
        pm.Potential("few", -eta[: pm.math.switch(slope > 0, 10, 20)].sum())
        pm.Normal("y", eta, 1, observed=x)
    with pytest.raises(FactorisationError, match="'few'"):
        factorise(model)
