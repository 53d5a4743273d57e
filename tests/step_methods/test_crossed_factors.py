"""Two and more large factors that are not nested, on the graph of a model: fields that are moved in turns."""

import math
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

from pymc_austerity.acceptance import TTest
from pymc_austerity.kernels.fields.sweeps import SweepOutcome
from pymc_austerity.mode.fields import order
from pymc_austerity.mode.fields.field_model import FieldModel
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.step_methods.metropolis.engine.base import Engine
from pymc_austerity.step_methods.metropolis.engine.fields import FieldEngine
from pymc_austerity.step_methods.metropolis.field_plan import field_of
from pymc_austerity.step_methods.metropolis.options import checked_options
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR
from tests.models import as_model

N, G, H = 800, 60, 40
RNG = np.random.default_rng(81)
X, GROUPS, LEVELS = RNG.normal(size=(N, 2)), RNG.integers(G, size=N), RNG.integers(H, size=N)
THIRD, Y = RNG.integers(35, size=N), RNG.integers(2, size=N)


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    """Factors of 35 levels are large."""
    monkeypatch.setattr(order, "WIDE", 20)


def u(location=0.0, n_groups=G):
    """Effects of the first factor, of each row."""
    return pm.Normal("u", location, pm.HalfNormal("tau"), shape=n_groups)[GROUPS]


def second(location=0.0):
    """Effects of the second factor."""
    return pm.Normal("v", location, pm.HalfNormal("tau_v"), shape=H)


def v(location=0.0):
    """And of each row."""
    return second(location)[LEVELS]


def centered():
    return u() + v()


def standardised():
    tau, tau_v = pm.HalfNormal("tau"), pm.HalfNormal("tau_v")
    return tau * pm.Normal("u", shape=G)[GROUPS] + (0.3 + tau_v * pm.Normal("v", shape=H))[LEVELS]


def third(levels, n_levels):
    return pm.Normal("w", 0.0, pm.HalfNormal("tau_w"), shape=n_levels)[levels]


def of_one_scale():
    tau = pm.HalfNormal("tau")
    return pm.Normal("u", 0.0, tau, shape=G)[GROUPS] + pm.Normal("v", 0.0, 2.0 * tau, shape=H)[LEVELS]


def of_students_distribution_and_one_scale():
    """In turns what is held would have to follow its scale, and Student's effects do not."""
    tau = pm.HalfNormal("tau")
    effects = pm.StudentT("u", 4.0, mu=0.0, sigma=tau, shape=G)[GROUPS]
    return effects + pm.StudentT("v", 4.0, mu=0.0, sigma=tau, shape=H)[LEVELS]


def in_the_location():
    effects = second()
    return u(effects[np.arange(G) % H]) + effects[LEVELS]


def in_a_potential():
    effects = second()
    pm.Potential("p", -(effects.sum() ** 2))
    return u() + effects[LEVELS]


# Spellings, and how many turns each takes.
TURNS = {
    "centred": (centered, 2),
    "standardised": (standardised, 2),
    "around means": (lambda: u(2.0 * pm.Normal("mu") - 1.0) + v(np.zeros(H)), 2),
    "a small third": (lambda: centered() + third(THIRD % 4, 4), 2),
    "slopes": (
        lambda: centered() + pm.Normal("b", 0.0, pm.HalfNormal("tau_b"), shape=G)[GROUPS] * X[:, 0],
        2,
    ),
    "a slope alone": (lambda: u() + v() * X[:, 0], 2),
    "a difference": (lambda: u() - v(pm.Normal("mu")), 2),
    "twice as much": (lambda: u() + 2.0 * v(), 2),
    "a large third": (lambda: centered() + third(THIRD, 35), 3),
    "one scale": (of_one_scale, 2),
    "locations by group": (lambda: u(pm.Normal("mu") * np.linspace(-1.0, 1.0, G)) + v(), 2),
    "Student's distribution": (
        lambda: pm.StudentT("u", 4.0, mu=0.0, sigma=pm.HalfNormal("tau"), shape=G)[GROUPS] + v(),
        2,
    ),
    "Student's distribution, one scale": (of_students_distribution_and_one_scale, 1),
    "in the location": (in_the_location, 1),
    "more levels than rows": (lambda: u(n_groups=N + 1) + v(), 2),
}


@as_model
def model_of(effects):
    """A model with these in the predictor."""
    beta = pm.Normal("beta", 0.0, 2.0, shape=2)
    pm.Bernoulli("y", logit_p=X @ beta + effects(), observed=Y)


def found(model, rule=EXACT):
    with interpreted():
        options = checked_options(None, rule, control_variate=TAYLOR, model=model, threshold=100)
        point = model.initial_point()
        return field_of(options, factorised(options, point), point)


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.covering(3)
def test_turns(name):
    effects, n_turns = TURNS[name]
    field = found(model_of(effects))
    assert isinstance(field, FieldModel), field
    assert len(field.layouts) == n_turns


def test_a_free_dispersion():
    with pm.Model() as model:
        eta = X @ pm.Normal("beta", 0.0, 2.0, shape=2) + centered()
        pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=pm.Gamma("alpha", 2.0, 0.5), observed=Y)
    assert len(found(model).layouts) == 2


def test_tested_moves():
    assert len(found(model_of(centered), TTest()).layouts) == 2


def test_what_turns_count_is_added(monkeypatch):
    engine = FieldEngine.__new__(FieldEngine)
    engine.turns = 2 * (SimpleNamespace(schedule=SimpleNamespace(n_roots=1)),)
    of_turn = SweepOutcome(np.zeros(1), 1, 5, 1, 0, 3, True, 0.1, 0.0, math.nan, 2, 3, 0.5, 1)
    monkeypatch.setattr(Engine, "run", lambda *given: of_turn)
    found = engine._swept(2)
    assert (found.n_accepted, found.n_used, found.n_clipped, found.whole_groups) == (2, 20, 12, 4)
    assert (found.shared_n_used, found.effects_n_used, found.effects_accepted) == (8, 12, 1.0)


def test_effects_in_another_term():
    assert "effects enter the terms 'p', too" in str(found(model_of(in_a_potential)))
