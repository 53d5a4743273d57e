"""An independent sampler of logistic models with random slopes: Metropolis within Gibbs on all rows.

    y_i ~ Bernoulli(invlogit(x_i' beta + a_g(i) + b_g(i) x_i1)),  (a_g, b_g) ~ N(0, S),  beta_k ~ N(0, 2^2)

with standard deviations ~ HalfNormal(1), and either no correlation or one of an LKJ(2) prior. It moves beta,
effects, log standard deviations and atanh of the correlation as they stand. Nothing is expanded, and there
are no other coordinates. Moves along ridges help it to mix: coefficients 0 and 1 against all a and all b.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

BETA_SD, ETA = 2.0, 2.0
MOST = 1e200  # of a product, far from overflow


@njit(cache=True)
def _log_prior(hyper, correlated):
    """Of log sds and atanh rho, with Jacobians."""
    total = 0.0
    for k in range(2):
        total += hyper[k] - 0.5 * math.exp(2.0 * hyper[k])
    if correlated:
        total += ETA * math.log(1.0 - math.tanh(hyper[2]) ** 2)  # (1 - rho^2)^(ETA - 1), and d rho
    return total


@njit(cache=True)
def _log_effects(u, hyper):
    """Of all effects (G, 2), without a constant."""
    rho, total = math.tanh(hyper[2]), 0.0
    for g in range(len(u)):
        a, b = u[g, 0] * math.exp(-hyper[0]), u[g, 1] * math.exp(-hyper[1])
        total -= 0.5 * (a * a - 2.0 * rho * a * b + b * b) / (1.0 - rho * rho)
    return total - len(u) * (hyper[0] + hyper[1] + 0.5 * math.log(1.0 - rho * rho))


@njit(cache=True)
def _fit_of_group(X, y, first, g, fixed, u):
    total, product = 0.0, 1.0  # one logarithm for many rows
    for i in range(first[g], first[g + 1]):
        eta = fixed[i] + u[0] + u[1] * X[i, 1]
        total += y[i] * eta - max(eta, 0.0)
        product *= 1.0 + math.exp(-abs(eta))
        if product > MOST:
            total, product = total - math.log(product), 1.0
    return total - math.log(product)


@njit(cache=True)
def _fit(X, y, first, fixed, u):
    out = np.empty(len(u))
    for g in range(len(u)):
        out[g] = _fit_of_group(X, y, first, g, fixed, u[g])
    return out


@njit(cache=True)
def _sweeps(X, y, first, correlated, state, scales, thin, rng, out):
    beta, u, hyper = state
    of_beta, of_u, of_hyper = scales
    p, G = len(beta), len(u)
    accepted = np.zeros(G + 4)
    fixed = X @ beta
    fit = _fit(X, y, first, fixed, u)
    for draw in range(len(out)):
        for _ in range(thin):
            rho = math.tanh(hyper[2])
            for g in range(G):
                new = u[g] + of_u[g] * rng.standard_normal(2) * np.exp(hyper[:2])
                own = _fit_of_group(X, y, first, g, fixed, new)
                gain = own - fit[g]
                for sign, v in ((1.0, new), (-1.0, u[g])):
                    a, b = v[0] * math.exp(-hyper[0]), v[1] * math.exp(-hyper[1])
                    gain -= sign * 0.5 * (a * a - 2.0 * rho * a * b + b * b) / (1.0 - rho * rho)
                if math.log(rng.random()) < gain:
                    u[g], fit[g] = new, own
                    accepted[g] += 1.0
            moved = beta + of_beta @ rng.standard_normal(p)
            fixed_new = X @ moved
            fit_new = _fit(X, y, first, fixed_new, u)
            gain = np.sum(fit_new - fit) - 0.5 * np.sum(moved**2 - beta**2) / BETA_SD**2
            if math.log(rng.random()) < gain:
                beta[:], fixed[:], fit[:] = moved, fixed_new, fit_new
                accepted[G] += 1.0
            for k in range(2):  # predictors stay
                by = 3.0 * math.exp(hyper[k]) / math.sqrt(G) * rng.standard_normal()
                other = u.copy()
                other[:, k] -= by
                gain = _log_effects(other, hyper) - _log_effects(u, hyper)
                gain += 0.5 * (beta[k] ** 2 - (beta[k] + by) ** 2) / BETA_SD**2
                if math.log(rng.random()) < gain:
                    beta[k] += by
                    u[:] = other
            fixed[:] = X @ beta
            for k in range(3 if correlated else 2):
                for _ in range(2):
                    step = hyper.copy()
                    step[k] += of_hyper[k] * rng.standard_normal()
                    gain = _log_prior(step, correlated) - _log_prior(hyper, correlated)
                    gain += _log_effects(u, step) - _log_effects(u, hyper)
                    if math.log(rng.random()) < gain:
                        hyper[:] = step
                        accepted[G + 1 + k] += 0.5
            for k in range(2):  # a standard deviation, and its effects
                step, other = hyper.copy(), u.copy()
                step[k] += of_hyper[k] * rng.standard_normal()
                other[:, k] *= math.exp(step[k] - hyper[k])
                fit_new = _fit(X, y, first, fixed, other)
                gain = np.sum(fit_new - fit) + _log_prior(step, correlated) - _log_prior(hyper, correlated)
                if math.log(rng.random()) < gain:
                    hyper[:], u[:], fit[:] = step, other, fit_new
        out[draw, :p], out[draw, p : p + 3] = beta, hyper
        out[draw, p + 3 : p + 3 + G], out[draw, p + 3 + G :] = u[:, 0], u[:, 1]
    return accepted / (len(out) * thin)


def sample(X, y, groups, n_groups, draws, seed, *, correlated=False, thin=1, rounds=25):
    """A chain: beta, log standard deviations, atanh of the correlation, all a, all b."""
    order = np.argsort(groups, kind="stable")
    first = np.r_[0, np.cumsum(np.bincount(groups, minlength=n_groups))]
    X, y, rng, p = (
        np.ascontiguousarray(X[order]),
        y[order].astype(float),
        np.random.default_rng(seed),
        X.shape[1],
    )
    state = np.zeros(p), 0.1 * rng.standard_normal((n_groups, 2)), np.array([-1.0, -1.0, 0.0])
    scales = 0.05 * np.eye(p), np.full(n_groups, 0.5), np.full(3, 0.2)
    data, size, seen = (X, y, first, correlated), 1.0, np.empty((0, p))
    for round_ in range(rounds):
        out = np.empty((200, p + 3 + 2 * n_groups))
        accepted = _sweeps(*data, state, scales, 1, rng, out)
        gain = 2.0 / math.sqrt(1 + round_)
        scales[1][:] *= np.exp(gain * (accepted[:n_groups] - 0.35))
        scales[2][:] *= np.exp(gain * (accepted[-3:] - 0.4))
        size *= math.exp(gain * (accepted[n_groups] - 0.3))
        seen = np.concatenate([seen[len(seen) // 3 :], out[:, :p]])
        scales[0][:] = size * np.linalg.cholesky(np.cov(seen.T) + 1e-8 * np.eye(p))
    out = np.empty((draws, p + 3 + 2 * n_groups))
    _sweeps(*data, state, scales, thin, rng, out)
    return out
