"""What steps say of how they are set up."""

import json
from copy import deepcopy

import cloudpickle
import numpy as np
import pymc as pm
import pytest

import pymc_austerity as pma
from pymc_austerity.step_methods import DecreasingStepSize
from pymc_austerity.step_methods.messages import plain
from tests.models import as_model
from tests.step_methods.conftest import N

pytestmark = pytest.mark.usefixtures("interpreted")


def test_a_fresh_step(built):
    found = built.configuration
    assert found == json.loads(json.dumps(found))
    assert list(found)[:2] == ["step", "vars"]
    assert found["vars"] == ["a", "b", "sigma"]
    assert found["rule"] == {
        "name": "TTest", "epsilon": 0.01, "batch_size": 500, "growth": "constant", "boundary": 0.5,
    }  # fmt: skip
    assert found["proposal"] == {"name": "AdaptiveRandomWalk", "target_accept": None}
    assert (found["n_local"], found["n_exact"], found["steps_per_draw"]) == (N, 0, 1)


def test_text(built):
    lines = repr(built).splitlines()
    assert lines[0] == "AusterityMH(a, b, sigma)"
    assert lines[1] == "  2,000 local terms"
    assert "rule=TTest(epsilon=0.01, batch_size=500, growth='constant', boundary=0.5)" in lines[2]
    assert max(map(len, lines)) <= 100
    assert 3 <= len(lines) <= 6


def test_copies_and_pickles_say_the_same(built):
    for other in (deepcopy(built), cloudpickle.loads(cloudpickle.dumps(built))):
        assert other.configuration == built.configuration
        assert repr(other) == repr(built)


def drifting(q, rng):
    return q + 0.01 * rng.normal(size=len(q)), 0.0


def test_every_choice_is_named(line):
    exact = pma.MetropolisHastings(model=line, proposal=pma.RandomWalk(0.01), temperature=2.0).configuration
    assert exact["rule"] == {"name": "Exact"}
    assert exact["proposal"] == {"name": "RandomWalk", "scale": 0.01, "cov": None}
    assert exact["temperature"] == 2.0
    noisy = pma.MinibatchBarker(
        model=line, batch_size=200, proposal=pma.RandomWalk(cov=np.eye(3))
    ).configuration
    options = {"batch_size": 200, "max_error": None, "pilot": False, "skew_correction": False}
    assert noisy["rule"] == {"name": "Barker", **options}
    assert noisy["proposal"]["cov"] == np.eye(3).tolist()
    assert pma.AusterityMH(model=line, epsilon=0).configuration["rule"] == {"name": "Exact"}


@pytest.mark.slow("makes a step for each control variate")
def test_control_variates(line):
    step = pma.AusterityMH(model=line, control_variate=pma.Taylor(exact_rows=7), steps_per_draw=3)
    found = step.configuration
    assert found["control_variate"] == {"name": "Taylor", "order": 2, "center": "mode", "exact_rows": 7}
    assert found["proposal"]["name"] == "Laplace"  # chosen, not given
    assert (found["n_exact"], found["steps_per_draw"]) == (7, 3)
    assert "2,000 local terms, 7 of them always read" in repr(step)
    tuna = pma.TunaMH(model=line, switch_above=np.inf, chi=0.5)
    found = tuna.configuration
    assert (found["chi"], found["switch_above"], found["n_local"]) == (0.5, "inf", N)
    assert "rule" not in found
    json.dumps(found, allow_nan=False)


@pytest.fixture(scope="module")
@as_model
def simplex():
    rng = np.random.default_rng(1)
    w = pm.Dirichlet("w", np.ones(3))
    z = pm.Categorical("z", w, shape=N)
    pm.Normal("y", 5.0 * z, 1.0, observed=rng.normal(size=N))


def test_gibbs_and_gamma_processes(simplex):
    allocate = pma.MinibatchCategoricalGibbs(simplex["z"], batch_size=0.1, steps_per_draw=4, model=simplex)
    assert allocate.configuration == {
        "step": "MinibatchCategoricalGibbs", "vars": ["z"], "batch_size": 200, "steps_per_draw": 4,
        "n_local": N,
    }  # fmt: skip
    weights = pma.SCIR(simplex["w"], step_size=3.0, counts=allocate, model=simplex)
    found = weights.configuration
    assert (found["step_size"], found["counts"], found["forms"]) == (
        3.0,
        "MinibatchCategoricalGibbs",
        {"w": "counts"},
    )
    assert found["n_local"] == N
    slow = pma.SCIR(simplex["w"], step_size=DecreasingStepSize(0.1, 100.0, 0.5), model=simplex)
    assert slow.configuration["step_size"] == {
        "name": "DecreasingStepSize",
        "h": 0.1,
        "tau": 100.0,
        "kappa": 0.5,
    }
    assert repr(slow).startswith("SCIR(w)\n  2,000 local terms\n")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (np.inf, "inf"),
        (np.array([[1, 2]]), [[1, 2]]),
        (np.zeros((5, 5)), "array of shape (5, 5)"),
        ({"a": (1, None)}, {"a": [1, None]}),
        (
            pma.Taylor(1, {"q": np.zeros(2)}, 5),
            {"name": "Taylor", "order": 1, "center": {"q": [0.0, 0.0]}, "exact_rows": 5},
        ),
        (drifting, "drifting"),
        (pma.RandomWalk, "RandomWalk"),
        (np.random.default_rng(1), "Generator"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_values(value, expected):
    assert plain(value) == expected
    json.dumps(plain(value))
