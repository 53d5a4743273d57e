"""`TunaMH` on plates whose rows are on disk, in the order of their groups: the draws of those in memory."""

import os
import pickle

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import RowStore, TunaMH, recommend, stored_data
from pymc_austerity.exceptions import RowsOnDiskError
from pymc_austerity.step_methods.metropolis import plate_search
from tests.sampling import sampled

N, G = 3000, 30
RNG = np.random.default_rng(11)
SOURCE = {
    "x": RNG.normal(size=(N, 2)).astype("float32"),
    "exposure": RNG.gamma(2.0, 0.5, size=N),
    "group": RNG.integers(G, size=N).astype("int8"),
    "other": RNG.integers(5, size=N).astype("int8"),
}
SOURCE["y"] = RNG.poisson(
    SOURCE["exposure"] * np.exp(0.3 * SOURCE["x"][:, 0] + 0.5 * RNG.normal(size=G)[SOURCE["group"]])
).astype("int16")
ORDER = np.argsort(SOURCE["group"], kind="stable")


def counts(get, slopes):
    """Poisson counts with exposures, groups, and slopes by group or levels of another factor."""
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1.0)
        x, group = get("x"), get("group")
        eta = pm.math.log(get("exposure")) + x @ pm.Normal("beta", shape=2)
        eta += pm.Normal("effect", 0.0, tau, shape=G)[group]
        if slopes:
            eta += pm.Normal("slope", 0.0, 0.3, shape=G)[group] * x[:, 0]
        else:
            eta += pm.Normal("level", shape=5)[get("other")]
        pm.Poisson("counts", pm.math.exp(eta), observed=get("y"))
    return model


def on_disk(store, slopes):
    known = {}

    def get(name):
        if name not in known:
            known[name] = stored_data(name, store[name])
        return known[name]

    return counts(get, slopes)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return RowStore.write(SOURCE, folder / "sorted.rows", sort_by="group", chunk_rows=700)


def drawn(model):
    with model:
        step = TunaMH(progressbar=False)
        return step, sampled(50, step, tune=10, chains=2, random_seed=5)


def in_memory(slopes):
    # `pm.Data` would make doubles of single precision: the same numbers.
    return counts(lambda name: SOURCE[name][ORDER], slopes)


@pytest.mark.slow("compiles a plate with slopes")
def test_draws_are_those_of_rows_in_memory(store, monkeypatch):
    """With slopes; so are the rows that kernels are handed."""
    monkeypatch.setattr(plate_search, "_field_plan", lambda *_: None)  # slopes are a field
    (step, stored), (other, there) = drawn(on_disk(store, True)), drawn(in_memory(True))
    check_rows(step, other)
    for name, values in there.posterior.items():
        np.testing.assert_array_equal(values, stored.posterior[name], err_msg=name)
    np.testing.assert_array_equal(there.sample_stats["n_used"], stored.sample_stats["n_used"])
    assert 0 < float(there.sample_stats["n_used"].mean()) < N


def test_kernels_are_handed_the_rows_in_memory(store, interpreted):
    """With levels of another factor."""
    models = on_disk(store, False), in_memory(False)
    check_rows(*(TunaMH(model=model, progressbar=False) for model in models))


def check_rows(*steps):
    stored, there = (step._engine.plate.rows for step in steps)
    for name in ("starts", "x", "covariates", "levels", "predictors", "slopes", "curvatures", "data"):
        np.testing.assert_array_equal(getattr(stored, name), getattr(there, name), err_msg=name)


@pytest.mark.slow("builds and compiles several steps")
def test_rows_are_in_files_beside_the_store(store, interpreted):
    """What is computed of them is mapped, and the files have no names."""
    before = sorted(os.listdir(store["x"].path.parent))
    with on_disk(store, False):
        step = TunaMH(progressbar=False)
    rows = step._engine.plate.rows
    assert rows.x.shape == (N, 2)
    for values in (rows.x, rows.data, rows.levels):
        assert not values.flags.owndata
    assert sorted(os.listdir(store["x"].path.parent)) == before
    assert len(pickle.dumps(step.sampling_state)) < 20_000


@pytest.mark.slow("builds and compiles several steps")
def test_rows_in_another_order_are_refused(tmp_path, interpreted):
    other = RowStore.write(SOURCE, tmp_path / "unsorted.rows")
    for build in (TunaMH, recommend):
        with (
            on_disk(other, False),
            pytest.raises(RowsOnDiskError, match=r"order of the groups of 'effect'.*sort_by="),
        ):
            build(progressbar=False)
