"""The sequential test and its chain as the paper idealises them: batch means are normal.

After a share pi of the terms, tau = pi / (1 - pi), the statistic (mean - psi) / (its standard error with
finite-population correction) is W(tau) / sqrt(tau), with W a Brownian motion of drift
mu_std = (mean - psi) sqrt(N - 1) / sigma_l. The test stops where it leaves [-G_j, G_j].
Everything here is quadrature; nothing is taken from the package.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr


class Decision(NamedTuple):
    """Law of one sequential test, for each drift."""

    above: np.ndarray  # stops early with mean > psi
    below: np.ndarray  # stops early with mean < psi
    exhausted: np.ndarray  # reads everything
    data_use: np.ndarray  # expected share of the data

    def accepts(self, mu_std):
        """Probability of deciding mean > psi; the last stage is exact."""
        return self.above + self.exhausted * (np.asarray(mu_std) > 0)


def normal_density(x, sd):
    return np.exp(-0.5 * (x / sd) ** 2) / (sd * np.sqrt(2 * np.pi))


def sequential_test_law(mu_std, ends, critical, nodes=60):
    """Law of the test with batch ends `ends` (the last is N) and critical values G_j."""
    mu = np.atleast_1d(np.asarray(mu_std, dtype=float))[:, None]
    share = np.asarray(ends[:-1]) / ends[-1]
    time = share / (1 - share)
    x, weights = np.polynomial.legendre.leggauss(nodes)
    above, below, use = (np.zeros(len(mu)) for _ in range(3))
    # Where W is, given that it has not stopped: masses on Gauss-Legendre nodes.
    position, mass, before = np.zeros(1), np.ones((len(mu), 1)), 0.0
    for pi, tau, g in zip(share, time, critical, strict=False):
        step, edge = tau - before, g * np.sqrt(tau)
        sd, drift = np.sqrt(step), mu * step
        up = np.sum(mass * ndtr((position + drift - edge) / sd), axis=1)
        down = np.sum(mass * ndtr((-edge - position - drift) / sd), axis=1)
        above, below, use = above + up, below + down, use + pi * (up + down)
        # Where nothing is left there is nothing to move (and the factors below would overflow).
        alive = mass.sum(axis=1, keepdims=True) > 1e-13
        mass, mu = mass * alive, mu * alive
        # Girsanov: the drift is a factor that depends on the two ends of a step only.
        new = edge * x
        kernel = normal_density(new[:, None] - position, sd)
        moved = np.exp(-0.5 * mu**2 * step) * np.exp(mu * new) * (mass * np.exp(-mu * position) @ kernel.T)
        position, mass, before = new, moved * edge * weights, tau
    exhausted = 1 - above - below
    return Decision(above, below, exhausted, use + exhausted)


def stationary(transition):
    """Stationary law of a stochastic matrix."""
    n = len(transition)
    system = np.vstack([transition.T - np.eye(n), np.ones(n)])
    return np.linalg.lstsq(system, np.r_[np.zeros(n), 1.0], rcond=None)[0]


def walk_on_grid(grid, scale, accept):
    """Transition matrix of a Gaussian random walk of sd `scale` on an even grid.

    Parameters
    ----------
    grid : ndarray of shape (K,)
    accept : ndarray of shape (K, K)
        Probability of accepting a move from grid[i] to grid[j].
    """
    width = grid[1] - grid[0]
    matrix = width * normal_density(grid[None, :] - grid[:, None], scale) * accept
    np.fill_diagonal(matrix, 0.0)
    np.fill_diagonal(matrix, 1 - matrix.sum(axis=1))
    return matrix
