"""Risk against data touched."""

import numpy as np
import pytest

from pymc_austerity.plots import plot_risk
from pymc_austerity.plots.agreement import risk_curve
from tests.diagnostics.results import result
from tests.plots.artists import inside, levels, line

TRUTH = {"a": (0.0, 1.0), "b": (np.zeros(3), np.full(3, 2.0))}


def make(seed, share=0.1, bias=0.0, chains=4, draws=1000, **stats):
    rng = np.random.default_rng(seed)
    posterior = {
        "a": bias + rng.normal(size=(chains, draws)),
        "b": 2.0 * (bias + rng.normal(size=(chains, draws, 3))),
    }
    used = np.full((chains, draws), 1000.0 * share)
    return result(posterior, **{"n_used": used, "fraction_used": used / 1000, **stats})


def test_what_is_drawn():
    run = make(1, share=0.25, draws=100)
    axes = plot_risk({"run": run}, TRUTH, n_points=100)
    x, y = line(axes, "run").T
    np.testing.assert_allclose(x[[0, -1]], [0.25, 25.0])
    a, b = run["posterior"]["a"].values, run["posterior"]["b"].values
    for k in (0, len(x) - 1):
        t = round(x[k] / 0.25)
        errors = np.c_[a[:, :t].mean(axis=1) ** 2, (b[:, :t].mean(axis=1) / 2) ** 2]
        np.testing.assert_allclose(y[k], errors.mean())
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert inside(axes.figure)


def test_risk_is_variance_over_draws_and_then_squared_bias():
    moments = {n: (np.asarray(m, float), np.asarray(s, float)) for n, (m, s) in TRUTH.items()}
    for bias in (0.0, 0.5):
        run = make(2, bias=bias, chains=50, draws=400)
        _, risk = risk_curve(run, moments, 400)
        t = 400
        # 200 independent means: their squares have the mean 1 / t + bias^2.
        scale = np.sqrt((2 / t**2 + 4 * bias**2 / t) / 200)
        assert abs(risk[-1] - (1 / t + bias**2)) < 4 * scale
        if bias:
            assert abs(risk[-1] - 1 / t) > 20 * scale


def test_passes_of_several_samplers_add_up():
    used = np.stack([np.full((2, 50), 100.0), np.full((2, 50), 30.0), np.full((2, 50), np.nan)], -1)
    stats = {"n_used": used, "fraction_used": used / np.array([1000.0, 60.0, 1.0])}
    run = make(1, chains=2, draws=50, **stats)
    x = line(plot_risk({"run": run}, TRUTH), "run")[:, 0]
    np.testing.assert_allclose(x[-1], 50 * (0.1 + 0.5))


def test_transitions_of_a_draw():
    run = make(1, draws=20)
    x = line(plot_risk({"run": run}, TRUTH, steps_per_draw={"run": 5}), "run")[:, 0]
    np.testing.assert_allclose(x[-1], 20 * 5 * 0.1)
    several = make(1, draws=20, n_used=np.full((4, 20), 100.5))
    with pytest.raises(ValueError, match="'run' does not say what it read.*steps_per_draw"):
        plot_risk({"run": several}, TRUTH)


def test_leapfrog_steps_of_nuts_are_passes():
    run = result({"a": np.random.default_rng(1).normal(size=(2, 30))}, n_steps=np.full((2, 30), 7))
    x = line(plot_risk({"NUTS": run}, {"a": (0.0, 1.0)}), "NUTS")[:, 0]
    np.testing.assert_allclose(x[-1], 210.0)


def test_a_run_as_the_truth_has_an_error_of_its_own():
    truth = make(9, draws=2000)
    axes = plot_risk({"run": make(1)}, truth)
    (floor,) = levels(axes)
    # Four chains of independent draws: 1 / 8000, up to the error of the effective sample size.
    assert floor == pytest.approx(1 / 8000, rel=0.2)
    only = plot_risk({"run": make(1)}, truth, var_names="a")
    draws = truth["posterior"]["a"].values
    _, expected = risk_curve(make(1), {"a": (draws.mean(), draws.std())}, 40)
    np.testing.assert_allclose(line(only, "run")[:, 1], expected)


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (3, 1)])
def test_few_draws_and_chains(shape):
    plot_risk({"run": make(1, chains=shape[0], draws=shape[1])}, TRUTH)
