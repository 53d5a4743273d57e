"""`compare` on effects of many groups: where chains start, shares of two moves, the reference."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import TunaMH, compare
from pymc_austerity.model.factorisation import FEWEST_IF_SLOW
from pymc_austerity.report.compare import exact_step, fewest_groups, start_of_field
from pymc_austerity.step_methods.metropolis.field_plan import FieldRecipe

N, GROUPS, TAU = 4000, 200, 0.1


def visits(n_groups=GROUPS, is_centered=True):
    """Groups that hardly differ: the joint mode has tau at 0."""
    rng = np.random.default_rng(3)
    groups = rng.integers(0, n_groups, N)
    y = rng.poisson(np.exp(1.0 + TAU * rng.normal(size=n_groups)[groups]))
    with pm.Model() as model:
        level, tau = pm.Normal("level"), pm.HalfNormal("tau")
        if is_centered:
            of_group = pm.Normal("u", level, tau, shape=n_groups)[groups]
        else:
            of_group = level + tau * pm.Normal("z", shape=n_groups)[groups]
        pm.Poisson("y", pm.math.exp(of_group), observed=y)
    return model


@pytest.fixture(scope="module")
def of_field():
    model = visits()
    return compare(
        model,
        {"tuna": TunaMH(model=model)},
        budget={"draws": 500},
        tune=50,
        chains=2,
        var_names=["level", "tau"],
        random_seed=1,
    )


@pytest.mark.slow("compiles the reference of a field")
@pytest.mark.parametrize("is_centered", [True, False])
def test_chains_start_at_the_mode_of_what_groups_share(is_centered):
    model = visits(is_centered=is_centered)
    start = start_of_field(model, 30)
    assert 0.5 * TAU < start["tau"] < 1.5 * TAU
    assert abs(start["level"] - 1.0) < 0.1
    effects = start["u"] - start["level"] if is_centered else start["tau"] * start["z"]
    assert 0.2 * TAU < effects.std() < TAU


@pytest.mark.slow("compares two steps on a field")
def test_chains_do_not_start_far_away(of_field):
    """From the joint mode, with tau at 0, R-hat was 2.5 here."""
    for run in (of_field.standard, *(run for run, _, _ in of_field.results)):
        assert not any("starts" in message for message in run.messages)
    assert of_field.to_dataframe()["rhat"].max() < 1.2


@pytest.mark.slow("compares two steps on a field")
def test_no_share_is_above_one_without_its_reason(of_field):
    text = of_field.to_markdown()
    run = of_field.standard
    assert run.fraction == run.moves > 1
    assert f"| {run.moves} x 100 %" in text
    assert "Before x: moves of a sweep over groups" in text
    assert "200 %" not in text
    assert "200 %" not in of_field.to_html()


@pytest.mark.slow("compiles the reference of a hierarchy, twice")
@pytest.mark.parametrize("is_centered", [True, False])
def test_the_reference_of_a_field_moves_its_effects(is_centered):
    """A proposal of the whole block stood still on 300 groups, 55 standard deviations beside the mean."""
    step, notes = exact_step(visits(40, is_centered))
    assert isinstance(step.recipe, FieldRecipe)
    assert step.recipe.reads_all
    assert notes == []


@pytest.mark.slow("compares two steps on a field")
def test_a_step_on_few_groups_has_a_reference_on_them():
    model = visits(9)
    assert not isinstance(exact_step(model)[0].recipe, FieldRecipe)
    step, notes = exact_step(model, FEWEST_IF_SLOW)
    assert step.field.prediction.n_effects == 10
    assert notes == []
    assert fewest_groups([step]) == FEWEST_IF_SLOW
