"""`Factorisation.field`: the field of a model, found when it is asked for, and how it is printed."""

import pymc as pm
import pytest

from pymc_austerity import factorise
from pymc_austerity.model.factorise import build
from pymc_austerity.model.field import of_model
from pymc_austerity.model.field.find import Field
from pymc_austerity.model.field.priors import NoField
from tests.model.field.spellings import G, N, g, tau, x, y


@pytest.fixture
def walk():
    """A random walk of groups, a coefficient, and a potential."""
    with pm.Model() as model:
        level, scale = pm.Normal("level"), tau()
        u = scale * pm.Normal("z", shape=G).cumsum()
        pm.Bernoulli("y", logit_p=level + u[g] + x * pm.HalfNormal("slope"), observed=y)
        pm.Potential("near", -(level**2))
    return model


EXPECTED = f"""\
Field: rows of 'y' ({N}) are linear in 3 vectors
  level   1  Normal
  z      {G}  Normal, summed up, scaled
  slope   1  without a rule of a prior
  also in 'near'"""


@pytest.mark.parametrize("names", [None, ["level"], ["z", "tau"]], ids=repr)
def test_it_is_that_of_the_whole_model(walk, names):
    field = factorise(walk, names).field
    assert isinstance(field, Field)
    assert str(field) == EXPECTED


def test_it_is_sought_once_and_when_it_is_asked_for(walk, monkeypatch):
    sought = []
    monkeypatch.setattr(of_model, "find_field", lambda *args: sought.append(args) or "found")
    fact = factorise(walk)
    assert sought == []
    assert fact.field == fact.field == "found"
    assert len(sought) == 1


def test_the_reason_is_in_its_place():
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=pm.HalfNormal("slope") * x, observed=y)
    found = factorise(model).field
    assert isinstance(found, NoField)
    assert (
        str(found)
        == "the likelihood is linear in no variable whose prior has a rule: 'slope' has the prior HalfNormal"
    )


def test_several_likelihoods_are_listed():
    with pm.Model() as model:
        u = pm.Normal("u", 0, tau(), shape=G)
        for name in "abc":
            pm.Bernoulli(name, logit_p=u[g], observed=y)
    assert "rows of 'a' (300), 'b' (300) and 'c' (300) are linear in 1 vector\n" in str(
        factorise(model).field
    )


def test_a_factorisation_that_nobody_asks_knows_no_model(walk):
    """As those are that steps keep and send to other processes."""
    assert build(walk, None, threshold=100, initial_point=None, check=False).field is None
