"""Gibbs updates of discrete fields: options, messages, and short chains; see `tests/conformance`, too."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import softmax

from pymc_austerity import AusterityGibbs, FactorisationError
from pymc_austerity.testing.compare import error_of_mean
from tests.sampling import sampled
from tests.statistical.fields import all_states, field, log_density, table_of, triples

D = 6


@pytest.mark.slow("builds and compiles several steps")
def test_statistics_of_a_sweep():
    model = field(D, 0.5, 3)
    step = AusterityGibbs(epsilon=0.3, batch_size=4, rng=1, model=model)
    point, (stats,) = step.step(model.initial_point())
    assert point["X"].dtype == model.initial_point()["X"].dtype
    assert stats["n_used"] == stats["fraction_used"] * 10  # of the 20 triples, 10 contain a site
    assert 0.0 < stats["fraction_used"] <= 1.0
    assert stats["changed"] in np.arange(D + 1) / D
    assert step.engine.n_tested == D


@pytest.mark.parametrize(("min_terms", "tested"), [(None, 0), (10, D), (11, 0)])
@pytest.mark.filterwarnings("default:No element:pymc_austerity.SubsamplingWarning")
@pytest.mark.covering(1)
def test_sites_with_few_terms_read_them_all(min_terms, tested, recwarn):
    step = AusterityGibbs(epsilon=0.3, batch_size=6, min_terms=min_terms, rng=1, model=field(D, 0.5, 3))
    assert any("more than 10 rows" in str(one.message) for one in recwarn) == (tested == 0)
    step.step(field(D, 0.5, 3).initial_point())
    assert step.engine.n_tested == tested


@pytest.mark.slow("builds and compiles several steps")
def test_an_impossible_value_is_never_taken():
    left, right = np.arange(4), np.arange(1, 5)
    with pm.Model() as model:
        X = pm.Bernoulli("X", np.array([0.5, 1.0, 0.5, 0.0, 0.5]), shape=5, initval=[0, 1, 0, 0, 0])
        pm.Potential("not both", pt.switch(X[left] * X[right] > 0, -np.inf, 0.0))
        step = AusterityGibbs(epsilon=0)
        idata = sampled(50, step, tune=0, chains=1, random_seed=1)
    x = idata.posterior["X"].to_numpy()[0]
    assert x[:, 1].min() == 1
    assert x[:, [0, 2, 3]].max() == 0
    assert set(x[:, 4]) == {0, 1}
    assert model["X"].type.shape == (5,)


# Bad input ---------------------------------------------------------------------------------------------


def dense():
    X = pm.Bernoulli("X", 0.5, shape=4)
    pm.Potential("energy", X @ np.ones((4, 4)) @ X)


REFUSED = {
    "dense": (dense, FactorisationError, r"'X' cannot be moved element by element.*'energy'.*v\[idx\]"),
    "counts": (
        lambda: pm.Poisson("X", 3.0, shape=4),
        ValueError,
        "'X' is a PoissonRV, and must be a pm.Bernoulli or a pm.Categorical",
    ),
    "one category": (
        lambda: pm.Categorical("X", np.ones(1), shape=4),
        ValueError,
        "'X' has 1 category: there is nothing to draw",
    ),
    "lattice": (
        lambda: pm.Bernoulli("X", 0.5, shape=(3, 3)),
        ValueError,
        r"must be a vector of sites, got shape \(3, 3\)",
    ),
    "one site": (lambda: pm.Bernoulli("X", 0.5), ValueError, "'X' is one number and has no elements"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.covering(2)
def test_refused_variables(name):
    define, error, message = REFUSED[name]
    with pm.Model() as model:
        define()
    with pytest.raises(error, match=message):
        AusterityGibbs(["X"], model=model)


def test_sites_in_no_term_are_drawn_from_the_prior():
    with pm.Model():
        X = pm.Bernoulli("X", 0.8, shape=30)
        pm.Potential("p", 3.0 * X[[0, 1]])
        step = AusterityGibbs(batch_size=2, epsilon=0.1)
        idata = sampled(400, step, tune=0, chains=1, random_seed=1)
    x = idata.posterior["X"].to_numpy()[0]
    assert abs(x[:, 2:].mean() - 0.8) < 4 * np.sqrt(0.16 / x[:, 2:].size)
    assert x[:, :2].mean() > 0.95


@pytest.mark.filterwarnings(
    "ignore:Data in X contains missing values", "ignore:invalid value encountered in cast"
)
@pytest.mark.slow("builds and compiles several steps")
def test_observed_sites_stay():
    """A field of which two sites are observed: the conditional distribution of the others."""
    i, j, k = triples(D)
    given = np.array([np.nan, 1.0, np.nan, np.nan, 0.0, np.nan])
    with pm.Model():
        X = pm.Bernoulli("X", 0.5, observed=np.ma.masked_invalid(given), shape=D)
        cell = 4 * X[i] + 2 * X[j] + X[k]
        pm.Potential("psi", pm.math.constant(table_of(D, 0.5, 3))[np.arange(len(i)), cell])
        step = AusterityGibbs(["X_unobserved"], epsilon=0)
        idata = sampled(8000, step, tune=50, chains=1, random_seed=1)
    states = all_states(D)
    states = states[(states[:, 1] == 1) & (states[:, 4] == 0)]
    weights = softmax(log_density(states, table_of(D, 0.5, 3)))
    free = np.flatnonzero(np.isnan(given))
    for x, mean in zip(
        idata.posterior["X_unobserved"].to_numpy()[0].T, weights @ states[:, free], strict=True
    ):
        assert abs(x.mean() - mean) < 4 * error_of_mean(x.astype(float))
