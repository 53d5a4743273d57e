"""Results of sampling, made by hand."""

import json

import numpy as np
from arviz import from_dict


def result(posterior=None, **stats):
    """A DataTree; statistics have the shape (chain, draw) or (chain, draw, step)."""
    groups = {"posterior": posterior or {"mu": np.zeros((1, 2))}}
    if stats:
        groups["sample_stats"] = {name: np.asarray(values, dtype=float) for name, values in stats.items()}
    return from_dict(groups, check_conventions=False)


def stamped(idata, *records):
    """A copy with a stamp of such steps, of AusterityMH for x unless they say another."""
    written = [{"step": "AusterityMH", "vars": ["x"], **record} for record in records]
    copy = idata.copy()
    copy.attrs["pymc_austerity_steps"] = json.dumps(written)
    return copy


def walk(rng, correlation, shape, mean=0.0, sd=1.0):
    """Chains of an autoregressive process of order one, from its stationary law; shape (chain, draw, ...)."""
    noise = rng.normal(size=shape) * np.sqrt(1.0 - correlation**2)
    x = np.empty(shape)
    x[:, 0] = rng.normal(size=x[:, 0].shape)
    for t in range(1, shape[1]):
        x[:, t] = correlation * x[:, t - 1] + noise[:, t]
    return mean + sd * x
