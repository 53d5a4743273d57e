"""Rows of designs that are read from the data are those that differentiation gives."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_austerity.model.factorise import factorise
from pymc_austerity.model.structure import parts, predictor_values
from pymc_austerity.model.structure.term_structure import TermStructure

N, K = 1200, 4
RNG = np.random.default_rng(8)
X, Z = RNG.normal(size=(N, K)), RNG.normal(size=N)
GROUP, LEVEL = RNG.integers(0, 30, N), RNG.integers(0, 5, N)
ONES, COUNTS = RNG.random(N) < 0.5, RNG.poisson(1.0, N)


def bernoulli(eta):
    return pm.Bernoulli("y", logit_p=eta, observed=ONES)


def dot():
    bernoulli(pm.Normal("a") + X @ pm.Normal("b", shape=K))


def matrix_in_an_operator():
    bernoulli(pm.math.dot(X, pm.Normal("b", shape=K)) - 0.3 * Z)


def lookups():
    u, v = pm.Normal("u", shape=30), pm.Normal("v", shape=5)
    eta = pm.Normal("a") - X @ pm.Normal("b", shape=K) + u[GROUP] + v[LEVEL] * Z
    pm.Poisson("y", pm.math.exp(eta), observed=COUNTS)


def numbers():
    a, b, c = (pm.Normal(name) for name in "abc")
    bernoulli(a + b * Z + c * Z**2 - (a - b))


def single_precision():
    x = pm.Data("x", X.astype("float32"))
    bernoulli((x * pm.Normal("b", shape=K)).sum(-1) + np.log(2.0))


def integers():
    b = pm.Normal("b", shape=K)
    bernoulli((pm.Normal("a") + b[:3].sum()) * Z + pm.math.dot((X > 0).astype(int), b))


def fortran():
    bernoulli(np.asfortranarray(X) @ pm.Normal("b", shape=K))


def column_of_a_matrix():
    bernoulli((X @ pm.Normal("b", shape=(K, 2)))[:, 1])


def free_scale():
    pm.Normal("y", pm.Normal("a") + X @ pm.Normal("b", shape=K), pm.HalfNormal("s"), observed=Z)


def categorical():
    pm.Categorical("y", logit_p=X @ pm.Normal("b", shape=(K, 3)), observed=LEVEL % 3)


def ordered():
    start = np.arange(4.0)
    cuts = pm.Normal("cuts", start, 1, shape=4, transform=pm.distributions.transforms.ordered, initval=start)
    pm.OrderedLogistic("y", X @ pm.Normal("b", shape=K), cuts, observed=LEVEL)


def stacked():
    b, c = pm.Normal("b"), pm.Normal("c", shape=K - 1)
    bernoulli(pm.Normal("a") + pm.math.dot(X, pt.concatenate([pt.atleast_1d(b), c])) - c[1] * Z)


def stacked_scalars():
    bernoulli((X[:, :2] * pt.stack([pm.Normal("b"), pm.Normal("c")])).sum(-1))


def columns_of_matrices():
    table = pt.stack([pm.Normal("b", shape=K), pm.Normal("c", shape=K)], axis=1)
    bernoulli(pt.dot(X, table)[:, 1])


def one_twice():
    b, c = pm.Normal("b"), pm.Normal("c")
    bernoulli(X @ pt.stack([b, c, b, c]) * Z - X[:, :2] @ pt.stack([c, b - 2.0 * c]))


def beside_a_reference():
    b = pm.Normal("b", shape=4)
    bernoulli(Z * pt.concatenate([[-0.3], b])[LEVEL] - X @ pt.concatenate([b[:3], [0.2]]))


def sums_to_zero():
    bernoulli(pm.ZeroSumNormal("b", shape=5)[LEVEL] + pm.Normal("a"))


def means():
    b = pm.Normal("b", 0.0, 1.0, shape=K)
    bernoulli(X @ (b - b.mean()) + 0.7 * b.mean() - 0.1)


def random_walk():
    bernoulli(pm.math.cumsum(pm.Normal("b", shape=K))[LEVEL % K] * Z)


def scaled():
    bernoulli(X @ (2.0 * pm.Normal("b", shape=K)))


READ = [dot, matrix_in_an_operator, lookups, numbers, single_precision, integers, fortran, column_of_a_matrix,
        free_scale, categorical, ordered, stacked, stacked_scalars, columns_of_matrices, one_twice,
        beside_a_reference, sums_to_zero, means, random_walk, scaled]  # fmt: skip


def by_cases():
    b = pm.Normal("b", shape=2)
    bernoulli(pm.math.switch(Z > 0.5, b[0] * Z, b[1]))


def of_two_indices():
    bernoulli(pm.Normal("b", shape=(30, 5))[GROUP, LEVEL] - Z)


COMPUTED = [by_cases, of_two_indices]


def designs(build):
    with pm.Model() as model:
        build()
    return TermStructure(factorise(model)).row_functions[0]


@pytest.mark.parametrize("build", READ + COMPUTED, ids=lambda build: build.__name__)
@pytest.mark.covering(2)
def test_rows_are_those_of_differentiation(build, monkeypatch):
    positions = np.sort(RNG.choice(N, 300))
    read = designs(build)
    assert all(one._direct is not None for one in read.rows._designs.values()) == (build in READ)
    ours = read.rows(positions)
    monkeypatch.setattr(predictor_values, "direct_parts", lambda fact, eta: None)
    theirs = designs(build).rows(positions)
    np.testing.assert_allclose(ours, theirs, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("limit", ["_MOST_COORDINATES", "_LARGEST"])
def test_numbers_of_many_coordinates_are_computed(limit, monkeypatch):
    monkeypatch.setattr(parts, limit, K - 1)
    assert all(one._direct is None for one in designs(scaled).rows._designs.values())


def test_products_of_numbers_in_half_precision_are_in_double():
    """They are not finite in half precision, and rounded in single precision."""
    x, z, w = 300.0 * X, 300.0 * Z, 300.0 * RNG.normal(size=N)
    x, z, w = x.astype("float16"), z.astype("float16"), w.astype("float32")
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1e-6, shape=K)
        x_, z_, w_ = map(pytensor.shared, (x, z, w))
        bernoulli(z_ * (x_ @ b) * z_ + w_ * b[0] * w_)
    (predictor,) = TermStructure(factorise(model)).predictors
    x, z, w = (each.astype(np.float64) for each in (x, z, w))
    expected = x * z[:, None] ** 2
    expected[:, 0] += w**2
    np.testing.assert_allclose(predictor.rows(np.arange(N))[:, :-1], expected, rtol=1e-14)


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
