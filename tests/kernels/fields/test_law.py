"""Proposals of theta, with a target whose moments are known."""

import math

import numpy as np
import pytest

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.fields import law as laws
from pymc_austerity.kernels.fields.law import LAST, N_KNOTS
from pymc_austerity.kernels.fields.records import Law

propose = entry(laws.propose)


def law_of(q, units):
    """A law that does not fit: skewed scores, some correlation."""
    scores = np.linspace(-LAST, LAST, N_KNOTS)
    knots = np.tile(scores + 0.05 * scores**2, (q, 1))
    knots = np.maximum.accumulate(knots, axis=1) + 0.02 * scores
    factor = np.linalg.cholesky(0.3 + 0.7 * np.eye(q))
    return Law(np.full(q, 0.2), np.full(q, 1.2), knots, factor, np.linalg.inv(factor), units)


@entry
def chain(rng, law, n, draws):
    """Metropolis-Hastings for independent theta_j ~ N(0, 1)."""
    theta, other = np.zeros(draws.shape[1]), np.zeros(draws.shape[1])
    for k in range(n):
        ratio = laws.propose(rng, law, theta, other)
        for j in range(theta.shape[0]):
            ratio += 0.5 * (theta[j] ** 2 - other[j] ** 2)
        if math.log(1.0 - rng.random()) < ratio:
            theta[:] = other
        draws[k] = theta


@pytest.mark.parametrize("q", [1, 3, 8])
def test_a_chain_has_the_target(q):
    """With elements in units of others, and with more numbers than are moved together."""
    units = np.full(q, -1)
    if q > 1:
        units[1] = 2
    draws = np.empty((200_000, q))
    chain(np.random.default_rng(1), law_of(q, units), len(draws), draws)
    batches = draws.reshape(100, -1, q)
    for power, expected in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        means = (batches**power).mean(axis=1)
        error = means.std(axis=0) / 10.0
        assert np.all(np.abs(means.mean(axis=0) - expected) < 4.5 * error), power
        assert np.all(error < 0.3)


def test_a_planted_fault_of_units_is_found():
    """Without the determinant of the units the second moment of their scale is wrong."""
    law = law_of(3, np.array([-1, 2, -1]))
    rng, theta, other = np.random.default_rng(1), np.array([0.3, 0.4, 0.5]), np.empty(3)
    for _ in range(20):
        ratio = propose(rng, law, theta, other)
        wrong = ratio - (other[2] - theta[2])
        if other[2] != theta[2]:
            assert abs(wrong - ratio) > 1e-6
