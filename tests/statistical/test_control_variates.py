"""Steps with control variates on logistic regression: what they cost, how they mix, and whether they err."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numba.extending import register_jitable

import pymc_austerity as pma
from pymc_austerity.acceptance import TTest
from tests.statistical.errors import LIMIT
from tests.statistical.references import (
    chain,
    columns,
    distances,
    fit_normal,
    logistic_data,
    logistic_density,
    logistic_model,
    mean_of,
    moments,
    weigh,
)

full_size = pytest.mark.full_size("more rows than 10,000")


@cache
def logistic(n):
    return logistic_model(*logistic_data(n))


# Cost and mixing --------------------------------------------------------------------------------------

SIZES = [
    pytest.param(10_000, marks=pytest.mark.slow("long chains, at the mode and away from it")),
    pytest.param(100_000, marks=full_size),
    pytest.param(1_000_000, marks=full_size),
]
EXACT_ROWS = 100


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("epsilon", "most"), [(0.01, 150), (0.05, 100)])
@pytest.mark.parametrize(("mix", "least"), [(0, 0.85), (None, 0.65)])
def test_cost_and_mixing_of_austerity(n, epsilon, most, mix, least):
    step = pma.AusterityMH(
        model=logistic(n),
        epsilon=epsilon,
        control_variate=pma.Taylor(),
        proposal=None if mix is None else pma.Laplace(mix=mix),
    )
    # Now and then a decision reads all rows: the mean of 40,000 decisions at N = 1e6 varies by a third.
    draws = 200_000 if n > 10_000 else 20_000
    idata = chain(logistic(n), step, draws, seed=1)
    ess = moments(columns(idata, beta=None)).ess
    assert mean_of(idata, "n_used") - EXACT_ROWS <= most
    assert ess.min() / draws >= least


@pytest.mark.parametrize("n", SIZES)
def test_cost_and_mixing_of_barker(n):
    step = pma.MinibatchBarker(
        model=logistic(n), control_variate=pma.Taylor(exact_rows=0), proposal=pma.Laplace(mix=0)
    )
    draws = 30_000
    idata = chain(logistic(n), step, draws, seed=2)
    assert mean_of(idata, "n_used") <= 60
    assert moments(columns(idata, beta=None)).ess.min() / draws >= 0.30


# Bias -------------------------------------------------------------------------------------------------

# The reference has next to no error.
DRAWS, ENOUGH = 40_000, 2.2e4


@register_jitable
def accept_all(schedule, sample, psi, rng):
    return True


@dataclass(frozen=True)
class Credulous(TTest):
    """A planted fault: everything is accepted, so that the chain has the law of its proposal."""

    @property
    def functions(self):
        return super().functions._replace(accept=accept_all)


@cache
def exact(n):
    """Moments by importance sampling."""
    density = logistic_density(*logistic_data(n))
    found = weigh(density, fit_normal(density, np.zeros(10)), 60_000)
    # A third of the error of 1e5 draws at most.
    assert np.all(np.maximum(found.mean_error, found.sd_error) < 1e-3 * found.sd)
    return found


@pytest.mark.parametrize(
    "n",
    [
        pytest.param(
            1000,
            marks=pytest.mark.slow("40,000 transitions: errors of a few hundredths of a standard deviation"),
        ),
        pytest.param(3000, marks=pytest.mark.full_size("the same with more rows")),
        pytest.param(10_000, marks=pytest.mark.full_size("the same with more rows, minutes")),
    ],
)
class TestBias:
    def test_posterior(self, n):
        """With the larger epsilon: the other decides on more rows."""
        step = pma.AusterityMH(
            model=logistic(n), epsilon=0.05, control_variate=pma.Taylor(), proposal=pma.Laplace(mix=0.1)
        )
        found = moments(columns(chain(logistic(n), step, DRAWS, seed=5), beta=None))
        assert found.ess.min() >= ENOUGH
        assert distances(found, exact(n)).max() < LIMIT

    def test_accepting_everything_is_noticed(self, n):
        """Planted fault: everything is accepted."""
        step = pma.MetropolisHastings(
            model=logistic(n),
            acceptance=Credulous(0.05, 50),
            control_variate=pma.Taylor(),
            proposal=pma.Laplace(mix=0.1),
        )
        found = moments(columns(chain(logistic(n), step, DRAWS, seed=4), beta=None))
        assert found.ess.min() >= ENOUGH
        assert distances(found, exact(n))[0].max() > LIMIT
