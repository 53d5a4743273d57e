"""An independent sampler of logistic models with two crossed factors: Metropolis within Gibbs on all rows.

    y_i ~ Bernoulli(invlogit(x_i' beta + u_g(i) + v_h(i))),  u_g ~ N(0, tau^2),  v_h ~ N(0, T^2)
    beta_k ~ N(0, 2^2), the first an intercept,  tau and T ~ HalfNormal(1)

It moves all variables as they stand. Nothing is expanded, and there are no other coordinates. Moves along
ridges help it to mix: a shift of all effects of a factor against the intercept, and either scale with its
effects.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

SD = 2.0
MOST = 1e200  # of a product, far from overflow


@njit(cache=True)
def _fit(y, eta):
    total, product = 0.0, 1.0  # one logarithm for many rows
    for i in range(len(y)):
        total += y[i] * eta[i] - max(eta[i], 0.0)
        product *= 1.0 + math.exp(-abs(eta[i]))
        if product > MOST:
            total, product = total - math.log(product), 1.0
    return total - math.log(product)


@njit(cache=True)
def _log_prior(log_scale):
    """HalfNormal(1), with the Jacobian."""
    return log_scale - 0.5 * math.exp(2.0 * log_scale)


@njit(cache=True)
def _effects(y, eta, order, first, effects, log_scale, steps, rng):
    """Walks of all effects of a factor, one by one; which moved."""
    accepted = np.zeros(len(effects))
    precision = math.exp(-2.0 * log_scale)
    for g in range(len(effects)):
        by = steps[g] * rng.standard_normal()
        gain = -0.5 * precision * ((effects[g] + by) ** 2 - effects[g] ** 2)
        before, after = 1.0, 1.0
        for j in range(first[g], first[g + 1]):
            i = order[j]
            old, new = eta[i], eta[i] + by
            gain += y[i] * by - max(new, 0.0) + max(old, 0.0)
            before *= 1.0 + math.exp(-abs(old))
            after *= 1.0 + math.exp(-abs(new))
            if max(before, after) > MOST:
                gain += math.log(before) - math.log(after)
                before, after = 1.0, 1.0
        gain += math.log(before) - math.log(after)
        if math.log(rng.random()) < gain:
            effects[g] += by
            accepted[g] = 1.0
            for j in range(first[g], first[g + 1]):
                eta[order[j]] += by
    return accepted


@njit(cache=True)
def _sweeps(X, y, indices, orders, firsts, state, sizes, thin, rng, out):
    beta, hyper, u, v = state
    of_beta, of_u, of_v, of_hyper = sizes
    p, n_u, n_v = len(beta), len(u), len(v)
    eta = X @ beta + u[indices[0]] + v[indices[1]]
    moved_u, moved_v, moved_beta = np.zeros(n_u), np.zeros(n_v), 0.0
    for draw in range(len(out)):
        for _ in range(thin):
            moved_u += _effects(y, eta, orders[0], firsts[0], u, hyper[0], of_u, rng)
            moved_v += _effects(y, eta, orders[1], firsts[1], v, hyper[1], of_v, rng)
            fit = _fit(y, eta)
            new = beta + of_beta @ rng.standard_normal(p)
            eta_new = eta + X @ (new - beta)
            fit_new = _fit(y, eta_new)
            gain = fit_new - fit - 0.5 * np.sum(new**2 - beta**2) / SD**2
            if math.log(rng.random()) < gain:
                beta[:], eta[:], fit = new, eta_new, fit_new
                moved_beta += 1.0
            for k in range(2):
                effects = u if k == 0 else v
                n = len(effects)
                new_scale = hyper[k] + of_hyper[k] * rng.standard_normal()
                gain = _log_prior(new_scale) - _log_prior(hyper[k]) - n * (new_scale - hyper[k])
                gain -= 0.5 * np.sum(effects**2) * (math.exp(-2.0 * new_scale) - math.exp(-2.0 * hyper[k]))
                if math.log(rng.random()) < gain:
                    hyper[k] = new_scale
                # All effects against the intercept: the predictors stay.
                precision = n * math.exp(-2.0 * hyper[k]) + 1.0 / SD**2
                mean = (beta[0] / SD**2 - np.sum(effects) * math.exp(-2.0 * hyper[k])) / precision
                by = mean + rng.standard_normal() / math.sqrt(precision)
                effects += by
                beta[0] -= by
                # A scale with its effects.
                step = of_hyper[k] * rng.standard_normal()
                added = effects * (math.exp(step) - 1.0)
                eta_new = eta + (added[indices[0]] if k == 0 else added[indices[1]])
                fit_new = _fit(y, eta_new)
                gain = fit_new - fit + _log_prior(hyper[k] + step) - _log_prior(hyper[k])
                if math.log(rng.random()) < gain:
                    hyper[k] += step
                    effects += added
                    eta[:], fit = eta_new, fit_new
        eta = X @ beta + u[indices[0]] + v[indices[1]]  # rounding does not add up
        out[draw, :p], out[draw, p : p + 2] = beta, hyper
        out[draw, p + 2 : p + 2 + n_u], out[draw, p + 2 + n_u :] = u, v
    n = len(out) * thin
    return moved_u / n, moved_v / n, moved_beta / n


def sample(X, y, groups, levels, sizes, draws, seed, *, thin=1, rounds=25):
    """A chain: beta, log tau, log T, all u, all v; `sizes` are the numbers of levels of the factors."""
    indices = groups.astype(np.int64), levels.astype(np.int64)
    orders = tuple(np.argsort(one, kind="stable") for one in indices)
    firsts = tuple(
        np.r_[0, np.cumsum(np.bincount(one, minlength=n))] for one, n in zip(indices, sizes, strict=True)
    )
    data = np.ascontiguousarray(X), y.astype(float), indices, orders, firsts
    rng, p = np.random.default_rng(seed), X.shape[1]
    effects = tuple(0.1 * rng.standard_normal(n) for n in sizes)
    state = np.zeros(p), np.array([-1.0, -1.0]), *effects
    steps = 0.05 * np.eye(p), np.full(sizes[0], 0.5), np.full(sizes[1], 0.5), np.array([0.2, 0.2])
    size, seen = 1.0, np.empty((0, p))
    width = p + 2 + sum(sizes)
    for round_ in range(rounds):
        out = np.empty((200, width))
        of_u, of_v, of_beta = _sweeps(*data, state, steps, 1, rng, out)
        gain = 2.0 / math.sqrt(1 + round_)
        steps[1][:] *= np.exp(gain * (of_u - 0.4))
        steps[2][:] *= np.exp(gain * (of_v - 0.4))
        size *= math.exp(gain * (of_beta - 0.3))
        seen = np.concatenate([seen[len(seen) // 3 :], out[:, :p]])
        steps[0][:] = size * np.linalg.cholesky(np.cov(seen.T) + 1e-8 * np.eye(p))
    out = np.empty((draws, width))
    _sweeps(*data, state, steps, thin, rng, out)
    return out
