"""A batch size that nobody chose is a default that fits the data; one that was chosen is kept or refused."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import AusterityMH, MetropolisHastings, MHSubLhd, MinibatchBarker, Taylor
from pymc_austerity.acceptance import Barker, Concentration, Exact, TTest
from pymc_austerity.acceptance.base import with_batch_size

RULES = {TTest: 500, Barker: 100, Concentration: 1}
STEPS = {
    "AusterityMH": AusterityMH,
    "MinibatchBarker": MinibatchBarker,
    "MHSubLhd": MHSubLhd,
    "TTest": lambda batch_size=None, **kwargs: MetropolisHastings(
        acceptance=TTest(batch_size=batch_size), **kwargs
    ),
}
DEFAULTS = {"AusterityMH": 500, "MinibatchBarker": 100, "MHSubLhd": 1, "TTest": 500}


@pytest.fixture
def uncompiled(monkeypatch):
    """Steps with all that they decide, and no engine."""
    engine = SimpleNamespace(restart=lambda: None, columns={})
    monkeypatch.setattr("pymc_austerity.step_methods.metropolis.plan.BlockPlan.compile", lambda *args: engine)


def model_of(n):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.random.default_rng(1).normal(size=n))
    return model


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("n_local", [60, 5000])
def test_rules(kind, n_local):
    expected = min(RULES[kind], n_local)
    chosen = kind(batch_size=expected)
    assert kind().batch_size is None
    assert kind() != chosen
    assert kind().bind(n_local).ends.tolist() == chosen.bind(n_local).ends.tolist()
    assert kind().error_bound(n_local) == chosen.error_bound(n_local)
    assert with_batch_size(kind(), n_local) == with_batch_size(chosen, n_local) == chosen
    assert with_batch_size(kind(), n_local, default=50).batch_size == 50


@pytest.mark.parametrize("kind", RULES)
def test_a_rule_for_fewer_terms_than_were_chosen_is_refused(kind):
    with pytest.raises(ValueError, match="^batch_size must be at most the number of local terms, 60, got 61"):
        kind(batch_size=61).bind(60)


def test_rules_without_batches_are_left_as_they_are():
    assert with_batch_size(Exact(), 60, default=50) == Exact()


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("n", [90, 2000])
@pytest.mark.covering(2)
def test_steps_show_what_they_use(name, n):
    """By default, and the same number as it would be if it were chosen."""
    model, expected = model_of(n), min(DEFAULTS[name], n)
    options = {"model": model, "threshold": 50}
    for step in (STEPS[name](**options), STEPS[name](batch_size=expected, **options)):
        assert step.configuration["rule"]["batch_size"] == expected
        assert f"batch_size={expected}" in repr(step)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", STEPS)
def test_a_default_that_was_chosen_is_refused_above_the_number_of_terms(name):
    with pytest.raises(
        ValueError, match="^batch_size must be at most the number of local terms, 90, got 500"
    ):
        STEPS[name](batch_size=500, model=model_of(90), threshold=50)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("kind", [AusterityMH, MinibatchBarker])
def test_remainders_have_a_default_of_their_own(kind):
    def batch(**options):
        step = kind(model=model_of(2000), control_variate=Taylor(order=1), **options)
        return step.configuration["rule"]["batch_size"]

    assert batch() == 50
    assert batch(batch_size=DEFAULTS[kind.__name__]) == DEFAULTS[kind.__name__]


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(("n", "expected"), [(2000, 100), (300, 30)])
def test_exact_rows(n, expected):
    """Steps show how many there are."""
    step = AusterityMH(model=model_of(n), threshold=100, control_variate=Taylor(order=1))
    assert Taylor().exact_rows is None
    assert step.configuration["control_variate"]["exact_rows"] == step.configuration["n_exact"] == expected
    assert f"exact_rows={expected}" in repr(step)
