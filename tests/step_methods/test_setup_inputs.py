"""Data that a set-up may meet: of other types and layouts, on disk, degenerate, impossible in one row."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import TunaMH
from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.model.compile.backend import interpreted

N, K = 25_000, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, K))
Y = RNG.random(N) < 1 / (1 + np.exp(-X[:, 0]))


def built(x, y=Y, prior=None):
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=K) if prior is None else prior()
        pm.Bernoulli("y", logit_p=pm.math.dot(x, b), observed=y)
    with interpreted():
        return TunaMH(model=model)


def flat():
    return pm.Flat("b", shape=K)


@pytest.fixture(scope="module")
def mode():
    return built(X)._recipe.mode_fit.proxy.mode


def on_disk(x, tmp_path):
    stored = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=x.dtype, shape=x.shape)
    stored[:] = x
    return stored


@pytest.mark.parametrize(
    "other",
    [
        np.asfortranarray,
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: x.astype("float32"),
    ],
    ids=["columns first", "every other row", "single precision"],
)
@pytest.mark.covering(1)
def test_other_layouts(other, mode):
    np.testing.assert_allclose(built(other(X))._recipe.mode_fit.proxy.mode, mode, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16", "bool"])
@pytest.mark.covering(1)
def test_integers(dtype):
    whole = np.abs(X * 3).astype("int8").astype(dtype)
    ours = built(whole)._recipe.mode_fit.proxy
    theirs = built(whole.astype(np.float64))._recipe.mode_fit.proxy
    np.testing.assert_allclose(ours.mode, theirs.mode, atol=1e-12)
    np.testing.assert_allclose(ours.precision, theirs.precision, rtol=1e-12)


def test_an_array_on_disk_is_not_copied(tmp_path, mode):
    stored = on_disk(X, tmp_path)
    step = built(stored)
    np.testing.assert_allclose(step._recipe.mode_fit.proxy.mode, mode, atol=1e-12)
    assert any(np.shares_memory(leaf, stored) for leaf in step.engine.target.leaf_values)


def test_a_column_of_zeros_has_its_prior():
    x = X.copy()
    x[:, 2] = 0.0
    proxy = built(x)._recipe.mode_fit.proxy
    np.testing.assert_allclose([proxy.mode[2], proxy.precision[2, 2]], [0.0, 0.25], atol=1e-9)
    with pytest.raises(NoNormalApproximationError, match=r"no curvature .* along b\[2\]"):
        built(x, prior=flat)


def test_equal_columns_share_what_the_data_say():
    x = X.copy()
    x[:, 3] = x[:, 1]
    proxy = built(x)._recipe.mode_fit.proxy
    np.testing.assert_allclose(proxy.mode[3], proxy.mode[1], atol=1e-9)
    with pytest.raises(NoNormalApproximationError, match=r"no curvature .* along b\[[13]\], b\[[13]\]"):
        built(x, prior=flat)


def test_one_impossible_row_of_many_is_named(monkeypatch):
    """Even if it is not among those that are tried before the search."""
    monkeypatch.setattr("pymc_austerity.mode.mode_fit._TRIED_ROWS", 1000)
    x = X.copy()
    x[4242, 1] = np.inf
    with pytest.raises(ValueError, match=r"term 'y' is -inf (wherever|at) .* is inf in row 4242, column 1\."):
        built(x)
