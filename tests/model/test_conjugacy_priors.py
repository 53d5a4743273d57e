"""Variables made of gamma variables: how they are recognised, and how points hold them."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from pymc_austerity.model.conjugacy.families import Beta, Dirichlet, Gamma, GammaPrior, InverseGamma


def minus_log(x):
    return -np.log(x)


# Distribution, family, parameters of the gamma variables, and log theta, or log w of the first shares.
VARIABLES = {
    "gamma": (lambda **kw: pm.Gamma("x", 2.0, 3.0, shape=4, **kw), Gamma, (2.0, 3.0), np.log),
    "gamma by moments": (lambda **kw: pm.Gamma("x", mu=2.0, sigma=1.0, **kw), Gamma, (4.0, 2.0), np.log),
    "exponential": (lambda **kw: pm.Exponential("x", 3.0, **kw), Gamma, (1.0, 3.0), np.log),
    "chi-squared": (lambda **kw: pm.ChiSquared("x", 5.0, **kw), Gamma, (2.5, 0.5), np.log),
    "inverse gamma": (lambda **kw: pm.InverseGamma("x", 2.0, 3.0, **kw), InverseGamma, (2.0, 3.0), minus_log),
    "beta": (lambda **kw: pm.Beta("x", 2.0, 3.0, shape=(2, 2), **kw), Beta, ([2.0, 3.0], 1.0), np.log),
    "dirichlet": (
        lambda **kw: pm.Dirichlet("x", [0.1, 1.0, 2.0], **kw),
        Dirichlet,
        ([0.1, 1.0, 2.0], 1.0),
        np.log,
    ),
    "dirichlets": (
        lambda **kw: pm.Dirichlet("x", [0.1, 1.0, 2.0], shape=(4, 3), **kw),
        Dirichlet,
        ([0.1, 1.0, 2.0], 1.0),
        np.log,
    ),
}


def prior_of(define, **kwargs):
    with pm.Model() as model:
        x = define(**kwargs)
    return model, GammaPrior(model, model.rvs_to_values[x], model.initial_point())


@pytest.mark.parametrize("name", VARIABLES)
def test_family_and_parameters(name):
    define, family, (alpha, rate), _ = VARIABLES[name]
    model, prior = prior_of(define)
    assert type(prior.family) is family
    found = prior.parameters(model.initial_point())
    assert found[0].shape == (prior.family.n_rows, prior.family.n_parts)
    np.testing.assert_allclose(found[0], np.broadcast_to(alpha, found[0].shape))
    np.testing.assert_allclose(found[1], np.full((prior.family.n_rows, 1), rate))


@pytest.mark.parametrize("transformed", [True, False])
@pytest.mark.parametrize("name", VARIABLES)
def test_values_of_a_point_are_those_of_pymc(name, transformed):
    define, _, _, log_theta_of = VARIABLES[name]
    model, prior = prior_of(define, **({} if transformed else {"default_transform": None}))
    family = prior.family
    assert family.transformed == transformed
    x = pm.draw(model["x"], random_seed=1)
    transform = model.rvs_to_transforms[model["x"]]
    value = transform.forward(x, *model["x"].owner.inputs).eval() if transformed else x
    logs = family.log_gammas(value)
    expected = log_theta_of(x).reshape(family.n_rows, -1)
    np.testing.assert_allclose(logs[:, : expected.shape[1]], expected, rtol=1e-9, atol=1e-12)
    again = family.value(logs + (5.0 if family.carries_total else 0.0))  # the total does not matter
    assert again.shape == np.shape(value)
    np.testing.assert_allclose(again, value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["gamma", "inverse gamma", "beta", "dirichlets"])
def test_values_far_below_the_smallest_number(name):
    _, prior = prior_of(VARIABLES[name][0])
    family = prior.family
    logs = np.zeros((family.n_rows, family.n_parts))
    logs[:, 0] = -1e4
    value = family.value(logs)
    assert np.all(np.isfinite(value))
    np.testing.assert_allclose(family.log_gammas(value)[:, 0], -1e4 - np.log(max(family.n_parts - 1, 1)))


def test_parameters_may_depend_on_other_variables():
    with pm.Model() as model:
        rate = pm.HalfNormal("rate")
        pm.Gamma("x", 2.0, rate, shape=3)
    prior = GammaPrior(model, model.rvs_to_values[model["x"]], model.initial_point())
    assert prior.parents == ["rate_log__"]
    point = {**model.initial_point(), "rate_log__": np.log(5.0)}
    for one in (prior, cloudpickle.loads(cloudpickle.dumps(prior))):
        np.testing.assert_allclose(one.parameters(point)[1], np.full((3, 1), 5.0))


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda: pm.HalfNormal("x"), "prior of 'x' is .*HalfNormal"),
        (lambda: pm.Truncated("x", pm.Gamma.dist(1, 1), upper=3), "prior of 'x' is"),
        (
            lambda: pm.Beta("x", 1, 1, transform=pm.distributions.transforms.Interval(0.1, 0.9)),
            "'x' has the transform",
        ),
    ],
)
def test_refusals(define, message):
    with pytest.raises(ValueError, match=message):
        prior_of(define)
