"""A stamp tells the diagnostics which steps made a result."""

import json

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc.step_methods import CompoundStep

from pymc_austerity import SCIR, AusterityMH, RandomWalk, __version__
from pymc_austerity.diagnostics import data_usage_summary, decision_summary, decisions, effective_cost, stamp
from pymc_austerity.model.compile.backend import interpreted
from tests.diagnostics.results import result, stamped

N = 2000


@pytest.fixture(scope="module")
def sampled():
    """NUTS, two subsampled steps and SCIR: (steps, idata), without a stamp."""
    rng = np.random.default_rng(1)
    with pm.Model() as model, interpreted():
        a = pm.Normal("a", 0, 10)
        b = pm.Normal("b", 0, 10)
        s = pm.HalfNormal("s", 5)
        w = pm.Dirichlet("w", np.ones(3))
        pm.Normal("y", a + b, s, observed=rng.normal(size=N))
        pm.Categorical("z", w, observed=rng.integers(0, 3, N))
        steps = [
            pm.NUTS([a], model=model),
            AusterityMH([b], epsilon=0.05, proposal=RandomWalk(0.05), model=model),
            AusterityMH([s], batch_size=100, steps_per_draw=3, proposal=RandomWalk(0.05), model=model),
            SCIR([w], step_size=3.0, model=model),
        ]
        idata = pm.sample(
            20, tune=20, chains=2, cores=1, step=steps, random_seed=1, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    return steps, idata


@pytest.fixture
def idata(sampled):
    return sampled[1].copy()


@pytest.mark.slow("long runs")
def test_attributes(sampled, idata):
    steps, _ = sampled
    stamp(idata, *steps)
    assert idata.attrs["pymc_austerity_version"] == __version__
    records = json.loads(idata.attrs["pymc_austerity_steps"])
    assert [r["step"] for r in records] == ["NUTS", "AusterityMH", "AusterityMH", "SCIR"]
    assert [r["vars"] for r in records] == [["a"], ["b"], ["s"], ["w"]]
    assert records[1]["rule"] == {
        "name": "TTest", "epsilon": 0.05, "batch_size": 500, "growth": "constant", "boundary": 0.5,
    }  # fmt: skip
    assert records[2]["steps_per_draw"] == 3
    assert set(records[0]) == {"step", "vars", "stats"}
    recorded = {name for r in records for name in r["stats"]}
    assert set(idata.sample_stats.data_vars) <= recorded


@pytest.mark.slow("long runs")
def test_a_stamp_survives_the_disk(sampled, idata, tmp_path):
    steps, _ = sampled
    stamp(idata, *steps)
    idata.to_netcdf(tmp_path / "idata.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "idata.nc", engine="h5netcdf") as read:
        assert read.attrs["pymc_austerity_steps"] == idata.attrs["pymc_austerity_steps"]
        assert data_usage_summary(read).equals(data_usage_summary(idata))


def test_compound_steps_and_lists_are_their_steps(sampled, idata):
    steps, _ = sampled
    stamp(idata, *steps)
    for given in ([CompoundStep(steps)], [steps], [steps[0], CompoundStep(steps[1:])]):
        other = idata.copy()
        stamp(other, *given)
        assert other.attrs == idata.attrs


def test_statistics_find_their_steps(sampled, idata):
    steps, _ = sampled
    before = data_usage_summary(idata)
    assert list(before.index) == ["step 0", "step 1", "step 2"]
    assert before["n_stages"].isna().all()
    with pytest.raises(ValueError, match="several transitions"):
        effective_cost(idata)
    stamp(idata, *steps)
    after = data_usage_summary(idata)
    names = ["AusterityMH(b)", "AusterityMH(s)", "SCIR(w)"]
    assert list(after.index) == names
    assert after["n_stages"].notna().tolist() == [True, True, False]
    rates = idata.sample_stats["acceptance_rate"].mean(("chain", "draw")).values  # NUTS is the first
    np.testing.assert_allclose(after["acceptance_rate"][:2], rates[1:])
    assert list(decision_summary(idata).index) == names[:2]
    used = idata.sample_stats["n_used"].sum(("chain", "draw")).values @ [1, 3, 1]
    cost = effective_cost(idata, var_names="b").loc["b"]
    assert cost["terms_per_effective_draw"] == pytest.approx(used / cost["ess"])


def test_the_steps_must_be_those_of_the_result(sampled, idata):
    steps, _ = sampled
    with pytest.raises(ValueError, match="2 of the steps given to stamp record n_used, but 3 in idata"):
        stamp(idata, *steps[:3])
    for given in (AusterityMH, "AusterityMH", idata):
        with pytest.raises(TypeError, match="stamp takes step methods"):
            stamp(idata, given)
    assert not idata.attrs


def test_barkers_decisions_have_no_right_side():
    ones = np.ones((1, 4))
    idata = result(log_ratio_mean=ones, psi=ones * 0, log_ratio_se=ones, exhausted=ones * 0, n_used=ones)
    assert decisions(idata).error_estimate.notnull().all()
    recorded = ["exhausted", "log_ratio_mean", "log_ratio_se", "n_used", "psi"]
    idata = stamped(idata, {"step": "MinibatchBarker", "rule": {"name": "Barker"}, "stats": recorded})
    assert decisions(idata).error_estimate.isnull().all()
    assert decision_summary(idata).loc["MinibatchBarker(x)", "decisions"] == 0


def test_a_step_of_other_data_is_refused(sampled, idata):
    steps, _ = sampled
    with pm.Model():
        pm.Normal("y", pm.Normal("q"), 1.0, observed=np.zeros(3000))
        with interpreted():
            other = AusterityMH(proposal=RandomWalk(0.05))
    with pytest.raises(ValueError, match=r"AusterityMH\(q\) has 3,000 local terms, but .* its place 2,000"):
        stamp(idata, steps[0], other, *steps[2:])
