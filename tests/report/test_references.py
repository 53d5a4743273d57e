"""Which step is the reference of `compare`, and what is told while it runs."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity.report import compare
from pymc_austerity.report.references import exact_step
from pymc_austerity.step_methods.metropolis.plate_plan import PlateRecipe
from tests.report.conftest import N


@pytest.mark.slow("compiles the reference of a hierarchy, twice")
@pytest.mark.parametrize("is_centered", [True, False])
def test_the_reference_of_a_plate_moves_its_effects(is_centered):
    """A proposal of the whole block stood still on 300 groups, 55 standard deviations beside the mean."""
    rng = np.random.default_rng(3)
    groups = rng.integers(0, 40, N)
    y = rng.poisson(np.exp(1.0 + 0.4 * rng.normal(size=40)[groups]))
    with pm.Model() as model:
        level, tau = pm.Normal("level"), pm.HalfNormal("tau")
        u = pm.Normal("u", 0, tau, shape=40) if is_centered else tau * pm.Normal("z", shape=40)
        pm.Poisson("y", pm.math.exp(level + u[groups]), observed=y)
    step, notes = exact_step(model)
    assert isinstance(step._recipe, PlateRecipe)
    assert step._recipe.reads_all
    assert notes == []


def test_what_runs_is_told(normal_model, steps, caplog):
    options = {"tune": 5, "chains": 1, "n_pairs": 0, "initvals": {"beta": np.zeros(2)}, "random_seed": 1}
    with caplog.at_level("INFO", logger="pymc.austerity"):
        compare(normal_model, {"hot": steps["hot"]}, budget={"draws": 5}, **options)
    told = [r.getMessage() for r in caplog.records if r.getMessage().startswith("compare")]
    assert told == ["compare: 1 of 2, the reference", "compare: 2 of 2, hot"]
