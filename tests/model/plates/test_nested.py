"""Nested groups on the graph: how they may be written, and how many outer groups there may be."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity.model.plates import limits
from pymc_austerity.model.plates.gathers import NoPlate
from tests.kernels.plates.cases import survey_of_model

N, G, H = 400, 80, 35
RNG = np.random.default_rng(8)
PARENTS, GROUPS = RNG.integers(H, size=G), RNG.integers(G, size=N)
X, Y = RNG.normal(size=N), RNG.integers(2, size=N)


def model_of(effects):
    with pm.Model() as model:
        eta = pm.Normal("beta") * X + effects(pm.Normal("mu"), pm.HalfNormal("tau"), pm.HalfNormal("tau_v"))
        pm.Bernoulli("y", logit_p=eta, observed=Y)
    return model


def looked_up_twice(mu, tau, outer):
    return (pm.Normal("v", mu, outer, shape=H)[PARENTS] + tau * pm.Normal("z", shape=G))[GROUPS]


def added(mu, tau, outer):
    return pm.Normal("v", mu, outer, shape=H)[PARENTS[GROUPS]] + pm.Normal("u", 0.0, tau, shape=G)[GROUPS]


def standardised_in_location(mu, tau, outer):
    v = mu + outer * pm.Normal("vz", shape=H)
    return pm.Normal("u", v[PARENTS], tau, shape=G)[GROUPS]


def crossed(mu, tau, outer):
    return pm.Normal("v", mu, outer, shape=H)[np.arange(N) % H] + pm.Normal("u", 0.0, tau, shape=G)[GROUPS]


def with_a_term_of_its_own(mu, tau, outer):
    v = pm.Normal("v", mu, outer, shape=H)
    pm.Potential("sum", -(v.sum() ** 2))
    return pm.Normal("u", v[PARENTS], tau, shape=G)[GROUPS]


@pytest.mark.parametrize("effects", [looked_up_twice, added])
def test_outer_groups(effects):
    _, survey = survey_of_model(model_of(effects))
    used = np.isin(np.arange(G), GROUPS)
    np.testing.assert_array_equal(survey.outer.parents, np.where(used, PARENTS, -1))


@pytest.mark.parametrize("effects", [crossed, with_a_term_of_its_own])
def test_other_factors_are_coefficients(effects):
    """They are not normal, or not independent, given what the other moves keep."""
    _, survey = survey_of_model(model_of(effects))
    assert not len(survey.outer.columns)


def test_outer_effects_in_a_location_are_centred():
    with pytest.raises(NoPlate, match=r'outer groups in it are to be centred, v = pm.Normal\("v", mu, tau\)'):
        survey_of_model(model_of(standardised_in_location))


def test_many_outer_groups(monkeypatch):
    monkeypatch.setattr(limits, "MOST_SHARED", 20)
    survey_of_model(model_of(added))
    with pytest.raises(NoPlate, match="one has to be nested in the other"):
        survey_of_model(model_of(crossed))
    monkeypatch.setattr(limits, "MOST_OUTER", 30)
    with pytest.raises(NoPlate, match="35 effects of other groups, and a plate takes 30 at most"):
        survey_of_model(model_of(added))


def test_a_thousand_outer_groups():
    def effects(mu, tau, outer):
        parents = RNG.integers(1000, size=1500)
        v = pm.Normal("v", mu, outer, shape=1000)
        return pm.Normal("u", v[parents], tau, shape=1500)[RNG.integers(1500, size=N)]

    with pytest.raises(NoPlate, match="other long terms .'v'.* of outer groups there are to be 999 at most"):
        survey_of_model(model_of(effects), n_first=200)
