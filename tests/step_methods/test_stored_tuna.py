"""`TunaMH` on rows on disk: the law is that of the same rows in memory, and nothing of size N is kept."""

import errno
import os

import numba
import numpy as np
import pymc as pm
import pytest

from pymc_austerity import RowStore, TunaMH, recommend, stored_data
from pymc_austerity.bounds import remainder
from pymc_austerity.bounds.block_table import BLOCK, LONG_BLOCK, block_table, draw_all_weighted
from pymc_austerity.bounds.row_constants import INFLATION
from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.mode import expansion
from pymc_austerity.model.compile import backend
from pymc_austerity.model.factorisation import point_of
from pymc_austerity.model.structure.local_terms import LocalTerms
from pymc_austerity.recommendation import evidence
from pymc_austerity.step_methods.metropolis import tuna_plan
from tests.data.full_disk import limited_file_size
from tests.models import as_model
from tests.peak_memory import peak_of
from tests.statistical.errors import p_of_counts

N, D = 25_000, 3
RNG = np.random.default_rng(7)
X = RNG.standard_t(4, size=(N, D)).astype(np.float32)
SOURCE = {"X": X, "y": (RNG.random(N) < 1 / (1 + np.exp(-X @ [0.4, -0.2, 0.1]))).astype("int8")}
POINT = {"beta": np.zeros(D)}
# A block of rows whose bounds a planted fault makes too low.
BLOCK_OF_ROWS = slice(5000, 17_000)
P_LIMIT = 1e-6


@as_model
def logistic(x, y):
    beta = pm.Normal("beta", 0, 1, shape=D)
    pm.Bernoulli("clicked", logit_p=x() @ beta, observed=y())


def on_disk(store):
    return logistic(lambda: stored_data("X", store["X"]), lambda: stored_data("y", store["y"]))


def in_memory():
    return logistic(lambda: pm.Data("X", X), lambda: pm.Data("y", SOURCE["y"]))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return RowStore.write(SOURCE, tmp_path_factory.mktemp("data") / "clicks.rows", chunk_rows=1000)


@pytest.fixture(scope="module")
def plans(store):
    """Steps that are not compiled, on disk and in memory; and constants in double precision."""
    seen = []
    usual = remainder.rounded_up
    with pytest.MonkeyPatch.context() as patch, backend.interpreted():
        patch.setattr(remainder, "rounded_up", lambda c: seen.append(c) or usual(c))
        disk = TunaMH(model=on_disk(store))
        exact = np.concatenate([np.stack(seen[k : k + 3]) for k in range(0, len(seen), 3)], axis=1)
        memory = TunaMH(model=in_memory())
    return disk, memory, exact


@pytest.mark.slow("builds and compiles several steps")
def test_bytes_of_rows_in_many_dimensions(interpreted, monkeypatch, store):
    """They are beside the store, too, and are those of rows in memory."""
    monkeypatch.setattr(tuna_plan, "_MANY_DIMENSIONS", D - 1)
    monkeypatch.setattr(tuna_plan, "_MANY_ROWS", 0.0)
    disk, memory = (TunaMH(model=model).engine.rows.state.screen for model in (on_disk(store), in_memory()))
    assert disk.bytes.shape == (N, D)
    for name in ("bytes", "numbers"):
        np.testing.assert_array_equal(getattr(disk, name), getattr(memory, name))
        assert isinstance(base_of(getattr(disk, name)), np.memmap)
        assert not isinstance(base_of(getattr(memory, name)), np.memmap)


def base_of(array):
    """The array of which this is a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class TestLaw:
    @pytest.mark.slow("builds and compiles several steps")
    def test_mode_and_prediction(self, plans):
        disk, memory, _ = plans
        assert disk.mode_fit._replace(seconds=0.0) == pytest.approx(memory.mode_fit._replace(seconds=0.0))
        assert disk.prediction.terms == pytest.approx(memory.prediction.terms, rel=1e-12)
        state, other = disk.engine.rows.state, memory.engine.rows.state
        np.testing.assert_array_equal(state.center, other.center)
        np.testing.assert_array_equal(state.whitening, other.whitening)

    @pytest.mark.slow("builds and compiles several steps")
    def test_constants_are_the_same_numbers(self, plans):
        disk, memory, exact = plans
        state, other = disk.engine.rows.state, memory.engine.rows.state
        np.testing.assert_array_equal(state.constants, other.constants)
        np.testing.assert_allclose(state.totals, other.totals, rtol=1e-13)
        assert [state.tables[0].length, other.tables[0].length] == [LONG_BLOCK, BLOCK]
        assert not state.constants.flags.writeable
        assert np.all(state.constants >= exact)
        np.testing.assert_allclose(state.constants, exact, rtol=2e-7)

    def test_terms_that_are_compared_with_bounds(self, plans):
        """Remainders, of states near and far: polynomials that are computed, and those that are stored."""
        disk, memory, _ = plans
        rows, rng = np.arange(0, N, 50), np.random.default_rng(3)
        for far in (0.01, 0.3, 3.0):
            away, found = far * rng.normal(size=D), []
            for step in (disk, memory):
                terms, center = (
                    LocalTerms(step.engine.target.factorisation),
                    step.engine.rows.state.center,
                )
                new, old = (
                    terms(point_of(step.factorisation, q, POINT), rows) for q in (center + away, center)
                )
                found.append(new - old)
            np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-13)

    def test_rows_are_drawn_in_proportion_to_exact_constants(self, plans):
        disk, _, exact = plans
        state = disk.engine.rows.state
        for tier in range(3):
            assert p_of_drawn(state.constants[tier], exact[tier]) > P_LIMIT
        low = state.constants[0].copy()
        low[BLOCK_OF_ROWS] *= np.float32(0.9)
        assert p_of_drawn(low, exact[0]) < P_LIMIT

    def test_a_block_that_is_rounded_down_is_noticed(self, interpreted, monkeypatch, store):
        usual = remainder.rounded_up
        n_pieces = [0]

        def rounded(c):
            n_pieces[0] += 1
            return usual(c) * np.float32(0.9 if n_pieces[0] > 6 else 1.0)

        monkeypatch.setattr(remainder, "rounded_up", rounded)
        with pytest.raises(SelfCheckError, match="bound of row 16,384 of all terms is .* below it"):
            TunaMH(model=on_disk(store))

    def test_a_polynomial_that_differs_is_noticed(self, interpreted, monkeypatch, store):
        usual = expansion._Expander._along_the_way
        monkeypatch.setattr(expansion._Expander, "_along_the_way", lambda *given: 1.0001 * usual(*given))
        with pytest.raises(SelfCheckError, match="Taylor polynomials of 300 rows add up to"):
            TunaMH(model=on_disk(store))

    @pytest.mark.slow("native code of one step is compiled for each of two kinds of arrays")
    def test_draws(self, draw, store):
        """Posterior means within four errors, as many rows, and no row beyond its bound."""
        means, errors, rows = [], [], []
        for model in (on_disk(store), in_memory()):
            idata = draw(model, TunaMH(model=model), draws=4000, tune=200, chains=1)
            values = idata.posterior["beta"].values[0]
            batches = values.reshape(40, 100, D).mean(axis=1)
            means.append(values.mean(axis=0))
            errors.append(batches.std(axis=0, ddof=1) / np.sqrt(40))
            rows.append(float(idata.sample_stats["n_used"].mean()))
        assert np.all(np.abs(means[0] - means[1]) < 4 * np.hypot(*errors))
        assert rows[0] == pytest.approx(rows[1], abs=5 * np.sqrt(2 * max(rows) / 4000))


@numba.njit
def drawn(rng, table, weights, n):
    return draw_all_weighted(rng, table, weights, n)


def p_of_drawn(weights, exact):
    """Of draws from a table on these weights, against other weights: a block apart, and tenths of others."""
    rows = drawn(np.random.default_rng(5), block_table(weights, LONG_BLOCK), weights, 100_000)
    classes = np.digitize(exact, np.quantile(exact, np.linspace(0.1, 0.9, 9)))
    classes[BLOCK_OF_ROWS] = 10
    shares = np.bincount(classes, exact, minlength=11) / exact.sum()
    return p_of_counts(np.bincount(classes[rows], minlength=11), shares)


def test_constants_that_are_infinite_far_away():
    """The third tier of all rows has the nearer radius from the first row on that needs it."""
    c = np.random.default_rng(1).gamma(1.0, size=(4, 100))
    c[3, 60] = np.inf

    class Term:
        name, n_rows = "t", 100

    class Bounded:
        term = Term

        def constants(self, first):
            return ((np.arange(a, a + 25), c[:, a : a + 25]) for a in range(0, 100, 25))

    table = remainder.InMemory((3, 100), np.float32)
    assert remainder.write_constants([Bounded()], table) == 2
    np.testing.assert_allclose(table.values, c[:3] * INFLATION, rtol=2e-7)
    c[3, 60] = 1.0
    assert remainder.write_constants([Bounded()], table) == 3
    np.testing.assert_allclose(table.values, c[[0, 1, 3]] * INFLATION, rtol=2e-7)


def test_positions_of_the_largest(monkeypatch):
    monkeypatch.setattr(remainder, "_CHUNK", 7)
    weights = np.random.default_rng(1).integers(20, size=100).astype(np.float32)
    found = remainder.positions_of_largest(weights, 30)
    np.testing.assert_array_equal(found, np.sort(np.argsort(-weights, kind="stable")[:30]))


class TestFiles:
    def test_they_have_no_names(self, plans, store):
        assert sorted(each.name for each in store.path.iterdir()) == ["X.npy", "store.json", "y.npy"]

    def test_a_full_disk(self, interpreted, store):
        with limited_file_size(12 * N - 1), pytest.raises(OSError, match=f"{12 * N:,} bytes are") as told:
            TunaMH(model=on_disk(store))
        assert told.value.errno == errno.EFBIG
        assert "are left on its disk" in str(told.value)
        assert len(list(store.path.iterdir())) == 3

    @pytest.mark.slow("a planted fault, in steps of its own")
    def test_maps_without_a_folder(self, interpreted, store, tmp_path, monkeypatch):
        maps = {name: np.load(store[name].path, mmap_mode="r") for name in store}
        with pytest.raises(ValueError, match="scratch='a folder'"):
            TunaMH(model=on_disk(RowStore.open(maps)))
        monkeypatch.setattr(evidence, "survey", None)  # it is said before the search for the mode
        with pytest.raises(ValueError, match="scratch='a folder'"):
            recommend(model=on_disk(RowStore.open(maps)), verbose=False)
        TunaMH(model=on_disk(RowStore.open(maps, scratch=tmp_path)))
        assert not os.listdir(tmp_path)


@pytest.mark.slow("two models of millions of rows are built in processes of their own")
def test_nothing_of_the_size_of_the_data_is_in_memory(tmp_path):
    """The most anonymous memory, from data to draws, for half a million rows and for two."""
    found = {n: peak_of(PEAK, tmp_path, n) for n in (500_000, 2_000_000)}
    assert (found[2_000_000] - found[500_000]) / 1_500_000 < 2, found


PEAK = """
    import numpy as np, pymc as pm, pymc_austerity as pma
    from pymc_austerity.model.compile import backend

    folder, n = sys.argv[1], int(sys.argv[2])

    rng = np.random.default_rng(1)
    x = np.lib.format.open_memmap(f"{folder}/x{n}.npy", "w+", np.float32, (n, 5))
    y = np.lib.format.open_memmap(f"{folder}/y{n}.npy", "w+", np.int8, (n,))
    for a in range(0, n, 50_000):
        x[a : a + 50_000] = rng.normal(size=(50_000, 5))
        y[a : a + 50_000] = rng.random(50_000) < 1 / (1 + np.exp(-x[a : a + 50_000].sum(axis=1) / 5))
    del x, y
    maps = {k: np.load(f"{folder}/{k}{n}.npy", mmap_mode="r") for k in "xy"}
    store = pma.RowStore.open(maps, scratch=folder)
    with pm.Model() as model, backend.interpreted():
        x, y = pma.stored_data("x", store["x"]), pma.stored_data("y", store["y"])
        pm.Bernoulli("o", logit_p=x @ pm.Normal("beta", 0, 1, shape=5), observed=y)

        def run():
            step = pma.TunaMH()
            pm.sample(20, tune=0, chains=1, step=step, progressbar=False, compute_convergence_checks=False)

        peak(run)
"""
