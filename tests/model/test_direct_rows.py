"""Rows of designs that are read from the data are those that differentiation gives."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_austerity.model.field.of_model import factorise
from pymc_austerity.model.structure import parts, predictor_values
from pymc_austerity.model.structure.predictor_values import opaque_function
from pymc_austerity.model.structure.term_structure import TermStructure

N, K = 1200, 4
RNG = np.random.default_rng(8)
X, Z = RNG.normal(size=(N, K)), RNG.normal(size=N)
GROUP, LEVEL = RNG.integers(0, 30, N), RNG.integers(0, 5, N)
ONES, COUNTS = RNG.random(N) < 0.5, RNG.poisson(1.0, N)


def bernoulli(eta):
    return pm.Bernoulli("y", logit_p=eta, observed=ONES)


def lookups():
    u, v = pm.Normal("u", shape=30), pm.Normal("v", shape=5)
    eta = pm.Normal("a") - X @ pm.Normal("b", shape=K) + u[GROUP] + v[LEVEL] * Z
    pm.Poisson("y", pm.math.exp(eta), observed=COUNTS)


def numbers():
    a, b, c = (pm.Normal(name) for name in "abc")
    bernoulli(a + b * Z + c * Z**2 - (a - b))


def stacked():
    b, c = pm.Normal("b"), pm.Normal("c", shape=K - 1)
    bernoulli(pm.Normal("a") + pm.math.dot(X, pt.concatenate([pt.atleast_1d(b), c])) - c[1] * Z)


def free_scale():
    pm.Normal("y", pm.Normal("a") + X @ pm.Normal("b", shape=K), pm.HalfNormal("s"), observed=Z)


def categorical():
    pm.Categorical("y", logit_p=X @ pm.Normal("b", shape=(K, 3)), observed=LEVEL % 3)


def ordered():
    start = np.arange(4.0)
    cuts = pm.Normal("cuts", start, 1, shape=4, transform=pm.distributions.transforms.ordered, initval=start)
    pm.OrderedLogistic("y", X @ pm.Normal("b", shape=K), cuts, observed=LEVEL)


# Predictors as functions of K coefficients, of other variables, and of two numbers.
OF_B = {
    "dot": lambda b: pm.Normal("a") + X @ b,
    "matrix_in_an_operator": lambda b: pm.math.dot(X, b) - 0.3 * Z,
    "single_precision": lambda b: (pm.Data("x", X.astype("float32")) * b).sum(-1) + np.log(2.0),
    "integers": lambda b: (pm.Normal("a") + b[:3].sum()) * Z + pm.math.dot((X > 0).astype(int), b),
    "fortran": lambda b: np.asfortranarray(X) @ b,
    "columns_of_matrices": lambda b: pt.dot(X, pt.stack([b, pm.Normal("c", shape=K)], axis=1))[:, 1],
    "beside_a_reference": lambda b: (
        Z * pt.concatenate([[-0.3], b])[LEVEL] - X @ pt.concatenate([b[:3], [0.2]])
    ),
    "means": lambda b: X @ (b - b.mean()) + 0.7 * b.mean() - 0.1,
    "random_walk": lambda b: pm.math.cumsum(b)[LEVEL % K] * Z,
    "scaled": lambda b: X @ (2.0 * b),
}
OF_OTHERS = {
    "column_of_a_matrix": lambda: (X @ pm.Normal("b", shape=(K, 2)))[:, 1],
    "sums_to_zero": lambda: pm.ZeroSumNormal("b", shape=5)[LEVEL] + pm.Normal("a"),
}
OF_TWO = {
    "stacked_scalars": lambda b, c: (X[:, :2] * pt.stack([b, c])).sum(-1),
    "one_twice": lambda b, c: X @ pt.stack([b, c, b, c]) * Z - X[:, :2] @ pt.stack([c, b - 2.0 * c]),
}
READ = {
    "lookups": lookups,
    "free_scale": free_scale,
    "categorical": categorical,
    "ordered": ordered,
    "stacked": stacked,
    "numbers": numbers,
    **{name: lambda eta=eta: bernoulli(eta(pm.Normal("b", shape=K))) for name, eta in OF_B.items()},
    **{name: lambda eta=eta: bernoulli(eta()) for name, eta in OF_OTHERS.items()},
    **{name: lambda eta=eta: bernoulli(eta(pm.Normal("b"), pm.Normal("c"))) for name, eta in OF_TWO.items()},
}


def by_cases():
    b = pm.Normal("b", shape=2)
    bernoulli(pm.math.switch(Z > 0.5, b[0] * Z, b[1]))


def of_two_indices():
    bernoulli(pm.Normal("b", shape=(30, 5))[GROUP, LEVEL] - Z)


COMPUTED = {"by_cases": by_cases, "of_two_indices": of_two_indices}


def designs(build):
    with pm.Model() as model:
        build()
    return TermStructure(factorise(model)).row_functions[0]


@pytest.mark.parametrize("name", READ | COMPUTED)
@pytest.mark.covering(2)
def test_rows_are_those_of_differentiation(name, monkeypatch):
    build = (READ | COMPUTED)[name]
    positions = np.sort(RNG.choice(N, 300))
    read = designs(build)
    assert all(one._direct is not None for one in read.rows._designs.values()) == (name in READ)
    ours = read.rows(positions)
    monkeypatch.setattr(predictor_values, "direct_parts", lambda fact, eta: None)
    theirs = designs(build).rows(positions)
    np.testing.assert_allclose(ours, theirs, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("limit", ["_MOST_COORDINATES", "_LARGEST"])
def test_numbers_of_many_coordinates_are_computed(limit, monkeypatch):
    monkeypatch.setattr(parts, limit, K - 1)
    assert all(one._direct is None for one in designs(READ["scaled"]).rows._designs.values())


def test_products_of_numbers_in_half_precision_are_in_double():
    """They are not finite in half precision, and rounded in single precision."""
    x, z, w = 300.0 * X, 300.0 * Z, 300.0 * RNG.normal(size=N)
    x, z, w = x.astype("float16"), z.astype("float16"), w.astype("float32")
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1e-6, shape=K)
        x_, z_, w_ = map(pytensor.shared, (x, z, w))
        bernoulli(z_ * (x_ @ b) * z_ + w_ * b[0] * w_)
    predictor = opaque_function(TermStructure(factorise(model)).forms_in_block[0])
    x, z, w = (each.astype(np.float64) for each in (x, z, w))
    expected = x * z[:, None] ** 2
    expected[:, 0] += w**2
    np.testing.assert_allclose(predictor.rows(np.arange(N))[:, 0, :-1], expected, rtol=1e-14)


def test_an_array_on_disk_is_read_where_it_lies(tmp_path):
    """The rows that are asked for are copied, and no others."""
    stored = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float64, shape=(N, K))
    stored[:] = X
    with pm.Model() as model:
        bernoulli(pm.math.dot(stored, pm.Normal("b", shape=K)))
    (function,) = TermStructure(factorise(model)).row_functions
    (design,) = function.rows._designs.values()
    (array,) = design._direct.data.stored.values()
    assert np.shares_memory(array, stored)
    np.testing.assert_array_equal(np.abs(function.rows(np.array([5, 7]))[:, 0, :-1]), np.abs(X[[5, 7]]))
