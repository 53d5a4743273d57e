"""N, the rows of the likelihood: of what is observed and of potentials, never elements of priors."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import factorise

N, G = 3000, 1200
ROWS = np.random.default_rng(1).normal(size=N)
GROUPS = np.arange(N) % G


def effects():
    return pm.Normal("u", pm.Normal("mu"), pm.HalfNormal("tau"), shape=G)


def long_prior():
    pm.Normal("y", effects()[GROUPS], observed=ROWS)


def two_likelihoods():
    mu = pm.Normal("mu")
    pm.Normal("y", mu, observed=ROWS)
    pm.Normal("x", mu, observed=ROWS[:20])


def potential_by_row():
    pm.Potential("p", -0.5 * (ROWS - effects()[GROUPS]) ** 2)


def potential_of_some_rows():
    pm.Potential("p", -((ROWS[ROWS > 0] - pm.Normal("mu")) ** 2))
    pm.Potential("q", -((pt.as_tensor(ROWS) - pm.Normal("nu"))[ROWS < 0] ** 2))


def summed_potential():
    pm.Potential("p", -0.5 * ((ROWS - pm.Normal("mu")) ** 2).sum() + 1.0)


def potentials_that_are_priors():
    u = effects()
    pm.Potential("soft", -(pm.Normal("c") ** 2))
    pm.Potential("each", -0.5 * u**2)
    pm.Normal("y", u[GROUPS], observed=ROWS)


def one_density_for_all():
    covariance = pm.HalfNormal("s") * np.eye(50)
    pm.MvNormal("y", np.zeros(50), covariance, observed=ROWS[:50])


def table():
    pm.Normal("y", pm.Normal("mu", shape=6), observed=np.zeros((N, 6)))


def one_observation():
    pm.Normal("y", pm.Normal("mu"), observed=1.0)


def data_variable():
    pm.Normal("y", pm.Normal("mu"), observed=pm.Data("seen", ROWS))


def missing():
    seen = np.ma.masked_array(ROWS, mask=np.arange(N) % 2 == 0)
    pm.Normal("y", pm.Normal("mu"), observed=seen)


@pytest.mark.filterwarnings("ignore:Data in .* contains missing values")
@pytest.mark.parametrize(
    ("define", "n_rows"),
    [
        (long_prior, N),
        (two_likelihoods, N + 20),
        (potential_by_row, N),
        (potential_of_some_rows, N),
        (summed_potential, N),
        (potentials_that_are_priors, N),
        (one_density_for_all, 50),
        (table, N),
        (one_observation, 1),
        (data_variable, N),
        (missing, N // 2),
    ],
    ids=lambda case: getattr(case, "__name__", None),
)
def test_n_rows(define, n_rows):
    with pm.Model() as model:
        define()
    assert factorise(model).n_rows == n_rows


def test_of_a_step_that_sees_no_likelihood_elements_of_a_prior_are_all_there_is():
    with pm.Model() as model:
        long_prior()
    assert factorise(model, ["mu", "tau"]).n_rows == G
    assert factorise(model, ["mu", "tau", "u"]).n_rows == N
