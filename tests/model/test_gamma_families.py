"""Families of variables made of gamma variables: their tables, natural values and weights fit together."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions import transforms
from scipy.special import logsumexp

from pymc_austerity.model.conjugacy.families import FAMILIES, GammaFamily, SimplexFamily, family_of
from pymc_austerity.model.conjugacy.families.beta import Beta
from pymc_austerity.model.conjugacy.families.dirichlet import Dirichlet
from pymc_austerity.model.conjugacy.families.gamma import Gamma
from pymc_austerity.model.conjugacy.families.inverse_gamma import InverseGamma
from pymc_austerity.model.conjugacy.forms import AFFINE, COUNTS, FROZEN, RATE, Totals
from pymc_austerity.model.graph.rewrite import INTERPRETED

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
    assert family.central_natural().shape == family.array_shape
    assert family.random_natural(near, np.random.default_rng(1)).shape == near.shape


@EACH
def test_a_new_total_leaves_shares_as_they_are(family):
    logs, total = random_logs(family), np.array([[3.0], [-2.0]])
    found = family.with_total(logs, total)
    if family.carries_total:
        np.testing.assert_allclose(logsumexp(found, axis=1, keepdims=True), total)
        np.testing.assert_allclose(shares(found), shares(logs))
    else:
        np.testing.assert_array_equal(found, logs)


@EACH
def test_processes_of_rate_one(family):
    """Of gamma variables rate times theta; on a simplex all rates are one."""
    logs, rate = random_logs(family), np.array([[1.0], [1.0]] if family.carries_total else [[3.0], [5.0]])
    scaled = family.to_rate_one(logs, rate)
    np.testing.assert_allclose(np.exp(scaled), rate * np.exp(logs))
    np.testing.assert_allclose(family.from_rate_one(scaled, rate), logs)


@EACH
def test_a_shift_adds_nothing_where_the_process_is(family):
    """M w_j, or M theta, on both sides: the mean of a frozen process at its own value does not move."""
    logs = random_logs(family)
    theta = shares(logs) if family.carries_total else np.exp(logs)
    shape, rate = family.shifted(np.zeros_like(logs), np.zeros((family.n_rows, 1)), logs, 7.0)
    np.testing.assert_allclose(shape, 7.0 * theta)
    np.testing.assert_allclose(rate, 0.0 if family.carries_total else 7.0)


@pytest.mark.parametrize("family", SIMPLEXES, ids=lambda family: type(family).__name__)
def test_totals_are_left_alone_on_a_simplex(family):
    rng = np.random.default_rng(2)
    theta, shape, alpha = rng.gamma(2.0, size=(3, family.n_rows, family.n_parts))
    projected = family.projected_shape(theta, shape, alpha)
    np.testing.assert_allclose(projected.sum(axis=1), alpha.sum(axis=1))
    noise = family.relevant_noise(rng.normal(size=(5, *shape.shape)), shape)
    np.testing.assert_allclose(noise.sum(axis=-1), 0.0, atol=1e-12)
    assert np.all(family.variance(shape) < shape)


@EACH
def test_forms_predict_their_own_derivatives(family):
    """Statistics follow from derivatives at the references, and derivatives elsewhere from statistics."""
    rng = np.random.default_rng(3)
    s = rng.gamma(2.0, size=(family.n_rows, family.n_parts))
    t = rng.gamma(2.0, size=(family.n_rows, 1))
    for form in family.forms:

        def gradient(natural, form=form):
            """Of the sum of s_j log w_j, or s log theta - t theta."""
            weights = family.weights(natural)
            if form == RATE:
                return (s - t * weights).ravel()
            along = s - s.sum(axis=1, keepdims=True) * weights
            return (s if form == COUNTS else along[:, : family.width]).ravel()

        prior = np.ones_like(s), np.ones_like(t)
        start = family.natural(random_logs(family))
        references = form.first_references(family, start, gradient, prior)
        found = form.statistics(family, [gradient(r) for r in references], references)
        np.testing.assert_allclose(found.s, s, rtol=1e-9)
        np.testing.assert_allclose(found.t, t if form == RATE else 0.0, rtol=1e-9)
        natural = family.natural(random_logs(family, seed=4))
        at = family.table(gradient(natural)), family.weights(natural)
        np.testing.assert_allclose(form.residuals(family, found, *at), 0.0, atol=1e-9)
        wrong = form.residuals(family, Totals(2.0 * found.s, found.t), *at)
        assert np.max(np.abs(wrong)) > 0.1


@EACH
def test_a_frozen_form_takes_derivatives_where_the_process_is(family):
    logs = random_logs(family)
    (reference,) = FROZEN.references_at(family, logs, (), constant=False)
    np.testing.assert_array_equal(reference, family.natural(logs))
    assert not FROZEN.is_conjugate
    assert all(form.is_conjugate for form in (COUNTS, AFFINE, RATE))


@EACH
def test_the_transform_is_that_of_pymc(family):
    default = {"Gamma": transforms.log, "InverseGamma": transforms.log, "Beta": transforms.logodds}
    expected = default.get(type(family).__name__, transforms.simplex)
    assert family.transform is type(expected)
