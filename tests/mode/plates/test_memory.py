"""How much room the set-up of a plate takes, at its most."""

import gc
import tracemalloc

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import TunaMH
from pymc_austerity.step_methods.metropolis import plate_search
from pymc_austerity.step_methods.metropolis.plate_plan import plan_plates

P, G = 8, 100


def model_of(n):
    rng = np.random.default_rng(46)
    x, groups = rng.normal(size=(n, P)), rng.integers(0, G, n)
    log_odds = rng.normal(size=G)[groups]
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-log_odds))).astype(int)
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=G)
        pm.Bernoulli("y", logit_p=x @ pm.Normal("beta", shape=P) + u[groups], observed=y)
    return model


def peak(n, monkeypatch):
    """Bytes beyond what the graphs of the model take, while a plate is fitted.

    Garbage is left where it is: else the peak depends on when Python happens to look for it.
    """
    model, found = model_of(n), []

    def traced(options, point, recipe, plate):
        gc.disable()
        tracemalloc.start()
        try:
            plan = plan_plates(options, point, plate)
            found.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
            gc.enable()
        return plan

    monkeypatch.setattr(plate_search, "plan_groups", traced)
    TunaMH(model=model)
    return found[0]


@pytest.mark.slow("measures memory while a plate of many rows is set up")
def test_memory_of_the_set_up(monkeypatch):
    """P + 10 doubles for each row more."""
    TunaMH(model=model_of(50_000))  # what is compiled is kept: traced, it takes three times as long
    few, many = peak(60_000, monkeypatch), peak(120_000, monkeypatch)
    assert (P + 3) * 60_000 * 8 <= many - few <= (P + 10) * 60_000 * 8
