"""An independent sampler of logistic models of nested groups: Metropolis within Gibbs on all rows.

    y_i ~ Bernoulli(invlogit(x_i' beta + u_g(i))),  u_g ~ N(v_h(g), tau^2),  v_h ~ N(mu, T^2)
    beta_k ~ N(0, 2^2),  mu ~ N(0, 2^2),  tau and T ~ HalfNormal(1)

It moves all variables as they stand; v and mu are drawn from their normal conditionals. Nothing is expanded,
and there are no other coordinates. Moves along ridges help it to mix: a shift of all levels, and either scale
with its effects.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

SD = 2.0
MOST = 1e200  # of a product, far from overflow


@njit(cache=True)
def _fit_of_group(y, first, g, fixed, u):
    total, product = 0.0, 1.0  # one logarithm for many rows
    for i in range(first[g], first[g + 1]):
        eta = fixed[i] + u
        total += y[i] * eta - max(eta, 0.0)
        product *= 1.0 + math.exp(-abs(eta))
        if product > MOST:
            total, product = total - math.log(product), 1.0
    return total - math.log(product)


@njit(cache=True)
def _fit(y, first, fixed, u):
    out = np.empty(len(u))
    for g in range(len(u)):
        out[g] = _fit_of_group(y, first, g, fixed, u[g])
    return out


@njit(cache=True)
def _log_prior(log_scale):
    """HalfNormal(1), with the Jacobian."""
    return log_scale - 0.5 * math.exp(2.0 * log_scale)


@njit(cache=True)
def _scales(u, v, parents, mu, hyper, size, rng):
    """Walks of both logarithms, effects fixed."""
    squares = np.array([np.sum((u - v[parents]) ** 2), np.sum((v - mu) ** 2)])
    sizes = len(u), len(v)
    for k in range(2):
        new = hyper[k] + size[k] * rng.standard_normal()
        gain = _log_prior(new) - _log_prior(hyper[k]) - sizes[k] * (new - hyper[k])
        gain -= 0.5 * squares[k] * (math.exp(-2.0 * new) - math.exp(-2.0 * hyper[k]))
        if math.log(rng.random()) < gain:
            hyper[k] = new


@njit(cache=True)
def _sweeps(X, y, first, parents, state, sizes, thin, rng, out):
    beta, mu, hyper, v, u = state
    of_beta, of_u, of_hyper = sizes
    p, G, H = len(beta), len(u), len(v)
    accepted = np.zeros(G + 1)
    fixed = X @ beta
    fit = _fit(y, first, fixed, u)
    for draw in range(len(out)):
        for _ in range(thin):
            for g in range(G):
                tau, centre = math.exp(hyper[0]), v[parents[g]]
                new = u[g] + of_u[g] * rng.standard_normal()
                own = _fit_of_group(y, first, g, fixed, new)
                gain = own - fit[g] - 0.5 * ((new - centre) ** 2 - (u[g] - centre) ** 2) / tau**2
                if math.log(rng.random()) < gain:
                    u[g], fit[g] = new, own
                    accepted[g] += 1.0
            within, between = math.exp(-2.0 * hyper[0]), math.exp(-2.0 * hyper[1])
            totals, counts = np.zeros(H), np.zeros(H)
            for g in range(G):
                totals[parents[g]] += u[g]
                counts[parents[g]] += 1.0
            for h in range(H):
                precision = counts[h] * within + between
                mean = (totals[h] * within + mu[0] * between) / precision
                v[h] = mean + rng.standard_normal() / math.sqrt(precision)
            precision = H * between + 1.0 / SD**2
            mu[0] = np.sum(v) * between / precision + rng.standard_normal() / math.sqrt(precision)
            moved = beta + of_beta @ rng.standard_normal(p)
            fixed_new = X @ moved
            fit_new = _fit(y, first, fixed_new, u)
            gain = np.sum(fit_new - fit) - 0.5 * np.sum(moved**2 - beta**2) / SD**2
            if math.log(rng.random()) < gain:
                beta[:], fixed[:], fit[:] = moved, fixed_new, fit_new
                accepted[G] += 1.0
            _scales(u, v, parents, mu[0], hyper, of_hyper, rng)
            by = 0.1 * rng.standard_normal()  # all levels
            fit_new = _fit(y, first, fixed, u + by)
            gain = np.sum(fit_new - fit) - 0.5 * ((mu[0] + by) ** 2 - mu[0] ** 2) / SD**2
            if math.log(rng.random()) < gain:
                mu[0], v[:], u[:], fit[:] = mu[0] + by, v + by, u + by, fit_new
            for k in range(2):  # a scale, with its effects
                step = of_hyper[k] * rng.standard_normal()
                other = v if k == 0 else mu[0] + (v - mu[0]) * math.exp(step)
                by_group = u - v[parents]
                u_new = other[parents] + (by_group * math.exp(step) if k == 0 else by_group)
                fit_new = _fit(y, first, fixed, u_new)
                gain = np.sum(fit_new - fit) + _log_prior(hyper[k] + step) - _log_prior(hyper[k])
                if math.log(rng.random()) < gain:
                    hyper[k] += step
                    v[:], u[:], fit[:] = other.copy(), u_new, fit_new
        out[draw, :p], out[draw, p], out[draw, p + 1 : p + 3] = beta, mu[0], hyper
        out[draw, p + 3 : p + 3 + H], out[draw, p + 3 + H :] = v, u
    return accepted / (len(out) * thin)


def sample(X, y, groups, parents, n_outer, draws, seed, *, thin=1, rounds=25):
    """A chain: beta, mu, log tau, log T, all v, all u."""
    n_groups, p = len(parents), X.shape[1]
    order = np.argsort(groups, kind="stable")
    first = np.r_[0, np.cumsum(np.bincount(groups, minlength=n_groups))]
    data = np.ascontiguousarray(X[order]), y[order].astype(float), first, parents
    rng = np.random.default_rng(seed)
    effects = 0.1 * rng.standard_normal(n_outer), 0.1 * rng.standard_normal(n_groups)
    state = np.zeros(p), np.zeros(1), np.array([-1.0, -1.0]), *effects
    sizes = 0.05 * np.eye(p), np.full(n_groups, 0.5), np.array([0.25, 0.25])
    size, seen = 1.0, np.empty((0, p))
    n = p + 3 + n_outer + n_groups
    for round_ in range(rounds):
        out = np.empty((200, n))
        accepted = _sweeps(*data, state, sizes, 1, rng, out)
        gain = 2.0 / math.sqrt(1 + round_)
        sizes[1][:] *= np.exp(gain * (accepted[:n_groups] - 0.4))
        size *= math.exp(gain * (accepted[n_groups] - 0.3))
        seen = np.concatenate([seen[len(seen) // 3 :], out[:, :p]])
        sizes[0][:] = size * np.linalg.cholesky(np.cov(seen.T) + 1e-8 * np.eye(p))
    out = np.empty((draws, n))
    _sweeps(*data, state, sizes, thin, rng, out)
    return out
