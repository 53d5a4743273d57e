"""PyMC models with a closed-form posterior."""

import itertools
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.initial_point import make_initial_point_fn
from scipy import special

# So many rows that a vector of them is subsampled; sequential tests have several stages.
_N_ROWS = 3000


class Solved(NamedTuple):
    """A model, and its posterior."""

    model: pm.Model
    mean: dict[str, np.ndarray]  # posterior means of all variables, on their own scale
    sd: dict[str, np.ndarray]  # posterior standard deviations
    # Where chains start, on the same scale. Default: the means. Needed where the mean is no value of a
    # variable, as for categories, and where variables are transformed.
    start: dict[str, np.ndarray] | None = None

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """A point for a step: `start`, or independent normal numbers of the means and standard deviations."""
        if self.start is not None:
            point: dict[str, Any] = make_initial_point_fn(model=self.model, overrides=self.start)(0)
            return point
        return {
            name: np.asarray(mean + self.sd[name] * rng.standard_normal(np.shape(mean)))
            for name, mean in self.mean.items()
        }


def normal_mean(n_rows: int = _N_ROWS, seed: int = 0) -> Solved:
    """Rows y ~ N(mu, 1), mu ~ N(0, 2^2)."""
    y = np.random.default_rng(seed).normal(0.7, 1.0, n_rows)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Normal("y", mu, 1.0, observed=y)
    mean, sd = _coefficients(np.ones((n_rows, 1)), y)
    return Solved(model, {"mu": mean[0]}, {"mu": sd[0]})


def two_blocks(n_rows: int = _N_ROWS, seed: int = 0) -> Solved:
    """Rows y ~ N(a + x b, 1) with a scalar a and two coefficients b, all N(0, 2^2), which are correlated."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]]) + 0.3
    y = 0.5 + x @ np.array([1.0, -0.5]) + rng.normal(size=n_rows)
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 2.0)
        b = pm.Normal("b", 0.0, 2.0, shape=2)
        pm.Normal("y", a + x[:, 0] * b[0] + x[:, 1] * b[1], 1.0, observed=y)
    mean, sd = _coefficients(np.column_stack([np.ones(n_rows), x]), y)
    return Solved(model, {"a": mean[0], "b": mean[1:]}, {"a": sd[0], "b": sd[1:]})


def _coefficients(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of the coefficients q in y ~ N(x q, 1) with q ~ N(0, 2^2)."""
    cov = np.linalg.inv(x.T @ x + np.eye(x.shape[1]) / 4.0)
    return cov @ x.T @ y, np.sqrt(np.diag(cov))


def rates(events: tuple[int, ...] = (10, 40), n_rows: int = _N_ROWS, **options: Any) -> Solved:
    """Rows y ~ Poisson(lam_g) in groups g; lam ~ Gamma(2, 1).

    In each group `events` rows have one event, and all others none. `n_rows` is that of all groups together,
    and the options, such as ``default_transform=None``, are for the prior.
    """
    group, y = np.arange(n_rows) % len(events), np.zeros(n_rows, dtype=np.int64)
    for g, count in enumerate(events):
        y[np.flatnonzero(group == g)[:count]] = 1
    shape, rate = 2.0 + np.array(events), 1.0 + np.bincount(group)
    with pm.Model() as model:
        lam = pm.Gamma("lam", 2.0, 1.0, shape=len(events), **options)
        pm.Poisson("y", lam[group], observed=y)
    return Solved(model, {"lam": shape / rate}, {"lam": np.sqrt(shape) / rate}, {"lam": shape / rate})


def shares(counts: tuple[int, ...] = (1500, 1000, 500)) -> Solved:
    """Rows y ~ Categorical(w), of which each category has a given number; w ~ Dirichlet(1/2, ..., 1/2)."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.full(len(counts), 0.5))
        pm.Categorical("y", w, observed=np.repeat(np.arange(len(counts)), counts))
    alpha = 0.5 + np.array(counts)
    mean = alpha / alpha.sum()
    return Solved(model, {"w": mean}, {"w": np.sqrt(mean * (1 - mean) / (alpha.sum() + 1))}, {"w": mean})


def allocations(y: tuple[float, ...] = (-0.9, -0.2, 0.3, 0.5, 1.6)) -> Solved:
    """Rows y ~ N(level_z, 1), z ~ Categorical(w), w ~ Dirichlet: the sum over all allocations z."""
    alpha, levels = np.array([0.7, 1.5, 1.0]), np.array([-1.0, 0.3, 1.5])
    with pm.Model() as model:
        w = pm.Dirichlet("w", alpha)
        z = pm.Categorical("z", w, shape=len(y))
        pm.Normal("y", pt.as_tensor(levels)[z], 1.0, observed=np.array(y))
    states = np.array(list(itertools.product(range(len(alpha)), repeat=len(y))))
    counted = alpha + (states[:, :, None] == np.arange(len(alpha))).sum(axis=1)
    log_density = special.gammaln(counted).sum(axis=1) - 0.5 * ((np.array(y) - levels[states]) ** 2).sum(
        axis=1
    )
    probability = special.softmax(log_density)
    total = alpha.sum() + len(y)
    first = {"w": counted / total, "z": states}
    second = {"w": counted * (counted + 1) / (total * (total + 1)), "z": states**2}
    mean = {name: probability @ values for name, values in first.items()}
    sd = {name: np.sqrt(probability @ values - mean[name] ** 2) for name, values in second.items()}
    return Solved(model, mean, sd, {"w": mean["w"], "z": states[np.argmax(probability)]})
