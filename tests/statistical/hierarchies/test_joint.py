"""The joint test of means, and of sds: right as often as it says, and it notices a tenth of an sd."""

import numpy as np
import pytest
from scipy import signal, stats

from tests.statistical.hierarchies.joint import p_of_means, p_of_variances, z_of_sds

N_THETA, G = 5, 60


def chains(rng, n, rho):
    """Autoregressions with sd about 1; the effects share a part with the first coordinate."""
    shape = (2, n, N_THETA + G)
    noise = np.sqrt(1 - rho**2) * rng.standard_normal(shape, dtype=np.float32)
    noise[:, 0] /= np.sqrt(1 - rho**2)
    x = signal.lfilter([1.0], [1.0, -rho], noise, axis=1)
    x[..., N_THETA:] = 0.9 * x[..., N_THETA:] - 0.44 * x[..., :1]
    return x


@pytest.fixture(scope="module")
def pairs():
    """Of different autocorrelation, so that the batches of the two have different laws."""
    rng = np.random.default_rng(1)
    return [(chains(rng, 1500, 0.6), chains(rng, 3000, 0.0)) for _ in range(200)]


@pytest.mark.slow("200 comparisons of long chains")
def test_right_as_often_as_it_says(pairs):
    """Bonferroni makes p-values a little too large, never too small."""
    for test in (p_of_means, p_of_variances):
        p = np.array([test(a, b, N_THETA, flips=1000) for a, b in pairs])
        for level in (0.05, 0.2, 0.5):
            assert stats.binomtest(int(np.sum(p < level)), len(p), level, "greater").pvalue > 1e-3
        assert np.mean(p < 0.3) > 0.1
    z = np.concatenate([z_of_sds(a, b) for a, b in pairs])
    assert np.mean(z**2) == pytest.approx(1.0, abs=0.1)
    assert np.mean(np.abs(z) > 3) < 3 * 0.0027


def test_batches_that_are_too_short_are_no_test():
    """The planted fault: a chain whose autocorrelation time is several times as long as a batch."""
    rng = np.random.default_rng(4)
    pairs = [(chains(rng, 1500, 0.995), chains(rng, 1500, 0.0)) for _ in range(20)]
    assert np.mean([p_of_means(a, b, N_THETA, flips=1000) < 0.05 for a, b in pairs]) > 0.4


ONE_SHARED, LAST_SHARED = slice(0, 1), slice(N_THETA - 1, N_THETA)
EFFECTS, ONE_EFFECT = slice(N_THETA, None), slice(-1, None)


@pytest.mark.parametrize("where", [ONE_SHARED, LAST_SHARED, EFFECTS, ONE_EFFECT])
def test_a_shift_is_noticed(where):
    """Of one shared coordinate, of all effects, of one effect: with 10,000 effective draws on both sides."""
    rng = np.random.default_rng(2)
    ours, theirs = chains(rng, 15_000, 0.5), chains(rng, 5000, 0.0)
    assert p_of_means(ours, theirs, N_THETA) > 0.001
    shifted = ours.copy()
    shifted[..., where] += 0.1
    assert p_of_means(shifted, theirs, N_THETA) < 0.001


def test_a_wider_law_is_noticed():
    rng = np.random.default_rng(3)
    ours, theirs = chains(rng, 15_000, 0.5), chains(rng, 5000, 0.0)
    assert np.abs(z_of_sds(ours, theirs)).max() < 4
    assert p_of_variances(ours, theirs, N_THETA) > 0.001
    one = ours.copy()
    one[..., 3] *= 1.06
    assert np.abs(z_of_sds(one, theirs)[3]) > 4
    wider = ours.copy()
    wider[..., N_THETA:] *= 1.02
    assert p_of_variances(wider, theirs, N_THETA) < 0.001
