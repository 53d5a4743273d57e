"""Chains and sums on a cluster of two processes: those of one process, whatever happens to workers."""

# One file, for all start with the same processes, and to start one takes five core-seconds.

import doctest
import os
import pickle
import shutil
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from multiprocessing import get_context

import dask
import numpy as np
import pymc as pm
import pytest
from distributed import Client, LocalCluster
from pymc.step_methods.compound import CompoundStep

from pymc_austerity import RowStore, SubsamplingWarning, TunaMH, sample_distributed, stored_data
from pymc_austerity.cluster import workers
from pymc_austerity.sampling import distributed as sample
from pymc_austerity.step_methods.metropolis import field_plan, sums_elsewhere
from tests.cluster.planted_steps import Slow, Talks, fails_once, goes_on_for_ever, numba_files, set_store_root

QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 3}
STARTS = pytest.mark.slow("starts processes that import PyMC")


@cache
def data(n=3000):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 2))
    return x, (rng.random(n) < 1.0 / (1.0 + np.exp(-x[:, 0]))).astype(np.int8)


def model_of(x, y):
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=2)
        pm.Deterministic("odds", pm.math.exp(beta))
        pm.Bernoulli("y", logit_p=x @ beta, observed=y)
    return model


def equal(one, two):
    for group in ("posterior", "sample_stats"):
        assert one[group].to_dataset().equals(two[group].to_dataset())
    changes = {"created_at", "sampling_time"}
    assert {k: v for k, v in one.posterior.attrs.items() if k not in changes} == {
        k: v for k, v in two.posterior.attrs.items() if k not in changes
    }
    # Proposals are summed by chains of this package alone.
    assert [name for name in one.children if name != "deviations"] == list(two.children)


def busy(client, others=()):
    """A worker that has run a chain for half a second."""
    while not (found := [a for a, keys in client.processing().items() if keys and a not in others]):
        time.sleep(0.01)
    time.sleep(0.5)
    return found[0]


def kill_a_worker(client, others=()):
    """As the system does if memory is short: one that runs a chain."""
    address = busy(client, others)
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)
    return address


class Killer:
    """Kills a worker while chains run."""

    def __init__(self, client):
        self._client, self._before = client, set(client.run(os.getpid).values())
        self._thread = threading.Thread(target=kill_a_worker, args=[client])

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *error):
        self._thread.join()
        self._client.wait_for_workers(len(self._before))
        assert set(self._client.run(os.getpid).values()) != self._before, "no worker was killed"


@STARTS
class TestDraws:
    def test_bit_for_bit(self, client):
        model = model_of(*data())
        step = TunaMH(model=model)
        ours = sample_distributed(200, tune=50, chains=3, step=step, client=client, model=model, **QUIET)
        with model:
            own = pm.sample(200, tune=50, chains=3, cores=1, step=step, **QUIET)
        equal(ours, own)
        other = sample_distributed(
            200, tune=50, chains=3, step=step, client=client, model=model, **{**QUIET, "random_seed": 4}
        )
        assert not other.posterior.equals(own.posterior)

    def test_the_example_in_the_docstring(self, client, monkeypatch):
        """On processes that are there. `examples/cluster.py` starts some in the same words."""
        monkeypatch.setattr("distributed.Client", lambda **given: nullcontext(client))
        (example,) = doctest.DocTestFinder(recurse=False).find(sample_distributed, globs={})
        assert doctest.DocTestRunner().run(example) == (0, 7)

    def test_several_steps_a_dead_worker_and_progress(self, client, capsys):
        """The chain that was lost is run again with its own seed."""
        model = model_of(*data(200))
        with model:
            options = {"draws": 120, "tune": 20, "chains": 2, **QUIET, "var_names": ["odds"]}
            own = pm.sample(cores=1, step=[Slow([model["beta"]])], **options)
            options["progressbar"] = True
            with Killer(client):
                ours = sample_distributed(step=[Slow([model["beta"]])], client=client, **options)
        equal(ours, own)
        assert capsys.readouterr().out.count("120") >= 2

    def test_rows_on_disk_are_not_sent(self, client, tmp_path, monkeypatch):
        x, y = data(100_000)  # of 1.7 MB
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "y.npy", y)
        maps = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy"}
        (tmp_path / "here").mkdir()
        store = RowStore.write(maps, tmp_path / "here" / "clicks.rows")
        with pm.Model() as model:
            x, y = stored_data("x", store["x"]), stored_data("y", store["y"])
            pm.Bernoulli("o", logit_p=x @ pm.Normal("beta", shape=2), observed=y)
            step = TunaMH()
            own = pm.sample(50, tune=20, chains=2, cores=1, step=step, **QUIET)
        sent = []
        monkeypatch.setattr(sample, "_LARGE", 0)
        monkeypatch.setattr(sample._LOG, "warning", lambda text, size: sent.append(size * 1e6))
        shared = {"step": step, "client": client, "model": model}
        options = {"draws": 50, "tune": 20, "chains": 2, **shared, **QUIET}
        equal(sample_distributed(**options), own)
        assert sent[0] / 1e6 < 1.0
        in_memory = model_of(*data(100_000))
        others = {"step": TunaMH(model=in_memory), "model": in_memory, "draws": 10}
        sample_distributed(**{**options, **others})
        assert sent[1] / 1e6 > 1.5
        # Elsewhere on the workers.
        shutil.copytree(tmp_path / "here", tmp_path / "there")
        there = str(tmp_path / "there")
        own_path = workers.path_here
        found = own_path(tmp_path / "gone" / "clicks.rows" / "x.npy")
        assert not found.exists()
        monkeypatch.setenv("PMA_STORE_ROOT", there)
        assert own_path(tmp_path / "gone" / "clicks.rows" / "x.npy").exists()
        monkeypatch.delenv("PMA_STORE_ROOT")
        text = pickle.dumps(store["x"])
        shutil.move(tmp_path / "here", tmp_path / "away")
        with pytest.raises(
            FileNotFoundError, match=r"clicks.rows.* does not exist on the host .* of the worker"
        ):
            sample_distributed(**options)
        monkeypatch.setenv("PMA_STORE_ROOT", there)
        np.testing.assert_array_equal(np.asarray(pickle.loads(text)), data(100_000)[0])
        client.run(set_store_root, there)
        try:
            equal(sample_distributed(**options), own)
        finally:
            client.run(set_store_root, None)

    @pytest.mark.full_size("a minute of compilation")
    def test_two_workers_compile_at_once(self, tmp_path):
        """Into one folder, which is empty."""
        environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTENSOR_FLAGS": f"base_compiledir={tmp_path}"}
        model = model_of(*data())
        step = TunaMH(model=model)
        options = {"draws": 50, "tune": 10, "chains": 2, **QUIET}
        with (
            # Not of a fork, which has read the environment before.
            dask.config.set({"distributed.worker.multiprocessing-method": "spawn"}),
            LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0", env=environment
            ) as cluster,
            Client(cluster) as client,
        ):
            before = client.run(numba_files, str(tmp_path))
            ours = sample_distributed(step=step, client=client, model=model, **options)
            assert len(ours.posterior.chain) == 2
            after = client.run(numba_files, str(tmp_path))
        assert max(before.values()) == 0 < min(after.values())
        with model:
            equal(ours, pm.sample(cores=1, step=step, **options))


# Sums of `TunaMH(client=)` ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(530_000, 3))
    return x, rng.poisson(np.exp(0.3 * x[:, 0])).astype(np.int16)


def counts_of(x, y):
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(x @ pm.Normal("beta", shape=3)), observed=y)
    return model


@pytest.fixture(scope="module")
def counts(arrays):
    return counts_of(*arrays)


@pytest.fixture(scope="module")
def own(counts):
    """The step of one process."""
    return TunaMH(model=counts)


def sums_of(step):
    """All that sums have made."""
    fit = step._recipe.mode_fit
    return fit.proxy.mode, fit.proxy.precision, fit.expansion.gradient, fit.expansion.hessian


def same_sums(one, two):
    return all(np.array_equal(a, b) for a, b in zip(sums_of(one), sums_of(two), strict=True))


@STARTS
class TestSums:
    def test_the_mode_of_one_process(self, client, counts, own, monkeypatch):
        """Blocks are of 262,144 rows, so that there are three of them, also on one worker."""
        asked = []
        call = workers.Calls.__call__

        def noted(self, function, arguments):
            asked.append([given[2:] for given in arguments])
            return call(self, function, arguments)

        monkeypatch.setattr(workers.Calls, "__call__", noted)
        assert same_sums(TunaMH(model=counts, client=client), own)
        assert asked
        assert all(each == [(0, 1), (1, 2), (2, 3)] for each in asked)
        monkeypatch.setattr(sums_elsewhere, "_CALLS_A_WORKER", 1)
        assert same_sums(TunaMH(model=counts, client=client), own)
        assert asked[-1] == [(0, 1), (1, 3)]
        # Another order of the sums differs by rounding: blocks are in their order.
        monkeypatch.setattr(workers.Calls, "__call__", lambda self, *given: noted(self, *given)[::-1])
        other = TunaMH(model=counts, client=client)
        assert not same_sums(other, own)
        np.testing.assert_allclose(sums_of(other)[0], sums_of(own)[0], rtol=1e-10)

    def test_nothing_of_the_cluster_stays(self, client, arrays):
        step = TunaMH(model=counts_of(*(each[:3000] for each in arrays)), client=client)
        assert b"distributed" not in pickle.dumps(step.sampling_state)
        assert step._client is None
        assert set(client.run(lambda: len(sums_elsewhere._BUILT)).values()) == {0}

    def test_rows_on_disk_are_not_sent(self, client, arrays, own, tmp_path, monkeypatch):
        maps = {}
        for name, values in zip("xy", arrays, strict=True):
            np.save(tmp_path / f"{name}.npy", values)
            maps[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
        store = RowStore.write(maps, tmp_path / "counts.rows")
        sent = []
        send = client.scatter
        monkeypatch.setattr(client, "scatter", lambda data, **given: sent.append(data) or send(data, **given))
        with pm.Model():
            x, y = stored_data("x", store["x"]), stored_data("y", store["y"])
            pm.Poisson("counts", pm.math.exp(x @ pm.Normal("beta", shape=3)), observed=y)
            step = TunaMH(client=client)
            assert len(sent) == 1
            assert len(sent[0]) < 1e6 < arrays[0].nbytes
            assert same_sums(step, own)
            with ProcessPoolExecutor(1, get_context("forkserver")) as pool:
                assert same_sums(TunaMH(client=pool), own)
            assert same_sums(TunaMH(client=client.get_executor()), own)

    def test_a_worker_dies(self, client, counts, own, monkeypatch):
        before = set(client.run(os.getpid).values())
        take, killed = workers.Calls.take, []

        def kill_first(self):
            if not killed:
                killed.append(min(before))
                os.kill(killed[0], signal.SIGKILL)
            return take(self)

        monkeypatch.setattr(workers.Calls, "take", kill_first)
        step = TunaMH(model=counts, client=client)
        client.wait_for_workers(2)
        assert set(client.run(os.getpid).values()) != before
        assert same_sums(step, own)

    def test_all_workers_die_and_others_come(self, lone, counts, own, monkeypatch):
        """Then what was sent to them is lost, too."""
        take, replaced = workers.Calls.take, []

        def replace_first(self):
            if not replaced:
                replaced.append(True)
                lone.cluster.scale(0)
                while lone.nthreads():
                    time.sleep(0.01)
                lone.cluster.scale(1)
            return take(self)

        monkeypatch.setattr(workers.Calls, "take", replace_first)
        assert same_sums(TunaMH(model=counts, client=lone), own)

    def test_no_workers(self, lone, counts, monkeypatch):
        monkeypatch.setattr(sums_elsewhere, "_WAIT", 1.5)
        content = workers.Calls(lone, b"", sums_elsewhere.Inspection(lone, [], 1.5), "Test")
        stop = threading.Thread(target=lambda: (time.sleep(1.0), lone.cluster.scale(0)))
        stop.start()
        with pytest.raises(RuntimeError, match=r"no worker for 1.5 seconds"):
            content(goes_on_for_ever, [()])
        stop.join()
        with pytest.raises(RuntimeError, match=r"no worker for 1.5 seconds"):
            TunaMH(model=counts, client=lone)

    def test_an_error_is_told(self, client):
        content = workers.Calls(client, b"7", sums_elsewhere.Inspection(client, [], 5.0), "Some sums")
        with pytest.raises(ArithmeticError, match=r"(?s)planted 7.*raised on a worker. Some sums"):
            content(fails_once, [(1,), (2,)])


def test_a_field_is_set_up_here(monkeypatch):
    class SetUpError(Exception):
        pass

    def stop(*args):
        raise SetUpError

    monkeypatch.setattr(field_plan, "plan_field", stop)
    monkeypatch.setattr(workers, "require_client", lambda *given, **options: None)
    rng = np.random.default_rng(2)
    group = rng.integers(0, 40, 4000)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau")
        u = pm.Normal("u", 0.0, tau, shape=40)
        pm.Bernoulli("y", logit_p=u[group], observed=rng.integers(0, 2, 4000))
    said = "The set-up of a field of effects is not distributed: client= has had no effect"
    with pytest.warns(SubsamplingWarning, match=said), pytest.raises(SetUpError):
        TunaMH(model=model, client=object())


# What goes wrong --------------------------------------------------------------------------------------


@STARTS
class TestTrouble:
    def options(self, client, step=Slow, **others):
        model = model_of(*data(200))
        with model:
            return {
                "draws": 2000, "tune": 10, "chains": 2, "client": client, "model": model,
                "step": step([model["beta"]]), **QUIET, **others,
            }  # fmt: skip

    def test_ctrl_c_keeps_what_there_is(self, client, monkeypatch):
        shown, own = [], sample.Running._show

        def show(self, messages, bars, tune):
            shown.append(own(self, messages, bars, tune))
            if len(shown) == 20:
                raise KeyboardInterrupt

        monkeypatch.setattr(sample.Running, "_show", show)
        with pytest.warns(SubsamplingWarning, match="Interrupted: 2 of 2 chains have draws"):
            idata = sample_distributed(**self.options(client))
        assert 10 < idata.posterior.sizes["draw"] < 2000

    def test_a_chain_that_is_over_when_it_is_to_be_stopped(self, client, monkeypatch):
        """Its draws are not with the worker any more."""

        def show(self, messages, bars, tune):
            while any(one.status != "finished" for one in self._calls.futures.values()):
                time.sleep(0.01)
            raise KeyboardInterrupt

        monkeypatch.setattr(sample.Running, "_show", show)
        with pytest.warns(SubsamplingWarning, match="Interrupted: 2 of 2 chains have draws"):
            idata = sample_distributed(**self.options(client, draws=20))
        assert idata.posterior.sizes["draw"] == 20

    def test_a_closed_client(self, lone, monkeypatch):
        """One worker runs one chain after the other."""
        own = sample.Running._collect

        def collect(self, bars):
            own(self, bars)
            if len(self._calls.results) == 1:
                self._client.close()

        monkeypatch.setattr(sample.Running, "_collect", collect)
        with pytest.warns(SubsamplingWarning, match="closed: 1 of 2 chains had finished, and are kept"):
            idata = sample_distributed(**self.options(lone, draws=200))
        assert dict(idata.posterior["beta"].sizes) == {"chain": 1, "draw": 200, "beta_dim_0": 2}

    @pytest.mark.parametrize(("allowed", "most"), [(0, 3), (3, 2)], ids=["by Dask", "by us"])
    def test_a_chain_whose_worker_dies_always(self, lone, allowed, most, monkeypatch):
        """Dask counts the deaths of its tasks, and allows for more of them."""
        monkeypatch.setattr(sample, "_MOST_DEATHS", most)
        monkeypatch.setattr(lone.cluster.scheduler, "allowed_failures", allowed)
        killed, deaths = [], 1 if allowed == 0 else most

        def kill():
            while len(killed) < deaths:
                killed.append(kill_a_worker(lone, killed))

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        with pytest.raises(RuntimeError, match=r"Chain .: lost with workers .* with tcp://127.0.0.1"):
            sample_distributed(**self.options(lone))
        killer.join()
        assert len(killed) == deaths

    def test_warnings_arrive(self, client):
        with pytest.warns(SubsamplingWarning) as told:
            sample_distributed(**self.options(client, Talks, draws=5))
        assert [str(one.message) for one in told] == ["Chain 0: planted", "Chain 1: planted"]

    def test_an_error_names_the_chain(self, client):
        options = self.options(client, draws=5, initvals=[{}, {"beta": [np.inf, 0.0]}])
        with pytest.raises(OverflowError, match="(?s)valid bounds.*This was raised on a worker. Chain 1"):
            sample_distributed(**options)

    def test_all_workers_are_lost_and_others_come(self, lone):
        """Then what was sent to them is lost, too."""

        def replace():
            busy(lone)
            lone.cluster.scale(0)
            while lone.nthreads():
                time.sleep(0.01)
            lone.cluster.scale(1)

        replacer = threading.Thread(target=replace)
        replacer.start()
        options = self.options(lone, draws=150, initvals={"beta": [0.1, 0.2]})
        ours = sample_distributed(**options)
        replacer.join()
        for name in ("client", "step"):
            del options[name]
        with options["model"] as model:
            equal(ours, pm.sample(step=[pm.Slice([model["beta"]])], cores=1, **options))

    def test_no_workers(self, lone):
        options = self.options(lone, wait_for_workers=0.5)
        stop = threading.Thread(target=lambda: (busy(lone), lone.cluster.scale(0)))
        stop.start()
        for _ in range(2):  # they go, and there are none
            with pytest.raises(RuntimeError, match=r"no worker for 0.5 seconds"):
                sample_distributed(**options)
        stop.join()


def test_bad_input(monkeypatch):
    model = model_of(*data(200))
    with model:
        step = pm.Slice()
        with pytest.raises(TypeError, match="client is a distributed.Client, not 'tcp://host:8786'"):
            sample_distributed(step=step, client="tcp://host:8786")
        with pytest.raises(ValueError, match="step is None: .* step=recommend"):
            sample_distributed(step=None, client=None)
        with pytest.raises(ValueError, match="DEMetropolis moves all chains together"):
            sample_distributed(step=[pm.DEMetropolis()], client=None)
        nested = CompoundStep([CompoundStep([pm.DEMetropolis()])])
        with pytest.raises(ValueError, match="DEMetropolis moves all chains together"):
            sample_distributed(step=nested, client=None)
        for given in ("tcp://host:8786", ThreadPoolExecutor()):
            with pytest.raises(TypeError, match="client is a .*Client or an executor of processes, not"):
                TunaMH(client=given)
        monkeypatch.setattr(sums_elsewhere, "_MOST_BYTES", 0)
        with pytest.raises(ValueError, match=r"with each call, 0 MB with its data.*\(stored_data\)"):
            TunaMH(client=ProcessPoolExecutor(1))
    with model, pytest.raises(ValueError, match="draws must be an integer of at least 1, got 0"):
        sample_distributed(0, step=None, client=None)


class TestInspection:
    """What is asked of workers, also of those that join later."""

    class Cluster:
        """Its workers have a number of threads."""

        def __init__(self):
            self.threads, self.numba, self.asked = {"tcp://a": 1}, {}, []

        def nthreads(self):
            return self.threads

        def get_versions(self, packages):
            own = dict.fromkeys(("python", *packages), "1")
            theirs = {a: {"packages": {**own, "numba": self.numba.get(a, "1")}} for a in self.threads}
            return {"client": {"packages": own}, "workers": theirs}

        def run(self, function, paths, workers, on_error):
            self.asked.append((paths, workers))
            return {address: ("host", paths if address == "tcp://blind" else []) for address in workers}

    def test_each_worker_once(self):
        cluster = self.Cluster()
        inspection = workers.Inspection(cluster, ["x.npy"], 9.0)
        assert [inspection.require() for _ in range(2)] == [1, 1]
        assert cluster.asked == [(["x.npy"], ["tcp://a"])]
        cluster.threads = {"tcp://a": 1, "tcp://b": 1}
        assert inspection.require() == 2
        assert cluster.asked[1:] == [(["x.npy"], ["tcp://b"])]

    @pytest.mark.parametrize(
        ("address", "threads", "error", "match"),
        [
            ("tcp://blind", 1, FileNotFoundError, "x.npy does not exist on the host host of the worker"),
            ("inproc://a/1/2", 1, RuntimeError, "inproc://a/1/2 is a thread of this process"),
            ("tcp://wide", 4, RuntimeError, r"tcp://wide has 4 threads. .* threads_per_worker=1"),
        ],
    )
    def test_one_that_joins(self, address, threads, error, match):
        cluster = self.Cluster()
        inspection = workers.Inspection(cluster, ["x.npy"], 9.0)
        inspection.require()
        cluster.threads = {"tcp://a": 1, address: threads}
        with pytest.raises(error, match=match):
            inspection.require()

    def test_other_versions(self):
        cluster = self.Cluster()
        cluster.threads["tcp://b"], cluster.numba["tcp://b"] = 1, "0"
        with pytest.raises(RuntimeError, match="tcp://b has numba 0, and this process has 1"):
            workers.Inspection(cluster, [], 9.0).require()

    def test_no_worker_is_waited_for(self):
        cluster = self.Cluster()
        cluster.threads = {}
        assert workers.Inspection(cluster, [], 9.0).require() == 0
        assert not cluster.asked
