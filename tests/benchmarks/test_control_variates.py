"""What Taylor control variates cost as the data grow, and how rows are drawn; logistic, ten dimensions.

Effective draws a second beside exact chains and nutpie are in `tests.benchmarks.everyone`.
"""

import logging
import time

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_austerity as pma

pytestmark = pytest.mark.filterwarnings("ignore:Cannot cache compiled function", "ignore:.*hessian")
D = 10
SIZES = [10_000, 100_000, 1_000_000]


def logistic(size, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((size, D))
    X[:, 0] = 1.0
    y = rng.binomial(1, 1 / (1 + np.exp(-X @ rng.normal(0, 0.5, D))))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=D)
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return model


STEPS = {
    "austerity": lambda: pma.AusterityMH(control_variate=pma.Taylor(), proposal=pma.Laplace(mix=0)),
    "tuna": lambda: pma.TunaMH(proposal=pma.Laplace(mix=0)),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_cost_of_an_effective_draw_does_not_grow(name, capsys):
    """Slopes of log CPU seconds and log rows for an effective draw against log N, medians of five runs."""
    logging.getLogger("pymc_austerity").setLevel(logging.ERROR)
    costs, rows = [], []
    for size in SIZES:
        model, seconds, used = logistic(size), [], []
        with model:
            step = STEPS[name]()
        point = model.initial_point()
        step.setup_chain(np.random.default_rng(1), 10, 100)
        for _ in range(10):
            point, _ = step.step(point)
        step.tune = False
        for _ in range(6):
            began = time.process_time()
            draws, n_used = run_steps(step, point, 10_000)
            spent = time.process_time() - began
            ess = min(float(az.ess(draws[None, :, d])) for d in range(D))
            seconds.append(spent / ess)
            used.append(n_used / ess)
        costs.append(np.median(seconds[1:]))
        rows.append(np.median(used[1:]))
    slope, slope_of_rows = (np.polyfit(np.log10(SIZES), np.log10(y), 1)[0] for y in (costs, rows))
    with capsys.disabled():
        us = ", ".join(f"{c * 1e6:.1f}" for c in costs)
        per_draw = ", ".join(f"{r:.3g}" for r in rows)
        print(f"\n{name}: for an effective draw at {SIZES}: {us} microseconds (slope {slope:.3f}),")
        print(f"{per_draw} rows (slope {slope_of_rows:.3f})")
    assert slope <= 0.05
    if name == "tuna":
        assert slope_of_rows <= -0.3


def run_steps(step, point, n):
    """Draws, and the number of rows that were read for them."""
    draws, n_used = np.empty((n, D)), 0.0
    for k in range(n):
        point, (stats,) = step.step(point)
        draws[k] = point["beta"]
        n_used += stats["n_used"]
    return draws, n_used


def stored_bytes(step):
    return sum(value.nbytes for value in step._engine.target.leaf_values)


def test_single_rows_and_blocks(capsys):
    """`subsample="gather"` and "block" at N = 100,000: time, memory, and the law that is sampled."""
    logging.getLogger("pymc_austerity").setLevel(logging.ERROR)
    model, table = logistic(100_000), {}
    cases = {
        "Taylor": (
            {"epsilon": 0.05, "control_variate": pma.Taylor(), "proposal": pma.Laplace(mix=0)},
            200_000,
        ),
        "no control variate": ({"epsilon": 0.05}, 20_000),
    }
    for name, (options, n) in cases.items():
        if "control_variate" not in options:
            proxy = pma.MetropolisHastings(proposal=pma.Laplace(), model=model).recipe.mode_fit.proxy
            options["proposal"] = pma.RandomWalk(cov=2.38**2 / D * np.linalg.inv(proxy.precision))
        for subsample in ("gather", "block"):
            step = pma.AusterityMH(model=model, subsample=subsample, steps_per_draw=10, **options)
            point = {"beta": step.recipe.mode_fit.proxy.mode if step.recipe.mode_fit else proxy.mode}
            step.setup_chain(np.random.default_rng(1), 0, 0)
            point = {"beta": run_steps(step, point, 100)[0][-1]}
            began = time.process_time()
            draws, _ = run_steps(step, point, n // 10)
            table[name, subsample] = draws, (time.process_time() - began) / n, stored_bytes(step)
    with capsys.disabled():
        for name in cases:
            (one, a, x), (two, b, y) = table[name, "gather"], table[name, "block"]
            shift, spread = differences(one, two)
            print(
                f"\n{name}: gather {a * 1e6:.0f} us, block {b * 1e6:.0f} us; {x / 1e6:.0f} and "
                f"{y / 1e6:.0f} MB; largest z of means {shift:.2f}, of sds {spread:.2f}, of {D} each"
            )
            assert b < a
            assert shift < 4
            assert spread < 4


def differences(one, two):
    """Largest difference of means, and of log standard deviations, in Monte Carlo errors."""
    z = np.empty((2, D))
    for d in range(D):
        x, y = one[None, :, d], two[None, :, d]
        z[0, d] = (x.mean() - y.mean()) / np.hypot(float(az.mcse(x)), float(az.mcse(y)))
        errors = [float(az.mcse(v, method="sd")) / v.std() for v in (x, y)]
        z[1, d] = np.log(x.std() / y.std()) / np.hypot(*errors)
    return np.abs(z).max(axis=1)
