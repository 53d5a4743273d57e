"""Steps that move one element at a time: their cost, their options, other data."""

import numpy as np
import pymc as pm
import pytest

import pymc_austerity as pma
from pymc_austerity.diagnostics import data_usage_summary, effective_cost, stamp
from pymc_austerity.report import probe
from pymc_austerity.testing.models import Solved
from pymc_austerity.testing.steps import move
from tests.models import as_model
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("interpreted")
SIZES = np.array([1, 3, 8, 20, 60, 250, 900])
GROUP = np.repeat(np.arange(len(SIZES)), SIZES)
N, G = len(GROUP), len(SIZES)
SCORE = np.random.default_rng(4).normal(0.5 * np.sin(GROUP), 1.0)


def groups():
    """Rows y ~ N(v[group], 1), v ~ N(0, 2^2): the v are independent and normal."""
    with pm.Model() as model:
        v = pm.Normal("v", 0.0, 2.0, shape=G)
        pm.Normal("y", v[GROUP], 1.0, observed=SCORE)
    precision = 0.25 + SIZES
    mean = np.bincount(GROUP, SCORE) / precision
    return Solved(model, {"v": mean}, {"v": precision**-0.5})


def steps_of(model, n=5, **options):
    with model:
        step = pma.MetropolisHastings(elementwise=True, rng=1, **options)
    points, stats = move(step, model.initial_point(), n)
    return step, points[-1], stats


@pytest.mark.slow("builds and compiles several steps")
def test_a_sweep_reads_each_row_once():
    step, _, stats = steps_of(groups().model)
    assert step.steps_per_draw == G
    for found in stats:
        assert found["n_used"] * G == N
        assert found["fraction_used"] == 1.0
        assert found["exhausted"] == 1.0


@pytest.mark.slow("builds and compiles several steps")
def test_part_of_a_sweep():
    step, point, stats = steps_of(groups().model, n=1, steps_per_draw=3)
    assert step.steps_per_draw == 3
    assert np.count_nonzero(point["v"]) <= 3
    assert 0.0 < stats[0]["n_used"] < N


def test_small_groups_read_all_and_large_ones_do_not():
    model = groups().model
    with model:
        step = pma.AusterityMH(epsilon=0.4, batch_size=50, elementwise=True, rng=1, subsample="gather")
    *_, stats = move(step, model.initial_point(), 20)[1]
    assert step.engine.n_tested == 2  # of 250 and 900 rows; 60 are fewer than two batches
    least = (SIZES[:5].sum() + 2 * 50) / N
    assert least <= stats["fraction_used"] < 1.0


def test_every_element_has_a_scale_of_its_own():
    solved = groups()
    step = pma.MetropolisHastings(elementwise=True, model=solved.model)
    idata = sampled(10, step, tune=800, chains=1, random_seed=3, model=solved.model)
    assert idata.sample_stats.sizes["draw"] == 10
    ratio = step.proposal_state.scale / solved.sd["v"]
    assert np.all((ratio > 1.2) & (ratio < 5.0))  # 2.4 sds are best


def test_a_given_scale():
    step, _, _ = steps_of(groups().model, proposal=pma.RandomWalk(np.linspace(0.1, 0.7, G)))
    np.testing.assert_array_equal(step.proposal_state.scale, np.linspace(0.1, 0.7, G))
    step, _, _ = steps_of(groups().model, proposal=pma.proposals.AdaptiveRandomWalk(target_accept=0.3))
    assert step.proposal_state.target_accept[0] == 0.3


# Bad input ---------------------------------------------------------------------------------------------


@as_model
def with_a_number():
    mu = pm.Normal("mu")
    v = pm.Normal("v", mu, 1.0, shape=G)
    pm.Normal("y", v[GROUP], 1.0, observed=SCORE)


def test_elements_that_are_too_small_for_a_test():
    with pytest.warns(
        pma.SubsamplingWarning, match="No element of v has more than 900 rows.* begins at 1,000"
    ):
        pma.AusterityMH(elementwise=True, model=groups().model)


def test_blocks_are_for_many_rows():
    """One order of few rows would be the same error at each decision."""
    for subsample, block in ((None, 1), ("gather", 1), ("block", 25)):
        with groups().model as model:
            step = pma.AusterityMH(elementwise=True, batch_size=50, subsample=subsample, rng=1)
        step.step(model.initial_point())
        assert step.engine._made[2].block == block


def test_a_number_has_no_elements():
    with pytest.raises(ValueError, match="'mu' is one number and has no elements"):
        pma.MetropolisHastings(elementwise=True, model=with_a_number())


def test_a_dense_variable():
    with pm.Model() as model:
        b = pm.Normal("b", shape=3)
        pm.Normal("y", np.ones((N, 3)) @ b, 1.0, observed=SCORE)
    with pytest.raises(pma.FactorisationError, match="'b' cannot be moved element by element.*'y'"):
        pma.AusterityMH(elementwise=True, model=model)


def test_all_rows_for_a_range():
    with pytest.warns(pma.SubsamplingWarning, match="range_bound="):
        step = pma.MHSubLhd(["v"], elementwise=True, range_bound="exact", model=groups().model, rng=1)
    _, (stats,) = step.step(groups().model.initial_point())
    assert stats["n_used"] > 0


# Other processes, other data, other steps ------------------------------------------------------------------


def test_rows_of_an_element_follow_what_another_step_moves():
    with pm.Model() as model:
        z = pm.Categorical("z", [0.5, 0.5], shape=300)
        pm.Normal("x", pm.Normal("level", shape=2)[z], 1.0, observed=np.zeros(300))
    step = pma.MetropolisHastings(["level"], elementwise=True, steps_per_draw=1, model=model, rng=1)
    for n in (150, 100):
        _, (stats,) = step.step({**model.initial_point(), "z": np.repeat([0, 1], [n, 300 - n])})
        assert stats["n_used"] in (n, 300 - n)


# What is told of a run -------------------------------------------------------------------------------------


def test_cost_of_a_run():
    solved = groups()
    step = pma.MetropolisHastings(elementwise=True, model=solved.model)
    idata = sampled(20, step, tune=5, chains=1, model=solved.model, random_seed=1)
    stamp(idata, step)
    cost = effective_cost(idata)
    sweeps = cost["passes_per_effective_draw"] * cost["ess"]
    np.testing.assert_allclose(sweeps, 20)
    assert data_usage_summary(idata)["n_local"].tolist() == [N]


def test_probe_refuses_single_elements():
    solved = groups()
    step = pma.AusterityMH(elementwise=True, batch_size=50, model=solved.model)
    with pytest.raises(TypeError, match="moves one element at a time"):
        probe(solved.model, step)
