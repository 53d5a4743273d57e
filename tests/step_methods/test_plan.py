"""Plans: what is decided before anything is compiled, and what of it travels to other processes."""

from dataclasses import FrozenInstanceError, replace

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from pymc_austerity import Laplace
from pymc_austerity.acceptance import Exact, TTest
from pymc_austerity.control_variates import Taylor
from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.recommendation.choice import why_costly
from pymc_austerity.recommendation.evidence import Evidence, gather, options_of, why_not_normal
from pymc_austerity.step_methods.metropolis import plan as plans
from pymc_austerity.step_methods.metropolis.options import checked_options
from pymc_austerity.step_methods.metropolis.plan import OtherDataError, plan_metropolis, survey
from pymc_austerity.step_methods.metropolis.tuna_plan import (
    EXACT,
    TAYLOR,
    NoBoundError,
    checked_tuna_options,
    plan_tuna,
)
from tests.models import as_model

N = 2000


@as_model
def logistic(n=N):
    """A logistic regression whose responses are shared data."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=n)
    b = pm.Normal("b", 0, 1, shape=2)
    y = pm.Data("y_data", (rng.random(n) < 1.0 / (1.0 + np.exp(-0.5 * x))).astype(np.int64))
    pm.Bernoulli("y", logit_p=b[0] + b[1] * x, observed=y)


@pytest.fixture(scope="module")
def model():
    return logistic()


def tuna_of(model, **options):
    tuna = checked_tuna_options(**options)
    asked = checked_options(None, EXACT, control_variate=TAYLOR, model=model, **tuna)
    return asked, model.initial_point()


def test_nothing_is_compiled_and_nothing_changes_afterwards(model, monkeypatch):
    def compiles(*args, **kwargs):
        raise AssertionError("compiled")

    monkeypatch.setattr(plans.BlockPlan, "compile", compiles)
    options = checked_options(None, TTest(0.05), proposal=Laplace(), model=model)
    plan = plan_metropolis(options, model.initial_point())
    with pytest.raises(AssertionError, match="compiled"):
        plan.compile(model.initial_point())
    for record, field in (
        (plan, "recipe"),
        (plan.recipe, "rule"),
        (plan, "factorisation"),
        (options, "tune"),
    ):
        with pytest.raises(FrozenInstanceError):
            setattr(record, field, None)


def test_what_is_decided(model):
    asked = checked_options(
        None, TTest(0.05), default_batch=50, control_variate=Taylor(exact_rows=10), model=model
    )
    recipe = plan_metropolis(asked, model.initial_point()).recipe
    assert (recipe.n_local, recipe.n_dim, recipe.rule) == (N, 2, TTest(0.05, 50))
    assert len(recipe.exact_rows) == 10
    assert isinstance(recipe.proposal, Laplace)
    # Of independent draws and a walk, and with Barker's rule half of the former.
    assert recipe.independent_moves == 1.0 - Laplace().mix


def test_a_recipe_does_not_grow_with_the_data():
    sizes = []
    for n in (N, 10 * N):
        asked, point = tuna_of(logistic(n))
        sizes.append(len(cloudpickle.dumps(plan_tuna(asked, point).recipe)))
    assert max(sizes) < 10_000
    assert abs(sizes[1] - sizes[0]) < 100


def test_the_same_plan_is_made_of_a_recipe(model):
    asked, point = tuna_of(model)
    plan = plan_tuna(asked, point)
    again = plan_tuna(asked, point, plan.recipe)
    assert again.recipe is plan.recipe
    with interpreted():
        engines = [each.compile(point) for each in (again, plan)]
    for ours, theirs in zip(*(each.rows.state for each in engines), strict=True):
        np.testing.assert_equal(ours, theirs)


def test_a_recipe_is_not_used_for_other_data(model):
    options = checked_options(None, Exact(), proposal=Laplace(), model=model)
    plan = plan_metropolis(options, model.initial_point())
    other = logistic()
    with other:
        pm.set_data({"y_data": 1 - other["y_data"].get_value()})
    asked = replace(options, model=other, vars=tuple(other.value_vars))
    with pytest.raises(OtherDataError):
        plan_metropolis(asked, other.initial_point(), plan.recipe)


# What `recommend` compares -------------------------------------------------------------------------


def test_evidence_for_few_rows(model):
    evidence = gather(options_of(model, list(model.value_vars)), model.initial_point())
    assert why_not_normal(evidence) is None
    assert why_costly(evidence) is None
    assert "'y', a function of 1 predictor of each row, by interval arithmetic" in evidence.certificate


def test_reasons_against(model):
    asked, point = tuna_of(model, switch_above=1e-9)
    known = Evidence(asked, point)
    unsuitable = replace(known, unsuitable=UnsuitableError("No term is long."))
    assert why_not_normal(unsuitable) == "No term is long."
    surveyed = survey(asked, point, certify=False)
    known = replace(known, factorisation=surveyed.factorisation, survey=surveyed)
    why, _ = why_costly(replace(known, plan=plan_tuna(asked, point, surveyed=surveyed)))
    assert "rows for a transition" in why
    why, _ = why_costly(replace(known, no_bound=NoBoundError("'y' is computed by betainc", ["b"])))
    assert "no bound is known" in why


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_modes": 2}, "2 modes were found"),
        ({"acceptance": 0.1}, "rate of about 0.10"),
        ({"remainder_sd": 3.5}, "off by 3.5"),
        ({"remainder_sd": float("nan")}, "off by nan"),
    ],
)
def test_a_normal_distribution_that_does_not_fit(model, changes, said):
    asked, point = tuna_of(model)
    surveyed = survey(asked, point, certify=False)
    mode_fit = surveyed.found.mode_fit
    mode_fit = mode_fit._replace(report=mode_fit.report._replace(**changes))
    surveyed = replace(surveyed, found=surveyed.found._replace(mode_fit=mode_fit))
    assert said in why_not_normal(Evidence(asked, point, surveyed.factorisation, surveyed))
