"""Which rows contain each element: against what changes when the element does."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity.exceptions import FactorisationError, SelfCheckError
from pymc_austerity.model import element_terms
from pymc_austerity.model.element_terms import ElementTerms
from pymc_austerity.model.graph.rewrite import INTERPRETED

N, G = 30, 4
RNG = np.random.default_rng(3)
GROUP, COUNTS = RNG.integers(G, size=N), RNG.poisson(2.0, N)
X, PAIRS = RNG.normal(size=(N, 5)), RNG.integers(G, size=(N, 3))


def effects():
    tau, b = pm.HalfNormal("tau"), pm.Normal("b", shape=5)
    v = pm.Normal("v", 0, tau, shape=G)
    pm.Normal("y", (1.0 + tau * v)[GROUP] + X @ b, 1.0, observed=COUNTS)


def transformed():
    v = pm.HalfNormal("v", shape=G)
    pm.Normal("y", 0.0, v[GROUP], observed=COUNTS)


def negative_and_narrow():
    v = pm.Normal("v", shape=G)
    pm.Normal("y", v[(GROUP - G).astype("int8")], 1.0, observed=COUNTS)


def neighbours():
    v = pm.Bernoulli("v", 0.3, shape=G)
    pm.Potential("p", pm.math.constant(X[:, 0]) * v[PAIRS].sum(axis=1) ** 2)


def slices():
    v = pm.Normal("v", shape=G)
    pm.Potential("p", -((v[1:] - v[:-1]) ** 2))


def one_by_one():
    v = pm.Bernoulli("v", 0.5, shape=G)
    pm.Potential("p", pt.stack([0.5 * v[0] * v[1], v[1] * v[2], 2.0 * v[2]]))
    pm.Potential("q", 0.3 * v[3] * v[0])


def walk():
    v = pm.GaussianRandomWalk("v", sigma=1.0, init_dist=pm.Normal.dist(), shape=N)
    pm.Poisson("y", pm.math.exp(v), observed=COUNTS)


def autoregression():
    v = pm.AR("v", [0.5], sigma=1.0, init_dist=pm.Normal.dist(), ar_order=1, shape=N)
    pm.Poisson("y", pm.math.exp(v), observed=COUNTS)


def experts():
    z = pm.Categorical("z", np.ones(G) / G, shape=N)
    v = pm.Normal("v", shape=(G, 5))
    pm.Bernoulli("y", logit_p=(v[z] * X).sum(axis=1), observed=COUNTS % 2)


def two_of_one_row():
    v = pm.Normal("v", shape=G)
    pm.Normal("y", v[GROUP] + v[PAIRS[:, 0]] + v[0], 1.0, observed=COUNTS)
    pm.Normal("few", v[1] * v[2], 1.0, observed=[0.5, 0.2])


def simplexes():
    v = pm.Dirichlet("v", np.ones(3), shape=(G, 3))
    pm.Categorical("y", v[GROUP], observed=COUNTS % 3)


def pair():
    v = pm.Normal("v", shape=2)
    pm.Normal("y", v[GROUP % 2], 1.0, observed=COUNTS)


def unequal_lookups():
    """Rows of one group only; some elements are in none."""
    v = pm.Normal("v", shape=G)
    pm.Normal("y", v[np.zeros(N, dtype=int)], 1.0, observed=COUNTS)


DEFINED = [
    effects, transformed, negative_and_narrow, neighbours, slices, one_by_one, walk, autoregression, experts,
    two_of_one_row, simplexes, pair, unequal_lookups,
]  # fmt: skip


def terms_of(define, name="v", **options):
    with pm.Model() as model:
        define()
    value = model.rvs_to_values[model[name]]
    return model, ElementTerms(model, [value], model.initial_point(), check=True, **options)


def some_point(terms, model, seed=5):
    rng = np.random.default_rng(seed)
    point = model.initial_point()
    return {
        name: rng.integers(0, 2 if name == "v" else G, value.shape).astype(value.dtype)
        if value.dtype.kind == "i"
        else value + rng.normal(0.0, 0.3, np.shape(value))
        for name, value in point.items()
    }


def rows_that_change(terms, point, e):
    """By evaluation of all rows: those that differ when element e does."""
    fact = terms.factorisation
    name = fact.var_names[0]
    there = np.array(point[name])
    part = there.reshape(-1)[terms.first[e] : terms.first[e] + terms.width[e]]
    part[:] = 1 - part if part.dtype.kind == "i" else part + 0.37
    found, start = [], 0
    for term in fact.locals:
        rows = fact.compile(term.rows, [term.index], mode=INTERPRETED)
        before, after = (
            rows(*fact.point_values(p), np.arange(term.size), *fact.leaf_values)
            for p in (point, {**point, name: there})
        )
        found.append(start + np.flatnonzero(before != after))
        start += term.size
    return np.concatenate(found)


@pytest.mark.parametrize("define", DEFINED, ids=lambda define: define.__name__)
@pytest.mark.covering(4)
def test_rows_are_those_that_change(define):
    model, terms = terms_of(define)
    point = some_point(terms, model)
    found = terms.rows(point)
    for e in range(terms.n_elements):
        listed = [part.rows[part.starts[e] : part.starts[e + 1]] for part in (found.own, found.tested)]
        for part in listed:
            assert np.all(np.diff(part) > 0)  # increasing, and each once
        assert np.all(listed[0] < terms.n_own)
        assert np.all(listed[1] >= terms.n_own)
        changed = rows_that_change(terms, point, e)
        # Two sites that are multiplied may hide one another, and the start of a walk takes its first step.
        listed = np.concatenate(listed)
        assert set(changed) <= set(listed)
        if define not in (neighbours, one_by_one, walk):
            assert set(changed) == set(listed)


def test_the_map_follows_a_latent_variable():
    model, terms = terms_of(experts)
    assert terms.followed == ("z",)
    point = some_point(terms, model)
    first = terms.rows(point)
    assert terms.rows({**point, "z": point["z"].copy()}) is first
    other = {**point, "z": (point["z"] + 1) % G}
    second = terms.rows(other)
    sizes = np.diff(first.tested.starts)
    np.testing.assert_array_equal(sizes, np.bincount(point["z"], minlength=G))
    np.testing.assert_array_equal(np.diff(second.tested.starts), np.roll(sizes, 1))


def test_rows_of_four_bytes():
    _, terms = terms_of(effects)
    rows = terms.rows(terms.factorisation.graph.point)
    assert rows.tested.rows.dtype == np.int32
    assert len(rows.tested.rows) == N
    terms.forget()
    assert terms._rows is None


def product():
    v = pm.Normal("v", shape=5)
    pm.Normal("y", X @ v, 1.0, observed=COUNTS)


def quadratic():
    v = pm.Bernoulli("v", 0.5, shape=5)
    pm.Potential("p", v @ (X.T @ X) @ v)


def total():
    v = pm.Normal("v", shape=G)
    pm.Normal("y", v[GROUP], 1.0, observed=COUNTS)
    pm.Potential("p", -(v.sum() ** 2))


def sum_to_zero():
    v = pm.ZeroSumNormal("v", shape=G)
    pm.Normal("y", v[GROUP], 1.0, observed=COUNTS)


def ordered():
    v = pm.Normal("v", shape=G, transform=pm.distributions.transforms.ordered, initval=np.arange(4.0))
    pm.Normal("y", v[GROUP], 1.0, observed=COUNTS)


def own_index():
    v = pm.Categorical("v", np.ones(G) / G, shape=G)
    pm.Potential("p", pm.math.constant(X[:, 0])[v[GROUP]] * v[v[GROUP]])


@pytest.mark.parametrize(
    ("define", "term"),
    [(product, "y"), (quadratic, "p"), (total, "p"), (sum_to_zero, "v"), (ordered, "v|y"), (own_index, "p")],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_dense_use_is_refused(define, term):
    with pytest.raises(
        FactorisationError, match=rf"'v' cannot be moved element by element.*'({term})'.*v\[idx\]"
    ):
        terms_of(define)


def test_an_element_that_does_not_exist():
    _, terms = terms_of(experts)
    point = {**terms.factorisation.graph.point, "z": np.full(N, G)}
    with pytest.raises(IndexError, match="'y' looks up element 4 of a variable with 4"):
        terms.rows(point)


def test_a_wrong_map_is_noticed(monkeypatch):
    """A planted fault: every row is said to contain the element after its own."""
    right = element_terms.Lookups.table

    def wrong(self, point):
        return (right(self, point) + 1) % G

    monkeypatch.setattr(element_terms.Lookups, "table", wrong)
    with pytest.raises(SelfCheckError, match="not said to contain"):
        terms_of(effects)
