"""Data of a model that stay on disk: what they mean in a model, and what is refused."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.backends.arviz import find_constants, find_observations
from pymc.model.transform.optimization import freeze_dims_and_data

from pymc_austerity import FactorisationError, RowStore, factorise, stored_data
from pymc_austerity.exceptions import RowsOnDiskError
from pymc_austerity.model.factorise import heads
from pymc_austerity.model.graph.rows_on_disk import on_disk

N, HEAD = 5000, 2000
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 3))
SOURCE = {
    "X": X,
    "narrow": X.astype("float32"),
    "y": (RNG.random(N) < 1 / (1 + np.exp(-X @ [0.3, -0.2, 0.1]))).astype("int8"),
    "count": RNG.poisson(3.0, size=N),
    "group": RNG.integers(5, size=N).astype("int16"),
}
NUMBERS = RNG.normal(size=N)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return RowStore.write(SOURCE, tmp_path_factory.mktemp("data") / "clicks.rows", chunk_rows=1000)


def built(get, write):
    """A model of which `write` makes the likelihood from data that `get` gives by name."""
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        write(get, beta)
    return model


def on_the_disk(store, write):
    known = {}

    def get(name):  # may be asked for twice
        if name not in known:
            known[name] = stored_data(name, store[name])
        return known[name]

    return built(get, write)


def both(store, write):
    """The same model on disk and in memory."""
    return on_the_disk(store, write), built(lambda name: pt.as_tensor(SOURCE[name]), write)


def logistic(get, beta):
    pm.Bernoulli("clicked", logit_p=get("X") @ beta, observed=get("y"))


@pytest.fixture(scope="module")
def disk(store):
    return on_the_disk(store, logistic)


class TestVariable:
    def test_it_has_the_shape_of_all_rows_and_the_dtype_of_the_file(self, store):
        with pm.Model():
            x, narrow = stored_data("X", store["X"]), stored_data("narrow", store["narrow"])
        assert x.shape[0].eval() == N
        assert x.type.shape == (None, 3)
        assert (x.type.dtype, narrow.type.dtype) == ("float64", "float32")

    def test_the_name_means_all_rows(self, disk):
        assert disk["X"] in on_disk([disk["X"]])
        with disk, pytest.raises(TypeError, match="SharedVariable"):
            pm.set_data({"X": X[:3000]})

    def test_dimensions_have_the_length_of_the_file(self, store):
        with pm.Model(coords={"feature": ["a", "b", "c"]}) as model:
            x = stored_data("X", store["X"], dims=("row", "feature"))
            y = stored_data("y", store["y"], dims="row")
            beta = pm.Normal("beta", 0, 1, dims="feature")
            pm.Bernoulli("clicked", logit_p=x @ beta, observed=y, dims="row")
        assert model.dim_lengths["row"].eval() == N
        assert factorise(model).local_terms == [("clicked", N)]
        assert "X" not in model.named_vars_to_dims

    def test_a_head_longer_than_the_rows_is_all_rows(self, tmp_path):
        few = RowStore.write({"y": np.zeros(1200)}, tmp_path / "few.rows")
        with pm.Model() as model:
            y = stored_data("y", few["y"])
            pm.Normal("o", pm.Normal("mu"), 1, observed=y)
        assert factorise(model).n_local == 1200

    def test_the_model_is_pickled_without_rows(self, store):
        with pm.Model() as model:
            logistic(lambda name: stored_data(name, store[name], head=10), pm.Normal("beta", shape=3))
        text = cloudpickle.dumps(model)
        assert len(text) < 40_000
        there = cloudpickle.loads(text)
        np.testing.assert_array_equal(on_disk([there["X"]])[there["X"]].rows[:], X)

    @pytest.mark.parametrize("change", [pm.Model.copy, freeze_dims_and_data])
    def test_copies_of_a_model_mean_the_same(self, disk, change):
        model = change(disk)
        assert factorise(model).local_terms == [("clicked", N)]
        with pytest.raises(RowsOnDiskError, match="is on disk"):
            model.compile_logp(mode="FAST_COMPILE")(model.initial_point())

    def test_results_have_the_head(self, disk):
        assert find_constants(disk)["X"].shape == (HEAD, 3)
        np.testing.assert_array_equal(find_observations(disk)["clicked"], SOURCE["y"][:HEAD])


class TestGivenWrongly:
    def test_no_rows(self):
        with pm.Model(), pytest.raises(TypeError, match=r"store\['X'\], got ndarray"):
            stored_data("X", X)

    def test_no_model(self, store):
        with pytest.raises(TypeError, match="model"):
            stored_data("X", store["X"])

    @pytest.mark.parametrize("head", [0, -1, 2.5, True])
    def test_head(self, store, head):
        with pm.Model(), pytest.raises(ValueError, match="head must be a whole number"):
            stored_data("X", store["X"], head=head)

    def test_rows_of_another_number(self, store, tmp_path):
        other = RowStore.write({"y": np.zeros(1200)}, tmp_path / "other.rows")
        with pm.Model():
            stored_data("X", store["X"])
            with pytest.raises(ValueError, match=r"'y' has 1,200 rows .*, and 'X' has 5,000"):
                stored_data("y", other["y"])

    def test_dimensions(self, store):
        with pm.Model(coords={"row": range(7)}):
            with pytest.raises(ValueError, match="'row' has length 7 in the model, and 5,000 in 'y'"):
                stored_data("y", store["y"], dims="row")
            with pytest.raises(ValueError, match="must be 2 names"):
                stored_data("X", store["X"], dims="feature")

    def test_a_number_that_is_not_finite(self, tmp_path):
        wrong = np.where(np.arange(N)[:, None] == 1300, np.nan, X)
        rows = RowStore.write({"X": wrong}, tmp_path / "wrong.rows", chunk_rows=1000)["X"]
        with pm.Model(), pytest.raises(ValueError, match="Column 0 of 'X' is nan in row 1,300"):
            stored_data("X", rows)


class TestEvaluationElsewhere:
    """Nothing of PyMC computes with 2,000 rows."""

    def evaluations(self):
        draws = {"draws": 5, "tune": 5, "chains": 1, "progressbar": False, "quiet": True}
        trace = {"beta": np.zeros((1, 2, 3))}
        return {
            "logp": lambda m: m.compile_logp()(m.initial_point()),
            "dlogp": lambda m: m.compile_dlogp()(m.initial_point()),
            "nuts": lambda m: pm.sample(step=pm.NUTS(), **draws),
            "metropolis": lambda m: pm.sample(step=pm.Metropolis(), **draws),
            "slice": lambda m: pm.sample(step=pm.Slice(), **draws),
            "vi": lambda m: pm.fit(2, progressbar=False),
            "map": lambda m: pm.find_MAP(progressbar=False),
            "draw": lambda m: pm.draw(m["clicked"]),
            "prior": lambda m: pm.sample_prior_predictive(2),
            "predictive": lambda m: pm.sample_posterior_predictive(posterior(trace), progressbar=False),
            "likelihood": lambda m: pm.compute_log_likelihood(posterior(trace), progressbar=False),
            "eval": lambda m: m["X"].eval(),
            "expression": lambda m: (m["X"] + 1).eval(),
            "interpreted": lambda m: (m["X"] + 1).eval(mode="FAST_COMPILE"),
        }

    @pytest.mark.filterwarnings("ignore::FutureWarning")
    def test_it_raises(self, disk):
        for evaluate in self.evaluations().values():
            with disk, pytest.raises(RowsOnDiskError, match=r"'[Xy]' is on disk \(5,000 rows, .*Use one of"):
                evaluate(disk)

    def test_the_log_density_raises(self, disk):
        with pytest.raises(RowsOnDiskError, match="is on disk"):
            disk.compile_logp(mode="FAST_COMPILE")(disk.initial_point())


def posterior(values):
    import xarray as xr
    from xarray import DataTree

    dims = ("chain", "draw", "k")
    return DataTree.from_dict({"posterior": xr.Dataset({n: (dims, v) for n, v in values.items()})})


def own_potential(get, beta):
    x = get("X")
    rest = x[:, 0] - beta[0] - beta[1] * x[:, 1]
    pm.Potential("own", -0.5 * (rest**2).sum() / pt.exp(2 * beta[2]) - x.shape[0] * beta[2])


RIGHT = {
    "logistic": logistic,
    "narrow": lambda get, b: pm.Bernoulli("o", logit_p=get("narrow") @ b, observed=get("y")),
    "computed": lambda get, b: pm.Bernoulli("o", logit_p=pt.log1p(pt.abs(get("X"))) @ b, observed=get("y")),
    "given moments": lambda get, b: pm.Normal(
        "o", ((get("X") - X.mean(axis=0)) / X.std(axis=0)) @ b, 1, observed=get("count")
    ),
    "of several columns": lambda get, b: pm.Normal(
        "o", (get("X") * (1 + get("X")[:, 0])[:, None]) @ b, 1, observed=get("count")
    ),
    "log factorials": lambda get, b: pm.Poisson("o", pt.exp(1 + get("X") @ b), observed=get("count")),
    "looked up": lambda get, b: pm.Normal("o", b[get("group") % 3], 1, observed=get("count")),
    "sum": own_potential,
}


def lagged(get, b):
    pm.Normal("o", get("X")[:-1] @ b, 1, observed=get("count")[1:])


def in_global_term(get, b):
    x = get("X")
    pm.Potential("whole", (x.mean(axis=0) * b).sum())
    pm.Normal("o", x @ b, 1, observed=get("count"))


def in_memory(values):
    return lambda get, b: pm.Normal("o", get("X") @ b + values, 1, observed=get("count"))


def latent(get, b):
    pm.Normal("o", pm.Normal("latent", shape=N), 1, observed=get("count"))


def one(expression):
    return lambda get, b: pm.Normal("o", expression(get("X"), b), 1, observed=get("count"))


COUPLED = {
    "mean": (one(lambda x, b: (x - x.mean(axis=0)) @ b), "'o' looks at more than one row of 'X'.*Sum"),
    "deviation": (one(lambda x, b: (x / x.std(axis=0)) @ b), "looks at more than one row of 'X'.*Sum"),
    "cumsum": (one(lambda x, b: pt.cumsum(x, axis=0) @ b), "looks at more than one row of 'X'.*CumOp"),
    "sort": (one(lambda x, b: pt.sort(x, axis=0) @ b), "looks at more than one row of 'X'.*SortOp"),
    "largest": (one(lambda x, b: (x / x.max()) @ b), "looks at more than one row of 'X'.*Max"),
    "one row": (one(lambda x, b: (x - x[0]) @ b), "looks at more than one row of 'X'.*Subtensor"),
    "global": (in_global_term, "'whole' looks at more than one row of 'X'.*no sum over rows"),
    "reversed": (one(lambda x, b: x[::-1] @ b), "'o' depend on other rows"),
    "lagged": (lagged, "'o' depend on other rows"),
    "numbered": (one(lambda x, b: x @ b + 1e-3 * pt.arange(x.shape[0])), "'o' depend on other rows"),
    "memory of the same length": (in_memory(NUMBERS), r"in memory: one of shape \(5000,\).*same store"),
    "latent": (latent, "cannot be computed from single rows.* variables cannot have an element for each row"),
    "memory of the head's length": (in_memory(NUMBERS[:HEAD]), r"in memory: one of shape \(2000,\)"),
    "memory of another length": (in_memory(NUMBERS[:7]), r"in memory: one of shape \(7,\)"),
}


class TestFactorise:
    @pytest.mark.parametrize("name", RIGHT)
    @pytest.mark.covering(2)
    def test_terms_are_those_of_the_arrays_in_memory(self, store, name):
        on_disk_, in_memory_ = (factorise(model) for model in both(store, RIGHT[name]))
        assert on_disk_.local_terms == in_memory_.local_terms == [(on_disk_.local_terms[0][0], N)]
        point = {"beta": np.array([0.2, -0.1, 0.3])}
        rows = RNG.integers(N, size=500)
        found = on_disk_.log_density_terms(point, rows)
        np.testing.assert_allclose(found, in_memory_.log_density_terms(point, rows), rtol=1e-12)
        ours, theirs = (fact.global_log_density(point) for fact in (on_disk_, in_memory_))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)

    @pytest.mark.parametrize("name", COUPLED)
    def test_rows_that_need_others_are_refused(self, store, name):
        write, message = COUPLED[name]
        with pytest.raises(FactorisationError, match=message):
            factorise(on_the_disk(store, write))

    def test_the_remedy_for_standardised_columns_is_named(self, store):
        with pytest.raises(FactorisationError, match="standardise="):
            factorise(on_the_disk(store, COUPLED["mean"][0]))

    def test_data_are_not_copied(self, store, disk):
        fact = factorise(disk)
        maps = [np.asarray(store["X"]), np.asarray(store["y"])]
        assert sorted(value.nbytes for value in fact.leaf_values) == sorted(one.nbytes for one in maps)
        assert all(any(np.shares_memory(v, one) for one in maps) for v in fact.leaf_values)

    def test_planted_rows_of_another_file_are_found(self, store, disk, monkeypatch):
        """The check of rows from everywhere: rows that are shifted by one beyond the head."""
        # Planted fault: rows of another file beyond the head.
        right = factorise(disk)
        shifted = np.roll(X, 1, axis=0)
        shifted[:HEAD] = X[:HEAD]
        operation = on_disk([disk["X"]])[disk["X"]]
        taken = operation.mapped
        array = taken.get_value(borrow=True)

        def other_rows(graph, threshold):
            arrays, chosen = heads(graph, threshold)
            return {**arrays, taken: shifted[chosen]}, chosen

        monkeypatch.setattr("pymc_austerity.model.factorise.heads", other_rows)
        assert right.n_local == len(array)
        with pytest.raises(FactorisationError, match="depend on other rows"):
            factorise(disk)


def test_several_terms_on_disk_and_in_memory(store):
    """A term in memory of its own length beside one on disk."""

    def write(get, beta):
        logistic(get, beta)
        pm.Normal("more", beta[0], 1, observed=NUMBERS[:1500])

    on_disk_, in_memory_ = (factorise(model) for model in both(store, write))
    assert on_disk_.local_terms == [("clicked", N), ("more", 1500)]
    point = {"beta": np.array([0.2, -0.1, 0.3])}
    found = on_disk_.log_density_terms(point)
    np.testing.assert_allclose(found, in_memory_.log_density_terms(point), rtol=1e-12)
