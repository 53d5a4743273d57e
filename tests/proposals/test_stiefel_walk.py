"""StiefelWalk: its algebra, the uniform distribution, tuning, refusals; and walks that are wrong."""

import math
from functools import cache

import numba
import numpy as np
import pymc as pm
import pytest
from numba.extending import register_jitable

import pymc_austerity as pma
from pymc_austerity.distributions import UniformStiefel
from pymc_austerity.proposals import Langevin, StiefelWalk
from pymc_austerity.proposals.base import Block, bind
from pymc_austerity.proposals.stiefel_walk import (
    adapt_scale,
    cayley_times,
    orthonormalised,
    propose_rotation,
    random_skew,
)
from pymc_austerity.testing import check_proposal, check_step
from pymc_austerity.testing.models import Solved
from tests.statistical.errors import LIMIT, z_of_mean

N_MOVES = 200_000


def block(*matrices):
    return Block(sum(n * k for n, k in matrices), 1000, matrices)


def bound(*matrices, scale=None):
    of_block = block(*matrices)
    return bind(StiefelWalk(scale), of_block.n_dim, 0.234, block=of_block)


def skew(n, rng):
    s = rng.normal(size=(n, n))
    return s - s.T


# Algebra ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2), (4, 4), (5, 2)])
def test_cayley(n, k):
    rng = np.random.default_rng(1)
    s, w = skew(n, rng), rng.normal(size=(n, k))
    expected = np.linalg.solve(np.eye(n) - s / 2, (np.eye(n) + s / 2) @ w)
    np.testing.assert_allclose(cayley_times(s, w), expected, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(cayley_times(-s, cayley_times(s, w)), w, rtol=1e-11, atol=1e-13)
    rotation = cayley_times(s, np.eye(n))
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(n), atol=1e-13)
    assert np.linalg.det(rotation) == pytest.approx(1.0)


def test_huge_steps_stay_accurate():
    """Without an exchange of rows: pivots are at least one."""
    rotation = cayley_times(1e6 * skew(6, np.random.default_rng(1)), np.eye(6))
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(6), atol=1e-7)


def test_newton_schulz():
    w = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 3)))[0]
    off = w + 1e-6 * np.random.default_rng(2).normal(size=w.shape)
    better = orthonormalised(off)
    assert np.abs(better.T @ better - np.eye(3)).max() < 1e-10


def test_random_skew():
    rng = np.random.default_rng(1)
    drawn = np.array([random_skew(3, 0.5, rng) for _ in range(4000)])
    np.testing.assert_array_equal(drawn, -np.swapaxes(drawn, 1, 2))
    np.testing.assert_allclose(drawn.std(0), 0.5 * (1 - np.eye(3)), atol=0.03)


# Moves --------------------------------------------------------------------------------------------


def test_compiled_and_interpreted_are_the_same():
    one = bound((3, 3), (4, 2), scale=0.3)
    q = np.concatenate([np.eye(3).ravel(), np.eye(4, 2).ravel()])
    compiled = numba.njit(propose_rotation)
    for seed in range(30):
        moves = [f(one.state, q, np.random.default_rng(seed)) for f in (propose_rotation, compiled)]
        np.testing.assert_allclose(moves[0][0], moves[1][0], rtol=1e-14, atol=1e-14)
        assert moves[0][1] == moves[1][1] == 0.0


def test_one_move_in_ten_negates_a_row():
    one, q, rng = bound((2, 2), scale=0.3), np.eye(2).ravel(), np.random.default_rng(1)
    changed = 0
    for _ in range(4000):
        q_new, _ = one.propose(one.state, q, rng)
        if np.linalg.det(q_new.reshape(2, 2)) < 0:
            changed += 1
            assert sorted(np.abs(q_new - q)) == [0, 0, 0, 2]
    assert abs(changed - 400) < LIMIT * math.sqrt(360)


def test_tall_matrices_are_rotated_only():
    one, q, rng = bound((4, 2), scale=0.3), np.eye(4, 2).ravel(), np.random.default_rng(1)
    assert all(one.propose(one.state, q, rng)[0][0] > 0 for _ in range(300))


@numba.njit
def walk(propose, state, q, n, tilt, rng):
    """Metropolis on exp(tilt * det W) of a 4 x 4 matrix, or on the uniform distribution; entries and dets."""
    k = q.shape[0] // state.matrices[0, 0]
    kept = np.empty((n, 3))
    for i in range(n):
        q_new, _ = propose(state, q, rng)
        if tilt == 0.0:
            q = q_new
        else:
            old, new = np.linalg.det(q.reshape((-1, k))), np.linalg.det(q_new.reshape((-1, k)))
            if math.log(rng.random()) < tilt * (new - old):
                q = q_new
        w = q.reshape((-1, k))
        kept[i] = w[0, 0], w[1, k - 1], np.linalg.det(w) if k == w.shape[0] else 0.0
    return q, kept


compiled = cache(numba.njit)


def run(one, n, k, propose=propose_rotation, tilt=0.0, moves=N_MOVES):
    start = np.eye(n, k).ravel().copy()
    return walk(compiled(propose), one.state, start, moves, tilt, np.random.default_rng(7))


def wrongs(kept, n, has_det, det=0.0):
    """Moments that are not those of the uniform distribution."""
    expected = {"square": (kept[:, 0] ** 2, 1 / n), "other": (kept[:, 1] ** 2, 1 / n)}
    expected["fourth"] = (kept[:, 0] ** 4, 3 / (n * (n + 2)))
    if has_det:
        expected["det"] = (kept[:, 2], det)
    return [
        what
        for what, (values, mean) in expected.items()
        if not (np.std(values) > 0 and abs(z_of_mean(values, mean)) < LIMIT)
    ]


@pytest.mark.parametrize(("n", "k"), [(4, 4), (5, 2)])
@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.covering(1)
def test_the_uniform_distribution_stays(n, k, scale):
    """Check 4 of the uniform distribution on matrices."""
    _, kept = run(bound((n, k), scale=scale), n, k)
    assert wrongs(kept, n, has_det=n == k) == []


def test_a_target_that_weighs_the_determinant():
    """E det W = tanh(1) under exp(det W)."""
    _, kept = run(bound((4, 4), scale=0.5), 4, 4, tilt=1.0)
    assert wrongs(kept, 4, has_det=True, det=math.tanh(1.0)) == []


@pytest.mark.slow("a million transitions, twice")
@pytest.mark.parametrize(("n", "k"), [(4, 4), (5, 2)])
def test_no_drift_off_the_manifold(n, k):
    q, kept = run(bound((n, k), scale=0.3), n, k, moves=1_000_000)
    w = q.reshape(n, k)
    assert np.abs(w.T @ w - np.eye(k)).max() < 1e-10
    assert wrongs(kept, n, has_det=n == k) == []


# Wrong on purpose ---------------------------------------------------------------------------------


@register_jitable
def never_reflected(state, q, rng):
    """A walk that cannot change det W."""
    n = state.matrices[0, 0]
    rotated = cayley_times(random_skew(n, state.scale[0], rng), q.copy().reshape((n, -1)))
    return rotated.copy().reshape(q.shape[0]), 0.0


@register_jitable
def not_skew(state, q, rng):
    """C(S) of any matrix S, which is no rotation."""
    n = state.matrices[0, 0]
    s = state.scale[0] * rng.standard_normal(n * n).reshape((n, n))
    return cayley_times(s, q.copy().reshape((n, -1))).copy().reshape(q.shape[0]), 0.0


def test_a_walk_that_cannot_change_the_determinant_fails():
    _, kept = run(bound((4, 4), scale=0.3), 4, 4, propose=never_reflected, tilt=1.0)
    assert "det" in wrongs(kept, 4, has_det=True, det=math.tanh(1.0))


@pytest.mark.slow("compiles a kernel of its own")
def test_a_walk_by_a_matrix_that_is_not_skew_fails():
    class Wrong(StiefelWalk):
        def bind_to_block(self, block, target_accept):
            right = super().bind_to_block(block, target_accept)
            return type(right)(right.state, not_skew, right.adapt)

    with white() as model:
        step = pma.MetropolisHastings([model["W"]], proposal=Wrong(0.1))
    with pytest.raises(ValueError, match=r"W has to have orthonormal columns, but W'W is not I"):
        step.step({"W": np.eye(2)})


# In a step ----------------------------------------------------------------------------------------


def white(n_rows=2000, **others):
    X = np.random.default_rng(1).laplace(size=(n_rows, 2))
    X = (X - X.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(X.T))).T
    with pm.Model() as model:
        W = UniformStiefel("W", 2)
        pm.Potential("x", pm.logp(pm.Logistic.dist(0, 1), X @ W.T).sum(1))
        for name in others:
            pm.Normal(name)
    return model


def test_the_scale_is_learnt_from_rotations():
    one = bound((3, 3))
    before = one.state.scale[0]
    one.state.accepted[0] = 0.0  # a row was negated
    one.adapt(one.state, np.zeros(9), False)
    assert one.state.scale[0] == before
    one.state.accepted[0] = 1.0
    one.adapt(one.state, np.zeros(9), False)
    assert one.state.scale[0] < before
    for _ in range(100):
        one.adapt(one.state, np.zeros(9), True)
    assert one.state.scale[0] == 2 / math.sqrt(3)
    assert bound((3, 3), scale=0.2).adapt is not adapt_scale


def test_rates_of_acceptance_are_those_of_the_dimensions_that_are_free():
    assert block((2, 2)).n_free == 1
    assert block((4, 4)).n_free == 6
    assert block((5, 2)).n_free == 7
    assert block((1, 1)).n_free == 1


@pytest.mark.filterwarnings("ignore:Tuning ended")
@pytest.mark.slow("the suite of proposals, with this one")
def test_conformance():
    """Where rows do not depend on W the posterior is uniform; another step moves mu."""
    y = np.random.default_rng(0).normal(0.7, 1.0, 3000)
    with pm.Model() as model:
        W = UniformStiefel("W", 3, 2)
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Normal("y", mu, 1.0, observed=y)
        pm.Potential("flat", W[0, 0] * np.zeros(3000))
    sd = 3000.25**-0.5
    mean = {"W": np.zeros((3, 2)), "mu": np.array(y.sum() / 3000.25)}
    solved = Solved(
        model,
        mean,
        {"W": np.full((3, 2), 3**-0.5), "mu": np.array(sd)},
        {"W": np.eye(3, 2), "mu": mean["mu"]},
    )

    def make_step(vars=None, **options):
        return pma.MetropolisHastings(vars, proposal=StiefelWalk(), steps_per_draw=10, **options)

    check_step(make_step, solved=solved, vars=["W"], partner=pma.restricted_nuts)


@pytest.mark.slow("compiles a kernel of its own")
def test_a_start_off_the_manifold():
    with white() as model:
        step = pma.AusterityMH([model["W"]], proposal=StiefelWalk())
    with pytest.raises(ValueError, match=r"W has to have orthonormal columns, but \|W'W - I\| is up to 0.02"):
        step.step({"W": 1.01 * np.eye(2)})
    with pytest.raises(ValueError, match="W has to have orthonormal columns"), model:
        pm.sample(2, step=step, initvals={"W": np.ones((2, 2))}, chains=1, progressbar=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: pma.AusterityMH([m["W"]]), "which the proposal of this step would not keep"),
        (lambda m: pma.AusterityMH(["W"], proposal=pma.RandomWalk(0.1)), "which RandomWalk would not keep"),
        (lambda m: pma.AusterityMH(["W"], proposal=pma.Laplace()), "which Laplace would not keep"),
        (
            lambda m: pma.AusterityMH(["W"], proposal=Langevin(0.1)),
            "which Langevin would not keep",
        ),
        (lambda m: pma.AusterityMH(["W"], proposal=pma.Surrogate()), "which Surrogate would not keep"),
        (lambda m: pma.TunaMH(["W"]), "which the proposal of this step would not keep"),
        (lambda m: pma.AusterityMH(), "and another step for mu"),
        (
            lambda m: pma.AusterityMH(proposal=StiefelWalk()),
            r"but mu is not. Give each kind .* AusterityMH\(\[W\]",
        ),
        (lambda m: pma.AusterityMH(["mu"], proposal=StiefelWalk()), "but mu is not"),
        (
            lambda m: pma.AusterityMH(["W"], proposal=StiefelWalk(), control_variate=pma.Taylor()),
            "without control_var",
        ),
        (
            lambda m: pma.TunaMH(["mu"], proposal=Langevin(0.1)),
            "no decision rule for the moves of Langevin",
        ),
        (
            lambda m: pma.recommend(vars=["W"], progressbar=False),
            r"Use AusterityMH\(\[W\], proposal=StiefelWalk",
        ),
    ],
)
def test_refusals(make, message):
    with white(mu=None) as model, pytest.raises(ValueError, match=message):
        make(model)


def test_bad_scale():
    with pytest.raises(ValueError, match="scale of StiefelWalk must be positive and finite, got 0.0"):
        StiefelWalk(0.0)


def test_the_suite_of_proposals_says_where_to_try_it():
    with pytest.raises(TypeError, match=r"StiefelWalk needs to know the block.*check_step"):
        check_proposal(StiefelWalk(), 4)
