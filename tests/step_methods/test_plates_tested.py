"""Steps that decide the moves of a plate by a test: what they read, other data, other processes."""

import pymc as pm
import pytest

from pymc_austerity import AusterityMH, MetropolisHastings, MHSubLhd, MinibatchBarker, Taylor
from pymc_austerity.acceptance import TTest
from pymc_austerity.model.compile.backend import interpreted as without_compilation
from pymc_austerity.report import probe
from pymc_austerity.step_methods.metropolis import plate_pilot
from pymc_austerity.step_methods.metropolis.plate_plan import PlateRecipe
from pymc_austerity.testing.steps import require_same_path

from .test_plates import INTERPRETED, N, drawn, mean, model_of
from .test_plates_rebuilt import OTHER

OPTIONS = {"control_variate": Taylor(), "rng": 1}


@pytest.fixture(autouse=True)
def short_pilots(monkeypatch):
    """Few sweeps of a pilot: interpreted ones that read all rows take long."""
    monkeypatch.setattr(plate_pilot, "_SETTLE", 3)
    monkeypatch.setattr(plate_pilot, "_COUNTED", 6)


@INTERPRETED
@pytest.mark.parametrize("step", [AusterityMH, MinibatchBarker])
@pytest.mark.covering(1)
def test_theta_is_tested_and_small_groups_are_read(step):
    """Groups of some 50 rows are too small for batches of 50; all rows of theta's moves are not."""
    model = model_of()
    step = step(model=model, **OPTIONS)
    assert isinstance(step.recipe, PlateRecipe)
    assert step.recipe.rule.batch_size == 50
    assert not step.engine.reads_all
    _, found = drawn(step, model)
    assert mean(found, "plate_n_used") == N
    assert 0 < mean(found, "shared_n_used") < N
    assert type(step.recipe.rule).__name__ in str(step.configuration["rule"])


@INTERPRETED
@pytest.mark.slow("builds and compiles several steps")
def test_a_rule_of_another_step_is_the_same_chain():
    model = model_of()
    found = []
    for step in (AusterityMH, MetropolisHastings):
        rule = {"epsilon": 0.05} if step is AusterityMH else {"acceptance": TTest(0.05, 50)}
        found.append(drawn(step(model=model, **rule, **OPTIONS), model))
    require_same_path("Of MetropolisHastings", found[1], found[0], "The rule is the same.")


@INTERPRETED
def test_decisions_after_a_pilot():
    """Rows of the pilot are counted, and decisions whose variance was cut."""
    model = model_of()
    step = MinibatchBarker(pilot=True, batch_size=10, model=model, **OPTIONS)
    _, found = drawn(step, model)
    assert 2 * 10 <= mean(found, "shared_n_used") < N
    assert 32 * 2 * 10 <= mean(found, "plate_n_used") < N
    assert 0.0 <= mean(found, "clipped") < 0.5


@INTERPRETED
def test_without_a_tolerance_all_rows_are_read():
    model = model_of()
    step = AusterityMH(epsilon=0, model=model, **OPTIONS)
    assert step.engine.reads_all
    _, found = drawn(step, model, n=3)
    assert mean(found, "n_used") == 2 * N


@INTERPRETED
@pytest.mark.slow("builds a step several times")
def test_other_data():
    model = model_of()
    step = AusterityMH(model=model, **OPTIONS)
    before = drawn(step, model)
    with model:
        pm.set_data(OTHER)
    after, fresh = drawn(step, model), drawn(AusterityMH(model=model, **OPTIONS), model)
    require_same_path("A rebuilt step", after, fresh, "It has kept something of the old data.")
    assert any((a["u"] != b["u"]).any() for a, b in zip(before[0], after[0], strict=True))


@INTERPRETED
def test_moves_of_groups_are_not_probed():
    model = model_of()
    with pytest.raises(TypeError, match="sweeps over 32 groups.*compare"):
        probe(model, AusterityMH(model=model, **OPTIONS))


@pytest.mark.slow("samples in processes, which build the step again")
def test_draws_are_equal_in_other_processes(draw, same):
    model = model_of()
    step = AusterityMH(model=model, batch_size=10, **OPTIONS)
    one = draw(model, step, chains=2, cores=1)
    assert same(draw(model, step, chains=2, cores=2, mp_ctx="forkserver"), one)
    assert one.sample_stats["plate_n_used"].mean() < N


def test_a_rule_that_needs_the_range_moves_the_block():
    """Bounds on the range of remainders are those of the block."""
    with without_compilation():
        step = MHSubLhd(model=model_of(), **OPTIONS)
    assert not isinstance(step.recipe, PlateRecipe)
    assert step.recipe.mode_fit is not None
