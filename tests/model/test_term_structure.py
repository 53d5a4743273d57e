"""What is found of the local terms is found once, and handed on."""

import math

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import TunaMH, factorise
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.structure import features, predictors, term_structure
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.term_structure import TermStructure
from tests.model.features import model_of, simplex
from tests.models import as_model

N = 1200
RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(N, 2)), RNG.integers(0, 2, size=N)


@as_model
def logistic():
    pm.Bernoulli("y", logit_p=X @ pm.Normal("b", shape=2), observed=Y)


@as_model
def location_and_scale():
    pm.Normal("y", X @ pm.Normal("b", shape=2), pm.HalfNormal("sigma"), observed=X[:, 0])


@as_model
def product(names):
    factors = [X @ pm.Normal(name, shape=2) for name in names]
    pm.Bernoulli("y", logit_p=math.prod(factors), observed=Y)


@pytest.fixture
def searches(monkeypatch):
    """Names of the terms whose graphs are searched for one predictor, in order."""
    found = []
    original = predictors.find_predictor

    def counted(fact, term):
        found.append((fact, term.name))
        return original(fact, term)

    for module in (term_structure, features):
        monkeypatch.setattr(module, "find_predictor", counted)
    return found


def test_a_step_searches_a_term_once(searches):
    """The proposal, the mode, the expansion and the bounds ask for its form; the mode for the prior's."""
    with interpreted():
        TunaMH(model=logistic(), rng=1)
    assert [name for _, name in searches] == ["y", "b"]


def test_no_term_is_searched_twice_for_the_same_features(searches):
    with interpreted():
        TunaMH(model=model_of(simplex, 3000), rng=1)
    assert len(searches) > 1
    assert len({id(fact) for fact, _ in searches}) == len(searches)


def test_nothing_is_searched_for_until_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(term_structure, "find_predictor", None)
    assert TermStructure(factorise(logistic())).factorisation.n_local == N


def test_parts_are_found_once():
    structure = TermStructure(factorise(logistic()))
    for part in ("forms_in_block", "features", "row_functions"):
        assert getattr(structure, part) is getattr(structure, part)
    assert structure.forms is structure.forms_in_block
    assert structure.inner is structure.factorisation


def test_one_predictor_or_several():
    (one,) = TermStructure(factorise(logistic())).forms
    assert one.has_one
    structure = TermStructure(factorise(location_and_scale()))
    (two,) = structure.row_functions
    assert (two.n_predictors, structure.features) == (2, None)
    (form,) = structure.forms
    assert (form.has_one, form.predictor) == (False, None)
    assert form.obstacle.startswith("'sigma_log__' enters the term 'y' through Exp")


def test_as_few_predictors_as_possible():
    """A product of three is a function of three; of ten, there is no bound."""
    assert TermStructure(factorise(product("bcd"))).row_functions[0].n_predictors == 3
    structure = TermStructure(factorise(product("bcdefghijk")))
    assert structure.forms[0].predictor is None
    for _ in range(2):
        with pytest.raises(UnboundedError, match=r"the term 'y' is a function of 10 linear predictors, and"):
            structure.row_functions  # noqa: B018


def test_rows_are_read_once_at_a_point():
    """What was found last is kept, so that an expansion where a search ended needs no pass of its own."""
    model = logistic()
    likelihood = Differentiable(TermStructure(factorise(model)), model.initial_point()).likelihood()
    q = np.array([0.3, -0.2])
    first = likelihood.at(q)
    assert likelihood.at(q.copy()) is first
    assert likelihood.passes == 1
    q[0] = 0.4  # the vector that was asked for may change
    assert likelihood.at(q) is not first
    assert likelihood.passes == 2


def test_slopes_are_those_of_a_whole_pass():
    model = logistic()
    likelihood = Differentiable(TermStructure(factorise(model)), model.initial_point()).likelihood()
    q = np.array([0.3, -0.2])
    (slopes,) = likelihood.slopes(q)
    np.testing.assert_array_equal(slopes, likelihood.at(q).slopes[0])
    probability = 1 / (1 + np.exp(-X @ q))
    np.testing.assert_allclose(np.abs(slopes[0]), np.abs(Y - probability), rtol=1e-9)
    np.testing.assert_allclose(slopes[1], -probability * (1 - probability), rtol=1e-9)
