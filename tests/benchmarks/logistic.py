"""A logistic regression as a PyMC model, and its transition kernel written by hand."""

import math

import numba
import numpy as np
import pymc as pm

from pymc_austerity.kernels.subsample import draw_without_replacement, positions, random_offset, restore_order

D = 10


def data(n, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    y = (rng.random(n) < 1 / (1 + np.exp(-0.3 * X.sum(axis=1)))).astype(np.int64)
    return X, y


def model(n):
    X, y = data(n)
    with pm.Model() as built:
        beta = pm.Normal("beta", 0, 1, shape=D)
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return built


@numba.njit(error_model="numpy")
def softplus(x):
    return x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x))


@numba.njit(error_model="numpy")
def transitions(n_transitions, rng, q, population, schedule, scale, X, y):
    """Austerity MH for logistic regression with a N(0, I) prior, one batch for each decision."""
    n_local = schedule.ends[-1]
    end = schedule.ends[0]
    n_accepted = 0
    for _ in range(n_transitions):
        q_new = q + scale * rng.standard_normal(q.shape[0])
        u = rng.random()
        base = 0.0
        for j in range(q.shape[0]):
            base += 0.5 * (q[j] * q[j] - q_new[j] * q_new[j])
        psi = (math.log(u) - base) / n_local
        offset = random_offset(rng, schedule)
        draw_without_replacement(rng, population, 0, end // schedule.block)
        index = positions(population, schedule, offset, 0, end)
        mean, m2 = 0.0, 0.0
        for k in range(end):
            i = index[k]
            old = new = 0.0
            for j in range(q.shape[0]):
                old += X[i, j] * q[j]
                new += X[i, j] * q_new[j]
            ratio = softplus(-old) - softplus(-new) if y[i] else softplus(old) - softplus(new)
            delta = ratio - mean
            mean += delta / (k + 1)
            m2 += delta * (ratio - mean)
        restore_order(population, end // schedule.block)
        if mean > psi:
            q = q_new
            n_accepted += 1
    return q, n_accepted
