"""The drift of the remainders against differences of their sum; and how much room the arrays of rows take."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity.mode.plates.fit import _drift
from pymc_austerity.model.factorisation import FEWEST_GROUPS
from tests.kernels.plates.cases import case_of, case_of_model, log_remainders


@pytest.mark.parametrize(
    ("likelihood", "spelling"),
    [
        ("bernoulli", "centered"),
        ("poisson", "non-centered"),
        ("bernoulli", "crossed"),
        ("negative binomial", "crossed"),
        ("zero inflation", "centered"),
        ("bernoulli", "two slopes"),
        ("poisson", "lkj"),
    ],
)
@pytest.mark.covering(1)
def test_drift(likelihood, spelling):
    """At fixed eps, by theta."""
    case = case_of(likelihood, spelling, 400)
    theta, eps = case.draw(np.random.default_rng(41), 0.7)
    at, sums = case.survey.expand(case.fit.center)
    found = _drift(case.survey, at, sums, theta, eps)
    h = 1e-5
    slopes = [
        (
            log_remainders(case, case.state(theta + h * step, eps))
            - log_remainders(case, case.state(theta - h * step, eps))
        )
        / (2 * h)
        for step in np.eye(len(theta))
    ]
    np.testing.assert_allclose(found, slopes, rtol=1e-5, atol=1e-5 * np.abs(slopes).max())


def arrays_within(value):
    """All arrays of a record, and of the records in it."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, tuple):
        return [array for one in value for array in arrays_within(one)]
    return []


@pytest.mark.parametrize("spelling", ["centered", "non-centered"])
def test_memory_of_rows(spelling):
    """At most p + 10 doubles a row for p = 8."""
    n, p, rng = 4000, 8, np.random.default_rng(42)
    x, groups = rng.normal(size=(n, p)), rng.integers(0, FEWEST_GROUPS, n)
    with pm.Model() as model:
        beta, tau = pm.Normal("beta", shape=p), pm.HalfNormal("tau")
        if spelling == "centered":
            u = pm.Normal("u", pm.Normal("mu"), tau, shape=FEWEST_GROUPS)
        else:
            u = tau * pm.Normal("z", shape=FEWEST_GROUPS)
        pm.Bernoulli("y", logit_p=x @ beta + u[groups], observed=rng.integers(0, 2, n))
    case = case_of_model(model)
    seen = {id(a): a for a in arrays_within(case.arrays) + arrays_within(case.survey.rows)}
    of_rows = [array for array in seen.values() if n in array.shape]
    assert sum(array.nbytes for array in of_rows) <= (p + 10) * n * 8
    assert len(of_rows) >= 9
    assert {array.itemsize for array in arrays_within(case.arrays.weights)} == {4}
