"""Models of variable selection, and the probabilities of their sub-models by enumeration."""

import itertools
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import special, stats

from pymc_austerity.testing.models import Solved


def all_models(p):
    """All indicators, of shape (2^p, p)."""
    return np.array(list(itertools.product([0, 1], repeat=p)))


# Normal rows: everything in closed form ---------------------------------------------------------------


class Rows(NamedTuple):
    X: np.ndarray
    y: np.ndarray


def normal_rows(n=120, p=2, seed=3, effect=0.12):
    """Two correlated columns, of which neither is needed for certain."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 0.7 * rng.normal(size=(n, 1))
    return Rows(X, 0.3 + effect * X.sum(axis=1) + rng.normal(size=n))


def normal_model(rows, chance=0.5):
    """y ~ N(a + X (gamma * beta), 1), a and beta ~ N(0, 1)."""
    p = rows.X.shape[1]
    with pm.Model() as model:
        gamma = pm.Bernoulli("gamma", chance, shape=p)
        beta = pm.Normal("beta", 0, 1, shape=p)
        a = pm.Normal("a", 0, 1)
        pm.Normal("y", a + rows.X @ (gamma * beta), 1, observed=rows.y)
    return model


def normal_solved(rows, chance=0.5):
    """`normal_model` with means and standard deviations over all sub-models."""
    n, p = rows.X.shape
    models, weights, first, second = all_models(p), [], [], []
    for gamma in models:
        design = np.column_stack([rows.X[:, gamma == 1], np.ones(n)])
        precision = design.T @ design + np.eye(design.shape[1])
        mean, cov = np.linalg.solve(precision, design.T @ rows.y), np.linalg.inv(precision)
        log_evidence = 0.5 * mean @ precision @ mean - 0.5 * np.linalg.slogdet(precision)[1]
        weights.append(
            log_evidence + special.xlog1py(p - gamma.sum(), -chance) + gamma.sum() * np.log(chance)
        )
        whole, square = np.zeros(p + 1), np.ones(p + 1)  # coefficients that are out are N(0, 1)
        inside = np.append(gamma == 1, True)
        whole[inside], square[inside] = mean, mean**2 + np.diag(cov)
        first.append(whole)
        second.append(square)
    weights = special.softmax(weights)
    mean, square = weights @ np.array(first), weights @ np.array(second)
    sd, chances = np.sqrt(square - mean**2), weights @ models
    start = {"gamma": models[np.argmax(weights)], "beta": mean[:p], "a": mean[p]}
    return Solved(
        normal_model(rows, chance),
        {"gamma": chances, "beta": mean[:p], "a": mean[p]},
        {"gamma": np.sqrt(chances * (1 - chances)), "beta": sd[:p], "a": sd[p]},
        start,
    )


# Logistic rows: evidence by importance sampling -------------------------------------------------------


class Selected(NamedTuple):
    """Logistic rows with a slab, and a log prior of the indicators."""

    X: np.ndarray
    y: np.ndarray
    slab: object
    log_prior: object

    def log_posterior(self, X, b):
        """Log of likelihood and priors at draws b of coefficients and, last, an intercept."""
        eta = b @ X.T
        likelihood = b @ (X.T @ self.y) - np.log1p(np.exp(eta)).sum(axis=1)
        return likelihood + self.slab.logpdf(b[:, :-1]).sum(axis=1) + stats.norm(0, 5).logpdf(b[:, -1])


def evidence(problem, gamma, rng, n_draws):
    """Log evidence of a sub-model by importance sampling around its mode, and the relative error of it.

    The mode is that with a normal slab of the same variance.
    """
    columns = np.flatnonzero(gamma)
    X = np.column_stack([problem.X[:, columns], np.ones(len(problem.y))])
    prior = np.append(np.full(len(columns), 1 / problem.slab.var()), 1 / 25)
    mode = np.zeros(X.shape[1])
    for _ in range(8):
        mu = special.expit(X @ mode)
        precision = (X.T * (mu * (1 - mu))) @ X + np.diag(prior)
        mode = mode + np.linalg.solve(precision, X.T @ (problem.y - mu) - prior * mode)
    proposal = stats.multivariate_t(mode, np.linalg.inv(precision), df=20, seed=rng)
    draws = proposal.rvs(n_draws).reshape(n_draws, -1)
    log_weights = problem.log_posterior(X, draws) - proposal.logpdf(draws)
    weights = np.exp(log_weights - log_weights.max())
    error = weights.std() / weights.mean() / np.sqrt(n_draws)
    return log_weights.max() + np.log(weights.mean()), error


def probabilities(problem, rng, n_draws=200):
    """Probabilities of all sub-models, and of all coefficients."""
    models = all_models(problem.X.shape[1])
    found = [evidence(problem, gamma, rng, n_draws) for gamma in models]
    log_weights = [log + problem.log_prior(gamma) for (log, _), gamma in zip(found, models, strict=True)]
    weights = special.softmax(log_weights)
    return models, weights, weights @ models


def correlated_rows():
    """800 rows of 8 correlated columns, the first effects large, the last none."""
    rng = np.random.default_rng(27)
    N, p = 800, 8
    root = np.linalg.cholesky(0.5 ** np.abs(np.subtract.outer(np.arange(p), np.arange(p))))
    X = rng.normal(size=(N, p)) @ root.T
    b = np.array([0.6, -0.4, 0.3, 0.15, 0.1, 0.0, 0.0, 0.0])
    return Rows(X, (rng.random(N) < special.expit(-0.3 + X @ b)).astype(int))


def independent(chance, p):
    """Log prior of independent indicators."""
    return lambda gamma: np.sum(gamma) * np.log(chance) + (p - np.sum(gamma)) * np.log1p(-chance)


def truncated_poisson(rate, p):
    """Log prior of indicators whose number k is Poisson up to p, and all models of a size as likely."""
    return lambda gamma: (
        stats.poisson(rate).logpmf(np.sum(gamma))
        + special.gammaln(np.sum(gamma) + 1)
        + special.gammaln(p - np.sum(gamma) + 1)
        - special.gammaln(p + 1)
    )


def logistic_model(rows, slab=pm.Normal, chance=None, rate=None):
    """Logistic rows with independent indicators, or a truncated Poisson distribution of their number."""
    p = rows.X.shape[1]
    with pm.Model() as model:
        gamma = pm.Bernoulli("gamma", 0.5 if chance is None else chance, shape=p)
        if rate is not None:
            k = gamma.sum()
            pm.Potential("size", k * np.log(rate) + pt.gammaln(p - k + 1.0))
        beta = slab("beta", 0, 1, shape=p)
        a = pm.Normal("a", 0, 5)
        pm.Bernoulli("y", logit_p=a + rows.X @ (gamma * beta), observed=rows.y)
    return model
