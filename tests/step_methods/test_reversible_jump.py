"""Reversible jump: options, messages, and what its statistics count."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import RandomWalk, ReversibleJump
from pymc_austerity.acceptance import Concentration, TTest
from pymc_austerity.bounds.remainder import remainder_range
from pymc_austerity.diagnostics import inclusion
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.testing.steps import fresh, move
from tests.sampling import sampled
from tests.statistical.selection import correlated_rows, logistic_model, normal_model, normal_rows

KINDS = ("births", "deaths", "swaps", "others")


# What it counts, and what it leaves -------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    return normal_model(normal_rows(150, 4))


@pytest.fixture
def build(model, interpreted):
    def make(**options):
        return fresh(ReversibleJump(model=model, rng=1, progressbar=False, **options))

    return make


def start(model, gamma):
    return {**model.initial_point(), "gamma": np.array(gamma)}


def test_statistics(build, model):
    points, stats = move(build(steps_per_draw=7), start(model, [1, 0, 1, 0]), 40)
    totals = {kind: sum(stat[f"{kind}_proposed"] for stat in stats) for kind in KINDS}
    assert sum(totals.values()) == 7 * 40
    assert min(totals.values()) > 0
    for stat in stats:
        assert sum(stat[f"{kind}_proposed"] for kind in KINDS) == 7
        assert sum(stat[f"{kind}_used"] for kind in KINDS) == pytest.approx(stat["n_used"] * 7)
        assert sum(stat[f"{kind}_accepted"] for kind in KINDS) == pytest.approx(stat["mean_tree_accept"] * 7)
        assert np.isnan(stat["scale"])
    assert all(point["gamma"].dtype == np.int64 for point in points)


@pytest.mark.parametrize("gamma", [[0, 0, 0, 0], [1, 1, 1, 1]])
def test_an_impossible_swap_is_rejected(build, model, gamma):
    """Without a look at the data, and without a flip in its place."""
    points, stats = move(build(jump=1.0, swap=1.0), start(model, gamma), 10)
    assert all(np.array_equal(point["gamma"], gamma) for point in points)
    assert all((stat["swaps_proposed"], stat["n_used"], stat["accepted"]) == (1, 0, 0) for stat in stats)


def test_swaps_keep_the_size(build, model):
    points, stats = move(build(jump=1.0, swap=1.0), start(model, [1, 1, 0, 0]), 200)
    assert sum(stat["swaps_accepted"] for stat in stats) > 0
    assert all(point["gamma"].sum() == 2 for point in points)


def test_one_coefficient_at_a_time(build, model):
    """A birth moves the coefficient that comes, and dummies; no other active one, and no intercept."""
    before = start(model, [1, 1, 0, 0])
    before["beta"], before["a"] = np.array([0.1, 0.2, 0.3, 0.4]), np.array(0.3)
    step = build(redraw="one", jump=1.0, swap=0.0)
    births = 0
    for _ in range(200):
        after, (stat,) = step.step(before)
        if stat["births_accepted"]:
            births += 1
            np.testing.assert_array_equal(after["beta"][:2], before["beta"][:2])
            assert after["a"] == before["a"]
            assert np.all(after["beta"][2:] != before["beta"][2:])
    assert births > 0


def test_it_follows_the_scale_of_the_slab(interpreted):
    """Dummies are drawn with the scale that another step has moved."""
    rows = normal_rows(150, 3)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 2)
        gamma, beta = pm.Bernoulli("gamma", 0.01, shape=3), pm.Laplace("beta", 0, tau, shape=3)
        pm.Normal("y", rows.X @ (gamma * beta), 1, observed=rows.y)
        step = fresh(ReversibleJump([gamma, beta], rng=1, jump=0.1, progressbar=False))
    for tau in (0.01, 100.0):
        point = {**model.initial_point(), "tau_log__": np.array(np.log(tau))}
        points, _ = move(step, point, 300)
        dummies = np.concatenate([point["beta"][point["gamma"] == 0] for point in points])
        assert np.abs(dummies).mean() == pytest.approx(tau, rel=0.2)


def test_coefficients_and_indicators_in_any_order(model, interpreted):
    names = [["a", "beta", "gamma"], ["gamma", "beta", "a"]]
    paths = [
        move(fresh(ReversibleJump(some, model=model, progressbar=False)), start(model, [1, 0, 0, 1]), 20)[0]
        for some in names
    ]
    for one, other in zip(*paths, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_the_range_for_concentration_bounds(interpreted):
    """From certificates, for the coefficients as they enter the likelihood: there are no dummies in it."""
    rows = correlated_rows()
    model = logistic_model(rows, chance=0.3)
    step = fresh(ReversibleJump(model=model, acceptance=Concentration(0.1), progressbar=False))
    fact, p, rng = step._engine.target.factorisation, 8, np.random.default_rng(1)
    features = function_of([fact.graph.values[name] for name in fact.var_names], fact.features)

    def bounded_in(q):
        return features(q[:p].astype(int), q[p : 2 * p], q[-1])

    for _ in range(20):
        q, q_new = (
            np.concatenate([rng.integers(0, 2, p), rng.normal(size=p + 1) * 0.3]).astype(float)
            for _ in range(2)
        )
        change = rows.X @ (q_new[:p] * q_new[p : 2 * p] - q[:p] * q[p : 2 * p]) + q_new[-1] - q[-1]
        log_ratios = rows.y * change
        for state, sign in ((q_new, 1), (q, -1)):
            eta = state[-1] + rows.X @ (state[:p] * state[p : 2 * p])
            log_ratios = log_ratios - sign * np.logaddexp(0.0, eta)
        np.testing.assert_allclose(bounded_in(q), [*(q[:p] * q[p : 2 * p]), q[-1]])
        width = remainder_range(step.recipe.log_ratios, bounded_in(q_new), bounded_in(q))
        assert np.ptp(log_ratios) <= width < 6 * np.ptp(log_ratios)
    _, stats = move(step, model.initial_point(), 10)
    assert sum(stat["accepted"] for stat in stats) > 0


def test_inclusion_of_a_run(model, interpreted):
    with model:
        step = ReversibleJump(progressbar=False)
        idata = sampled(60, step, tune=0, chains=2, random_seed=1)
    found = inclusion(idata)
    assert found.jumps["proposed"].sum() == 120
    assert found.jumps.loc["others", "used"] == 150.0
    assert len(found.coefficients) == 4


# Given proposals --------------------------------------------------------------------------------------


def test_a_given_proposal_makes_the_other_moves(build, model):
    step = build(proposal=RandomWalk(1e-3), jump=0.3)
    before = start(model, [1, 0, 1, 0])
    steps = []
    for _ in range(60):
        after, (stat,) = step.step(before)
        assert stat["scale"] == 1e-3
        if stat["others_accepted"]:
            np.testing.assert_array_equal(after["gamma"], before["gamma"])
            steps.append(after["beta"] - before["beta"])  # of dummies, too
    assert 0.3e-3 < np.std(steps) < 3e-3


def test_a_user_function(build, model):
    def walk(x, rng):
        return x + 0.1 * rng.normal(size=len(x)), 0.0

    _, stats = move(build(proposal=walk), start(model, [1, 0, 1, 0]), 30)
    assert sum(stat["others_accepted"] for stat in stats) > 0


# Bad input --------------------------------------------------------------------------------------------


def test_one_coefficient(interpreted):
    """There is nothing to swap; with swap=0 it comes and goes."""
    rows = normal_rows(150, 1)
    model = normal_model(rows)
    with pytest.raises(ValueError, match="swap=0.3 has no meaning with one coefficient"):
        ReversibleJump(model=model, progressbar=False)
    step = fresh(ReversibleJump(model=model, swap=0.0, progressbar=False))
    points, _ = move(step, model.initial_point(), 100)
    assert {int(point["gamma"][0]) for point in points} == {0, 1}


def test_the_configuration(build):
    settings = build(jump=0.5, acceptance=TTest(0.05, 50)).configuration
    assert settings["proposal"] == {
        "name": "Jumps", "jump": 0.5, "swap": 0.3, "redraw": "all", "other": None,
    }  # fmt: skip
    assert settings["rule"]["epsilon"] == 0.05
    assert settings["vars"] == ["gamma", "beta", "a"]
