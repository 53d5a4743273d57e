"""Steps on a model whose data stay on disk; of memory see `test_stored_tuna.py`."""

import os

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.sampling.parallel import ParallelSamplingError

import pymc_austerity as pma
from pymc_austerity.diagnostics import stamp
from pymc_austerity.exceptions import RowsOnDiskError
from pymc_austerity.model.compile import backend
from tests.models import as_model

N = 5000
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 3))
SOURCE = {
    "X": X,
    "y": (RNG.random(N) < 1 / (1 + np.exp(-X @ [0.3, -0.2, 0.1]))).astype("int8"),
    "count": RNG.poisson(np.exp(1 + 0.2 * X[:, 0])),
    "group": RNG.integers(40, size=N).astype("int16"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return pma.RowStore.write(SOURCE, tmp_path_factory.mktemp("data") / "clicks.rows", chunk_rows=1000)


@as_model
def logistic(x, y, computed=pt.tanh):
    beta = pm.Normal("beta", 0, 1, shape=3)
    pm.Bernoulli("clicked", logit_p=computed(x()) @ beta, observed=y())


def on_disk(store, *computed):
    return logistic(
        lambda: pma.stored_data("X", store["X"]), lambda: pma.stored_data("y", store["y"]), *computed
    )


def in_memory(*computed):
    return logistic(lambda: pm.Data("X", SOURCE["X"]), lambda: pm.Data("y", SOURCE["y"]), *computed)


@pytest.fixture(scope="module")
def model(store):
    return on_disk(store)


STEPS = {
    "austerity": lambda m: pma.AusterityMH(model=m, subsample="gather"),
    "concentration": lambda m: pma.MHSubLhd(model=m, delta=0.1),
}


class TestDraws:
    @pytest.mark.filterwarnings("ignore::pymc_austerity.SubsamplingWarning")
    @pytest.mark.parametrize("name", STEPS)
    @pytest.mark.covering(1)
    def test_they_are_those_of_arrays_in_memory(self, interpreted, draw, same, model, name):
        found = draw(model, STEPS[name](model), chains=1)
        memory = in_memory()
        assert same(found, draw(memory, STEPS[name](memory), chains=1))

    @pytest.mark.filterwarnings("ignore::pymc_austerity.SubsamplingWarning")
    def test_remainders_differ_in_the_last_digits_at_most(self, interpreted, draw, model):
        """What is stored of a row in memory is computed from it on disk, with other last digits."""
        options = {"control_variate": pma.Taylor(), "subsample": "gather"}
        ours, theirs = (draw(m, pma.AusterityMH(model=m, **options), chains=1) for m in (model, in_memory()))
        np.testing.assert_allclose(ours.posterior["beta"], theirs.posterior["beta"], rtol=1e-9)
        np.testing.assert_array_equal(ours.sample_stats["n_used"], theirs.sample_stats["n_used"])
        # Differences of terms are of order one, and have 15 digits.
        stats = (each.sample_stats["log_ratio_mean"] for each in (ours, theirs))
        np.testing.assert_allclose(*stats, rtol=1e-6, atol=1e-12)

    @pytest.mark.slow("two workers import the package and compile")
    def test_they_are_the_same_in_workers(self, draw, same, model):
        step = pma.TunaMH(model=model)
        alone = draw(model, step)
        for context in ("fork", "forkserver"):
            assert same(draw(model, step, cores=2, mp_ctx=context), alone), context

    def test_blocks_of_shuffled_rows_are_refused(self, interpreted, model):
        with pytest.raises(ValueError, match='"block" is not possible here: the rows are on disk'):
            pma.AusterityMH(model=model, subsample="block")

    def test_the_mode_is_that_of_arrays_in_memory(self, interpreted, model):
        np.testing.assert_array_equal(pma.find_mode(model)["beta"], pma.find_mode(in_memory())["beta"])

    def test_recommend_takes_them(self, interpreted, model):
        assert pma.recommend(model).recommendation.step == "TunaMH()"

    def test_a_result_names_the_files(self, interpreted, draw, store, model):
        step = pma.TunaMH(model=model)
        idata = draw(model, step, chains=1)
        stamp(idata, step)
        files = step.configuration["stored_data"]
        assert files["X"] == {
            "path": str(store["X"].path),
            "rows": N,
            "fingerprint": store["X"].fingerprint,
        }
        assert store["y"].fingerprint in idata.attrs["pymc_austerity_steps"]
        assert idata.constant_data["X"].shape == (2000, 3)
        assert idata.observed_data["clicked"].shape == (2000,)


class TestPickles:
    def test_they_have_no_rows(self, interpreted, store):
        with pm.Model() as small:
            x, y = (pma.stored_data(name, store[name], head=10) for name in ("X", "y"))
            pm.Bernoulli("clicked", logit_p=x @ pm.Normal("beta", shape=3), observed=y)
        assert len(cloudpickle.dumps(pma.TunaMH(model=small))) < 50_000

    def test_a_step_goes_on_where_it_was_made(self, interpreted, draw, same, model):
        step = pma.TunaMH(model=model)
        there = cloudpickle.loads(cloudpickle.dumps(step))
        assert same(draw(there.model, there, chains=1), draw(model, step, chains=1))


class TestFilesThatChange:
    @pytest.fixture
    def own(self, tmp_path):
        return pma.RowStore.write(SOURCE, tmp_path / "own.rows")

    def test_no_chain_begins_no_pickle_moves_and_no_step_is_built(self, interpreted, draw, own):
        model = on_disk(own)
        step = pma.TunaMH(model=model)
        draw(model, step, chains=1)
        text = cloudpickle.dumps(step)
        touched(own)
        with pytest.raises(ValueError, match=r"X.npy has changed since it was opened.*build the step again"):
            draw(model, step, chains=1)
        there = cloudpickle.loads(text)
        with pytest.raises(ValueError, match="has changed since it was opened"):
            there.step({"beta": np.zeros(3)})
        with pytest.raises(ValueError, match="has changed since it was opened"):
            pma.TunaMH(model=model)

    def test_a_file_that_was_cut_is_refused(self, interpreted, draw, own):
        model = on_disk(own)
        step = pma.TunaMH(model=model)
        os.truncate(own["X"].path, 1000)
        with pytest.raises(ValueError, match="X.npy has 1,000 bytes, and 120,128 are wanted"):
            draw(model, step, chains=1)

    @pytest.mark.slow("builds and compiles several steps")
    def test_a_chunk_with_another_checksum(self, interpreted, draw, own):
        """Size, time and inode are what they were."""
        model = on_disk(own)
        step = pma.TunaMH(model=model)
        changed_in_place(own)
        told = r"X.npy has changed since .*chunk 0 .*another checksum.*build the step again"
        with pytest.raises(ValueError, match=told):
            draw(model, step, chains=1)
        with pytest.raises(ValueError, match=told):
            pma.TunaMH(model=model)
        there = cloudpickle.loads(cloudpickle.dumps(step))
        with pytest.raises(ValueError, match=told):
            there.step({"beta": np.zeros(3)})

    def test_a_worker_says_so(self, draw, own):
        model = on_disk(own)
        with backend.interpreted():
            step = pma.TunaMH(model=model)
            touched(own)
            with pytest.raises(ParallelSamplingError, match="X.npy has changed since it was opened"):
                draw(model, step, cores=2, mp_ctx="fork")


def touched(store):
    path = store["X"].path
    state = path.stat()
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000))


def changed_in_place(store):
    path = store["X"].path
    state = path.stat()
    with path.open("r+b") as file:
        file.seek(state.st_size - 8)
        file.write(np.float64(0.5).tobytes())
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


class TestRefused:
    """Steps and models that need rows in memory say so by name."""

    def test_other_steps(self, store):
        with pm.Model() as gamma:
            rate = pm.Gamma("rate", 1, 1)
            pm.Poisson("o", rate, observed=pma.stored_data("count", store["count"]))
        with pytest.raises(RowsOnDiskError, match="'count' is on disk .* SCIR needs data in memory"):
            pma.SCIR(model=gamma, step_size=0.1)

    @pytest.mark.parametrize(
        ("name", "build"),
        {
            "SGLD": lambda m: pma.SGLD(model=m, step_size=1e-3),
            "a step that moves single elements": lambda m: pma.AusterityMH(model=m, elementwise=True),
        }.items(),
    )
    def test_steps_of_this_package(self, model, name, build):
        with pytest.raises(RowsOnDiskError, match=f"on disk .*, and {name} needs data in memory"):
            build(model)

    def test_gibbs_steps(self, store):
        with pm.Model() as model:
            kind = pm.Bernoulli("kind", 0.5, shape=3)
            pm.Normal("o", kind[0], 1, observed=pma.stored_data("count", store["count"]))
        with pytest.raises(RowsOnDiskError, match="on disk .*, and a step that moves single elements"):
            pma.AusterityGibbs(model=model)

    @pytest.mark.parametrize("build", [pma.restricted_nuts, pma.restricted_slice])
    def test_steps_of_pymc_on_terms_that_read_them(self, model, build):
        with pytest.raises(RowsOnDiskError, match="'X' is on disk"):
            build(["beta"], model=model)

    def test_a_field(self, interpreted, store):
        with pm.Model() as model:
            tau = pm.HalfNormal("tau")
            effect = pm.Normal("effect", 0, tau, shape=40)
            group = pma.stored_data("group", store["group"])
            pm.Normal("o", effect[group], 1, observed=pma.stored_data("count", store["count"]))
        with pytest.raises(RowsOnDiskError, match="not in the order of the groups of 'effect'"):
            pma.TunaMH(model=model)

    def test_deterministics_of_rows(self, interpreted, store):
        model = on_disk(store)
        with model:
            pm.Deterministic("mu", model["X"] @ model["beta"])
        with pytest.raises(RowsOnDiskError, match="Deterministic 'mu' is computed from 'X'"):
            pma.TunaMH(model=model)

    def test_observations_that_are_computed(self, interpreted, store):
        with pm.Model() as model:
            x = pma.stored_data("X", store["X"])
            pm.Normal("o", pm.Normal("a") * x[:, 0], 1, observed=x[:, 1])
        with pytest.raises(RowsOnDiskError, match="observations of 'o' are computed from 'X'"):
            pma.TunaMH(model=model)

    def test_a_number_that_is_not_finite_far_from_the_head(self, interpreted, tmp_path):
        wrong = np.where(np.arange(N)[:, None] == 4321, np.nan, X)
        rows = pma.RowStore.write({**SOURCE, "X": wrong}, tmp_path / "wrong.rows", chunk_rows=1000)
        told = r"The term 'clicked' cannot be computed: Column 0 of 'X' is nan in row 4,321 \(chunk 4\)"
        with pytest.raises(ValueError, match=told):
            pma.TunaMH(model=on_disk(rows))

    def test_an_index_that_is_out_of_bounds(self, interpreted, store):
        with pm.Model() as model:
            effect = pm.Normal("effect", 0, 1, shape=4)
            group = pma.stored_data("group", store["group"])
            pm.Normal("o", effect[group], 1, observed=pma.stored_data("count", store["count"]))
        with pytest.raises(ValueError, match=r"index 'group' in row .* 'effect' has 4 elements"):
            pma.TunaMH(model=model)
