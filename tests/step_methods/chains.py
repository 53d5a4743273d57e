"""Chains that are made up."""

import numpy as np


def autoregression(rho, n, n_dim, rng):
    """A chain whose first coordinate remembers."""
    draws = rng.normal(size=(n, n_dim))
    for k in range(1, n):
        draws[k, 0] = rho * draws[k - 1, 0] + np.sqrt(1.0 - rho**2) * draws[k, 0]
    return draws
