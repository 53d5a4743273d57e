"""Moves of a random walk in a logistic regression: a trial run of the exact chain, without PyMC."""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from scipy.special import expit


def regression(n, n_dim, seed=1):
    """Normal features of falling variance, as principal components have, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_dim)) * np.geomspace(2.3, 0.3, n_dim)
    return X, (rng.random(n) < expit(X @ rng.normal(0, 0.3, n_dim))).astype(float)


def digits(n_dim=50):
    """MNIST's 7 and 9, principal components of the pixels; None without the file."""
    folder = os.environ.get("PYMC_AUSTERITY_DATA")
    path = Path(folder or ".") / "mnist79.npz"
    if folder is None or not path.exists():
        return None
    with np.load(path) as data:
        pixels, label = data["X_train"] / 255, data["digit_train"] == 9
    pixels = pixels - pixels.mean(axis=0)
    _, directions = np.linalg.eigh(pixels.T @ pixels)
    return pixels @ directions[:, -n_dim:], label.astype(float)


def trial_moves(X, y, n_moves, step, seed=2, burn_in=300, thin=10, precision=10.0):
    """Every `thin`-th proposal of an exact chain that starts at the mode.

    Returns
    -------
    SimpleNamespace
        `mu` and `sigma_l`; `terms` of shape (n_moves, N) with the l_i, and `psi0`, the threshold at u = 1.
    """
    rng, (n, n_dim) = np.random.default_rng(seed), X.shape
    beta = np.zeros(n_dim)
    for _ in range(20):
        p = expit(X @ beta)
        hessian = (X.T * (p * (1 - p))) @ X + precision * np.eye(n_dim)
        beta = beta + np.linalg.solve(hessian, X.T @ (y - p) - precision * beta)
    sign, eta = 2 * y - 1, X @ beta
    terms, psi0 = [], []
    for k in range(burn_in + n_moves * thin):
        new = beta + step * rng.normal(size=n_dim)
        eta_new = X @ new
        change = np.logaddexp(0, -sign * eta) - np.logaddexp(0, -sign * eta_new)
        prior = 0.5 * precision * (beta @ beta - new @ new)
        if k >= burn_in and k % thin == 0:
            terms.append(change)
            psi0.append(-prior / n)
        if np.log(rng.random()) < change.sum() + prior:
            beta, eta = new, eta_new
    terms, psi0 = np.array(terms), np.array(psi0)
    return SimpleNamespace(mu=terms.mean(axis=1) - psi0, sigma_l=terms.std(axis=1), terms=terms, psi0=psi0)
