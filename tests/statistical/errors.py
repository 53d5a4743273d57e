"""Monte Carlo errors of averages over a chain, and exact errors of counts."""

import numpy as np
from scipy import stats

from pymc_austerity.testing.compare import LIMIT as LIMIT
from pymc_austerity.testing.compare import error_of_mean


def z_of_mean(draws, expected):
    """Distance of the mean of draws from `expected`, in standard errors."""
    return (np.mean(draws) - expected) / error_of_mean(draws)


def z_of_sd(draws, expected, center):
    """Distance of the standard deviation around a known `center` from `expected`, in standard errors."""
    squares = (np.asarray(draws, dtype=float) - center) ** 2
    return (np.mean(squares) - expected**2) / error_of_mean(squares)


def sd_with_error(draws):
    """Standard deviation of correlated draws, and its standard error."""
    draws = np.asarray(draws, dtype=float)
    sd = draws.std()
    return sd, error_of_mean((draws - draws.mean()) ** 2) / (2 * sd)


def z_of_chains(one, other):
    """Differences of means, and of mean squares about one center, of chains (n, d), in standard errors."""
    found, center = [], other.mean(axis=0)
    for power in (1, 2):
        for x, y in zip(((one - center) ** power).T, ((other - center) ** power).T, strict=True):
            found.append((x.mean() - y.mean()) / np.hypot(error_of_mean(x), error_of_mean(y)))
    return np.array(found)


def z_of_count(count, n, probability):
    """Distance of a binomial count from its expectation, in standard errors."""
    return (count - n * probability) / np.sqrt(n * probability * (1 - probability))


def p_of_counts(counts, probabilities):
    """p-value of multinomial counts (chi-square); impossible outcomes must not occur."""
    counts, probabilities = np.asarray(counts, dtype=float), np.asarray(probabilities, dtype=float)
    if np.any(counts[probabilities == 0]):
        return 0.0
    seen = probabilities > 0
    expected = counts.sum() * probabilities[seen]
    assert expected.min() >= 5, "too few calls for a chi-square test"
    if seen.sum() == 1:
        return 1.0
    chi2 = np.sum((counts[seen] - expected) ** 2 / expected)
    return float(stats.chi2.sf(chi2, seen.sum() - 1))
