"""The test of uniform ranks, on a posterior that is known: a normal mean."""

import numpy as np
import pytest
from scipy import stats

from tests.statistical.hierarchies.ranks import p_of_ranks, rank_of

L, REPLICATIONS = 99, 500


def ranks(rng, shift=0.0, widen=1.0, rho=0.0):
    """Of a mean with prior N(0, 1) and data N(mean, 1): the posterior is N(y / 2, 1 / 2)."""
    mean = rng.normal(size=REPLICATIONS)
    y = mean + rng.normal(size=REPLICATIONS)
    noise = rng.normal(size=(L, REPLICATIONS))
    for k in range(1, L):
        noise[k] = rho * noise[k - 1] + np.sqrt(1 - rho**2) * noise[k]
    return rank_of(mean, y / 2 + np.sqrt(0.5) * (shift + widen * noise))


def test_right_as_often_as_it_says():
    rng = np.random.default_rng(1)
    p = [p_of_ranks(ranks(rng), L) for _ in range(300)]
    assert stats.kstest(p, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("wrong", [{"shift": 0.25}, {"widen": 0.8}, {"widen": 1.3}, {"rho": 0.95}])
def test_what_is_wrong_is_noticed(wrong):
    """A shifted or too narrow posterior, and draws that are not independent."""
    # Planted fault: draws that are shifted, too wide, too narrow or dependent.
    assert p_of_ranks(ranks(np.random.default_rng(2), **wrong), L) < 0.001
