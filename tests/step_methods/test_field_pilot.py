"""What is announced of a field: from a run in which nothing was chosen."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_austerity.model.compile.backend import NUMBA
from pymc_austerity.step_methods.metropolis import field_pilot
from pymc_austerity.step_methods.metropolis.engine.fields import FieldEngine
from pymc_austerity.step_methods.metropolis.field_pilot import FieldPrediction, announced, draws_of_sweeps
from tests.benchmarks.announcements import compared

# What sweeps are, whatever is tried out: this share of shared moves is accepted, and so many rows are read.
ACCEPTED, ROWS, OF_TREE = 0.45, 30.0, 1e3
KEEPS = 0.99


class Engine(FieldEngine):
    """An engine whose moves are accepted at one rate, and whose theta follows an autoregression."""

    n_local, backend, reads_all = 1000, NUMBA, False

    def __init__(self):
        """Nothing is compiled."""

    def copy(self):
        return self

    def restart(self):
        pass

    def new_state(self):
        return ()

    def run(self, n, tune, rng, q, point, proposal_state):
        counts = np.zeros(4)
        for _ in range(n):
            q[0] = KEEPS * q[0] + np.sqrt(1.0 - KEEPS**2) * rng.standard_normal()
            q[1] = rng.standard_normal()
            counts += [rng.poisson(ROWS), rng.poisson(ROWS), rng.random() < ACCEPTED, 0.9]
        return SimpleNamespace(
            q=q,
            n_used=counts[0] + counts[1],
            shared_n_used=counts[0],
            effects_n_used=counts[1],
            n_accepted=counts[2],
            effects_accepted=counts[3],
        )


def chosen(rng):
    """The best of four runs of 100 sweeps that differ by chance alone."""
    rates = rng.binomial(100, ACCEPTED, size=4) / 100
    return FieldPrediction(5, 6, 2, ROWS, ROWS, float(rates.max()), 0.9, OF_TREE)


@pytest.mark.covering(1)
def test_the_best_of_several_runs_is_not_announced():
    rng = np.random.default_rng(1)
    before = [chosen(rng) for _ in range(20)]
    assert np.mean([one.shared_acceptance for one in before]) > ACCEPTED + 0.03  # the planted fault
    found = announced(Engine(), before[0], lambda rng: rng.standard_normal(7), {})
    assert found.shared_acceptance == pytest.approx(ACCEPTED, abs=0.03)
    assert found.terms == pytest.approx(2.0 * ROWS, rel=0.05)


def test_effective_draws_are_measured():
    found = announced(Engine(), chosen(np.random.default_rng(2)), lambda rng: rng.standard_normal(7), {})
    right = (1.0 - KEEPS) / (1.0 + KEEPS)
    assert 0.4 * right < found.mixing.efficiency < 3.0 * right
    assert found.mixing.dimension == 0
    # The planted fault: all but rejections is taken to mix.
    assert 10.0 * found.mixing.efficiency < ACCEPTED / (2.0 - ACCEPTED)


@pytest.mark.parametrize(
    ("sweep", "expected"), [(1e3, (1000, 4)), (1e5, (110, 4)), (1e6, (260, 1)), (2e7, (100, 1))], ids=str
)
def test_runs_are_as_long_as_their_work_allows(sweep, expected):
    assert draws_of_sweeps(sweep) == expected
    n_draws, n_chains = expected
    work = n_chains * (n_draws + field_pilot._SETTLE) * sweep
    assert work <= field_pilot._BUDGETS[n_chains] or expected == (field_pilot._COUNTED, 1)


@pytest.mark.slow("compiles fields, and runs them")
@pytest.mark.parametrize("name", ["180 rows, 36 groups, not centred", "420 rows, 110 x 105"])
def test_what_is_announced_is_found(name):
    """Where few rows leave remainders large."""
    found = compared(name, 2000)
    assert found.acceptance[0] == pytest.approx(found.acceptance[1], abs=0.06)
    assert found.rows[0] == pytest.approx(found.rows[1], rel=0.25)
    assert 0.25 < found.effective[0] / found.effective[1] < 4.0
