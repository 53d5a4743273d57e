"""Whether a step mixes, as a pilot run finds out before the step is used."""

import warnings
from functools import cache
from importlib import import_module

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from pymc_austerity import SubsamplingWarning, TunaMH, recommend
from pymc_austerity.step_methods.metropolis.mixing_pilot import Mixing, draws_of_pilot, mixing_of
from tests.models import as_model
from tests.sampling import sampled
from tests.step_methods.chains import autoregression


@cache
@as_model
def nine_groups(spread):
    """Counts of nine groups, which do not differ if `spread` is 0; written centred."""
    rng = np.random.default_rng(1)
    group, effects = rng.integers(9, size=5000), spread * rng.normal(size=9)
    a, tau = pm.Normal("a", 0, 2), pm.HalfNormal("tau", 1)
    u = pm.Normal("u", 0, tau, shape=9)
    pm.Poisson("y", pm.math.exp(a + u[group]), observed=rng.poisson(np.exp(0.5 + effects[group])))


class TestPilot:
    def test_the_worst_coordinate(self):
        rng = np.random.default_rng(6)
        found = mixing_of(np.array([autoregression(0.95, 1000, 3, rng) for _ in range(4)]))
        assert found.dimension == 0
        assert found.efficiency == pytest.approx(0.05 / 1.95, rel=0.4)
        assert found.is_poor

    def test_chains_that_stand_still(self):
        draws = np.random.default_rng(7).normal(size=(4, 100, 2))
        draws[:, :, 1] = np.arange(4.0)[:, None]
        assert mixing_of(draws) == Mixing(0.01, 1, 400)

    def test_none_where_it_takes_long(self):
        assert draws_of_pilot(10.0, 10, 1, is_surrogate=True) == 1000
        assert 100 <= draws_of_pilot(10_000.0, 10, 1, is_surrogate=False) < 1000
        assert draws_of_pilot(1e6, 10, 1, is_surrogate=False) == 0
        assert draws_of_pilot(10.0, 1000, 1, is_surrogate=True) == 0


@pytest.mark.parametrize("efficiency", [0.5, 0.03])
def test_a_block_that_mixes_badly_is_left_to_nuts(efficiency, monkeypatch, interpreted):
    """Nothing is compiled here, so the figures of the pilot are given."""
    monkeypatch.setattr(TunaMH, "try_out", lambda step, point: Mixing(efficiency, 1, 4000))
    rng = np.random.default_rng(8)
    x = rng.normal(size=2000)
    with pm.Model():
        level, slope = pm.Normal("level"), pm.Normal("slope")
        pm.Poisson("y", pm.math.exp(1.0 + level + slope * x), observed=rng.poisson(np.exp(1.0 + 0.3 * x)))
        step = recommend()
    if efficiency == 0.5:
        assert isinstance(step, TunaMH)
        assert step.recommendation.mixing == Mixing(0.5, 1, 4000)
        assert "one effective draw in 2, by a pilot run of 4,000" in str(step.recommendation)
    else:
        assert isinstance(step, pm.NUTS)
        assert "4,000 draws of a pilot run were worth about 120 independent ones of slope" in (
            step.recommendation.reason
        )


def test_a_block_that_mixes_badly_is_kept_where_nuts_has_no_gradient(monkeypatch, interpreted):
    """One function says whether there is a gradient, of a choice and of what takes its place."""
    monkeypatch.setattr(TunaMH, "try_out", lambda step, point: Mixing(0.03, 0, 4000))
    module = import_module("pymc_austerity.recommendation.recommend")
    monkeypatch.setattr(module, "why_no_gradient", lambda *_: ValueError("planted"))
    rng = np.random.default_rng(8)
    with pm.Model():
        level = pm.Normal("level")
        pm.Poisson("y", pm.math.exp(level) * np.ones(2000), observed=rng.poisson(3.0, 2000))
        with pytest.warns(SubsamplingWarning, match="mixes badly: 4,000 draws .* of level"):
            step = recommend()
    assert isinstance(step, TunaMH)


@pytest.mark.slow("steps are compiled: for moves of the block, and for sweeps over a field")
class TestGroups:
    @pytest.fixture(scope="class")
    @staticmethod
    def poor():
        with nine_groups(0.0), pytest.warns(SubsamplingWarning, match="mixes badly: 4,000 draws"):
            return TunaMH()

    def test_groups_that_do_not_differ(self, poor):
        """Nearly all moves are accepted, and the scale hardly moves."""
        assert poor.mode_fit.acceptance > 0.9
        assert poor.mixing.is_poor

    def test_recommend_chooses_what_mixes(self):
        with nine_groups(0.0):
            step = recommend()
        assert step.field is not None
        assert "independent ones of tau" in step.recommendation.reason
        assert "mixing" in str(step.recommendation)
        idata = sampled(2000, step, tune=100, chains=4, model=nine_groups(0.0), random_seed=1)
        again = cloudpickle.loads(cloudpickle.dumps(step))  # as in a worker process
        assert not again.is_built
        point, _ = again.step(nine_groups(0.0).initial_point())
        assert again.field.prediction.n_effects == 10
        assert np.all(np.isfinite(point["u"]))
        tau = idata.posterior["tau"].values
        found = mixing_of(np.log(tau)[:, :, None])
        assert found.effective > 100  # 4 x 4,000 draws of the block had 17 to 60
        assert found.efficiency > 0.25 * step.mixing.efficiency

    def test_groups_that_differ(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with nine_groups(0.3):
                step = recommend()
        assert step.recommendation.step == "TunaMH()"
        assert step.field is None
        assert step.mixing.efficiency > 0.5

    def test_a_wrong_announcement_is_noticed(self, poor, monkeypatch):
        """The planted fault: an announcement that is made without a look at the chain."""
        monkeypatch.setattr(poor, "mixing", Mixing(0.9, 0, 4000))
        with pytest.warns(SubsamplingWarning, match="far worse than was announced.* ones of tau"):
            sampled(4000, poor, tune=1000, chains=2, model=nine_groups(0.0), random_seed=1)
