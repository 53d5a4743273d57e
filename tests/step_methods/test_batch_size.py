"""A batch size that nobody chose is a default that fits the data; one that was chosen is kept or refused."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import AusterityMH, MetropolisHastings, MHSubLhd, MinibatchBarker, Taylor
from pymc_austerity.acceptance import Barker, Concentration, Exact, TTest
from pymc_austerity.acceptance.base import with_batch_size
from tests.models import as_model

pytestmark = pytest.mark.usefixtures("interpreted")
RULES = {TTest: 500, Barker: 100, Concentration: 1}
# Steps, and their batch size where nobody chose one.
STEPS = {
    "AusterityMH": (AusterityMH, 500),
    "MinibatchBarker": (MinibatchBarker, 100),
    "MHSubLhd": (MHSubLhd, 1),
    "TTest": (
        lambda batch_size=None, **own: MetropolisHastings(acceptance=TTest(batch_size=batch_size), **own),
        500,
    ),
}


@as_model
def model_of(n):
    pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.random.default_rng(1).normal(size=n))


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


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("n", [90, 2000])
@pytest.mark.covering(2)
def test_steps_show_what_they_use(name, n):
    """By default, and the same number as it would be if it were chosen."""
    kind, default = STEPS[name]
    expected, options = min(default, n), {"model": model_of(n), "threshold": 50}
    for step in (kind(**options), kind(batch_size=expected, **options)):
        assert step.configuration["rule"]["batch_size"] == expected
        assert f"batch_size={expected}" in repr(step)


@pytest.mark.parametrize("name", STEPS)
def test_a_default_that_was_chosen_is_refused_above_the_number_of_terms(name):
    with pytest.raises(
        ValueError, match="^batch_size must be at most the number of local terms, 90, got 500"
    ):
        STEPS[name][0](batch_size=500, model=model_of(90), threshold=50)


@pytest.mark.parametrize(("kind", "default"), [STEPS["AusterityMH"], STEPS["MinibatchBarker"]])
def test_remainders_have_a_default_of_their_own(kind, default):
    def batch(**options):
        step = kind(model=model_of(2000), control_variate=Taylor(order=1), **options)
        return step.configuration["rule"]["batch_size"]

    assert batch() == 50
    assert batch(batch_size=default) == default


@pytest.mark.parametrize(("n", "expected"), [(2000, 100), (300, 30)])
def test_exact_rows(n, expected):
    """Steps show how many there are."""
    step = AusterityMH(model=model_of(n), threshold=100, control_variate=Taylor(order=1))
    assert Taylor().exact_rows is None
    assert step.configuration["control_variate"]["exact_rows"] == step.configuration["n_exact"] == expected
    assert f"exact_rows={expected}" in repr(step)
