"""UniformStiefel: draws, an ordinary PyMC variable, and errors off the manifold."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import find_mode
from pymc_austerity.distributions import UniformStiefel
from pymc_austerity.distributions.uniform_stiefel import nearest_orthonormal
from tests.statistical.errors import LIMIT

N_DRAWS = 20_000


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords={"row": range(4), "column": range(2)}) as model:
        UniformStiefel("V", 4, 2, dims=("row", "column"))
        W = UniformStiefel("W", 3)
        pm.Normal("y", W[0, 0], 1.0)
    return model


def z(draws, expected):
    return (np.mean(draws) - expected) / (np.std(draws) / np.sqrt(len(draws)))


@pytest.mark.parametrize(("n", "k", "mode"), [(3, 3, "FAST_COMPILE"), (5, 2, "NUMBA")])
@pytest.mark.covering(1)
def test_draws_are_uniform(n, k, mode):
    draws = pm.draw(UniformStiefel.dist(n, k), N_DRAWS, random_seed=1, mode=mode)
    assert np.abs(np.swapaxes(draws, 1, 2) @ draws - np.eye(k)).max() < 1e-13
    for row, column in ((0, 0), (n - 1, k - 1)):
        entry = draws[:, row, column]
        assert abs(z(entry**2, 1 / n)) < LIMIT
        assert abs(z(entry**4, 3 / (n * (n + 2)))) < LIMIT
    if n == k:
        assert abs(z(np.linalg.det(draws), 0)) < LIMIT


def test_q_without_the_signs_of_r_would_be_seen():
    normal = np.random.default_rng(1).normal(size=(N_DRAWS, 3, 3))
    q, _ = np.linalg.qr(normal)
    assert abs(z(np.linalg.det(q), 0)) > LIMIT or abs(z(q[:, 0, 0], 0)) > LIMIT


@pytest.mark.slow("builds and compiles several steps")
def test_prior_and_names_of_dimensions(model):
    quick = {"mode": "FAST_COMPILE"}  # numba is above
    prior = pm.sample_prior_predictive(50, model=model, random_seed=1, compile_kwargs=quick).prior
    assert prior["V"].dims == ("chain", "draw", "row", "column")
    assert prior["W"].shape == (1, 50, 3, 3)
    assert prior["y"].std() > 0.5


@pytest.mark.slow("compiles a distribution of its own")
def test_several_matrices():
    draws = pm.draw(UniformStiefel.dist(3, 2, shape=(5, 3, 2)), random_seed=1, mode="FAST_COMPILE")
    np.testing.assert_allclose(np.swapaxes(draws, 1, 2) @ draws, np.tile(np.eye(2), (5, 1, 1)), atol=1e-13)
    assert pm.logp(UniformStiefel.dist(3, 2, shape=(5, 3, 2)), draws).eval().tolist() == [0.0] * 5


@pytest.mark.parametrize("mode", ["NUMBA", "FAST_COMPILE"])
def test_density(model, mode):
    logp = model.compile_logp(mode=mode)
    point = model.initial_point()
    np.testing.assert_array_equal(point["V"], np.eye(4, 2))
    before = logp(point)
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0][:, :2]
    assert logp({**point, "V": turned}) == before
    assert logp({**point, "V": turned * (1 + 1e-9)}) == before
    with pytest.raises(ValueError, match=r"V has to have orthonormal columns.*proposal=StiefelWalk\(\)"):
        logp({**point, "V": turned * (1 + 1e-7)})
    with pytest.raises(ValueError, match="V has to have orthonormal columns"):
        logp({**point, "V": np.full((4, 2), np.nan)})


def test_the_gradient_is_refused_and_nuts_too(model):
    with pytest.raises(ValueError, match=r"V is a UniformStiefel variable, whose density has no gradient"):
        model.compile_dlogp(vars=[model["V"]])
    with pytest.raises(ValueError, match=r"has no gradient.*proposal=StiefelWalk\(\)"):
        pm.sample(5, model=model, progressbar=False)
    with pytest.raises(ValueError, match="has no gradient"):
        find_mode(model, ["W"], progressbar=False)
    assert np.isfinite(model.compile_dlogp(vars=[model["y"]])(model.initial_point()))


def test_metropolis_on_it_is_an_error(model):
    with model:
        step = pm.Metropolis([model["W"]])
    with pytest.raises(ValueError, match=r"W has to have orthonormal columns.*StiefelWalk"):
        step.step(model.initial_point())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 2, "k": 3}, "k of UniformStiefel must be an integer from 1 to n = 2, got 3"),
        ({"n": 2, "k": 0}, "got 0"),
        ({"n": 0}, "n of UniformStiefel must be a positive integer, the rows of W, got 0"),
        ({"n": 2.5}, "got 2.5"),
        ({"n": True}, "got True"),
        ({"n": 3, "k": 2, "shape": (3, 3)}, "3 x 2 matrices, but its shape or dims say .3, 3."),
        ({"n": 3, "shape": (3,)}, "say .3,.:"),
    ],
)
def test_bad_sizes(options, message):
    with pytest.raises(ValueError, match=message):
        UniformStiefel.dist(**options)


def test_dims_of_another_size():
    with (
        pm.Model(coords={"row": range(4)}),
        pytest.raises(ValueError, match="its shape or dims say .4, 4.: leave"),
    ):
        UniformStiefel("W", 3, dims=("row", "row"))


def test_nearest_orthonormal():
    W = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 3)))[0]
    np.testing.assert_allclose(nearest_orthonormal(W), W, atol=1e-14)
    near = nearest_orthonormal(W + 1e-3)
    np.testing.assert_allclose(near.T @ near, np.eye(3), atol=1e-14)
