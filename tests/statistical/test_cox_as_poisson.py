"""Survival as Poisson counts, where most cells have an exposure of zero: draws against quadrature.

Given the effect b of a covariate, hazards of the intervals are gamma variables: what is left is a grid of b.
"""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import softmax

import pymc_austerity as pma
from tests.sampling import sampled
from tests.statistical.errors import LIMIT, z_of_mean, z_of_sd

SUBJECTS, INTERVALS = 400, 3
RNG = np.random.default_rng(11)
X = RNG.normal(size=SUBJECTS)
TIME = RNG.exponential(np.exp(-0.5 * X))
EXPOSURE = np.clip(np.minimum(TIME, INTERVALS)[:, None] - np.arange(INTERVALS), 0.0, 1.0)
DEATH = ((np.floor(TIME)[:, None] == np.arange(INTERVALS)) & (TIME[:, None] < INTERVALS)).astype(int)


def quadrature():
    """Means and standard deviations of b and of the hazards."""
    b = np.linspace(-0.5, 1.5, 4001)
    at_risk = np.exp(np.outer(b, X)) @ EXPOSURE  # grid by intervals
    shape, rate = 1.0 + DEATH.sum(axis=0), 1.0 + at_risk
    weights = softmax(stats.norm.logpdf(b) + b * (X @ DEATH).sum() - np.log(rate) @ shape)
    means = [weights @ b, *(weights @ (shape / rate))]
    squares = [weights @ b**2, *(weights @ (shape * (shape + 1.0) / rate**2))]
    return np.array(means), np.sqrt(np.array(squares) - np.square(means))


def table():
    return pm.Poisson("y", EXPOSURE * hazards() * pm.math.exp(effect() * X)[:, None], observed=DEATH)


def cells():
    i, k = np.indices(EXPOSURE.shape).reshape(2, -1)
    mu = EXPOSURE.ravel() * hazards()[k] * pm.math.exp(effect() * X[i])
    return pm.Poisson("y", mu, observed=DEATH.ravel())


def offsets():
    i, k = np.indices(EXPOSURE.shape).reshape(2, -1)
    with np.errstate(divide="ignore"):
        log_exposure = np.log(EXPOSURE.ravel())
    eta = log_exposure + pm.math.log(hazards())[k] + effect() * X[i]
    return pm.Poisson("y", pm.math.exp(eta), observed=DEATH.ravel())


def hazards():
    return pm.Gamma("hazard", 1.0, 1.0, shape=INTERVALS)


def effect():
    return pm.Normal("b")


CASES = {
    "cells": (cells, pma.TunaMH),
    "offsets": (offsets, pma.TunaMH),
    "table": (table, lambda: pma.TunaMH(threshold=100)),
    "sequential test": (cells, lambda: pma.AusterityMH(control_variate=pma.Taylor(), epsilon=0.01)),
}


@pytest.mark.parametrize("name", CASES)
def test_exposures_of_zero(name):
    make, step = CASES[name]
    with pm.Model():
        make()
        idata = sampled(4000, step(), tune=500, chains=1, random_seed=3)
    mean, sd = quadrature()
    posterior = idata.posterior.isel(chain=0)
    draws = [posterior["b"].values, *posterior["hazard"].values.T]
    for own, expected, spread in zip(draws, mean, sd, strict=True):
        assert abs(z_of_mean(own, expected)) < LIMIT
        assert abs(z_of_sd(own, spread, expected)) < LIMIT
