"""Regressions on synthetic data. NumPy only: workers in an interpreter without PyMC read this too."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

SEED = 2024
RARE = 20
# Rows that are worked on at once, so that there are no temporary copies of the size of the data.
CHUNK = 50_000


@dataclass(frozen=True)
class Problem:
    """y ~ family(X beta), beta ~ N(0, I)."""

    name: str
    n: int
    dim: int

    @property
    def family(self):
        return "poisson" if self.name == "poisson" else "logistic"

    @cached_property
    def data(self):
        return MAKERS[self.name](np.random.default_rng(SEED), self.n, self.dim)

    @property
    def checksum(self):
        """Differs if NumPy of another interpreter draws other data."""
        X, y = self.data
        return float(X[:: max(1, self.n // 1000)].sum() + y.sum())

    def model(self):
        import pymc as pm

        X, y = self.data
        with pm.Model() as model:
            beta = pm.Normal("beta", 0, 1, shape=self.dim)
            if self.family == "poisson":
                pm.Poisson("y", mu=pm.math.exp(X @ beta), observed=y)
            else:
                pm.Bernoulli("y", logit_p=X @ beta, observed=y)
        return model

    def derivatives(self, beta):
        """Log posterior up to a constant, its gradient, and minus its Hessian."""
        X, y = self.data
        value, gradient, precision = -0.5 * beta @ beta, -beta, np.eye(self.dim)
        for start in range(0, self.n, CHUNK):
            x, seen = X[start : start + CHUNK], y[start : start + CHUNK]
            eta = x @ beta
            if self.family == "poisson":
                mean = weight = total = np.exp(eta)
            else:
                mean, total = sigmoid(eta), np.logaddexp(0, eta)
                weight = mean * (1 - mean)
            value = value + seen @ eta - total.sum()
            gradient = gradient + x.T @ (seen - mean)
            precision = precision + x.T @ (weight[:, None] * x)
        return value, gradient, precision

    def newton(self):
        """Posterior mode, and minus the Hessian there."""
        beta = np.zeros(self.dim)
        value, gradient, precision = self.derivatives(beta)
        for _ in range(100):
            move = np.linalg.solve(precision, gradient)
            if gradient @ move < 1e-12:
                break
            while True:
                new = self.derivatives(beta + move)
                if new[0] > value - 1e-9 * abs(value):
                    break
                move = move / 2
            beta, (value, gradient, precision) = beta + move, new
        return beta, precision


def sigmoid(eta):
    return 1 / (1 + np.exp(-eta))


def colour_of(precision):
    """A matrix C with C C' = precision^-1."""
    return np.linalg.inv(np.linalg.cholesky(precision)).T


def with_intercept(X):
    X[:, 0] = 1.0
    return X


def slopes(rng, dim, size=1.5):
    """Weights for which a predictor of standard normal columns has standard deviation `size`, roughly."""
    return rng.normal(0, size / np.sqrt(dim), dim)


def labels(rng, eta):
    return (rng.random(len(eta)) < sigmoid(eta)).astype(np.int64)


def standard(rng, n, dim):
    X = with_intercept(rng.standard_normal((n, dim)))
    return X, labels(rng, X @ slopes(rng, dim))


def correlated(rng, n, dim):
    """Each column follows the one before with correlation 0.9."""
    X = rng.standard_normal((n, dim))
    for d in range(1, dim):
        X[:, d] = 0.9 * X[:, d - 1] + np.sqrt(1 - 0.9**2) * X[:, d]
    X = with_intercept(X)
    return X, labels(rng, X @ slopes(rng, dim))


def few_positives(rng, n, dim):
    """One label in a hundred is 1."""
    X, beta = with_intercept(rng.standard_normal((n, dim))), slopes(rng, dim)
    beta[0] = 0.0
    eta = X @ beta
    low, high = -20.0, 0.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if sigmoid(eta[:10_000] + middle).mean() < 0.01 else (low, middle)
    return X, labels(rng, eta + middle)


def rare_feature(rng, n, dim):
    """The last column is 1 in twenty rows, all with label 1: separated but for the prior."""
    X = with_intercept(rng.standard_normal((n, dim)))
    X[:, -1] = 0.0
    y = labels(rng, X @ slopes(rng, dim))
    rows = rng.choice(n, RARE, replace=False)
    X[rows, -1], y[rows] = 1.0, 1
    return X, y


def heavy_tails(rng, n, dim):
    X = with_intercept(rng.standard_t(3, (n, dim)))
    return X, labels(rng, X @ slopes(rng, dim))


def poisson(rng, n, dim):
    """Rates of e, more or less."""
    X, beta = with_intercept(rng.standard_normal((n, dim))), slopes(rng, dim, 0.5)
    beta[0] = 1.0
    return X, rng.poisson(np.exp(X @ beta))


MAKERS = {
    "standard": standard,
    "correlated": correlated,
    "few-positives": few_positives,
    "rare-feature": rare_feature,
    "heavy-tails": heavy_tails,
    "poisson": poisson,
}
