"""PyMC models with a closed-form posterior."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pymc as pm

from pymc_austerity.testing.targets import regression_posterior

# So many rows that a vector of them is subsampled; sequential tests have several stages.
_N_ROWS = 3000


class Solved(NamedTuple):
    """A model, and its posterior.

    Attributes
    ----------
    model : pymc.Model
    mean, sd : dict of str to ndarray
        Posterior means and standard deviations of all variables.
    """

    model: pm.Model
    mean: dict[str, np.ndarray]
    sd: dict[str, np.ndarray]

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """A point near the posterior: independent normal numbers of its means and standard deviations."""
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
    posterior = regression_posterior(np.ones((n_rows, 1)), y)
    sd = np.sqrt(np.diag(posterior.cov))
    return Solved(model, {"mu": posterior.mean[0]}, {"mu": sd[0]})


def two_blocks(n_rows: int = _N_ROWS, seed: int = 0) -> Solved:
    """Rows y ~ N(a + x b, 1) with a scalar a and two coefficients b, all N(0, 2^2), which are correlated."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]]) + 0.3
    y = 0.5 + x @ np.array([1.0, -0.5]) + rng.normal(size=n_rows)
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 2.0)
        b = pm.Normal("b", 0.0, 2.0, shape=2)
        pm.Normal("y", a + x[:, 0] * b[0] + x[:, 1] * b[1], 1.0, observed=y)
    posterior = regression_posterior(np.column_stack([np.ones(n_rows), x]), y)
    sd = np.sqrt(np.diag(posterior.cov))
    mean = posterior.mean
    return Solved(model, {"a": mean[0], "b": mean[1:]}, {"a": sd[0], "b": sd[1:]})
