"""An independent sampler of grouped logistic and Poisson models: Metropolis within Gibbs on all rows.

    y_i ~ f(x_i' beta + u_g(i)),  u_g ~ N(0, tau^2),  beta_k ~ N(0, s_k^2),  tau ~ HalfNormal(s)

or with effects that are tau times Student's t of 4 degrees of freedom, or Laplace.

It moves beta, u and log tau as they stand. Nothing is expanded, and there are no other coordinates. Two moves
along ridges help it to mix: the intercept against all effects, and tau together with them.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

LOGISTIC, POISSON = 0, 1
FAMILIES = {"logistic": LOGISTIC, "poisson": POISSON}
NORMAL, STUDENT, LAPLACE = 0, 1, 2
PRIORS = {"normal": NORMAL, "student": STUDENT, "laplace": LAPLACE}
DEGREES = 4.0  # of Student's t
MOST = 1e200  # of a product, far from overflow

COEFFICIENT_MOVES = 4  # in a sweep
EFFECT_MOVES = 2
TAU_MOVES = 4


class Posterior(NamedTuple):
    """A model with its data; rows are sorted by group, and column 0 of X is the intercept."""

    family: int
    X: np.ndarray
    y: np.ndarray
    exposure: np.ndarray
    first: np.ndarray  # (G + 1,): rows of group g are first[g] to first[g + 1]
    beta_sd: np.ndarray
    tau_sd: float
    prior: int = NORMAL


class State(NamedTuple):
    """Where a chain is; changed in place."""

    beta: np.ndarray
    u: np.ndarray
    log_tau: np.ndarray  # (1,)
    fixed: np.ndarray  # X @ beta
    fit: np.ndarray  # (G,): log likelihood of each group


class Scales(NamedTuple):
    """Sizes of the random walks."""

    beta: np.ndarray  # (p, p): a Cholesky factor
    u: np.ndarray  # (G,)
    log_tau: np.ndarray  # (2,): given the effects, and together with them


def posterior_of(family, X, y, g, n_groups, exposure=None, beta_sd=2.0, tau_sd=1.0, prior="normal"):
    """Sort the rows by group."""
    assert np.all(X[:, 0] == 1)
    order = np.argsort(g, kind="stable")
    first = np.r_[0, np.cumsum(np.bincount(g, minlength=n_groups))]
    exposure = np.ones(len(y)) if exposure is None else np.asarray(exposure, dtype=float)
    return Posterior(
        FAMILIES[family],
        np.ascontiguousarray(X[order], dtype=float),
        np.asarray(y, dtype=float)[order],
        exposure[order],
        first,
        np.broadcast_to(float(beta_sd), X.shape[1]).copy(),
        float(tau_sd),
        PRIORS[prior],
    )


@njit(cache=True)
def log_likelihood(family, y, exposure, eta):
    """Of one row, without what does not depend on eta."""
    if family == LOGISTIC:
        return y * eta - max(eta, 0.0) - math.log1p(math.exp(-abs(eta)))
    return y * eta - exposure * math.exp(eta)


@njit(cache=True)
def log_effect(prior, x):
    """Of an effect in units of tau, without a constant."""
    if prior == STUDENT:
        return -0.5 * (DEGREES + 1.0) * math.log1p(x * x / DEGREES)
    return -abs(x) if prior == LAPLACE else -0.5 * x * x


@njit(cache=True)
def _log_effects(prior, u, log_tau):
    """Of all of them."""
    tau, total = math.exp(log_tau), -len(u) * log_tau
    for effect in u:
        total += log_effect(prior, effect / tau)
    return total


@njit(cache=True)
def _fit_of_group(model, g, fixed, effect):
    total = 0.0
    if model.family == LOGISTIC:  # `log_likelihood`, with one logarithm for many rows
        product = 1.0
        for i in range(model.first[g], model.first[g + 1]):
            eta = fixed[i] + effect
            total += model.y[i] * eta - max(eta, 0.0)
            product *= 1.0 + math.exp(-abs(eta))
            if product > MOST:
                total, product = total - math.log(product), 1.0
        return total - math.log(product)
    for i in range(model.first[g], model.first[g + 1]):
        total += log_likelihood(model.family, model.y[i], model.exposure[i], fixed[i] + effect)
    return total


@njit(cache=True)
def _fit(model, fixed, u):
    out = np.empty(len(u))
    for g in range(len(u)):
        out[g] = _fit_of_group(model, g, fixed, u[g])
    return out


@njit(cache=True)
def _log_prior_tau(model, log_tau, jacobian):
    """Density of log tau; `jacobian` is 1."""
    return -0.5 * (math.exp(log_tau) / model.tau_sd) ** 2 + jacobian * log_tau


@njit(cache=True)
def _move_effects(model, state, scales, rng, accepted):
    tau = math.exp(state.log_tau[0])
    for g in range(len(state.u)):
        for _ in range(EFFECT_MOVES):
            old, new = state.u[g], state.u[g] + scales.u[g] * rng.standard_normal()
            fit = _fit_of_group(model, g, state.fixed, new)
            gain = log_effect(model.prior, new / tau) - log_effect(model.prior, old / tau)
            if math.log(rng.random()) < fit - state.fit[g] + gain:
                state.u[g], state.fit[g] = new, fit
                accepted[g] += 1.0 / EFFECT_MOVES


@njit(cache=True)
def _move_coefficients(model, state, scales, rng, accepted):
    p = len(state.beta)
    for _ in range(COEFFICIENT_MOVES):
        new = state.beta + scales.beta @ rng.standard_normal(p)
        fixed = model.X @ new
        fit = _fit(model, fixed, state.u)
        gain = np.sum(fit - state.fit) - 0.5 * np.sum((new**2 - state.beta**2) / model.beta_sd**2)
        if math.log(rng.random()) < gain:
            state.beta[:], state.fixed[:], state.fit[:] = new, fixed, fit
            accepted[-3] += 1.0 / COEFFICIENT_MOVES


@njit(cache=True)
def _shift(model, state, rng):
    """Intercept up, all effects down: predictors stay, and the shift is nearly normal."""
    tau = math.exp(state.log_tau[0])
    precision = 1.0 / model.beta_sd[0] ** 2 + len(state.u) / tau**2
    mean = (np.sum(state.u) / tau**2 - state.beta[0] / model.beta_sd[0] ** 2) / precision
    by = mean + rng.standard_normal() / math.sqrt(precision)
    u = state.u - by
    back = (np.sum(u) / tau**2 - (state.beta[0] + by) / model.beta_sd[0] ** 2) / precision
    gain = 0.5 * precision * ((by - mean) ** 2 - (-by - back) ** 2)  # of the proposals
    gain += 0.5 * (state.beta[0] ** 2 - (state.beta[0] + by) ** 2) / model.beta_sd[0] ** 2
    gain += _log_effects(model.prior, u, state.log_tau[0])
    gain -= _log_effects(model.prior, state.u, state.log_tau[0])
    if model.prior == NORMAL or math.log(rng.random()) < gain:
        state.beta[0] += by
        state.u[:] = u
        state.fixed[:] += by


@njit(cache=True)
def _move_tau(model, state, scales, jacobian, rng, accepted):
    """Given the effects."""
    for _ in range(TAU_MOVES):
        old, new = state.log_tau[0], state.log_tau[0] + scales.log_tau[0] * rng.standard_normal()
        gain = _log_prior_tau(model, new, jacobian) - _log_prior_tau(model, old, jacobian)
        gain += _log_effects(model.prior, state.u, new) - _log_effects(model.prior, state.u, old)
        if math.log(rng.random()) < gain:
            state.log_tau[0] = new
            accepted[-2] += 1.0 / TAU_MOVES


@njit(cache=True)
def _scale(model, state, scales, jacobian, rng, accepted):
    """tau and all effects by one factor: the Jacobian cancels what the effects' density changes by."""
    old, new = state.log_tau[0], state.log_tau[0] + scales.log_tau[1] * rng.standard_normal()
    u = state.u * math.exp(new - old)
    fit = _fit(model, state.fixed, u)
    gain = np.sum(fit - state.fit)
    gain += _log_prior_tau(model, new, jacobian) - _log_prior_tau(model, old, jacobian)
    if math.log(rng.random()) < gain:
        state.log_tau[0] = new
        state.u[:], state.fit[:] = u, fit
        accepted[-1] += 1.0


@njit(cache=True)
def _sweeps(model, state, scales, thin, jacobian, rng, out):
    """Fill `out` with every `thin`-th sweep; the share of moves that were accepted, of each kind."""
    p, G = len(state.beta), len(state.u)
    accepted = np.zeros(G + 3)
    for draw in range(len(out)):
        for _ in range(thin):
            _move_effects(model, state, scales, rng, accepted)
            _move_coefficients(model, state, scales, rng, accepted)
            _shift(model, state, rng)
            _move_tau(model, state, scales, jacobian, rng, accepted)
            _scale(model, state, scales, jacobian, rng, accepted)
        out[draw, :p], out[draw, p], out[draw, p + 1 :] = state.beta, state.log_tau[0], state.u
    return accepted / (len(out) * thin)


def _tuned(model, state, rng, rounds, jacobian):
    """Scales for acceptance near .44 of single variables, and .3 of the coefficients together."""
    p, G = len(state.beta), len(state.u)
    scales = Scales(0.05 * np.eye(p), np.full(G, 0.5), np.full(2, 0.3))
    size, draws = 1.0, np.empty((0, p))
    for round_ in range(rounds):
        out = np.empty((100, p + 1 + G))
        accepted = _sweeps(model, state, scales, 1, jacobian, rng, out)
        gain = 2.0 / math.sqrt(1 + round_)
        scales.u[:] *= np.exp(gain * (accepted[:G] - 0.44))
        scales.log_tau[:] *= np.exp(gain * (accepted[-2:] - 0.44))
        size *= math.exp(gain * (accepted[G] - 0.3))
        draws = np.concatenate([draws[len(draws) // 3 :], out[:, :p]])
        cov = np.cov(draws.T).reshape(p, p) + 1e-8 * np.eye(p)
        scales.beta[:] = size * 2.38 / math.sqrt(p) * np.linalg.cholesky(cov)
    return scales


def sample(model, draws, seed, *, thin=1, rounds=30, jacobian=1.0):
    """A chain, (draws, p + 1 + G): beta, log tau and the effects.

    Before it, `rounds` of a hundred sweeps tune the scales.
    A `jacobian` other than 1 is an error planted in the prior of log tau.
    """
    rng = np.random.default_rng(seed)
    p, G = model.X.shape[1], len(model.first) - 1
    u = 0.1 * rng.standard_normal(G)
    state = State(
        np.zeros(p), u, np.array([math.log(0.3 * model.tau_sd)]), np.zeros(len(model.y)), np.zeros(G)
    )
    state.fit[:] = _fit(model, state.fixed, u)
    scales = _tuned(model, state, rng, rounds, jacobian)
    out = np.empty((draws, p + 1 + G))
    _sweeps(model, state, scales, thin, jacobian, rng, out)
    return out


def log_likelihoods(model, draws):
    """Log likelihood of each draw."""
    p = model.X.shape[1]
    return np.array([_fit(model, model.X @ x[:p], x[p + 1 :].copy()).sum() for x in draws])
