"""Steps that move one element at a time: their cost, their options, other data."""

import numpy as np
import pymc as pm
import pytest

import pymc_austerity as pma
from pymc_austerity.diagnostics import data_usage_summary, effective_cost, stamp
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.testing.models import Solved

pytestmark = pytest.mark.usefixtures("interpreted")
SIZES = np.array([1, 3, 8, 20, 60, 250, 900])
GROUP = np.repeat(np.arange(len(SIZES)), SIZES)
N, G = len(GROUP), len(SIZES)
SCORE = np.random.default_rng(4).normal(0.5 * np.sin(GROUP), 1.0)
QUIET = {"progressbar": False, "compute_convergence_checks": False, "quiet": True}


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
    point, stats = model.initial_point(), []
    for _ in range(n):
        point, (found,) = step.step(point)
        stats.append(found)
    return step, point, stats


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
    point = model.initial_point()
    for _ in range(20):
        point, (stats,) = step.step(point)
    assert step.engine.n_tested == 2  # of 250 and 900 rows; 60 are fewer than two batches
    least = (SIZES[:5].sum() + 2 * 50) / N
    assert least <= stats["fraction_used"] < 1.0


def test_every_element_has_a_scale_of_its_own():
    solved = groups()
    idata = pm.sample(
        10, tune=800, chains=1, cores=1, random_seed=3, model=solved.model, **QUIET,
        step=(step := pma.MetropolisHastings(elementwise=True, model=solved.model)),
    )  # fmt: skip
    assert idata.sample_stats.sizes["draw"] == 10
    ratio = step.proposal_state.scale / solved.sd["v"]
    assert np.all((ratio > 1.2) & (ratio < 5.0))  # 2.4 sds are best


def test_a_given_scale():
    step, _, _ = steps_of(groups().model, proposal=pma.RandomWalk(np.linspace(0.1, 0.7, G)))
    np.testing.assert_array_equal(step.proposal_state.scale, np.linspace(0.1, 0.7, G))
    step, _, _ = steps_of(groups().model, proposal=pma.AdaptiveRandomWalk(target_accept=0.3))
    assert step.proposal_state.target_accept[0] == 0.3


# Bad input ---------------------------------------------------------------------------------------------


def with_a_number():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        v = pm.Normal("v", mu, 1.0, shape=G)
        pm.Normal("y", v[GROUP], 1.0, observed=SCORE)
    return model


REFUSED = [
    (
        pma.MetropolisHastings,
        {"control_variate": pma.Taylor()},
        ValueError,
        "moved faster by TunaMH, as a field",
    ),
    (
        pma.MetropolisHastings,
        {"proposal": pma.Laplace()},
        ValueError,
        r"AdaptiveRandomWalk\(\) or RandomWalk\(scale\)",
    ),
    (pma.MetropolisHastings, {"proposal": pma.RandomWalk([0.1, 0.2])}, ValueError, "each of the 7 elements"),
    (pma.MetropolisHastings, {"proposal": pma.RandomWalk(cov=np.eye(G))}, ValueError, r"RandomWalk\(scale\)"),
    (pma.MHSubLhd, {}, UnboundedError, 'range_bound="exact"'),
    (pma.MHSubLhd, {"range_bound": lambda q, q_new: 9.0, "subsample": "block"}, ValueError, "gather"),
    (pma.AusterityMH, {"threshold": 5}, ValueError, "threshold=5 has no meaning"),
    (pma.AusterityMH, {"elementwise": "yes"}, ValueError, "elementwise must be True or False, got 'yes'"),
    (pma.AusterityMH, {"steps_per_draw": 0}, ValueError, "steps_per_draw must be a positive integer, got 0"),
]


@pytest.mark.parametrize(("kind", "options", "error", "message"), REFUSED)
@pytest.mark.covering(5)
def test_options_without_a_meaning(kind, options, error, message):
    with pytest.raises(error, match=message):
        kind(["v"], model=groups().model, **{"elementwise": True, **options})


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


@pytest.mark.slow("builds a step several times")
def test_other_data_and_groups():
    with pm.Model():
        group, y = pm.Data("group", GROUP), pm.Data("score", SCORE)
        v = pm.Normal("v", 0.0, 2.0, shape=G)
        pm.Normal("y", v[group], 1.0, observed=y)
        step = pma.MetropolisHastings(elementwise=True)
        pm.sample(5, tune=5, chains=1, cores=1, step=step, **QUIET)
        half = np.arange(0, N, 2)
        pm.set_data({"group": GROUP[half], "score": SCORE[half]})
        idata = pm.sample(5, tune=5, chains=1, cores=1, step=step, **QUIET)
    np.testing.assert_allclose(idata.sample_stats["n_used"] * G, len(half))


# What is told of a run -------------------------------------------------------------------------------------


def test_cost_of_a_run():
    solved = groups()
    step = pma.MetropolisHastings(elementwise=True, model=solved.model)
    idata = pm.sample(20, tune=5, chains=1, cores=1, step=step, model=solved.model, random_seed=1, **QUIET)
    stamp(idata, step)
    cost = effective_cost(idata)
    sweeps = cost["passes_per_effective_draw"] * cost["ess"]
    np.testing.assert_allclose(sweeps, 20)
    assert data_usage_summary(idata)["n_local"].tolist() == [N]


def test_probe_refuses_single_elements():
    solved = groups()
    step = pma.AusterityMH(elementwise=True, batch_size=50, model=solved.model)
    with pytest.raises(TypeError, match="moves one element at a time"):
        pma.probe(solved.model, step)
