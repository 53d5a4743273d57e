"""What a set-up reads: at most six passes over all rows, whatever the number of them."""

import subprocess
import sys

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import TunaMH
from pymc_austerity.mode import mode_fit
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.structure.row_functions import PredictorRows
from tests.models import as_model

N = 250_000


@as_model
def model_of(order=slice(None), n=N):
    rng = np.random.default_rng(4)
    x = rng.normal(size=n)
    y = rng.random(n) < 1 / (1 + np.exp(0.5 - x))
    if order == "positives last":
        order = np.argsort(y, kind="stable")
    a, b = pm.Normal("a", 0, 5), pm.Normal("b", 0, 5)
    pm.Bernoulli("y", logit_p=a + b * x[order], observed=y[order])


class Reader:
    """Counts rows that are read: designs, and rows of graphs."""

    def __init__(self, monkeypatch):
        self.of_designs = self.of_graphs = 0
        design, compile_ = PredictorRows.__call__, Factorisation.compile

        def rows(own, positions):
            self.of_designs += len(positions)
            return design(own, positions)

        def compiled(own, outputs, inputs, **options):
            function = compile_(own, outputs, inputs, **options)
            indices = [k for k, var in enumerate(inputs) if any(var is term.index for term in own.locals)]
            every = outputs if isinstance(outputs, list) else [outputs]
            moving = depends_on(every, own.graph.values.values())
            if not indices or not any(moving.get(var, False) for var in every):  # data alone
                return function
            first = len(own.point_values(own.graph.point))

            def call(*args):
                self.of_graphs += len(args[first + indices[0]])
                return function(*args)

            return call

        monkeypatch.setattr(PredictorRows, "__call__", rows)
        monkeypatch.setattr(Factorisation, "compile", compiled)

    @property
    def passes(self):
        return self.of_designs / N, self.of_graphs / N


def test_at_most_six_passes(monkeypatch):
    reader = Reader(monkeypatch)
    model = model_of()
    with model:
        step = TunaMH()
    designs, _ = reader.passes
    newton = step._recipe.mode_fit.report.passes
    assert newton <= 4
    # Bounds take one more pass, and searches on 2,000 and 20,000 rows a part of one.
    assert designs < newton + 1.5
    # With that of the self-check over PyMC's own graph.
    assert 1 + newton + 1 <= 6


@pytest.mark.slow("builds and compiles several steps")
def test_graphs_are_evaluated_on_some_rows(monkeypatch):
    """By the checks, and for the report of the fit."""
    reader = Reader(monkeypatch)
    with model_of():
        TunaMH()
    few = reader.passes[1]
    assert few < 2.5  # 1e5 rows of N for each check, and 3e4 for each of eleven states
    reader.of_graphs = 0
    monkeypatch.setattr(mode_fit, "_ENOUGH_ROWS", N)
    with model_of():
        TunaMH()
    assert reader.passes[1] > 5.0 * few


@pytest.mark.slow("builds and compiles several steps")
def test_rows_may_be_in_any_order():
    """Subsamples are random: with all positives at the end the same mode is found, in as few passes."""
    fits = []
    for order in (slice(None), "positives last"):
        with model_of(order):
            fits.append(TunaMH()._recipe.mode_fit)
    precision = fits[0].proxy.precision
    apart = fits[0].proxy.mode - fits[1].proxy.mode
    assert np.sqrt(apart @ precision @ apart) < 1e-8
    np.testing.assert_allclose(fits[1].proxy.precision, precision, rtol=1e-9)
    assert fits[1].report.passes <= 4


# In a process of its own: a search looks at all that a process has, which late in a run is a lot.
SEARCHES = """
import gc
import weakref
from pymc_austerity.model.graph.many import many_graphs

class Cycle:
    def __init__(self):
        self.itself = self

frozen = []
with many_graphs():
    frozen.append(gc.get_freeze_count())
frozen.append(gc.get_freeze_count())
left = []
for _ in range(12):  # more than are left between two searches
    with many_graphs():
        graph = Cycle()
        gc.collect()  # it is old now
    left.append(weakref.ref(graph))
    del graph
print(sum(ref() is not None for ref in left))
gc.freeze()
with many_graphs():
    pass
frozen.append(gc.get_freeze_count())
print(*frozen)
"""


@pytest.mark.slow("imports PyMC once more")
def test_garbage_is_looked_for_everywhere_afterwards():
    """What a set-up leaves is old when the next one begins, which looks at new objects only."""
    done = subprocess.run([sys.executable, "-c", SEARCHES], capture_output=True, text=True, check=True)
    left, within, after, of_the_user = map(int, done.stdout.split())
    assert after == 0
    assert left <= 10
    assert min(within, of_the_user) > 10_000  # which stay frozen, as the user wanted it
