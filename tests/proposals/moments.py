"""Means and covariances of what is proposed."""

import numpy as np

COV = np.array([[4.0, 1.2, -0.5], [1.2, 1.0, 0.1], [-0.5, 0.1, 0.25]])


def worst_z_of_moments(sample, mean, cov):
    """Largest distance of means and covariances from N(mean, cov), in exact standard errors."""
    n, centred = len(sample), sample - mean
    z_mean = centred.mean(axis=0) / np.sqrt(np.diag(cov) / n)
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    return max(np.abs(z_mean).max(), np.abs((centred.T @ centred / n - cov) / error).max())
