"""An engine that Python runs makes the decisions of a compiled one, and nothing is compiled for it."""

from functools import cache

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from numba.core.dispatcher import Dispatcher
from scipy.special import expit

import pymc_austerity as pma
from pymc_austerity.acceptance import TTest
from pymc_austerity.model.compile.backend import NUMBA, PYTHON, interpreted
from pymc_austerity.testing.steps import fresh, move
from tests.model.features import model_of, simplex
from tests.models import as_model

N = 1500
N_DRAWS = 20
WALK = pma.RandomWalk(0.05)


@cache
@as_model
def logistic():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, 2))
    y = (rng.random(N) < expit(x @ [0.5, -1.0])).astype(float)
    beta = pm.Normal("beta", 0, 2, shape=2)
    pm.Bernoulli("y", logit_p=pm.math.dot(x, beta), observed=y)


@cache
@as_model
def selection():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, 3))
    gamma, beta = pm.Bernoulli("gamma", 0.5, shape=3), pm.StudentT("beta", nu=4, mu=0, sigma=1, shape=3)
    pm.Normal("y", x @ (gamma * beta), 1, observed=0.05 * x.sum(axis=1) + rng.normal(size=N))


@cache
def weights():
    return model_of(simplex, N)


CASES = {
    "t-test": (logistic, pma.AusterityMH, {"proposal": WALK}),
    "t-test, Surrogate": (
        logistic,
        pma.AusterityMH,
        {"control_variate": pma.Taylor(), "proposal": pma.Surrogate()},
    ),
    "concentration": (logistic, pma.MHSubLhd, {"proposal": WALK}),
    "concentration, Taylor": (logistic, pma.MHSubLhd, {"control_variate": pma.Taylor()}),
    "Barker": (logistic, pma.MinibatchBarker, {"proposal": WALK}),
    "exact": (logistic, pma.MetropolisHastings, {"proposal": WALK}),
    "jumps": (selection, pma.ReversibleJump, {"acceptance": TTest(0.05, 200)}),
    "TunaMH": (logistic, pma.TunaMH, {}),
    "TunaMH, Surrogate": (logistic, pma.TunaMH, {"proposal": pma.Surrogate()}),
    "TunaMH, features": (weights, pma.TunaMH, {"switch_above": np.inf, "proposal": WALK}),
}


LONG = pytest.mark.slow("compiles for long")


@pytest.mark.filterwarnings("ignore:(The posterior|TunaMH would):pymc_austerity.SubsamplingWarning")
@pytest.mark.parametrize(
    ("make", "kind", "options"),
    [
        pytest.param(*case, id=name, marks=LONG if name in ("TunaMH, Surrogate", "TunaMH, features") else [])
        for name, case in CASES.items()
    ],
)
@pytest.mark.covering(1)
def test_interpreted_and_compiled_make_the_same_draws(make, kind, options):
    model = make()
    compiled = kind(model=model, rng=1, **options)
    with interpreted():
        other = kind(model=model, rng=1, **options)
    assert (compiled._engine.backend, other._engine.backend) == (NUMBA, PYTHON)
    start = model.initial_point()
    ours, theirs = (move(fresh(step), start, N_DRAWS) for step in (other, compiled))
    for one, two in zip(ours[0], theirs[0], strict=True):
        for name in one:
            np.testing.assert_allclose(one[name], two[name], rtol=1e-12, atol=1e-12)
    for one, two in zip(ours[1], theirs[1], strict=True):
        for name in ("accepted", "n_used", "exhausted"):
            assert one[name] == two[name]
    assert any(s["accepted"] for s in ours[1])
    assert any(s["n_used"] for s in ours[1])


@pytest.fixture
def no_numba(monkeypatch):
    with interpreted():  # another model, since some functions are compiled once for all
        pma.AusterityMH(model=logistic.__wrapped__(), control_variate=pma.Taylor())

    def fails(self, *args):
        raise AssertionError(f"{self.py_func} is compiled")

    monkeypatch.setattr(Dispatcher, "compile", fails)


def test_the_compiler_is_noticed(no_numba):
    with pm.Model() as other:  # a form of terms that no other test has
        b = pm.Normal("b", shape=3)
        pm.Poisson("y", pm.math.exp(0.1 * (np.ones((700, 3)) @ b) ** 3), observed=np.ones(700))
    with pytest.raises(AssertionError, match="is compiled"):
        pma.AusterityMH(model=other, proposal=pma.RandomWalk(0.03), threshold=500)


@pytest.mark.parametrize("options", [{}, {"control_variate": pma.Taylor()}], ids=["plain", "Taylor"])
def test_nothing_is_compiled(no_numba, interpreted, options):
    step = pma.AusterityMH(model=logistic(), **options)
    step.step(logistic().initial_point())


@pytest.mark.slow("samples in several processes")
def test_nothing_is_compiled_for_allocations_and_nuts(no_numba, interpreted):
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        z = pm.Categorical("z", w, shape=30)
        pm.Normal("y", 3.0 * z, 1.0, observed=np.arange(30.0) % 4)
        steps = [pma.MinibatchCategoricalGibbs([z]), pma.restricted_nuts([w])]
    point = model.initial_point()
    for step in steps:
        point, _ = step.step(point)


def test_what_numba_cannot_compile_is_not_told_of(interpreted):
    """A warning would be an error here."""

    def propose(q, rng):
        return q + dict(scale=0.05)["scale"] * rng.standard_normal(2), 0.0

    step = pma.AusterityMH(model=logistic(), proposal=propose, rng=1)
    assert any(s["accepted"] for s in move(step, logistic().initial_point(), N_DRAWS)[1])


@pytest.mark.slow("compiles each kernel")
def test_a_pickle_is_compiled_as_usual():
    with interpreted():
        step = pma.AusterityMH(model=logistic(), proposal=WALK, rng=1)
        again = cloudpickle.loads(cloudpickle.dumps(step))
        again.step(logistic().initial_point())
    other = cloudpickle.loads(cloudpickle.dumps(step))
    other.step(logistic().initial_point())
    assert [s._engine.backend.name for s in (step, again, other)] == ["python", "python", "numba"]
