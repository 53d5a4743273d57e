"""The gates of the statistical checks: do they let pass what is right, as often as they should?"""

import numpy as np
import pytest
from scipy import signal, stats

from tests.statistical.errors import p_of_counts, sd_with_error, z_of_count, z_of_mean, z_of_sd


@pytest.fixture(scope="module")
def autoregressions():
    """200 pairs of chains with autocorrelation 0.9 (time 19), mean 0 and sd 1."""
    rng = np.random.default_rng(1)
    noise = np.sqrt(1 - 0.81) * rng.normal(size=(200, 2, 6000))
    noise[..., 0] = rng.normal(size=(200, 2))
    return signal.lfilter([1.0], [1.0, -0.9], noise)


def spread_is_one(z, upper):
    """Is the variance of z between 1 and `upper`, but for the error of so many?"""
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], len(z)) / len(z)
    return low < np.mean(np.square(z)) < high * upper


def test_errors_of_means_and_sds_of_chains(autoregressions):
    # A few tens of batches give z a little more spread than a normal variable has.
    assert spread_is_one([z_of_mean(x, 0) for x in autoregressions], 1.3)
    assert spread_is_one([z_of_sd(x, 1, 0) for x in autoregressions], 1.3)
    found = [sd_with_error(x) for x in autoregressions]
    assert spread_is_one([(sd - 1) / error for sd, error in found], 1.3)
    # Draws taken for independent ones: the planted fault.
    naive = [x.mean() / x.std() * np.sqrt(x.size) for x in autoregressions]
    assert not spread_is_one(naive, 1.3)


def test_errors_of_counts():
    rng = np.random.default_rng(2)
    assert spread_is_one(z_of_count(rng.binomial(1000, 0.2, size=500), 1000, 0.2), 1.0)
    law = [0.5, 0.3, 0.2, 0.0]
    p = [p_of_counts(c, law) for c in rng.multinomial(1000, law, size=500)]
    assert stats.kstest(p, "uniform").pvalue > 1e-4
    assert p_of_counts([400, 400, 200, 0], law) < 1e-4
    assert p_of_counts([500, 300, 199, 1], law) == 0.0
