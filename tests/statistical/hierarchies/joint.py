"""Are two samples of chains of the same law? One test of the means of all coordinates, errors of all sds.

Both samples are cut into as many batches, long beside the autocorrelation times. Differences of batch means
are independent, with a symmetric law around the difference of the means. If that is zero, the sign of each
is a fair coin, whatever the autocorrelations and the dependence of coordinates: a sign-flip test is exact.
"""

import numpy as np
from scipy import linalg, stats

FLIPS = 20_000
BATCHES = 48
SD_BATCHES = 240


def batch_means(draws, batches):
    """Means (batches, d) of consecutive draws of chains (chains, n, d)."""
    chains, n, d = draws.shape
    each = batches // chains
    length = n // each
    return draws[:, : each * length].reshape(chains * each, length, d).mean(axis=1)


def _flips(differences, seed, flips):
    """Sums over batches with the signs as they are, and with random ones: (1 + flips, d)."""
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(flips, len(differences)))
    return np.concatenate([np.ones((1, len(differences))), signs]) @ differences


def _p(statistic):
    """How often is it as large with random signs as with the true ones?"""
    return np.mean(statistic >= statistic[0] * (1 - 1e-12))


def _common_cov(*samples):
    return np.mean([np.cov(draws.reshape(-1, draws.shape[-1]).T) for draws in samples], axis=0)


def _p_of_differences(differences, n_theta, cov, *signs):
    """Hotelling's statistic of theta, a sum over whitened effects, the largest of all: Bonferroni."""
    theta, effects = differences[:, :n_theta], differences[:, n_theta:]
    # Second moments about zero do not change with the signs.
    root = linalg.cholesky(theta.T @ theta, lower=True)
    hotelling = np.sum(_flips(linalg.solve_triangular(root, theta.T, lower=True).T, *signs) ** 2, axis=1)
    root = linalg.cholesky(cov[n_theta:, n_theta:], lower=True)
    white = linalg.solve_triangular(root, effects.T, lower=True)
    together = np.sum(_flips(white.T, *signs) ** 2, axis=1)
    largest = np.abs(_flips(differences / np.sqrt(np.sum(differences**2, axis=0)), *signs)).max(axis=1)
    return min(1.0, 3.0 * min(_p(hotelling), _p(together), _p(largest)))


def p_of_means(ours, theirs, n_theta, seed=0, flips=FLIPS):
    """p-value of equal means of all coordinates; the first `n_theta` are the shared ones.

    Parameters
    ----------
    ours, theirs : ndarray (chains, draws, d)
        Of any lengths.
    n_theta : int
    seed, flips : int
        Of the random signs, and how many times they are drawn.

    Returns
    -------
    float
        Three times the smallest of three sign-flip p-values: of Hotelling's statistic for theta, of the sum
        of squares of the effects whitened by their posterior covariance, and of the largest coordinate.
    """
    differences = batch_means(ours, BATCHES) - batch_means(theirs, BATCHES)
    return _p_of_differences(differences, n_theta, _common_cov(ours, theirs), seed, flips)


def p_of_variances(ours, theirs, n_theta, **signs):
    """The same test of squared deviations from a common mean."""
    center = 0.5 * (ours.mean(axis=(0, 1)) + theirs.mean(axis=(0, 1)))
    return p_of_means((ours - center) ** 2, (theirs - center) ** 2, n_theta, **signs)


def _log_sds(draws):
    """Log sd of each coordinate, and its standard error."""
    squares = (draws - draws.mean(axis=(0, 1))) ** 2
    variance = squares.mean(axis=(0, 1))
    batches = batch_means(squares, SD_BATCHES)
    error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches)) / (2.0 * variance)
    return 0.5 * np.log(variance), error


def z_of_sds(ours, theirs):
    """Log ratios of sds in standard errors: what a normal variable has in place of Student's t."""
    (a, error_a), (b, error_b) = _log_sds(ours), _log_sds(theirs)
    t = (a - b) / np.hypot(error_a, error_b)
    return np.sign(t) * stats.norm.isf(stats.t.sf(np.abs(t), SD_BATCHES - 1))
