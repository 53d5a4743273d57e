"""Chains with their Monte Carlo errors, and importance sampling from a multivariate t at the mode.

Nothing of the package is used for the references.
"""

from typing import NamedTuple

import arviz as az
import numpy as np
import pymc as pm
from scipy.special import expit, gammaln

from tests.sampling import sampled

# Chains and their Monte Carlo errors ------------------------------------------------------------------


class Moments(NamedTuple):
    """Means and standard deviations with their standard errors, and effective numbers of draws."""

    mean: np.ndarray
    mean_error: np.ndarray
    sd: np.ndarray
    sd_error: np.ndarray
    ess: np.ndarray


def chain(model, step, draws, *, seed, tune=200, start=None):
    return sampled(draws, step, tune=tune, chains=1, random_seed=seed, initvals=start, model=model)


def columns(idata, **maps):
    """Draws as a matrix; keywords are variables, and functions to apply to them or None."""
    parts = []
    for name, function in maps.items():
        x = idata.posterior[name].values[0]
        parts.append((x if function is None else function(x)).reshape(len(x), -1))
    return np.concatenate(parts, axis=1)


def moments(draws):
    """Of one chain, a matrix."""
    data = az.from_dict({"posterior": {"x": draws[None]}}).posterior

    def value(result):
        return result["x"].values

    return Moments(
        draws.mean(axis=0),
        value(az.mcse(data, method="mean")),
        draws.std(axis=0),
        value(az.mcse(data, method="sd")),
        value(az.ess(data, method="bulk")),
    )


def distances(one, two):
    """Differences of means and of standard deviations, in standard errors."""
    means = (one.mean - two.mean) / np.hypot(one.mean_error, two.mean_error)
    sds = (one.sd - two.sd) / np.hypot(one.sd_error, two.sd_error)
    return np.abs([means, sds])


def mean_of(idata, stat):
    return float(idata.sample_stats[stat].mean())


# Logistic regression ----------------------------------------------------------------------------------


def logistic_data(n, n_dim=10, seed=0):
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), rng.normal(size=(n, n_dim - 1))]
    y = rng.random(n) < expit(X @ rng.normal(size=n_dim) / np.sqrt(n_dim))
    return X, y.astype(float)


def logistic_model(X, y):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return model


# References -------------------------------------------------------------------------------------------

DEGREES = 5  # of freedom of the t
ELEMENTS = 2_000_000  # of an array


class Fit(NamedTuple):
    """Normal approximation at the mode."""

    mode: np.ndarray
    cov: np.ndarray

    @property
    def sd(self):
        return np.sqrt(np.diag(self.cov))


def fit_normal(log_density, start):
    """Newton's method with finite differences; `log_density` takes a matrix of points."""
    q, n_dim = np.array(start, dtype=float), len(start)
    h = np.full(n_dim, 1e-3)
    eye = np.eye(n_dim)
    pairs = [(i, j) for i in range(n_dim) for j in range(i)]
    for _ in range(50):
        steps = h * eye
        near = [s * steps[i] for i in range(n_dim) for s in (1, -1)]
        near += [s * (steps[i] + t * steps[j]) for i, j in pairs for s in (1, -1) for t in (1, -1)]
        f = log_density(q + np.array([np.zeros(n_dim), *near]))
        center, (up, down) = f[0], f[1 : 1 + 2 * n_dim].reshape(n_dim, 2).T
        gradient = (up - down) / (2 * h)
        hessian = np.diag((up + down - 2 * center) / h**2)
        for (i, j), (pp, pm_, mp, mm) in zip(pairs, f[1 + 2 * n_dim :].reshape(-1, 4), strict=True):
            # Orders of the signs: +(i + j), +(i - j), -(i + j), -(i - j).
            hessian[i, j] = hessian[j, i] = (pp + mp - pm_ - mm) / (4 * h[i] * h[j])
        values, vectors = np.linalg.eigh(-hessian)
        cov = vectors / np.abs(values) @ vectors.T  # uphill where it is not concave, too
        move = cov @ gradient
        size = np.sqrt(gradient @ move)
        if size < 1e-3:
            assert np.all(values > 0)
            return Fit(q + move, cov)
        ahead = q + move * 0.5 ** np.arange(20)[:, None]
        q = ahead[np.argmax(log_density(ahead))]
        h = 0.1 * np.sqrt(np.diag(cov))
    raise AssertionError("Newton's method did not converge")


def weigh(log_density, fit, n_draws, *, seed=0, hidden=None):
    """Mean and sd by importance sampling from a t, as `Moments`.

    With weights w = density / t and w0 = N(mode, cov) / t, both relative to their values at the mode, sums
    of w f are those of (w - w0) f, and of w0 f, whose expectation is known. The effective number of draws is
    the number of independent posterior draws that would have the same error of the mean. `hidden` gives means
    and mean squares of further variables at given points.
    """
    rng = np.random.default_rng(seed)
    n_dim = len(fit.mode)
    z = rng.standard_normal((n_draws, n_dim)) / np.sqrt(rng.chisquare(DEGREES, n_draws) / DEGREES)[:, None]
    q = z @ np.linalg.cholesky(fit.cov).T
    square = (z**2).sum(axis=1)
    log_t = -0.5 * (DEGREES + n_dim) * np.log1p(square / DEGREES)
    log_w = log_density(fit.mode + q) - log_density(fit.mode[None])[0] - log_t
    w0 = np.exp(-0.5 * square - log_t)
    excess = np.exp(log_w) - w0
    log_norm = gammaln((DEGREES + n_dim) / 2) - gammaln(DEGREES / 2)
    known = np.exp(0.5 * n_dim * np.log(2.0 / DEGREES) + log_norm)  # expectation of w0
    total = excess.mean() + known
    mean = (excess @ q) / n_draws / total
    influence = excess[:, None] * q - mean * (excess + known)[:, None]
    second = ((excess @ q**2) / n_draws + known * np.diag(fit.cov)) / total
    of_second = excess[:, None] * q**2 + known * np.diag(fit.cov) - second * (excess + known)[:, None]
    variance = second - mean**2
    of_variance = of_second - 2 * mean * influence
    error = influence.std(axis=0) / total / np.sqrt(n_draws)
    sd = np.sqrt(variance)
    sd_error = of_variance.std(axis=0) / total / np.sqrt(n_draws) / (2 * sd)
    result = Moments(fit.mode + mean, error, sd, sd_error, variance / error**2)
    if hidden is None:
        return result
    further = weighted(np.exp(log_w - log_w.max()), *hidden(fit.mode + q))
    return Moments(*map(np.append, result, further))


def weighted(w, first, second):
    """Moments from means and mean squares with weights."""
    w = w / w.sum()
    mean = w @ first
    variance = w @ second - mean**2
    error = np.sqrt(w**2 @ (first - mean) ** 2)
    of_variance = w[:, None] * (second - 2 * mean * first - (variance - mean**2))
    sd = np.sqrt(variance)
    return Moments(mean, error, sd, np.sqrt((of_variance**2).sum(axis=0)) / (2 * sd), variance / error**2)


def in_chunks(function, points, n_rows):
    size = max(1, ELEMENTS // n_rows)
    return np.concatenate([function(points[i : i + size]) for i in range(0, len(points), size)])


def normal_prior(q, sd=1.0):
    return -0.5 * (q**2).sum(axis=1) / sd**2


def logistic_density(X, y):
    """Log likelihood with coefficients N(0, 1); equal rows are counted."""
    rows, group = np.unique(X, axis=0, return_inverse=True)
    counts = np.bincount(group).astype(float)
    slope = X.T @ y

    def some(beta):
        return beta @ slope - np.log1p(np.exp(beta @ rows.T)) @ counts + normal_prior(beta)

    return lambda beta: in_chunks(some, beta, len(rows))
