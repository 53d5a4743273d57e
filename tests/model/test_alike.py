"""Rows that stand for others."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import factorise
from pymc_austerity.bounds.families.base import GRID
from pymc_austerity.bounds.row_constants import ExpansionCoordinates, constants_of_rows
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.target import each_for_itself

N = 2000


def draw(seed=1):
    rng = np.random.default_rng(seed)
    return rng, np.c_[np.ones(N), rng.normal(size=N)]


def logistic(rng, X, b):
    pm.Bernoulli("y", logit_p=X @ b, observed=rng.integers(0, 2, N))


def binomial(rng, X, b):
    trials = rng.integers(1, 4, N)
    pm.Binomial("y", n=trials, logit_p=X @ b, observed=rng.binomial(trials, 0.5))


def exposed(rng, X, b):
    pm.Poisson("y", rng.choice([0.5, 1.0, 2.0], N) * pm.math.exp(X @ b), observed=rng.poisson(1.0, N))


def weighted(rng, X, b):
    """Zeros of both signs are different numbers."""
    weights = rng.choice([0.0, -0.0, 1.0], N)
    pm.Potential("y", weights * pm.logp(pm.Normal.dist(X @ b, 1), rng.choice([-1.0, 2.0], N)))


def normal(rng, X, b):
    pm.Normal("y", X @ b, 1, observed=rng.normal(size=N))


def predictor_of(make):
    rng, X = draw()
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        make(rng, X, b)
    fact = factorise(model)
    return TermStructure(fact).linear_predictors[0], model.initial_point()


@pytest.mark.parametrize(
    ("make", "most"), [(logistic, 2), (binomial, 9), (exposed, 40), (weighted, 6), (normal, N)]
)
def test_rows_that_stand_for_others_have_their_slopes(make, most):
    predictor, point = predictor_of(make)
    positions = np.random.default_rng(2).permutation(N)[:1500]
    some, which = predictor.alike(positions, point)
    assert len(some) <= most
    assert np.all(np.isin(some, positions))
    place = {row: k for k, row in enumerate(positions)}
    assert [which[place[row]] for row in some] == list(range(len(some)))
    slopes = predictor.slopes(GRID, positions, point)
    np.testing.assert_array_equal(predictor.slopes(GRID, some, point)[:, which], slopes)


@pytest.mark.parametrize("make", [logistic, binomial, exposed])
def test_bounds_are_those_of_every_row(make):
    predictor, point = predictor_of(make)

    def bounds(predictor):
        coordinates = ExpansionCoordinates(2, np.zeros(2), np.eye(2), np.eye(2))
        parts = constants_of_rows(predictor, point, coordinates, np.array([1.0, 4.0]))
        return np.concatenate([c for _, c in parts], axis=1)

    expected = bounds(predictor._replace(alike=each_for_itself))
    np.testing.assert_array_equal(bounds(predictor), expected)

    def wrong(positions, point):
        some, which = predictor.alike(positions, point)
        return some[::-1], which

    if make is not logistic:  # whose two kinds of rows have the same bounds
        assert np.any(bounds(predictor._replace(alike=wrong)) != expected)


def test_rows_with_more_than_a_few_numbers_stand_for_themselves():
    rng, X = draw()
    table = rng.normal(size=(N, 3))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        eta = X @ b
        pm.Potential("y", -pm.math.sum(pm.math.exp(table * eta[:, None]), axis=1))
    predictor = TermStructure(factorise(model)).linear_predictors[0]
    some, which = predictor.alike(np.arange(10, 20), model.initial_point())
    np.testing.assert_array_equal(some, np.arange(10, 20))
    np.testing.assert_array_equal(which, np.arange(10))
