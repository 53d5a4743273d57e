"""What a transition costs: beside a kernel written by hand, and as the data grow."""

import numpy as np
import pytest

from pymc_austerity import AusterityMH, RandomWalk, factorise
from pymc_austerity.kernels.subsample import population_of

from . import logistic

SIZES = [10_000, 100_000, 1_000_000]
PER_CALL = 200


def one_batch(model, **options):
    """A step whose decisions each read 500 rows."""
    with model:
        return AusterityMH(epsilon=0.5, batch_size=500, proposal=RandomWalk(0.001), **options)


@pytest.fixture(scope="module", params=SIZES, ids="N={}".format)
def model(request):
    return logistic.model(request.param)


def test_generic_kernel(benchmark, model):
    """200 transitions of the kernel compiled around a PyMC model."""
    step = one_batch(model, steps_per_draw=PER_CALL)
    point, _ = step.step(model.initial_point())
    size = int(step._engine._schedule.ends[-1])
    benchmark.group = f"200 transitions at 500 rows, N = {size}"
    benchmark(step.step, point)


def test_handwritten_kernel(benchmark, model):
    """The same work by a numba kernel written for this model."""
    step = one_batch(model, steps_per_draw=PER_CALL)
    schedule, rng = step._engine._schedule, np.random.default_rng(1)
    X, y = logistic.data(int(schedule.ends[-1]))
    args = (rng, np.zeros(logistic.D), population_of(schedule), schedule, 0.001, X, y)
    logistic.transitions(1, *args)
    benchmark.group = f"200 transitions at 500 rows, N = {len(y)}"
    benchmark(logistic.transitions, PER_CALL, *args)


def test_log_density_terms(benchmark, model):
    """500 random rows through the public function."""
    fact = factorise(model)
    rng = np.random.default_rng(1)
    point = model.initial_point()
    indices = iter([rng.integers(0, fact.n_local, 500) for _ in range(10_000)])
    fact.log_density_terms(point, next(indices))
    benchmark.group = "log_density_terms at 500 rows"
    benchmark.pedantic(fact.log_density_terms, setup=lambda: ((point, next(indices)), {}), rounds=3000)


@pytest.mark.parametrize("per_draw", [1, PER_CALL])
def test_overhead_of_a_step(benchmark, per_draw):
    """Two rows for each decision: what is left is the step itself, once for 1 and for 200 transitions."""
    model = logistic.model(10_000)
    with model:
        step = AusterityMH(epsilon=0.5, batch_size=2, proposal=RandomWalk(0.001), steps_per_draw=per_draw)
    point, _ = step.step(model.initial_point())
    benchmark.group = f"step() with {per_draw} transitions at 2 rows"
    benchmark(step.step, point)
