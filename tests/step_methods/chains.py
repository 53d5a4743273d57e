"""Chains that are made up, or written with numpy."""

import math

import numpy as np


def autoregression(rho, n, n_dim, rng):
    """A chain whose first coordinate remembers."""
    draws = rng.normal(size=(n, n_dim))
    for k in range(1, n):
        draws[k, 0] = rho * draws[k - 1, 0] + np.sqrt(1.0 - rho**2) * draws[k, 0]
    return draws


def plain_chain(model, variables, temperature, n, scale, start, seed):
    """Metropolis-Hastings for some variables, on the prior plus the tempered likelihood."""
    prior = model.compile_fn(model.varlogp, inputs=model.value_vars, point_fn=True)
    likelihood = model.compile_fn(model.datalogp, inputs=model.value_vars, point_fn=True)
    sizes = [np.size(start[v.name]) for v in variables]

    def log_density(q):
        parts = zip(variables, np.split(q, np.cumsum(sizes)[:-1]), strict=True)
        point = start | {v.name: part.reshape(np.shape(start[v.name])) for v, part in parts}
        return float(prior(point)) + float(likelihood(point)) / temperature

    rng = np.random.default_rng(seed)
    q = np.concatenate([np.ravel(start[v.name]) for v in variables])
    here, draws = log_density(q), []
    for _ in range(n):
        q_new = q + scale * rng.standard_normal(len(q))
        there = log_density(q_new)
        if math.log(rng.random()) < there - here:
            q, here = q_new, there
        draws.append(q)
    return np.array(draws)
