"""`TunaMH(client=)`: the mode of one process, to the bit, whatever happens to workers."""

import os
import pickle
import signal
import threading
import time

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import RowStore, SubsamplingWarning, TunaMH, stored_data
from pymc_austerity.cluster import workers
from pymc_austerity.step_methods.metropolis import crossed_plan, sums_elsewhere
from tests.cluster.planted_steps import fails_once, goes_on_for_ever

N, D = 530_000, 3


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(N, D))
    return x, rng.poisson(np.exp(0.3 * x[:, 0])).astype(np.int16)


def model_of(x, y):
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(x @ pm.Normal("beta", shape=D)), observed=y)
    return model


@pytest.fixture(scope="module")
def model(arrays):
    return model_of(*arrays)


@pytest.fixture(scope="module")
def own(model):
    """The step of one process."""
    return TunaMH(model=model)


def found(step):
    """All that sums have made."""
    fit = step._recipe.mode_fit
    return fit.proxy.mode, fit.proxy.precision, fit.expansion.gradient, fit.expansion.hessian


def equal(one, two):
    return all(np.array_equal(a, b) for a, b in zip(found(one), found(two), strict=True))


@pytest.mark.slow("starts processes that import PyMC")
class TestSums:
    def test_the_mode_of_one_process(self, client, model, own, monkeypatch):
        """Blocks are of 262,144 rows, so that there are three of them, also on one worker."""
        asked = []
        call = workers.Calls.__call__

        def noted(self, function, arguments):
            asked.append([given[2:] for given in arguments])
            return call(self, function, arguments)

        monkeypatch.setattr(workers.Calls, "__call__", noted)
        assert equal(TunaMH(model=model, client=client), own)
        assert asked
        assert all(each == [(0, 1), (1, 2), (2, 3)] for each in asked)
        monkeypatch.setattr(sums_elsewhere, "_CALLS_A_WORKER", 1)
        assert equal(TunaMH(model=model, client=client), own)
        assert asked[-1] == [(0, 1), (1, 3)]
        # Another order of the sums differs by rounding: blocks are in their order.
        monkeypatch.setattr(workers.Calls, "__call__", lambda self, *given: noted(self, *given)[::-1])
        other = TunaMH(model=model, client=client)
        assert not equal(other, own)
        np.testing.assert_allclose(found(other)[0], found(own)[0], rtol=1e-10)

    def test_nothing_of_the_cluster_stays(self, client, arrays):
        step = TunaMH(model=model_of(*(each[:3000] for each in arrays)), client=client)
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
            pm.Poisson("counts", pm.math.exp(x @ pm.Normal("beta", shape=D)), observed=y)
            step = TunaMH(client=client)
        assert len(sent) == 1
        assert len(sent[0]) < 1e6 < arrays[0].nbytes
        assert equal(step, own)

    def test_a_worker_dies(self, client, model, own, monkeypatch):
        before = set(client.run(os.getpid).values())
        wait_for = workers.Calls._wait_for

        def kill_first(self, futures):
            if set(client.run(os.getpid).values()) == before:
                os.kill(min(before), signal.SIGKILL)
            return wait_for(self, futures)

        monkeypatch.setattr(workers.Calls, "_wait_for", kill_first)
        step = TunaMH(model=model, client=client)
        client.wait_for_workers(2)
        assert set(client.run(os.getpid).values()) != before
        assert equal(step, own)

    def test_all_workers_die_and_others_come(self, lone, model, own, monkeypatch):
        """Then what was sent to them is lost, too."""
        wait_for, replaced = workers.Calls._wait_for, []

        def replace_first(self, futures):
            if not replaced:
                replaced.append(True)
                lone.cluster.scale(0)
                while lone.nthreads():
                    time.sleep(0.01)
                lone.cluster.scale(1)
            return wait_for(self, futures)

        monkeypatch.setattr(workers.Calls, "_wait_for", replace_first)
        assert equal(TunaMH(model=model, client=lone), own)

    def test_no_workers(self, lone, model, monkeypatch):
        monkeypatch.setattr(sums_elsewhere, "_WAIT", 1.5)
        content = workers.Calls(lone, b"", sums_elsewhere.Inspection(lone, [], 1.5), "Test")
        stop = threading.Thread(target=lambda: (time.sleep(1.0), lone.cluster.scale(0)))
        stop.start()
        with pytest.raises(RuntimeError, match=r"no worker for 1.5 seconds"):
            content(goes_on_for_ever, [()])
        stop.join()
        with pytest.raises(RuntimeError, match=r"no worker for 1.5 seconds"):
            TunaMH(model=model, client=lone)

    def test_an_error_is_told(self, client):
        content = workers.Calls(client, b"7", sums_elsewhere.Inspection(client, [], 5.0), "Some sums")
        with pytest.raises(ArithmeticError, match=r"(?s)planted 7.*raised on a worker. Some sums"):
            content(fails_once, [(1,), (2,)])


def test_a_plate_is_set_up_here(monkeypatch):
    class SetUpError(Exception):
        pass

    def stop(*args):
        raise SetUpError

    monkeypatch.setattr(crossed_plan, "plan_groups", stop)
    monkeypatch.setattr(workers, "require_client", lambda client: None)
    rng = np.random.default_rng(2)
    group = rng.integers(0, 40, 4000)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau")
        u = pm.Normal("u", 0.0, tau, shape=40)
        pm.Bernoulli("y", logit_p=u[group], observed=rng.integers(0, 2, 4000))
    said = "The set-up of a plate of effects is not distributed: client= has had no effect"
    with pytest.warns(SubsamplingWarning, match=said), pytest.raises(SetUpError):
        TunaMH(model=model, client=object())


def test_bad_input():
    model = model_of(np.zeros((1000, D)), np.zeros(1000, dtype=int))
    with pytest.raises(TypeError, match="client is a distributed.Client, not 'tcp://host:8786'"):
        TunaMH(model=model, client="tcp://host:8786")
