"""A sampling state is all that a chain needs to go on, in the step it is from or in another one."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from pymc.step_methods import CompoundStep

from pymc_austerity import (
    SCIR,
    AusterityMH,
    MetropolisHastings,
    MHSubLhd,
    MinibatchBarker,
    MinibatchCategoricalGibbs,
    RandomWalk,
    Surrogate,
    Taylor,
    TunaMH,
    restricted_nuts,
    restricted_slice,
)
from pymc_austerity.testing.steps import require_same_path

pytestmark = [
    # Whether a chain has settled after so few draws, and what is slow, is not the question here.
    pytest.mark.filterwarnings("ignore:Tuning ended"),
    pytest.mark.filterwarnings("ignore:range_bound=:pymc_austerity.SubsamplingWarning"),
    pytest.mark.filterwarnings("ignore:Minibatches of:pymc_austerity.SubsamplingWarning"),
]
N_ROWS = 1200
# Draws before which the state is stored: none, some, and after tuning, which ends before draw number 12.
STORED, TUNE = (0, 7, 16), 12


@pytest.fixture(scope="module")
def mixture():
    rng = np.random.default_rng(4)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        mu = pm.Normal("mu", 0.0, 3.0)
        z = pm.Categorical("z", w, shape=N_ROWS)
        pm.Normal("y", pm.math.stack([0.0, mu])[z], 1.0, observed=3.0 * rng.integers(2, size=N_ROWS))
    return model


def counted(model):
    allocate = MinibatchCategoricalGibbs([model["z"]], batch_size=50, model=model, rng=1)
    return CompoundStep([allocate, SCIR([model["w"]], counts=allocate, model=model, rng=2)])


ON_LINE = {
    "AusterityMH": lambda m: AusterityMH(model=m, rng=1),
    "MetropolisHastings": lambda m: MetropolisHastings(model=m, proposal=RandomWalk(0.01), rng=1),
    "MHSubLhd": lambda m: MHSubLhd([m["b"]], model=m, range_bound="exact", rng=1),
    "MinibatchBarker": lambda m: MinibatchBarker(model=m, proposal=RandomWalk(0.01), rng=1),
    "Surrogate": lambda m: AusterityMH(model=m, control_variate=Taylor(), proposal=Surrogate(), rng=1),
    "TunaMH": lambda m: TunaMH(model=m, switch_above=np.inf, rng=1),
    "restricted_nuts": lambda m: restricted_nuts([m["b"]], model=m, rng=1),
    "restricted_slice": lambda m: restricted_slice([m["b"]], model=m, rng=1),
}
ON_MIXTURE = {
    "MinibatchCategoricalGibbs": lambda m: MinibatchCategoricalGibbs([m["z"]], batch_size=50, model=m, rng=1),
    "SCIR": lambda m: SCIR([m["w"]], batch_size=40, control_variate="anchor", refresh=5, model=m, rng=1),
    "SCIR beside it": counted,
}


def path(step, point, n, first=0):
    """Points and statistics of draws number `first`, ..., `first` + n - 1 of a chain."""
    points, stats = [], []
    for k in range(first, first + n):
        if k == TUNE:
            step.stop_tuning()
        point, found = step.step(point)
        points.append({name: np.array(value) for name, value in point.items()})
        # Time is no part of a chain.
        every = [{k: v for k, v in s.items() if not k.startswith("perf_counter")} for s in found]
        every = [{k: v for k, v in s.items() if k not in ("process_time_diff", "warning")} for s in every]
        stats.append({f"{k} of step {i}": v for i, s in enumerate(every) for k, v in s.items()})
    return points, stats


LONG = pytest.mark.slow("compiles a surrogate")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=LONG if n == "Surrogate" else []) for n in (*ON_LINE, *ON_MIXTURE)],
)
@pytest.mark.covering(1)
def test_a_chain_goes_on_from_its_state(name, line, mixture):
    """In the same step, in a fresh one of the same model, and in a pickle, while tuning and after it."""
    make, model = (ON_LINE[name], line) if name in ON_LINE else (ON_MIXTURE[name], mixture)
    step, fresh = make(model), make(model)
    unpickled = cloudpickle.loads(cloudpickle.dumps(step))  # of a step that was never moved
    step.setup_chain(np.random.default_rng(5), TUNE, 20)
    point, done = model.initial_point(), 0
    for here in STORED:
        points, _ = path(step, point, here - done, done)
        point, done = (points or [point])[-1], here
        state = step.sampling_state
        expected = path(step, point, 8, here)
        for what, other in {
            "The same step": step,
            "A fresh step": fresh,
            "A pickle": unpickled,
        }.items():
            other.sampling_state = cloudpickle.loads(cloudpickle.dumps(state))
            require_same_path(what, path(other, point, 8, here), expected, "Its state misses something.")
        step.sampling_state = state
