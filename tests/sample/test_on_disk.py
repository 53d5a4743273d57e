"""Draws on disk: those of memory, also after an interrupt, and what a killed run leaves."""

import subprocess
import sys
import textwrap

import numpy as np
import pymc as pm
import pytest
from xarray import open_datatree

import pymc_austerity as pma
from pymc_austerity.sampling import chains, on_disk
from tests.peak_memory import peak_of

from .test_sample import QUIET, groups, line, tuna

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.filterwarnings("ignore:SGLD"),
]
FEW = {"chains": 2, "cores": 1, **QUIET}


def require_equal(stored, kept):
    assert set(stored.children) == set(kept.children)
    for name, group in kept.children.items():
        assert stored[name].to_dataset().load().equals(group.to_dataset()), name


@pytest.mark.parametrize("build", [line, groups])
@pytest.mark.parametrize("keeps", [False, True])
def test_as_in_memory(tmp_path, build, keeps, monkeypatch):
    """Written in several pieces."""
    monkeypatch.setattr(on_disk, "_BUFFER", 500.0)
    monkeypatch.setattr(on_disk, "_CHUNK", 300.0)
    model = build()
    given = {"tune": 15, "step": tuna(model), "model": model, "discard_tuned_samples": not keeps, **FEW}
    stored = pma.sample(40, trace=tmp_path / "draws.zarr", **given)
    require_equal(stored, pma.sample(40, **given))
    assert stored.posterior.attrs["draws_made"] == [40, 40]
    require_equal(open_datatree(tmp_path / "draws.zarr", engine="zarr", consolidated=False), stored.load())


def test_several_steps_and_checks(tmp_path, caplog):
    model = line()

    def steps():  # pm.Slice goes on with the widths that it has learnt
        return [pma.AusterityMH(["beta"], model=model), pm.Slice([model["sigma"]], model=model)]

    given = {"tune": 15, "model": model, **FEW}
    kept = pma.sample(120, step=steps(), **given)
    given |= {"quiet": False, "compute_convergence_checks": True}
    require_equal(pma.sample(120, step=steps(), trace=str(tmp_path / "draws.zarr"), **given), kept)
    assert "at least 4 chains" in caplog.text


def test_objects_are_left_out(tmp_path):
    """NUTS has a statistic of warnings."""
    model = line()
    given = {"tune": 20, "model": model, **FEW}
    stored = pma.sample(10, step=pm.NUTS(model=model), trace=tmp_path / "draws.zarr", **given)
    kept = pma.sample(10, step=pm.NUTS(model=model), **given)
    assert stored.posterior.equals(kept.posterior)
    assert set(stored.sample_stats.data_vars) == set(kept.sample_stats.data_vars)  # others are times
    assert set(stored.sample_stats.dims) == {"chain", "draw"}


def test_steps_of_all_chains_are_refused(tmp_path):
    model = line()
    with pytest.raises(ValueError, match="DEMetropolis moves all chains together"):
        pma.sample(10, step=pm.DEMetropolis(model=model), model=model, trace=tmp_path / "a", **FEW)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("at", [12, 45])
def test_tuning_that_is_kept_after_ctrl_c(tmp_path, at, monkeypatch):
    """Of draws as of tuning there are those that were made."""
    model, n = line(), []
    write = on_disk.StoredResults.add
    monkeypatch.setattr(chains, "_GATHERED", 0.0)

    def interrupted(self, chain, block):
        n.extend([0] * block.n)
        write(self, chain, block)
        if len(n) >= at:
            raise KeyboardInterrupt

    monkeypatch.setattr(on_disk.StoredResults, "add", interrupted)
    given = {"tune": 20, "model": model, "discard_tuned_samples": False, **FEW, "chains": 1}
    step = pma.SGLD(model=model, step_size=1e-4, batch_size=100)
    stored = pma.sample(40, step=step, trace=tmp_path / "draws.zarr", **given)
    assert stored.warmup_posterior.sizes["draw"] == min(at, 20)
    assert stored.posterior.sizes["draw"] == max(0, at - 20)
    assert np.isfinite(stored.warmup_posterior["sigma"].values).all()


def test_without_a_step(tmp_path, monkeypatch):
    """What PyMC has drawn is written at the end."""
    model = line()
    kept = pma.sample(20, tune=5, step=tuna(model), model=model, **FEW)
    monkeypatch.setattr(pm, "sample", lambda **_: kept)
    require_equal(pma.sample(step="nuts", model=model, trace=tmp_path / "draws.zarr"), kept)


@pytest.mark.usefixtures("ctrl_c")
def test_after_ctrl_c(tmp_path):
    """Draws that chains have in common."""
    model = line()
    step, n = tuna(model), 0
    see = on_disk.StoredResults.add

    def interrupted(self, chain, block):
        nonlocal n
        n += block.n
        see(self, chain, block)
        if n > 45:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_disk.StoredResults, "add", interrupted)
        stored = pma.sample(30, tune=10, step=step, model=model, trace=tmp_path / "draws.zarr", **FEW)
    kept = pma.sample(30, tune=10, step=step, model=model, **FEW)
    sizes = stored.posterior.sizes
    assert sizes["chain"] * sizes["draw"] >= 30
    assert stored.posterior.equals(
        kept.posterior.isel(chain=slice(sizes["chain"]), draw=slice(sizes["draw"]))
    )


@pytest.mark.slow("runs a program of its own")
def test_a_killed_run_leaves_what_it_drew(tmp_path):
    program = """
        import os, signal, sys
        import numpy as np
        import pymc_austerity as pma
        from pymc_austerity.model.compile.backend import interpreted
        from pymc_austerity.sampling import on_disk
        from pymc_austerity.sampling import chains
        from tests.sample.test_sample import QUIET, line, tuna

        on_disk._BUFFER, chains._MOST_AHEAD = 100.0, 30
        see, n = on_disk.StoredResults.add, 0
        def killed(self, chain, block):
            global n
            see(self, chain, block)
            n += block.n
            if n > 45:
                os.kill(os.getpid(), signal.SIGKILL)
        on_disk.StoredResults.add = killed
        with interpreted():
            model = line()
            step = tuna(model)
            pma.sample(1000, tune=10, chains=1, step=step, model=model, trace=sys.argv[1], **QUIET)
    """
    path = tmp_path / "draws.zarr"
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(path)], check=False)
    assert done.returncode == -9
    posterior = open_datatree(path, engine="zarr", consolidated=False).posterior
    (n,) = posterior.attrs["draws_made"]
    assert 35 < n < 1000
    values = posterior["sigma"].values[0]
    assert np.isfinite(values[:n]).all()
    assert np.isnan(values[n:]).all()


def test_refused(tmp_path):
    model = line()
    step = tuna(model)
    with pytest.raises(FileExistsError, match="exists. Delete it, or give another name"):
        pma.sample(step=step, model=model, trace=tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder"):
        pma.sample(step=step, model=model, trace=tmp_path / "none" / "draws.zarr")
    with pytest.raises(ValueError, match="idata_kwargs.*no meaning with draws on disk"):
        pma.sample(step=step, model=model, trace=tmp_path / "a", idata_kwargs={"log_likelihood": True})


def test_chains_that_have_most_draws_in_common():
    assert on_disk._in_common([10, 10, 0]) == ([0, 1], 10)
    assert on_disk._in_common([10, 4]) == ([0], 10)
    assert on_disk._in_common([10, 6]) == ([0, 1], 6)


@pytest.mark.slow("2,400 draws of 20,000 effects")
def test_few_megabytes_wait_for_the_disk(tmp_path):
    """All draws together take 380 MB."""
    script = """
    import numpy as np, pymc as pm, pymc_austerity as pma
    rng, n = np.random.default_rng(1), int(sys.argv[2])
    group = np.arange(2 * n) % n
    with pm.Model() as model:
        effect = pm.Normal("effect", pm.Normal("mu"), pm.HalfNormal("tau"), shape=n)
        pm.Normal("y", effect[group], 1.0, observed=rng.normal(size=n)[group] + rng.normal(size=2 * n))
        step = pma.TunaMH()
    given = {"tune": 20, "chains": 2, "cores": 1, "step": step, "model": model, "random_seed": 1}
    given |= {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
    pma.sample(20, **given)  # what is imported and compiled
    peak(lambda: pma.sample(1200, trace=sys.argv[1] + "/draws.zarr", **given))
    """
    assert peak_of(script, tmp_path, 20_000) < 120e6
