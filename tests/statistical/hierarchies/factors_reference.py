"""An independent sampler of logistic models with two factors: Metropolis within Gibbs on all rows.

    y_i ~ Bernoulli(invlogit(x_i' beta + z_i u_g(i) + w_i v_h(i))),  u_g ~ N(0, tau^2),  v_h ~ N(0, T^2)
    beta_k ~ N(0, 2^2),  tau and T ~ HalfNormal(1)

where z and w are columns of X: the intercept, or a covariate with random slopes. Factors may be crossed;
groups may lie within levels of the second factor; or both factors may be the same groups, whose two effects
have a correlation with an LKJ(2) prior.

It moves all variables as they stand. Nothing is expanded, and there are no other coordinates. Moves along
ridges help it to mix: a shift of all effects of a factor against the coefficient of its column, either scale
with its effects, and an outer effect against those within.
"""

import math

import numpy as np
from numba import njit

SD, ETA = 2.0, 2.0
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
def _log_prior(hyper):
    """Of log scales and atanh of the correlation, with Jacobians."""
    total = ETA * math.log(1.0 - math.tanh(hyper[2]) ** 2)  # (1 - rho^2)^(ETA - 1), and d rho
    for k in range(2):
        total += hyper[k] - 0.5 * math.exp(2.0 * hyper[k])
    return total


@njit(cache=True)
def _log_effects(u, v, hyper):
    """Of all effects, without a constant."""
    a, b, rho = u * math.exp(-hyper[0]), v * math.exp(-hyper[1]), math.tanh(hyper[2])
    total = -len(u) * hyper[0] - len(v) * hyper[1]
    if rho == 0.0:
        return total - 0.5 * (np.sum(a * a) + np.sum(b * b))
    free = 1.0 - rho * rho
    return total - 0.5 * np.sum(a * a - 2.0 * rho * a * b + b * b) / free - 0.5 * len(u) * math.log(free)


@njit(cache=True)
def _effects(y, eta, z, order, first, effects, other, scales, rho, steps, rng):
    """Walks of all effects of a factor, one by one; which moved."""
    accepted = np.zeros(len(effects))
    precision = 1.0 / (scales[0] ** 2 * (1.0 - rho * rho))
    for g in range(len(effects)):
        by = steps[g] * rng.standard_normal()
        old = effects[g] - (rho * scales[0] / scales[1] * other[g] if rho != 0.0 else 0.0)
        gain = -0.5 * precision * ((old + by) ** 2 - old**2)
        before, after = 1.0, 1.0
        for j in range(first[g], first[g + 1]):
            i = order[j]
            at, there = eta[i], eta[i] + by * z[i]
            gain += y[i] * (there - at) - max(there, 0.0) + max(at, 0.0)
            before *= 1.0 + math.exp(-abs(at))
            after *= 1.0 + math.exp(-abs(there))
            if max(before, after) > MOST:
                gain += math.log(before) - math.log(after)
                before, after = 1.0, 1.0
        gain += math.log(before) - math.log(after)
        if math.log(rng.random()) < gain:
            effects[g] += by
            accepted[g] = 1.0
            for j in range(first[g], first[g + 1]):
                eta[order[j]] += by * z[order[j]]
    return accepted


@njit(cache=True)
def _sweeps(X, y, columns, indices, orders, firsts, parents, correlated, state, sizes, thin, rng, out):
    beta, hyper, u, v = state
    of_beta, of_u, of_v, of_hyper = sizes
    p, n_u, n_v, n_hyper = len(beta), len(u), len(v), 3 if correlated else 2
    z, w = X[:, columns[0]].copy(), X[:, columns[1]].copy()
    moved_u, moved_v, moved_beta = np.zeros(n_u), np.zeros(n_v), 0.0
    for draw in range(len(out)):
        eta = X @ beta + z * u[indices[0]] + w * v[indices[1]]  # rounding does not add up
        for _ in range(thin):
            scales, turned, rho = np.exp(hyper[:2]), np.exp(hyper[1::-1]), math.tanh(hyper[2])
            moved_u += _effects(y, eta, z, orders[0], firsts[0], u, v, scales, rho, of_u, rng)
            moved_v += _effects(y, eta, w, orders[1], firsts[1], v, u, turned, rho, of_v, rng)
            fit = _fit(y, eta)
            new = beta + of_beta @ rng.standard_normal(p)
            eta_new = eta + X @ (new - beta)
            fit_new = _fit(y, eta_new)
            gain = fit_new - fit - 0.5 * np.sum(new**2 - beta**2) / SD**2
            if math.log(rng.random()) < gain:
                beta[:], eta[:], fit = new, eta_new, fit_new
                moved_beta += 1.0
            for k in range(n_hyper):
                step = hyper.copy()
                step[k] += of_hyper[k] * rng.standard_normal()
                gain = _log_prior(step) - _log_prior(hyper)
                if math.log(rng.random()) < gain + _log_effects(u, v, step) - _log_effects(u, v, hyper):
                    hyper[:] = step
            within, between = math.exp(-2.0 * hyper[0]), math.exp(-2.0 * hyper[1])
            for h in range(n_v if len(parents) else 0):  # an outer effect, and those within: predictors stay
                own = parents == h
                precision = np.sum(own) * within + between
                mean = (np.sum(u[own]) * within - v[h] * between) / precision
                by = mean + rng.standard_normal() / math.sqrt(precision)
                v[h] += by
                u -= by * own
            for k in range(2):
                effects, c = u if k == 0 else v, columns[k]
                # All effects against the coefficient: the predictors stay.
                by = 2.5 * math.exp(hyper[k]) / math.sqrt(len(effects)) * rng.standard_normal()
                gain = -_log_effects(u, v, hyper) - 0.5 * ((beta[c] - by) ** 2 - beta[c] ** 2) / SD**2
                effects += by
                if math.log(rng.random()) < gain + _log_effects(u, v, hyper):
                    beta[c] -= by
                else:
                    effects -= by
                # A scale with its effects.
                step = hyper.copy()
                step[k] += of_hyper[k] * rng.standard_normal()
                added = effects * (math.exp(step[k] - hyper[k]) - 1.0)
                eta_new = eta + (z * added[indices[0]] if k == 0 else w * added[indices[1]])
                fit_new = _fit(y, eta_new)
                if math.log(rng.random()) < fit_new - fit + _log_prior(step) - _log_prior(hyper):
                    hyper[:] = step
                    effects += added
                    eta[:], fit = eta_new, fit_new
        out[draw, :p], out[draw, p : p + n_hyper] = beta, hyper[:n_hyper]
        out[draw, p + n_hyper : p + n_hyper + n_u], out[draw, p + n_hyper + n_u :] = u, v
    n = len(out) * thin
    return moved_u / n, moved_v / n, moved_beta / n


def sample(
    X,
    y,
    groups,
    levels,
    sizes,
    draws,
    seed,
    *,
    columns=(0, 0),
    parents=(),
    correlated=False,
    thin=1,
    rounds=25,
):
    """A chain: beta, log tau, log T, atanh of the correlation if there is one, all u, all v.

    `sizes` are the numbers of levels of the factors, `columns` those of X with which their effects are
    multiplied, and `parents`, of nested groups, the level of the second factor in which each group lies.
    """
    indices = groups.astype(np.int64), levels.astype(np.int64)
    orders = tuple(np.argsort(one, kind="stable") for one in indices)
    firsts = tuple(
        np.r_[0, np.cumsum(np.bincount(one, minlength=n))] for one, n in zip(indices, sizes, strict=True)
    )
    data = np.ascontiguousarray(X), y.astype(float), columns, indices, orders, firsts
    data = *data, np.asarray(parents, dtype=np.int64), correlated
    rng, p = np.random.default_rng(seed), X.shape[1]
    effects = tuple(0.1 * rng.standard_normal(n) for n in sizes)
    state = np.zeros(p), np.array([-1.0, -1.0, 0.0]), *effects
    steps = 0.05 * np.eye(p), np.full(sizes[0], 0.5), np.full(sizes[1], 0.5), np.full(3, 0.25)
    size, seen = 1.0, np.empty((0, p))
    width = p + 2 + correlated + sum(sizes)
    for round_ in range(rounds):
        out = np.empty((200, width))
        of_u, of_v, of_beta = _sweeps(*data, state, steps, 1, rng, out)
        gain = 2.0 / math.sqrt(1 + round_)
        steps[1][:] *= np.exp(gain * (of_u - 0.4))
        steps[2][:] *= np.exp(gain * (of_v - 0.4))
        size *= math.exp(gain * (of_beta - 0.3))
        # A walk changes predictors: coefficients count with what is common to the effects of their column.
        own, *of_effects = np.split(out, [p, width - sum(sizes), width - sizes[1]], axis=1)
        for c, values in zip(columns, of_effects[1:], strict=True):
            own[:, c] += values.mean(axis=1)
        seen = np.concatenate([seen[len(seen) // 3 :], own])
        steps[0][:] = size * np.linalg.cholesky(np.cov(seen.T) + 1e-8 * np.eye(p))
    out = np.empty((draws, width))
    _sweeps(*data, state, steps, thin, rng, out)
    return out
