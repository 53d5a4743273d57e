"""Which step suits a plate: sweeps that draw rows, sweeps that read all of them, or `pm.NUTS`."""

from __future__ import annotations

from dataclasses import replace

from pymc.initial_point import PointType

from pymc_austerity.model.plates.crossed import Plates
from pymc_austerity.recommendation.candidate import EXACT_GUARANTEE, Choice
from pymc_austerity.step_methods.messages import few_digits
from pymc_austerity.step_methods.metropolis.crossed_plan import CrossedPlan, with_all_rows_of_groups
from pymc_austerity.step_methods.metropolis.metropolis_hastings import MetropolisHastings
from pymc_austerity.step_methods.metropolis.plate_plan import (
    MOST_BOUNDED,
    PlatePlan,
    PlateRecipe,
)
from pymc_austerity.step_methods.metropolis.tuna import TunaMH
from pymc_austerity.step_methods.recommendation import Recommendation

# Nanoseconds of NUTS for a row and an effective draw: some 15 leapfrog steps a draw, half of it effective.
_OF_NUTS = 2000.0
# Sweeps that read few rows and move well need no comparison.
_FEW, _WELL = 0.03, 0.3


def of_plate(plan: PlatePlan | CrossedPlan, blank: Recommendation, point: PointType) -> Choice | None:
    """Sweeps over a plate; None where `pm.NUTS` promises more effective draws a second."""
    recipe = plan.recipe
    found = recipe.prediction
    if found.terms <= _FEW * recipe.n_local and found.shared_acceptance >= _WELL and not recipe.reads_all:
        return _of_drawn_rows(plan, blank, point)
    whole = plan if recipe.reads_all else with_all_rows_of_groups(plan, point)
    best = max(plan, whole, key=lambda one: one.recipe.rate)
    if best.recipe.rate < 1e9 / (_OF_NUTS * recipe.n_local):
        return None
    return _of_all_rows(whole, blank, point) if best.recipe.reads_all else _of_drawn_rows(plan, blank, point)


def why_no_sweeps(recipe: PlateRecipe) -> str:
    """Why a plate is not worth it."""
    found = recipe.prediction
    if found.shared_acceptance >= _WELL:
        return (
            f"sweeps over the {found.n_groups:,} groups would read {few_digits(found.terms)} rows, so that a "
            "draw of pm.NUTS costs less, roughly"
        )
    return (
        f"moves of what the {found.n_groups:,} groups share would be accepted at a rate of about "
        f"{found.shared_acceptance:.2f}: {found.why_few(recipe.n_local)}"
    )


def _plates(plan: PlatePlan | CrossedPlan) -> Plates:
    return plan.rows.crossed if isinstance(plan, CrossedPlan) else plan.rows.plate


def _effects(plan: PlatePlan | CrossedPlan) -> str:
    # Columns of a matrix are effects of one name.
    variables = dict.fromkeys(name.partition("[")[0] for name in _plates(plan).effects)
    names = " and ".join(map(repr, variables))
    return f"{names} are effects of {plan.recipe.prediction.n_groups:,} groups"


def _why_all_rows(plan: PlatePlan | CrossedPlan) -> str:
    n = 1 if isinstance(plan, CrossedPlan) else plan.rows.plate.n_predictors
    if n > MOST_BOUNDED:
        return (
            f"rows are drawn where each is a function of its predictor and {MOST_BOUNDED - 1} number more "
            f"that rows share, as a dispersion, and here there are {n - 1} more"
        )
    return "with so few rows a group that is cheaper"


def _of_drawn_rows(plan: PlatePlan | CrossedPlan, blank: Recommendation, point: PointType) -> Choice:
    why = blank._replace(
        step="TunaMH()",
        reason=f"{_effects(plan)}: all are moved at once, each decided by few of its rows",
        rows=plan.recipe.prediction.terms,
        guarantee=f"{EXACT_GUARANTEE}; every row that is drawn is compared with its bound",
        otherwise="Where groups have very few rows, the exact test on all rows, or pm.NUTS.",
        plate=plan.recipe.prediction,
    )
    if _plates(plan).is_normal:
        why = why._replace(
            reason=f"{_effects(plan)}: all are moved at once, decided by sums over their rows, which tell "
            "all of a normal likelihood",
            guarantee=EXACT_GUARANTEE,
            otherwise="With another likelihood, a few rows of each group.",
        )
    return Choice(why, lambda: TunaMH.from_plan(plan, point), is_of_search=True)


def _of_all_rows(plan: PlatePlan | CrossedPlan, blank: Recommendation, point: PointType) -> Choice:
    why = blank._replace(
        step="MetropolisHastings(control_variate=Taylor())",
        reason=f"{_effects(plan)}: all are moved at once, decided on all rows in either of two moves, as "
        f"{_why_all_rows(plan)}",
        rows=float(blank.n_local or 0),
        otherwise="TunaMH(), where there are more rows for each group, and rows share one number at most.",
        plate=plan.recipe.prediction,
    )
    whole = replace(plan, options=replace(plan.options, switch_above=0.0))
    return Choice(why, lambda: MetropolisHastings.from_plan(whole, point), is_of_search=True)
