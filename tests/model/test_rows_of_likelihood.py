"""N, the rows of the likelihood: of what is observed and of potentials, never elements of priors."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import factorise
from tests.models import as_model

N, G = 3000, 1200
ROWS = np.random.default_rng(1).normal(size=N)
GROUPS = np.arange(N) % G


def effects():
    return pm.Normal("u", pm.Normal("mu"), pm.HalfNormal("tau"), shape=G)


def two_likelihoods():
    mu = pm.Normal("mu")
    pm.Normal("y", mu, observed=ROWS)
    pm.Normal("x", mu, observed=ROWS[:20])


def potential_of_some_rows():
    pm.Potential("p", -((ROWS[ROWS > 0] - pm.Normal("mu")) ** 2))
    pm.Potential("q", -((pt.as_tensor(ROWS) - pm.Normal("nu"))[ROWS < 0] ** 2))


def potentials_that_are_priors():
    u = effects()
    pm.Potential("soft", -(pm.Normal("c") ** 2))
    pm.Potential("each", -0.5 * u**2)
    pm.Normal("y", u[GROUPS], observed=ROWS)


def normal(observed, **shape):
    return pm.Normal("y", pm.Normal("mu", **shape), observed=observed)


ROWS_OF = {
    "long_prior": (lambda: pm.Normal("y", effects()[GROUPS], observed=ROWS), N),
    "two_likelihoods": (two_likelihoods, N + 20),
    "potential_by_row": (lambda: pm.Potential("p", -0.5 * (ROWS - effects()[GROUPS]) ** 2), N),
    "potential_of_some_rows": (potential_of_some_rows, N),
    "summed_potential": (lambda: pm.Potential("p", -0.5 * ((ROWS - pm.Normal("mu")) ** 2).sum() + 1.0), N),
    "potentials_that_are_priors": (potentials_that_are_priors, N),
    "one_density_for_all": (
        lambda: pm.MvNormal("y", np.zeros(50), pm.HalfNormal("s") * np.eye(50), observed=ROWS[:50]),
        50,
    ),
    "table": (lambda: normal(np.zeros((N, 6)), shape=6), N),
    "one_observation": (lambda: normal(1.0), 1),
    "data_variable": (lambda: normal(pm.Data("seen", ROWS)), N),
    "missing": (lambda: normal(np.ma.masked_array(ROWS, mask=np.arange(N) % 2 == 0)), N // 2),
}


@pytest.mark.filterwarnings("ignore:Data in .* contains missing values")
@pytest.mark.parametrize("name", ROWS_OF)
def test_n_rows(name):
    define, n_rows = ROWS_OF[name]
    model = as_model(define)()
    assert factorise(model).n_rows == n_rows


def test_of_a_step_that_sees_no_likelihood_elements_of_a_prior_are_all_there_is():
    model = as_model(ROWS_OF["long_prior"][0])()
    assert factorise(model, ["mu", "tau"]).n_rows == G
    assert factorise(model, ["mu", "tau", "u"]).n_rows == N
