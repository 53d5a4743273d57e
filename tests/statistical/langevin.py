"""Models on which the stationary distribution of Langevin dynamics is known."""

import numpy as np
import pymc as pm

N_TOY = 10_000
N_MEAN = 100_000


def toy_data(n=N_TOY, seed=1):
    """x and y with fixed moments: sums of squares of x and of the residuals are N/3, their product is 0."""
    rng = np.random.default_rng(seed)
    x, r = rng.uniform(-1, 1, n), rng.normal(size=n)
    x *= np.sqrt(n / 3 / (x @ x))
    r -= x * (x @ r) / (x @ x)
    r *= np.sqrt(n / 3 / (r @ r))
    return x, 0.5 * x + r


def toy():
    """Linear regression under a Laplace prior: a kink at zero, with little mass to the left of it."""
    x, y = toy_data()
    with pm.Model() as model:
        theta = pm.Laplace("theta", 0, 1 / 4950)
        pm.Normal("y", theta * x, 3**-0.5, observed=y)
    return model


def toy_density(theta):
    """That of the toy, not normalised: slopes of 50 and of 9950 at either side of zero."""
    return np.exp(-5000 * theta**2 + 5000 * theta - 4950 * np.abs(theta))


def toy_expectation(function):
    """By quadrature, on a grid that no function of a threshold upsets."""
    theta = (np.arange(2_000_000) + 0.5) * 5.2e-8 - 0.004
    density = toy_density(theta)
    return float(np.sum(function(theta) * density) / density.sum())


def skewed_rows(n=N_MEAN, seed=2014):
    """Gamma rows of shape 2, with mean 0 and variance 8 exactly."""
    y = np.random.default_rng(seed).gamma(2.0, 2.0, n)
    return (y - y.mean()) / y.std() * np.sqrt(8.0)


def normal_mean():
    """A mean of rows that vary twice as much as the model says; its precision A."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 2, observed=skewed_rows())
    return model, N_MEAN / 4 + 1 / 100


def chain(step, start, n, seed=3):
    """Draws of a step for one number, and its last statistics."""
    ((name, value),) = start.items()
    step.setup_chain(np.random.default_rng(seed), 0, n)
    point, draws = {name: np.array(value)}, np.empty(n)
    for k in range(n):
        point, (stats,) = step.step(point)
        draws[k] = point[name]
    return draws, stats
