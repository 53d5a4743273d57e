"""`TunaMH` on fields whose rows are on disk, in the order of their groups: the draws of those in memory."""

import os
import pickle
import re

import numba
import numpy as np
import pymc as pm
import pytest

import pymc_austerity as pma
from pymc_austerity import RowStore, TunaMH, factorise, recommend, stored_data
from pymc_austerity.exceptions import RowsOnDiskError, SelfCheckError
from pymc_austerity.mode import row_tables
from pymc_austerity.mode.fields import layout
from pymc_austerity.model.field import find
from pymc_austerity.step_methods.metropolis.field_plan import FieldRecipe
from tests.models import as_model
from tests.peak_memory import peak_of
from tests.sampling import sampled

N, G, S, PEOPLE, ITEMS = 3000, 60, 12, 300, 200
RNG = np.random.default_rng(11)
SCHOOL = np.sort(RNG.integers(S, size=G))
CLASS = RNG.integers(G, size=N)
EFFECTS = 0.5 * RNG.normal(size=G)
SOURCE = {
    "x": RNG.normal(size=(N, 2)).astype("float32"),
    "exposure": RNG.gamma(2.0, 0.5, size=N),
    "group": CLASS.astype("int8"),
    "school": SCHOOL[CLASS].astype("int8"),
    "region": (SCHOOL[CLASS] // 4).astype("int8"),
    "person": RNG.integers(PEOPLE, size=N).astype("int16"),
    "item": RNG.integers(ITEMS, size=N).astype("int16"),
}
SOURCE["y"] = RNG.poisson(SOURCE["exposure"] * np.exp(0.3 * SOURCE["x"][:, 0] + EFFECTS[CLASS])).astype(
    "int16"
)
SOURCE["z"] = (RNG.random(N) < 1.0 / (1.0 + np.exp(-EFFECTS[CLASS]))).astype("int8")
SOURCE["w"] = RNG.normal(size=N) + EFFECTS[CLASS]
LEVELS, SLOPES = 0.5 * RNG.normal(size=(2, PEOPLE))[:, SOURCE["person"]]
LOGS = 1.0 + LEVELS + SLOPES * SOURCE["x"][:, 0] + 0.5 * RNG.normal(size=ITEMS)[SOURCE["item"]]
SOURCE["v"] = RNG.poisson(np.exp(LOGS)).astype("int16")
ORDER = np.argsort(SOURCE["group"], kind="stable")


def slopes(get):
    """Poisson counts with exposures, and slopes by group."""
    tau, x, group = pm.HalfNormal("tau", 1.0), get("x"), get("group")
    eta = pm.math.log(get("exposure")) + x @ pm.Normal("beta", shape=2)
    eta += (
        pm.Normal("effect", 0.0, tau, shape=G)[group] + pm.Normal("slope", 0.0, 0.3, shape=G)[group] * x[:, 0]
    )
    pm.Poisson("counts", pm.math.exp(eta), observed=get("y"))


def nested_slopes(get):
    """Three nested levels, of which two have slopes."""
    tau, x = pm.HalfNormal("tau", 1.0, shape=2), get("x")
    eta = pm.Normal("level") + pm.Normal("region", shape=3)[get("region")]
    for k, (name, size) in enumerate({"school": S, "group": G}.items()):
        own = get(name)
        eta += pm.Normal(f"{name}_effect", 0.0, tau[k], shape=size)[own]
        eta += pm.Normal(f"{name}_slope", 0.0, 0.3, shape=size)[own] * x[:, k]
    pm.Bernoulli("answers", logit_p=eta, observed=get("z"))


def normal(get):
    """Normal rows with a free scale, of which no row is read."""
    tau, x, group = pm.HalfNormal("tau", 1.0), get("x"), get("group")
    eta = (
        pm.Normal("effect", 0.0, tau, shape=G)[group] + pm.Normal("slope", 0.0, tau, shape=G)[group] * x[:, 0]
    )
    pm.Normal("sizes", eta, pm.HalfNormal("sigma"), observed=get("w"))


def likelihoods(get):
    """Two of them."""
    tau, group = pm.HalfNormal("tau", 1.0), get("group")
    effect = pm.Normal("effect", 0.0, tau, shape=G)
    pm.Poisson("counts", get("exposure") * pm.math.exp(effect[group]), observed=get("y"))
    pm.Bernoulli("answers", logit_p=pm.Normal("level") + effect[group], observed=get("z"))


def turns(get):
    """Slopes and crossed factors: they are moved in turns."""
    tau, x, person = pm.HalfNormal("tau", 1.0, shape=3), get("x"), get("person")
    eta = pm.Normal("level") + pm.Normal("item_effect", 0.0, tau[2], shape=ITEMS)[get("item")]
    eta += pm.Normal("effect", 0.0, tau[0], shape=PEOPLE)[person]
    eta += pm.Normal("slope", 0.0, tau[1], shape=PEOPLE)[person] * x[:, 0]
    pm.Poisson("counts", pm.math.exp(eta), observed=get("v"))


@as_model
def model_of(spelling, get):
    known = {}

    def once(name):
        if name not in known:
            known[name] = get(name)
        return known[name]

    spelling(once)


def on_disk(spelling, store):
    return model_of(spelling, lambda name: stored_data(f"{name}_data", store[name]))


def in_memory(spelling, order=ORDER):
    return model_of(spelling, lambda name: SOURCE[name][order])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return RowStore.write(SOURCE, folder / "sorted.rows", sort_by="group", chunk_rows=700)


def step_on(model, make=TunaMH, **options):
    with model:
        step = make(**options)
    assert isinstance(step.recipe, FieldRecipe)
    return step


def check_rows(*steps):
    for stored, there in zip(*(step.engine.turns for step in steps), strict=True):
        assert numba.typeof(stored) == numba.typeof(there)  # else all is compiled twice
        for name in ("predictors", "slopes", "weights", "data"):
            ours, theirs = getattr(stored.rows, name), getattr(there.rows, name)
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
        for name in ("cells", "paths", "lengths", "cumulative", "totals", "always"):
            np.testing.assert_array_equal(
                getattr(stored.bounds, name), getattr(there.bounds, name), err_msg=name
            )


def check_draws(stored, there):
    steps = [step_on(model, switch_above=np.inf) for model in (stored, there)]
    check_rows(*steps)
    results = []
    for model, step in zip((stored, there), steps, strict=True):
        with model:
            results.append(sampled(30, step, tune=5, chains=1, random_seed=5))
    for name, values in results[1].posterior.items():
        np.testing.assert_array_equal(values, results[0].posterior[name], err_msg=name)
    np.testing.assert_array_equal(*(one.sample_stats["n_used"] for one in results))
    return steps[0]


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch):
    """Parts end within cells, and there are several."""
    monkeypatch.setattr(row_tables, "_PART", 512)


def test_draws_are_those_of_rows_in_memory(store):
    """With slopes; so are the rows and bounds that kernels are handed."""
    check_draws(on_disk(slopes, store), in_memory(slopes))


@pytest.mark.slow("compiles and fits two fields")
@pytest.mark.parametrize("spelling", [nested_slopes, normal, likelihoods])
def test_draws_of_other_fields_are_those_of_rows_in_memory(store, spelling):
    check_draws(on_disk(spelling, store), in_memory(spelling))


@pytest.mark.slow("fits two fields in turns")
def test_turns_have_the_draws_of_rows_in_memory(tmp_path):
    """Rows are in the order of the first turn, and are copied into that of the second."""
    store = RowStore.write(SOURCE, tmp_path / "people.rows", sort_by="person")
    step = check_draws(on_disk(turns, store), in_memory(turns, np.argsort(SOURCE["person"], kind="stable")))
    assert len(step.engine.turns) == 2


@pytest.mark.slow("fits two fields")
def test_groups_may_come_in_any_order(tmp_path):
    """As long as the rows of each lie together."""
    order = np.argsort(7 * CLASS % 61, kind="stable")
    store = RowStore.write({name: rows[order] for name, rows in SOURCE.items()}, tmp_path / "groups.rows")
    check_draws(on_disk(slopes, store), in_memory(slopes, order))


@pytest.mark.slow("fits two fields")
def test_tests_on_subsamples_have_the_draws_of_rows_in_memory(store):
    models = on_disk(slopes, store), in_memory(slopes)
    check_rows(*(step_on(one, pma.AusterityMH, control_variate=pma.Taylor()) for one in models))


def test_parts_change_rounding_alone(monkeypatch):
    """The rows and bounds of a field that is set up in parts, and in one."""
    found = []
    for size in (512, 2**15):
        monkeypatch.setattr(row_tables, "_PART", size)
        found.append(step_on(in_memory(slopes)).engine.turns[0])
    ours, theirs = found
    np.testing.assert_allclose(ours.rows.weights, theirs.rows.weights, rtol=1e-6)
    for name in ("lengths", "shares", "cumulative", "totals"):
        np.testing.assert_allclose(getattr(ours.bounds, name), getattr(theirs.bounds, name), rtol=1e-4)


@pytest.mark.slow("fits a field")
def test_rows_are_in_files_beside_the_store(store):
    """What is computed of them is mapped, and the files have no names."""
    before = sorted(os.listdir(store["x"].path.parent))
    step = step_on(on_disk(slopes, store))
    own = step.engine.turns[0]
    for values in (*own.rows.design[:2], own.rows.predictors, own.rows.data, own.bounds.cumulative):
        assert isinstance(values.base, np.memmap)
        assert not values.flags.owndata
    assert sorted(os.listdir(store["x"].path.parent)) == before
    recipe = pickle.loads(pickle.dumps(step.recipe))
    assert len(pickle.dumps(recipe)) < 40_000
    # So another process plans its chains.
    plan = step._planned(step._model.initial_point(), recipe)
    np.testing.assert_array_equal(plan.engine.turns[0].bounds.cumulative, own.bounds.cumulative)


@pytest.mark.slow("reads and compiles several models")
@pytest.mark.parametrize("spelling", [slopes, nested_slopes])
def test_rows_in_another_order_are_refused(tmp_path, spelling):
    """The groups that are named are the innermost ones."""
    other = RowStore.write(SOURCE, tmp_path / "unsorted.rows", sort_by="school")
    name = "effect" if spelling is slopes else "group_effect"
    for build in (TunaMH, recommend):
        with on_disk(spelling, other), pytest.raises(RowsOnDiskError) as error:
            build(progressbar=False)
        assert re.search(rf"order of the groups of '{name}'.*sort_by=.*innermost", str(error.value))


@pytest.mark.parametrize("is_planted", [False, True])
def test_wrong_rows_are_found(store, monkeypatch, is_planted):
    """Planted fault: linear forms of the rows after those that are asked for."""
    forms = find.FormsOfRows.__call__

    def moved(self, positions):
        return forms(self, (positions + is_planted) % N)

    monkeypatch.setattr(find.FormsOfRows, "__call__", moved)
    field = factorise(on_disk(slopes, store)).find
    if is_planted:
        with pytest.raises(SelfCheckError, match="'counts': row"):
            field(factorise(on_disk(slopes, store)))
    else:
        field(factorise(on_disk(slopes, store)))


def test_combinations_are_those_of_whole_tables(monkeypatch):
    """Also where codes of all columns would be too long."""
    monkeypatch.setattr(row_tables, "_WAITING", 100)
    columns = RNG.integers(2**30, size=(40, 3))[RNG.integers(40, size=(2000, 3)), np.arange(3)] % 50_000_000
    columns = columns.astype(np.int32)
    monkeypatch.setattr(layout, "_LONGEST", 2.0**12)
    combos, which = layout._combinations(columns, row_tables.RowTables(None))
    np.testing.assert_array_equal(combos, np.unique(columns, axis=0))
    np.testing.assert_array_equal(combos[which], columns)


def test_cells_are_reduced_over_parts():
    sizes = RNG.integers(1, 900, size=9)
    cells, values = np.concatenate([[0], np.cumsum(sizes)]), RNG.normal(size=(sizes.sum(), 2))
    found = np.full((9, 2), -np.inf)
    for part in row_tables.parts(len(values)):
        row_tables.reduce_cells(np.maximum, cells, part, values[part], found)
    np.testing.assert_array_equal(found, np.maximum.reduceat(values, cells[:-1]))


@pytest.mark.slow("two models of up to two million rows are built in processes of their own")
def test_nothing_of_the_size_of_the_data_is_in_memory(tmp_path):
    """The most anonymous memory, from data to draws, for a quarter of a million rows and for two millions."""
    found = {}
    for n in (250_000, 250_000, 2_000_000):  # the first one may compile
        found[n] = peak_of(PEAK, tmp_path, n)
    assert (found[2_000_000] - found[250_000]) / 1_750_000 < 4, found


PEAK = """
    import numpy as np, pymc as pm, pymc_austerity as pma

    folder, n, groups = sys.argv[1], int(sys.argv[2]), 1000

    rng = np.random.default_rng(1)
    maps = {
        name: np.lib.format.open_memmap(f"{folder}/{name}{n}.npy", "w+", dtype, (n,))
        for name, dtype in {"x": np.float32, "group": np.int32, "y": np.int8}.items()
    }
    effects = rng.normal(size=(groups, 2))
    for a in range(0, n, 50_000):
        own = slice(a, a + 50_000)
        maps["x"][own] = rng.normal(size=50_000)
        maps["group"][own] = np.arange(a, a + 50_000) * groups // n
        a, b = effects[maps["group"][own]].T
        maps["y"][own] = rng.random(50_000) < 1 / (1 + np.exp(-a - b * maps["x"][own]))
    maps = {k: np.load(f"{folder}/{k}{n}.npy", mmap_mode="r") for k in maps}
    store = pma.RowStore.open(maps, scratch=folder)
    with pm.Model() as model:
        x, group, y = (pma.stored_data(name, store[name]) for name in ("x", "group", "y"))
        tau = pm.HalfNormal("tau", shape=2)
        a, b = (pm.Normal(name, 0, tau[k], shape=groups) for k, name in enumerate("ab"))
        pm.Bernoulli("o", logit_p=a[group] + b[group] * x, observed=y)

        def run():
            step = pma.TunaMH(progressbar=False)
            assert type(step.recipe).__name__ == "FieldRecipe"
            pm.sample(20, tune=0, chains=1, step=step, progressbar=False, compute_convergence_checks=False)

        peak(run)
"""
