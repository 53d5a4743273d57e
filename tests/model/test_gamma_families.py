"""Families of variables made of gamma variables: their tables, natural values and weights fit together."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp

from pymc_austerity import SCIR
from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.conjugacy.families import (
    FAMILIES,
    Beta,
    Dirichlet,
    Gamma,
    GammaFamily,
    GammaPrior,
    InverseGamma,
    PositiveFamily,
    SimplexFamily,
    Totals,
    family_of,
)
from pymc_austerity.model.conjugacy.recognise import Conjugacy, Groups, require_prior
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.step_methods.gamma.variable_chain import Estimate, noise_ratio, with_new_total

# Of variables that a point holds as they are: two rows or elements, and in the Dirichlet's three shares.
ALL = [Gamma((2,), False), InverseGamma((2,), False), Beta((2,), False), Dirichlet((2, 3), False)]
EACH = pytest.mark.parametrize("family", ALL, ids=lambda family: type(family).__name__)
SIMPLEXES = [family for family in ALL if isinstance(family, SimplexFamily)]


def random_logs(family, seed=1):
    return np.random.default_rng(seed).normal(size=(family.n_rows, family.n_parts))


def shares(log_theta):
    return np.exp(log_theta - logsumexp(log_theta, axis=1, keepdims=True))


def test_every_family_is_found_by_its_distributions():
    assert {type(family) for family in ALL} == set(FAMILIES)
    assert family_of(pm.ChiSquared.dist(3.0).owner.op) is Gamma
    assert family_of(pm.Exponential.dist(3.0).owner.op) is Gamma
    assert family_of(pm.Normal.dist().owner.op) is None
    for family in FAMILIES:
        for name in family.pymc_names:
            assert hasattr(pm, name)


def test_a_family_that_defines_nothing_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        GammaFamily((2,), False)


@EACH
def test_the_graph_of_natural_values_is_the_value(family):
    logs = random_logs(family)
    natural = pt.tensor("natural", shape=family.array_shape)
    graph = family.from_natural(natural)
    found = graph.eval({natural: family.natural(logs).reshape(family.array_shape)}, mode=INTERPRETED)
    np.testing.assert_allclose(found, family.value(logs), rtol=1e-12)


@EACH
def test_weights_are_theta_or_shares(family):
    logs = random_logs(family)
    expected = shares(logs) if family.carries_total else np.exp(logs)
    np.testing.assert_allclose(family.weights(family.natural(logs)), expected, rtol=1e-12)


@EACH
def test_references_differ_in_every_row(family):
    near = family.natural(random_logs(family))
    one, other = (family.weights(r) for r in family.reference_pair(near))
    assert one.shape == other.shape == (family.n_rows, family.n_parts)
    assert np.all(np.abs(one - other).sum(axis=1) > 0.1)
    assert family.random_natural(near, np.random.default_rng(1)).shape == near.shape


@pytest.mark.parametrize("family", SIMPLEXES, ids=lambda family: type(family).__name__)
def test_a_new_total_leaves_shares_as_they_are(family):
    logs, shape = random_logs(family), np.full((2, family.n_parts), [[1e12], [1e16]])
    found = with_new_total(np.random.default_rng(1), logs, shape)
    np.testing.assert_allclose(logsumexp(found, axis=1), np.log(shape.sum(axis=1)), atol=1e-5)
    np.testing.assert_allclose(shares(found), shares(logs))


@pytest.mark.parametrize("family", SIMPLEXES, ids=lambda family: type(family).__name__)
def test_noise_in_totals_is_left_out_on_a_simplex(family):
    shape = np.random.default_rng(2).gamma(2.0, size=(family.n_rows, family.n_parts))
    noise = np.arange(5.0)[:, None, None] * shape
    groups = Groups(Totals(noise, np.zeros((5, family.n_rows, 1))), np.full(5, 2), 100)
    estimate = Estimate(Totals(noise.sum(axis=0), np.zeros((family.n_rows, 1))), [groups], 10)
    rate = np.ones((family.n_rows, 1))
    assert noise_ratio(estimate, shape, rate, family) == pytest.approx(0.0, abs=1e-12)
    assert noise_ratio(estimate, shape, rate, Gamma((family.n_rows,), False)) > 0.1


@EACH
def test_forms_predict_their_own_derivatives(family):
    """Statistics follow from derivatives at the references, and derivatives elsewhere from statistics."""
    # Planted fault: twice the statistics.
    rng = np.random.default_rng(3)
    s = rng.gamma(2.0, size=(family.n_rows, family.n_parts))
    t = rng.gamma(2.0, size=(family.n_rows, 1))
    for form in family.forms:

        def gradient(natural, form=form):
            """Of the sum of s_j log w_j, or s log theta - t theta."""
            weights = family.weights(natural)
            if form == "rate":
                return s - t * weights
            along = s - s.sum(axis=1, keepdims=True) * weights
            return s if form == "counts" else along[:, : family.width]

        prior = np.ones_like(s), np.ones_like(t)
        start = family.natural(random_logs(family))
        references = family.references(form, start, gradient, prior)
        found = family.statistics(form, [gradient(r) for r in references], references)
        np.testing.assert_allclose(found.s, s, rtol=1e-9)
        np.testing.assert_allclose(found.t, t if form == "rate" else 0.0, rtol=1e-9)
        natural = family.natural(random_logs(family, seed=4))
        at = gradient(natural), natural
        np.testing.assert_allclose(family.residuals(form, found, *at), 0.0, atol=1e-9)
        wrong = family.residuals(form, Totals(2.0 * found.s, found.t), *at)
        assert np.max(np.abs(wrong)) > 0.1


@EACH
def test_a_frozen_form_takes_derivatives_where_the_process_is(family):
    logs = random_logs(family)
    prior, gradient = SimpleNamespace(family=family), SimpleNamespace(args=tuple)
    conjugacy = Conjugacy(prior, gradient, None, "frozen", ())
    (reference,), _ = conjugacy.place(logs, {})
    np.testing.assert_array_equal(reference, family.natural(logs))


class RootOfExponential(PositiveFamily):
    """Weibull variables with alpha = 2: x = sqrt(theta), with theta ~ Exponential(1 / beta^2)."""

    distributions = (type(pm.Weibull.dist(2.0, 1.0).owner.op),)
    pymc_names = ("Weibull",)
    power = 0.5

    def parameter_graphs(self, parameters):
        _, beta = parameters
        return [pt.constant(1.0), 1.0 / beta**2]


class WrongRate(RootOfExponential):
    def parameter_graphs(self, parameters):
        shape, rate = super().parameter_graphs(parameters)
        return [shape, 0.5 * rate]


class RightAtOne(RootOfExponential):
    """A rate that is right where beta is one, as it may be at the initial point."""

    def parameter_graphs(self, parameters):
        _, beta = parameters
        return [pt.constant(1.0), 1.0 / beta]


class WrongPower(RootOfExponential):
    power = 1.0


class SwappedShapes(Beta):
    def parameter_graphs(self, parameters):
        return parameters[::-1]


class WrongAlpha(Dirichlet):
    def parameter_graphs(self, parameters):
        return [parameters[0] + 1.0]


def compare_prior(monkeypatch, family, define):
    """Compare the prior of ``x`` in a model with that which a family says."""
    monkeypatch.setattr("pymc_austerity.model.conjugacy.families.family_of", lambda op: family)
    with pm.Model() as model:
        define()
    point = model.initial_point()
    require_prior(model, GammaPrior(model, model.rvs_to_values[model["x"]], point), point)


def weibull(alpha=2.0, **options):
    return pm.Weibull("x", alpha, [0.5, 3.0], **options)


def hierarchical_weibull():
    return pm.Weibull("x", 2.0, pm.LogNormal("beta", initval=1.0), shape=3)


@pytest.mark.parametrize("options", [{}, {"default_transform": None}], ids=["transformed", "as it is"])
@pytest.mark.parametrize(
    ("family", "define"),
    [
        (RootOfExponential, weibull),
        (Gamma, lambda **kw: pm.Gamma("x", [1e-3, 1e6], [1e5, 1e-5], **kw)),
        (Gamma, lambda **kw: pm.Gamma("x", 2.0, pm.HalfNormal("rate", **kw), shape=0, **kw)),
        (
            InverseGamma,
            lambda **kw: pm.InverseGamma("x", 2.0, pm.Poisson("k", 3.0) + 1.0, shape=(2, 3), **kw),
        ),
        (Beta, lambda **kw: pm.Beta("x", 0.2, [3.0, 1e-3], **kw)),
        (Dirichlet, lambda **kw: pm.Dirichlet("x", [1e-3, 1.0, 2000.0], shape=(4, 3), **kw)),
        (Dirichlet, lambda **kw: pm.Dirichlet("x", pm.HalfNormal("a", **kw) * np.ones(3), **kw)),
    ],
)
def test_a_prior_that_is_pymc_s(family, define, options, monkeypatch):
    compare_prior(monkeypatch, family, lambda: define(**options))


@pytest.mark.parametrize(
    ("family", "define"),
    [
        (RootOfExponential, lambda: weibull(3.0)),
        (RootOfExponential, lambda: weibull([2.0, 3.0], default_transform=None)),
        (WrongRate, weibull),
        (RightAtOne, hierarchical_weibull),
        (WrongPower, weibull),
        (SwappedShapes, lambda: pm.Beta("x", 2.0, 3.0)),
        (WrongAlpha, lambda: pm.Dirichlet("x", np.ones(3))),
    ],
)
def test_a_prior_that_is_not_pymc_s(family, define, monkeypatch):
    with pytest.raises(SelfCheckError, match=rf"prior of 'x': .* family '{family.__name__}'"):
        compare_prior(monkeypatch, family, define)


def test_a_step_refuses_a_prior_that_is_not_made_of_gamma_variables(monkeypatch):
    monkeypatch.setattr("pymc_austerity.model.conjugacy.families.FAMILIES", [RootOfExponential])
    for alpha in (2.0, 3.0):
        with pm.Model() as model:
            pm.Poisson("y", weibull(alpha)[np.arange(20) % 2] ** 2, observed=np.arange(20) % 3)
        with interpreted():
            if alpha == 2.0:
                assert SCIR(model=model).forms == {"x": "rate"}
            else:
                with pytest.raises(SelfCheckError, match="prior of 'x'"):
                    SCIR(model=model)
