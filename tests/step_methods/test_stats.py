"""Sample statistics: names, types, ranges, and beside other steps."""

from copy import deepcopy

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from pymc_austerity import AusterityMH, MetropolisHastings, MinibatchBarker, RandomWalk
from pymc_austerity.acceptance import Barker
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.testing.steps import move

from .conftest import MODE, N, line_data, near_mode

pytestmark = pytest.mark.usefixtures("interpreted")
X, Y = line_data(N)
NAMES = {
    "accepted",
    "n_used",
    "fraction_used",
    "n_stages",
    "exhausted",
    "log_ratio_mean",
    "log_ratio_se",
    "psi",
    "scale",
}
# PyMC renames these statistics of NUTS when it makes an InferenceData; one that has such a name
# already would overwrite them, or be overwritten, as the hash of strings decides.
RENAMED_BY_PYMC = {"lp", "acceptance_rate", "tree_depth", "n_steps"}


def run(step, point, n, seed=4, tune=0):
    step.setup_chain(np.random.default_rng(seed), tune, n)
    _, stats = move(step, point, n)
    return {name: np.array([s[name] for s in stats]) for name in stats[0]}


def acceptance(stats):
    """Name of the mean acceptance over the transitions of a draw."""
    (name,) = set(stats) - NAMES
    return name


def shown(name):
    """What PyMC calls a statistic in `sample_stats`."""
    return "acceptance_rate" if name == "mean_tree_accept" else name


class TestNames:
    def test_declared(self):
        declared = AusterityMH.stats_dtypes_shapes
        assert set(declared) > NAMES
        assert acceptance(declared) == "mean_tree_accept"
        for name, (dtype, shape) in declared.items():
            assert shape == []
            if name != "accepted":
                assert dtype is np.float64

    def test_no_name_that_pymc_gives_to_statistics_of_nuts(self):
        assert not RENAMED_BY_PYMC & set(AusterityMH.stats_dtypes_shapes)

    @pytest.mark.parametrize("other", [pm.NUTS, pm.Metropolis, pm.Slice, pm.BinaryMetropolis])
    def test_equal_names_have_equal_types(self, other):
        """PyMC refuses to sample otherwise."""
        ours, theirs = AusterityMH.stats_dtypes_shapes, other.stats_dtypes_shapes
        for name in set(ours) & set(theirs):
            assert np.dtype(ours[name][0]) == np.dtype(theirs[name][0]), name

    def test_types_do_not_depend_on_the_outcome(self):
        """Also when a proposal is rejected without a look at the data."""
        with pm.Model() as model:
            mu = pm.Uniform("mu", 0.0, 1.0, default_transform=None)
            pm.Normal("y", mu, 1.0, observed=Y)
        step = AusterityMH(model=model, proposal=RandomWalk(scale=1.0), rng=1)
        stats = run(step, {"mu": np.array(0.5)}, 50)
        unread = stats["n_used"] == 0
        assert 0 < unread.sum() < 50
        for name, (dtype, _) in AusterityMH.stats_dtypes_shapes.items():
            assert stats[name].dtype == np.dtype(dtype), name
        assert np.isnan(stats["log_ratio_mean"][unread]).all()
        assert np.isnan(stats["log_ratio_se"][unread]).all()
        assert not stats["accepted"][unread].any()
        assert np.isfinite(stats["log_ratio_mean"][~unread]).all()


class TestRanges:
    @pytest.fixture(scope="class")
    @staticmethod
    def stats(line):
        with interpreted():
            step = AusterityMH([line["b"]], model=line, proposal=RandomWalk(scale=0.02))
        return run(step, near_mode(line), 300)

    def test_share_of_the_data_and_stages(self, stats):
        np.testing.assert_allclose(stats["fraction_used"], stats["n_used"] / N, rtol=1e-14)
        assert stats["fraction_used"].min() >= 500 / N
        assert stats["fraction_used"].max() <= 1.0
        assert set(stats["n_used"]) == {500.0, 1000.0, 1500.0, 2000.0}
        np.testing.assert_array_equal(stats["n_stages"], stats["n_used"] / 500)
        np.testing.assert_array_equal(stats["exhausted"], stats["n_used"] == N)
        np.testing.assert_allclose(stats["log_ratio_se"][stats["n_used"] == N], 0.0, atol=1e-12)
        assert (stats["log_ratio_se"][stats["n_used"] < N] > 0).all()

    def test_a_move_is_accepted_if_its_mean_is_above_psi(self, stats):
        np.testing.assert_array_equal(stats[acceptance(stats)], stats["accepted"])
        assert 0.1 < stats["accepted"].mean() < 0.9
        above = stats["log_ratio_mean"] > stats["psi"]
        np.testing.assert_array_equal(above, stats["accepted"].astype(bool))

    def test_psi_without_a_prior_is_a_log_uniform_number(self, stats):
        """The prior of b is so wide that it hardly moves psi."""
        uniform = np.exp(N * stats["psi"])
        assert uniform.max() < 1.01
        assert 0.45 < uniform.mean() < 0.55

    def test_a_proposal_without_a_single_scale(self, line, near):
        step = AusterityMH(model=line, proposal=RandomWalk(scale=[0.1, 0.2, 0.3]))
        (scale,) = run(step, near, 1)["scale"]
        assert np.isnan(scale) or scale == 0.1

    @pytest.mark.slow("builds and compiles several steps")
    def test_scale_follows_adaptation(self, step, near):
        scale = run(step, near, 400, tune=400)["scale"]
        # Every transition changes it; each of the six windows begins at the same value.
        assert len(set(scale)) > 390
        assert np.all(np.diff(scale) != 0)


@pytest.mark.slow("builds and compiles several steps")
def test_adaptation_counts_transitions(line, near):
    """The same transitions teach the same, however they are grouped into draws; see test_contract.py, too."""
    ends = []
    for k in (1, 5):
        step = AusterityMH([line["b"]], model=line, steps_per_draw=k)
        stats = run(step, near, 200 // k, tune=1000)
        ends.append((stats["log_ratio_mean"][-1], step.sampling_state.proposal_state))
    assert ends[0][0] == ends[1][0]
    for left, right in zip(ends[0][1], ends[1][1], strict=True):
        np.testing.assert_array_equal(left, right)


# pm.Metropolis exponentiates log ratios of any size.
METROPOLIS = pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")


class Recorder:
    """A callback for `pm.sample` that keeps the statistics of every step."""

    def __init__(self):
        self.kept = {}

    def __call__(self, trace, draw):
        if not draw.tuning:
            self.kept.setdefault(draw.chain, []).append(draw.stats)

    def of(self, k, name):
        return np.array([[stats[k][name] for stats in chain] for chain in self.kept.values()])


class TestCompound:
    def test_two_steps_stack(self, line, draw):
        walk = RandomWalk(scale=0.02)
        steps = [AusterityMH([line[n]], model=line, proposal=walk) for n in ("a", "b")]
        recorder = Recorder()
        idata = draw(line, [*steps, pm.Slice([line["sigma"]], model=line)], callback=recorder)
        for name in AusterityMH.stats_dtypes_shapes:
            found = idata.sample_stats[shown(name)]
            assert found.shape == (2, 20, 2)
            assert found.dims[:2] == ("chain", "draw")
            for k in range(2):
                np.testing.assert_array_equal(found[..., k], recorder.of(k, name), err_msg=name)

    def test_a_single_step_has_no_axis_of_samplers(self, line, built, draw):
        idata = draw(line, built)
        for name in AusterityMH.stats_dtypes_shapes:
            assert idata.sample_stats[shown(name)].dims == ("chain", "draw")
        assert "tune" not in idata.sample_stats

    @pytest.mark.parametrize("first", [True, False])
    @pytest.mark.covering(1)
    def test_beside_nuts_nothing_is_lost(self, line, draw, first):
        step = AusterityMH([line["b"]], model=line)
        nuts = pm.NUTS([line["a"], line["sigma"]], model=line)
        recorder = Recorder()
        steps = [step, nuts] if first else [nuts, step]
        idata = draw(line, steps, callback=recorder, initvals=MODE)
        k = steps.index(step)
        for name in AusterityMH.stats_dtypes_shapes:
            found = idata.sample_stats[shown(name)]
            found = found if found.ndim == 2 else found[..., k]
            np.testing.assert_array_equal(found, recorder.of(k, name), err_msg=name)
        theirs = recorder.of(1 - k, "mean_tree_accept")
        found = idata.sample_stats["acceptance_rate"]
        found = found if found.ndim == 2 else found[..., 1 - k]
        np.testing.assert_array_equal(found, theirs)

    def test_the_rest_is_given_to_nuts(self, line, draw):
        idata = draw(line, AusterityMH([line["b"]], model=line), initvals=MODE)
        assert "step_size" in idata.sample_stats
        assert "n_used" in idata.sample_stats
        assert set(idata.posterior.data_vars) == {"a", "b", "sigma"}
        for name in ("a", "b", "sigma"):
            assert len(np.unique(idata.posterior[name])) > 10

    @METROPOLIS
    def test_discrete_variables_are_given_to_metropolis(self, draw):
        """Which the step itself recommends for them."""
        with pm.Model() as model:
            a = pm.Normal("a")
            pm.Normal("y", a + pm.Poisson("k", 3.0) + pm.Bernoulli("c", 0.5), 1.0, observed=Y)
            step = AusterityMH([a])
        idata = draw(model, step)
        assert idata.posterior["k"].shape == idata.sample_stats["n_used"].shape == (2, 20)
        assert idata.sample_stats["accepted"].shape[:2] == (2, 20)

    def test_unblocked(self, line, draw):
        step = AusterityMH(model=line, blocked=False)
        idata = draw(line, step)
        assert idata.sample_stats["n_used"].shape == (2, 20, 3)


# Barker's test after a pilot ----------------------------------------------------------------------

WALK = RandomWalk(0.02)


@pytest.fixture(scope="module")
def pilot(line):
    with interpreted():
        return MinibatchBarker(
            model=line, proposal=WALK, temperature=20.0, pilot=True, steps_per_draw=40, rng=1
        )


def of_a_draw(step, line):
    step = deepcopy(step)
    step.setup_chain(np.random.default_rng(2), 0, 1)
    return step.step(near_mode(line))[1][0]


@pytest.mark.slow("builds and compiles several steps")
def test_only_steps_with_a_pilot_have_clipped(pilot, line):
    assert "clipped" not in MinibatchBarker.stats_dtypes_shapes
    for step in (
        MinibatchBarker(model=line, proposal=WALK, rng=1),
        MetropolisHastings(model=line, proposal=WALK, rng=1),
    ):
        assert "clipped" not in step.stats_dtypes_shapes
        assert "clipped" not in of_a_draw(step, line)
    by_rule = MetropolisHastings(model=line, proposal=WALK, acceptance=Barker(pilot=True), rng=1)
    for step in (pilot, by_rule, deepcopy(pilot), cloudpickle.loads(cloudpickle.dumps(pilot))):
        assert step.stats_dtypes_shapes["clipped"] == (np.float64, [])
        assert step.stats_dtypes[0]["clipped"] is np.float64


def test_what_clipped_counts(pilot, line):
    stats = of_a_draw(pilot, line)
    assert stats.keys() == pilot.stats_dtypes_shapes.keys()
    assert 0.0 <= stats["clipped"] < 0.5
    assert stats["clipped"] * 40 == np.round(stats["clipped"] * 40)
    # Pilots of 100 rows, and at least as many others; or all of 2000.
    assert 200 <= stats["n_used"] < 2000
    assert stats["n_stages"] == 2.0


def test_the_configuration_names_the_options_of_a_pilot(pilot):
    rule = pilot.configuration["rule"]
    assert (rule["pilot"], rule["skew_correction"]) == (True, False)
