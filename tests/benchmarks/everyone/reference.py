"""Posterior means and standard deviations by importance sampling: no Markov chain is its own judge.

Draws come from a multivariate t_5 around the mode, in pairs mode + u, mode - u. What is estimated is the
difference from the normal law N(mode, H^-1), which has the same weights but for a factor close to 1, and
moments that are known. So the error is of the order of that difference, and a few thousand draws are enough.
"""

import math
import time

import numba
import numpy as np

from tests.benchmarks.everyone.problems import colour_of

FREEDOM = 5
GROUPS = 20  # of pairs, to be left out one at a time
ROWS = 1000
# exp(-|x|) are multiplied by so many at a time: 2^500 is a finite number, and a logarithm is dear.
PRODUCT = 500


@numba.njit(cache=True, error_model="numpy")
def add_softplus(eta, total):
    """Add the sum of log(1 + exp(eta)) of each row of `eta`."""
    for k in range(eta.shape[0]):
        result, product = 0.0, 1.0
        for i in range(eta.shape[1]):
            result += max(eta[k, i], 0.0)
            product *= 1.0 + math.exp(-abs(eta[k, i]))
            if i % PRODUCT == PRODUCT - 1:
                result += math.log(product)
                product = 1.0
        total[k] += result + math.log(product)


@numba.njit(cache=True, error_model="numpy")
def add_exp(eta, total):
    for k in range(eta.shape[0]):
        result = 0.0
        for i in range(eta.shape[1]):
            result += math.exp(eta[k, i])
        total[k] += result


def log_posterior(problem, betas):
    """Up to a constant, for each row of `betas`. Both families are exponential in X beta."""
    X, y = problem.data
    add = add_exp if problem.family == "poisson" else add_softplus
    total = np.zeros(len(betas))
    for start in range(0, problem.n, ROWS):
        add(betas @ X[start : start + ROWS].T, total)
    return betas @ (X.T @ y) - total - 0.5 * np.square(betas).sum(axis=1)


def estimate(sums, laplace_variance):
    """Shift of the means and standard deviations, from sums of both kinds of weights times u and u^2."""
    weight, shift, square = sums["weight"], sums["shift"], sums["square"]
    mean = shift[0] / weight[0] - shift[1] / weight[1]
    second = laplace_variance + square[0] / weight[0] - square[1] / weight[1]
    return mean, np.sqrt(second - mean**2)


def reference(problem, draws=None):
    """Mode, means and standard deviations with their errors, in a dict of lists and numbers."""
    began = time.process_time()
    if draws is None:
        draws = int(np.clip(1e9 / problem.n, 2000, 20_000))
    pairs = max(draws // (2 * GROUPS), 2) * GROUPS
    mode, precision = problem.newton()
    unwhiten = colour_of(precision)
    rng = np.random.default_rng(5)
    z = rng.standard_normal((pairs, problem.dim))
    z *= np.sqrt(FREEDOM / rng.chisquare(FREEDOM, pairs))[:, None]
    z = np.stack([z, -z], axis=1).reshape(2 * pairs, -1)
    squared = np.square(z).sum(axis=1)
    proposed = -0.5 * (FREEDOM + problem.dim) * np.log1p(squared / FREEDOM)
    u = z @ unwhiten.T
    weights = []
    for log_density in (log_posterior(problem, mode + u), -0.5 * squared):
        log_weight = log_density - proposed
        weights.append(np.exp(log_weight - log_weight.max()))
    grouped = {
        "weight": np.array([w.reshape(GROUPS, -1).sum(axis=1) for w in weights]),
        "shift": np.array([in_groups(w, u) for w in weights]),
        "square": np.array([in_groups(w, u**2) for w in weights]),
    }
    variance = np.diag(unwhiten @ unwhiten.T)
    mean, sd = estimate({k: v.sum(axis=1) for k, v in grouped.items()}, variance)
    without = [
        estimate({k: v.sum(axis=1) - v[:, g] for k, v in grouped.items()}, variance) for g in range(GROUPS)
    ]
    mean_error, sd_error = (
        np.sqrt((GROUPS - 1) * np.var([part[i] for part in without], axis=0)) for i in range(2)
    )
    return {
        "checksum": problem.checksum,
        "draws": 2 * pairs,
        "ess": float(weights[0].sum() ** 2 / np.square(weights[0]).sum()),
        "mode": mode.tolist(),
        "mean": (mode + mean).tolist(),
        "mean_error": mean_error.tolist(),
        "sd": sd.tolist(),
        "sd_error": sd_error.tolist(),
        "cpu_seconds": time.process_time() - began,
    }


def in_groups(weight, values):
    return (weight[:, None] * values).reshape(GROUPS, -1, values.shape[1]).sum(axis=1)
