"""Predictions for rows on disk, written to disk piece by piece."""

import errno

import numpy as np
import pymc as pm
import pytest
import zarr
from scipy import stats
from xarray import Dataset, DataTree

from pymc_austerity import FactorisationError, RowStore, sample_posterior_predictive, stored_data
from pymc_austerity.model import predictive

N, CHAINS, DRAWS = 5000, 2, 40
RNG = np.random.default_rng(3)
SOURCE = {
    "X": RNG.normal(size=(N, 2)).astype("float32"),
    "g": RNG.integers(4, size=N).astype("int8"),
    "y": RNG.integers(2, size=N).astype("int8"),
    "z": RNG.normal(size=N),
}
POSTERIOR = {
    "beta": RNG.normal(size=(CHAINS, DRAWS, 2)),
    "effect": RNG.normal(size=(CHAINS, DRAWS, 4)),
    "scale": RNG.uniform(0.5, 2.0, size=(CHAINS, DRAWS)),
}


def idata_of(values):
    coords = {"chain": np.arange(CHAINS), "draw": 10 * np.arange(DRAWS)}
    variables = {
        name: (("chain", "draw", *(f"{name}_{k}" for k in range(each.ndim - 2))), each)
        for name, each in values.items()
    }
    return DataTree.from_dict({"posterior": Dataset(variables, coords)})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return RowStore.write(SOURCE, tmp_path_factory.mktemp("data") / "rows.rows", chunk_rows=700)


@pytest.fixture(scope="module")
def model(store):
    with pm.Model() as model:
        x = stored_data("X", store["X"], dims=("row", "column"))
        of_group = pm.Normal("effect", 0, 1, shape=4)[stored_data("g", store["g"])]
        eta = x @ pm.Normal("beta", shape=2) + of_group
        pm.Bernoulli("clicked", logit_p=eta, observed=stored_data("y", store["y"]), dims="row")
        pm.Normal("size", eta, pm.HalfNormal("scale"), observed=stored_data("z", store["z"]))
    return model


@pytest.fixture(scope="module")
def predicted(model, tmp_path_factory):
    """In pieces of 60 rows, the last of 20."""
    path = tmp_path_factory.mktemp("predicted") / "all.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predictive, "_PIECE", CHAINS * DRAWS * 16 * 60)
        return sample_posterior_predictive(
            idata_of(POSTERIOR), path, model=model, random_seed=4, progressbar=False
        )


def predictors():
    """Computed without the package, (chain, draw, row)."""
    of_group = POSTERIOR["effect"][:, :, SOURCE["g"]]
    return np.einsum("cdk,nk->cdn", POSTERIOR["beta"], SOURCE["X"]) + of_group


def worst_p(residuals):
    """The smallest of p-values of independent residuals of mean 0 and variance 1: sums over rows, over draws,
    and of squares, by Bonferroni."""
    by_row, by_draw = (np.sqrt(n) * residuals.mean(axis) for axis, n in (((0, 1), CHAINS * DRAWS), (2, N)))
    p = [
        2 * stats.norm.sf(np.abs(by_row)).min() * N,
        2 * stats.norm.sf(np.abs(by_draw)).min() * CHAINS * DRAWS,
    ]
    return min(1.0, *p, 2 * stats.norm.sf(abs((by_row**2).sum() - N) / np.sqrt(2 * N)))


@pytest.mark.slow("builds and compiles several steps")
def test_distribution_of_each_row(predicted):
    p = 1 / (1 + np.exp(-predictors()))
    clicked = predicted.posterior_predictive["clicked"].values
    assert set(np.unique(clicked)) == {0, 1}
    variance = p * (1 - p)
    by_row = (clicked - p).sum((0, 1)) / np.sqrt(variance.sum((0, 1)))
    by_draw = (clicked - p).sum(2) / np.sqrt(variance.sum(2))
    assert 2 * stats.norm.sf(np.abs(by_row)).min() * N > 0.01
    assert 2 * stats.norm.sf(np.abs(by_draw)).min() * CHAINS * DRAWS > 0.01
    size = predicted.posterior_predictive["size"].values
    residuals = (size - predictors()) / POSTERIOR["scale"][..., None]
    assert worst_p(residuals) > 0.01
    assert stats.kstest(residuals.ravel(), "norm").pvalue > 0.01


def test_rows_of_another_piece_would_be_noticed(predicted):
    """Planted fault: each row has the predictor of the row 60 before; and one draw too late."""
    size = predicted.posterior_predictive["size"].values
    for wrong in (np.roll(predictors(), 60, axis=2), np.roll(predictors(), 1, axis=1)):
        assert worst_p((size - wrong) / POSTERIOR["scale"][..., None]) < 1e-6


def test_random_numbers_of_pieces_are_others(predicted):
    size = predicted.posterior_predictive["size"].values
    residuals = (size - predictors()) / POSTERIOR["scale"][..., None]
    first, second = residuals[..., :60].ravel(), residuals[..., 60:120].ravel()
    assert abs(stats.pearsonr(first, second).statistic) < 4 / np.sqrt(first.size)
    assert len(np.unique(residuals)) == residuals.size


def test_what_is_written(predicted):
    found = predicted.posterior_predictive
    assert found["clicked"].dims == ("chain", "draw", "row")
    assert found["size"].dims == ("chain", "draw", "size_dim_0")
    assert found["size"].shape == (CHAINS, DRAWS, N)
    assert found["draw"].values.tolist() == [10 * k for k in range(DRAWS)]
    assert found["clicked"].encoding["chunks"] == (CHAINS, DRAWS, 60)


def test_some_variables_and_a_seed(model, tmp_path):
    def size(name, seed):
        found = sample_posterior_predictive(
            idata_of(POSTERIOR),
            tmp_path / name,
            model=model,
            var_names="size",
            random_seed=seed,
            progressbar=False,
        )
        assert list(found.posterior_predictive.data_vars) == ["size"]
        return found.posterior_predictive["size"].values

    one = size("a.zarr", 1)
    np.testing.assert_array_equal(one, size("b.zarr", 1))
    assert not np.any(one == size("c.zarr", 2))


class TestPaths:
    def sampled(self, model, path, **given):
        return sample_posterior_predictive(
            idata_of(POSTERIOR), path, model=model, var_names=["clicked"], progressbar=False, **given
        )

    def test_replaced_if_asked(self, model, tmp_path):
        path = tmp_path / "p.zarr"
        self.sampled(model, path).close()
        with pytest.raises(FileExistsError, match="overwrite=True replaces a group of predictions"):
            self.sampled(model, path)
        self.sampled(model, path, overwrite=True).close()
        assert [each.name for each in tmp_path.iterdir()] == ["p.zarr"]

    def test_nothing_else_is_replaced(self, model, store, tmp_path):
        with pytest.raises(FileExistsError, match="rows.rows is no group of predictions, and is not"):
            self.sampled(model, store["X"].path.parent, overwrite=True)
        with pytest.raises(FileNotFoundError, match="There is no folder .*nowhere"):
            self.sampled(model, tmp_path / "nowhere" / "p.zarr")

    @pytest.mark.parametrize(
        ("raised", "match"),
        [
            (
                OSError(errno.ENOSPC, "full"),
                r"p.zarr: 3,200,000 bytes are wanted, [\d,]+ are left on its disk",
            ),
            (KeyboardInterrupt(), None),
        ],
    )
    def test_nothing_half_made_is_left(self, model, tmp_path, monkeypatch, raised, match):
        own, written = zarr.Array.__setitem__, []

        def fails_at_last(self, place, values):
            if written:
                raise raised
            written.append(place[2].start)
            own(self, place, values)

        monkeypatch.setattr(zarr.Array, "__setitem__", fails_at_last)
        monkeypatch.setattr(predictive, "_PIECE", 1_000_000)
        with pytest.raises(type(raised), match=match):
            self.sampled(model, tmp_path / "p.zarr")
        assert written == [0]
        assert not list(tmp_path.iterdir())


class TestRefused:
    def refused(self, error, match, model, tmp_path, values=POSTERIOR, **given):
        with pytest.raises(error, match=match):
            sample_posterior_predictive(
                idata_of(values), tmp_path / "p.zarr", model=model, progressbar=False, **given
            )
        assert not list(tmp_path.iterdir())

    def test_no_posterior(self, model, tmp_path):
        values = {name: each for name, each in POSTERIOR.items() if name != "effect"}
        self.refused(ValueError, r"The posterior has no 'effect', .* Keep it", model, tmp_path, values)
        with pytest.raises(ValueError, match="idata has no group 'posterior'"):
            sample_posterior_predictive(DataTree(), tmp_path / "p.zarr", model=model)

    def test_no_such_variable(self, model, tmp_path):
        match = "var_names: 'clics' is none of clicked, size"
        self.refused(ValueError, match, model, tmp_path, var_names=["clics"])

    def test_data_in_memory(self, tmp_path):
        with pm.Model() as model:
            pm.Normal("size", pm.Normal("beta", shape=2).sum(), 1.0, observed=SOURCE["z"])
        self.refused(ValueError, "pm.sample_posterior_predictive", model, tmp_path)

    def test_rows_that_look_at_others(self, store, tmp_path):
        with pm.Model() as model:
            x = stored_data("X", store["X"])
            eta = (x - x.mean(axis=0)) @ pm.Normal("beta", shape=2)
            pm.Normal("size", eta, 1.0, observed=stored_data("z", store["z"]))
        self.refused(FactorisationError, "standardise", model, tmp_path)

    def test_a_vector_for_all_rows(self, store, tmp_path):
        with pm.Model() as model:
            latent = pm.Normal("latent", shape=N)
            pm.Normal("size", latent, 1.0, observed=stored_data("z", store["z"]))
        values = {"latent": np.zeros((CHAINS, DRAWS, N))}
        match = "'size' cannot be computed from single rows: .* variables cannot have an element for each row"
        self.refused(FactorisationError, match, model, tmp_path, values)

    def test_an_observation_before_them(self, store, tmp_path):
        with pm.Model() as model:
            level = pm.Normal("level", pm.Normal("beta"), 1.0, observed=0.3)
            pm.Normal("size", level, 1.0, observed=stored_data("z", store["z"]))
        self.refused(ValueError, "depend on the observed variable 'level'", model, tmp_path)

    def test_rows_on_another_axis(self, store, tmp_path):
        with pm.Model() as model:
            z = stored_data("z", store["z"])
            pm.Normal("size", pm.Normal("beta"), 1.0, observed=z, shape=(3,))
        match = "'size' cannot be computed from single rows"
        self.refused(FactorisationError, match, model, tmp_path, {"beta": POSTERIOR["scale"]})
