"""The work of `factorise` grows in proportion to the number of terms."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.traversal import toposort

from pymc_austerity import factorise
from pymc_austerity.model.graph.rewrite import merged

T = 40


def equations(n):
    """A response for each of n columns of one table of means."""
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        level = pm.Normal("level", shape=n)
        columns = []
        for k in range(n):
            slope = pm.Normal(f"slope_{k}")
            columns.append(pt.exp(slope * rng.normal(size=T)))
        mean = level + pt.stack(columns, axis=1)
        for k in range(n):
            pm.Normal(f"y_{k}", mean[:, k], 1, observed=rng.normal(size=T))
    return model


def n_nodes(graphs):
    return len(list(toposort(list(graphs))))


def work(n, monkeypatch):
    """Operations in the terms and in their rows, and functions that were made."""
    model, point = equations(n), {"level": np.zeros(n), **{f"slope_{k}": np.zeros(()) for k in range(n)}}
    made = []
    make = pytensor.function
    with monkeypatch.context() as patch:
        patch.setattr(pytensor, "function", lambda *a, **k: made.append(a) or make(*a, **k))
        fact = factorise(model, threshold=20, initial_point=point)
    assert fact.local_terms == [(f"y_{k}", T) for k in range(n)]
    rows = [term.rows for term in fact.locals]
    return np.array(
        [n_nodes(fact.graph.raw.values()), n_nodes(fact.graph.terms.values()), n_nodes(rows), len(made)]
    )


def test_work_is_linear(monkeypatch):
    four, eight, sixteen = (work(n, monkeypatch) for n in (4, 8, 16))
    # Twice as many terms add twice as much.
    assert np.all(sixteen - eight <= 2.2 * (eight - four))


def test_equal_parts_are_written_once():
    x, y = pt.vector("x"), pt.vector("y")
    first, second, other = pt.exp(x + 1.0) * y, pt.exp(x + 1.0) * y, pt.exp(x + 2.0) * y
    one, same, different = merged([first, second, other])
    assert one is same
    assert different is not one
    values = np.array([0.1, 0.2]), np.array([3.0, 4.0])
    function = pytensor.function([x, y], [one, different], mode="FAST_COMPILE")
    np.testing.assert_allclose(function(*values), [np.exp(values[0] + c) * values[1] for c in (1.0, 2.0)])


def test_columns_of_a_table():
    """Selections from joins along both axes, from sums with a row and a column, and from the end."""
    rng = np.random.default_rng(2)
    with pm.Model() as model:
        a = pm.Normal("a", shape=3)
        b = pm.Normal("b", shape=1200)
        c = pm.Normal("c", shape=(1200, 2))
        table = pt.concatenate([c, pt.stack([pt.exp(b)], axis=1)], axis=1) * a + b[:, None]
        rows = pt.concatenate([table.T, pt.zeros((1, 1200))], axis=0)
        for k, chosen in enumerate([table[:, 0], table[:, -1], rows[2], rows[-1] + table[:, 1]]):
            pm.Normal(f"y{k}", chosen, 1, observed=rng.normal(size=1200))
    fact = factorise(model)
    point = {name: rng.normal(size=value.shape) for name, value in model.initial_point().items()}
    for k in range(4):
        (term,) = model.compile_logp(vars=[model[f"y{k}"]], sum=False)(point)
        start = [name for name, _ in fact.local_terms].index(f"y{k}")
        first = sum(size for _, size in fact.local_terms[:start])
        np.testing.assert_allclose(fact.log_density_terms(point)[first : first + 1200], term, rtol=1e-12)
