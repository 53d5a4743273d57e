"""Indicators and coefficients are found on the graph of a model, or refused by name."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity.exceptions import FactorisationError, UnsuitableError
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.selection.selection import find_selection

RNG = np.random.default_rng(1)
N, P = 60, 3
X = RNG.normal(size=(N, P))
Y = RNG.normal(size=N)


def slab_at(factorisation, values):
    """The parameters of a slab, at values of all variables."""
    return function_of(list(factorisation.graph.values.values()), factorisation.slab)(*values)


def find(model, names=("gamma", "beta", "a"), threshold=20):
    values = [model.rvs_to_values[model[name]] for name in names if name in model.named_vars]
    return find_selection(
        model, values, model.initial_point(), threshold=threshold, temperature=1.0, check=True
    )


def indicators(p=P, **options):
    return pm.Bernoulli("gamma", 0.3, shape=p, **options)


def coefficients(p=P):
    return pm.Normal("beta", 0, 1, shape=p)


def observed(mean, sigma=1.0):
    pm.Normal("y", mean, sigma, observed=Y)


# What is found ----------------------------------------------------------------------------------------

PREDICTORS = {
    "X @ (gamma * beta)": lambda gamma, beta: X @ (gamma * beta),
    "pm.math.dot": lambda gamma, beta: pm.math.dot(X, beta * gamma),
    "(X * gamma) @ beta": lambda gamma, beta: (X * gamma * beta).sum(axis=1),
    "(X * beta) * gamma": lambda gamma, beta: ((X * beta) * gamma[None, :]).sum(axis=1),
    "with a factor": lambda gamma, beta: X @ (2.0 * (beta * np.arange(1.0, 4.0)) * gamma),
    "a Deterministic": lambda gamma, beta: X @ pm.Deterministic("w", gamma * beta),
    "one column": lambda gamma, beta: (X @ (beta[:, None] * gamma[:, None]))[:, 0],
    "cast": lambda gamma, beta: X @ (pt.cast(gamma, "float64") * beta),
}


@pytest.mark.parametrize("name", PREDICTORS)
@pytest.mark.covering(4)
def test_products(name):
    with pm.Model() as model:
        gamma, beta, a = indicators(), coefficients(), pm.Normal("a")
        observed(a + PREDICTORS[name](gamma, beta))
    found = find(model, ("a", "beta", "gamma"))
    assert found.factorisation.var_names == ("gamma", "beta", "a")
    assert found.full.var_names == ("beta", "a")
    assert found.n_coefficients == P
    # The full model has the rows of gamma = 1, whatever gamma is.
    point = {"gamma": np.array([0, 1, 0]), "beta": np.array([0.3, -1.0, 2.0]), "a": np.array(0.5)}
    np.testing.assert_allclose(
        found.full.log_density_terms(point), found.factorisation.log_density_terms(found.full_point(point))
    )
    assert not np.allclose(found.full.log_density_terms(point), found.factorisation.log_density_terms(point))


@pytest.mark.parametrize(
    ("slab", "parameters"),
    [
        (lambda: pm.Normal("beta", 0.5, [1.0, 2.0, 3.0], shape=P), [0.5] * 3 + [1.0, 2.0, 3.0] + [0.0] * 3),
        (lambda: pm.Normal("beta", 0, pm.Data("s", 2.0), shape=P), [0.0] * 3 + [2.0] * 3 + [0.0] * 3),
        (lambda: pm.Laplace("beta", 0, 2, shape=P), [0.0] * 3 + [2.0] * 3 + [0.0] * 3),
        (lambda: pm.StudentT("beta", nu=4, mu=1, sigma=2, shape=P), [1.0] * 3 + [2.0] * 3 + [4.0] * 3),
    ],
)
def test_slabs(slab, parameters):
    with pm.Model() as model:
        gamma, beta = indicators(), slab()
        observed(X @ (gamma * beta))
    found = find(model)
    values = list(found.factorisation.graph.point.values())
    np.testing.assert_array_equal(slab_at(found.factorisation, values), parameters)


def test_a_slab_of_other_variables():
    """Its scale is that of a step for tau, and of the noise, which is in the block."""
    with pm.Model() as model:
        tau, sigma = pm.HalfNormal("tau"), pm.HalfNormal("sigma")
        gamma, beta = indicators(), pm.Normal("beta", 0, tau * sigma, shape=P)
        observed(X @ (gamma * beta), sigma)
    found = find(model, ("gamma", "beta", "sigma"))
    point = {**model.initial_point(), "tau_log__": np.log(3.0), "sigma_log__": np.log(0.5)}
    values = [np.asarray(point[name]) for name in found.factorisation.graph.values]
    parameters = slab_at(found.factorisation, values)
    np.testing.assert_allclose(parameters[P : 2 * P], 1.5)


def test_a_prior_of_the_size():
    with pm.Model() as model:
        gamma, beta = pm.Bernoulli("gamma", 0.5, shape=P), coefficients()
        pm.Potential("size", -2.0 * gamma.sum())
        observed(X @ (gamma * beta))
    assert find(model).factorisation.global_terms == ["gamma", "beta", "size"]


# What is refused --------------------------------------------------------------------------------------


MULTIPLIED = "is multiplied by the indicators 'gamma'"


def in_a_potential(gamma, beta):
    pm.Potential("small", -pm.math.sqr(beta).sum())
    return X @ (gamma * beta)


# By name: the error, and what is other than in a regression on gamma * beta: the variables or the mean.
REFUSED = {
    "no_indicators": (
        ValueError,
        "needs the indicators among its variables.*'beta' are continuous",
        {"gamma": lambda: None, "mean": lambda gamma, beta: X @ beta},
    ),
    "counts": (
        ValueError,
        "'gamma' must be a pm.Bernoulli, got Poisson",
        {"gamma": lambda: pm.Poisson("gamma", 1.0, shape=P)},
    ),
    "one_indicator": (
        ValueError,
        r"'gamma' must be a vector, one for each coefficient, got shape \(\)",
        {"gamma": lambda: pm.Bernoulli("gamma", 0.5)},
    ),
    "broadcast": (ValueError, "'gamma' has 1 and 'beta' has 3", {"gamma": lambda: indicators(1)}),
    "other_length": (
        ValueError,
        r"'gamma' has shape \(2,\), 'beta' has shape \(3,\)",
        {"gamma": lambda: indicators(2), "mean": lambda gamma, beta: X @ (gamma[np.array([0, 0, 1])] * beta)},
    ),
    "not_multiplied": (ValueError, MULTIPLIED, {"mean": lambda gamma, beta: X @ beta + X @ gamma}),
    "other_order": (ValueError, MULTIPLIED, {"mean": lambda gamma, beta: X @ (gamma[::-1] * beta)}),
    "also_outside": (
        UnsuitableError,
        r"term 'y' contains 'beta' outside of gamma \* beta",
        {"mean": lambda gamma, beta: X @ (gamma * beta) + beta[0]},
    ),
    "in_a_potential": (
        UnsuitableError,
        r"term 'small' contains 'beta' outside of gamma \* beta",
        {"mean": in_a_potential},
    ),
    "indicators_outside": (
        UnsuitableError,
        r"term 'y' contains 'gamma' outside of gamma \* beta",
        {"mean": lambda gamma, beta: X @ (gamma * beta) + gamma.sum()},
    ),
    "along_another_axis": (
        ValueError,
        MULTIPLIED,
        {"mean": lambda gamma, beta: X @ (gamma[:, None] * beta[None, :]).sum(axis=0)},
    ),
    "two_vectors": (
        ValueError,
        "multiply 'beta' and 'a'",
        {"mean": lambda gamma, beta: X @ (gamma * beta) + X @ (gamma * pm.Normal("a", shape=P))},
    ),
    "improper": (
        UnsuitableError,
        r"slab of 'beta' is improper \(pm.Flat\)",
        {"beta": lambda: pm.Flat("beta", shape=P)},
    ),
    "another_family": (
        UnsuitableError,
        "slab of 'beta' is Gumbel, and must be pm.Normal",
        {"beta": lambda: pm.Gumbel("beta", 0, 1, shape=P)},
    ),
    "a_truncated_slab": (ValueError, "beta_log__", {"beta": lambda: pm.HalfNormal("beta", shape=P)}),
    "a_slab_of_the_indicators": (
        UnsuitableError,
        "slab of 'beta' depends on 'gamma'",
        {"beta": lambda: pm.Normal("beta", 0, 1 + pm.modelcontext(None)["gamma"], shape=P)},
    ),
    "a_scale_in_the_block": (
        UnsuitableError,
        "likelihood does not contain 'a_log__'",
        {"beta": lambda: pm.Normal("beta", 0, pm.HalfNormal("a"), shape=P)},
    ),
    "coupled_rows": (
        FactorisationError,
        "'y'",
        {"mean": lambda gamma, beta: X @ (gamma * beta) - (X @ (gamma * beta)).mean()},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.covering(8)
def test_refused(name):
    error, message, own = REFUSED[name]
    parts = {"gamma": indicators, "beta": coefficients, "mean": lambda gamma, beta: X @ (gamma * beta), **own}
    with pm.Model() as model:
        observed(parts["mean"](parts["gamma"](), parts["beta"]()))
    with pytest.raises(error, match=message):
        find(model)


def test_two_vectors_of_indicators_are_refused():
    with pm.Model() as model:
        gamma, beta = indicators(), coefficients()
        pm.Bernoulli("a", 0.5, shape=2)
        observed(X @ (gamma * beta))
    with pytest.raises(ValueError, match="one vector of indicators, got 'gamma', 'a'"):
        find(model)


def test_coefficients_of_another_step_are_refused():
    with pm.Model() as model:
        gamma, beta, a = indicators(), coefficients(), pm.Normal("a")
        observed(a + X @ (gamma * beta))
    with pytest.raises(ValueError, match=r"None of the variables.*'a' has shape \(\)"):
        find(model, ("gamma", "a"))


def test_more_coefficients_than_the_threshold():
    with pm.Model() as model:
        gamma, beta = indicators(), coefficients()
        observed(X @ (gamma * beta))
    with pytest.raises(ValueError, match="threshold=3 makes the prior of 3 coefficients"):
        find(model, threshold=3)
