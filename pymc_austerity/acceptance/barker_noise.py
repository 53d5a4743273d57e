"""The noise of a minibatch in Barker's test: variance, skewness, distance from a normal variable."""

from __future__ import annotations

import math

from pymc_austerity.acceptance.base import Sample
from pymc_austerity.compilation import jitable


@jitable
def noise_variance(sample: Sample) -> float:
    """Variance s^2 of N times the mean of n terms drawn without replacement."""
    n, n_local = sample.n, sample.n_local
    return n_local * (sample.m2 / (n - 1)) * n_local / n * (1.0 - n / n_local)


@jitable
def normal_distance(sample: Sample) -> float:
    """Corollary 1, for standardised variables: distance of the batch mean from a normal variable."""
    n = sample.n
    sd = math.sqrt(sample.m2 / n)
    # Minkowski: a norm about the mean is at most that about the center plus their distance.
    apart = abs(sample.mean - sample.center)
    first: float = (sample.absolute / n + apart) / sd
    third: float = ((sample.cubed / n) ** (1.0 / 3.0) + apart) / sd
    return (6.4 * third * third * third + 2.0 * first) / math.sqrt(n)


@jitable
def skewness_error(sample: Sample) -> float:
    """The g of `barker_skewness`: the test errs by -g times the third derivative of the logistic function.

    N^3 m_3 / n^2 (1 - n / N) (1/3 - n / (6 N)), with the unbiased estimate of m_3 = E(l_i - E l_i)^3. Two
    terms have no skewness.
    """
    n, n_local = sample.n, sample.n_local
    if n < 3:
        return 0.0
    apart = sample.mean - sample.center
    cubes = sample.signed_cubed - apart * (3.0 * sample.m2 + n * apart * apart)
    third = n_local * (n_local * (n_local * (cubes * n / ((n - 1.0) * (n - 2.0)))))
    share = n / n_local
    return third / n / n * (1.0 - share) * (1.0 / 3.0 - share / 6.0)
