"""Proposals of theta, with a target whose moments are known; and tables of scores, by quantiles."""

import math

import numpy as np
import pytest
from scipy import stats

from pymc_austerity.bounds.jets.compiled import of_records
from pymc_austerity.kernels.fields import law as laws
from pymc_austerity.kernels.fields.law import LAST, N_KNOTS
from pymc_austerity.kernels.fields.records import Law
from pymc_austerity.mode.fields import law as tables
from pymc_austerity.proposals.deviations import no_deviations


def law_of(q, units):
    """A law that does not fit: skewed scores, some correlation."""
    scores = np.linspace(-LAST, LAST, N_KNOTS)
    knots = np.tile(scores + 0.05 * scores**2, (q, 1))
    knots = np.maximum.accumulate(knots, axis=1) + 0.02 * scores
    factor = np.linalg.cholesky(0.3 + 0.7 * np.eye(q))
    return Law(np.arange(q), np.full(q, 0.2), np.full(q, 1.2), knots, factor, np.linalg.inv(factor), units)


@of_records
def chain(rng, law, n, draws, fault, deviations):
    """Metropolis-Hastings for independent theta_j ~ N(0, 1); a fault leaves out the determinant of units."""
    theta, other = np.zeros(draws.shape[1]), np.zeros(draws.shape[1])
    for k in range(n):
        ratio = laws.propose(rng, law, 0.2, theta, other, deviations)
        for j in range(theta.shape[0]):
            ratio += 0.5 * (theta[j] ** 2 - other[j] ** 2)
            if law.units[j] >= 0:
                ratio -= fault * (other[law.units[j]] - theta[law.units[j]])
        if math.log(1.0 - rng.random()) < ratio:
            theta[:] = other
        draws[k] = theta


def largest_z(q, *, fault=0.0):
    """The largest difference of the first four moments from those of the target, in standard errors."""
    units = np.full(q, -1)
    if q > 1:
        units[1] = 2
    draws = np.empty((200_000, q))
    law, rng = law_of(q, units), np.random.default_rng(1)
    chain(rng, law, len(draws), draws, fault, no_deviations(q))
    batches, found = draws.reshape(100, -1, q), []
    for power, expected in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        means = (batches**power).mean(axis=1)
        found.append(np.abs(means.mean(axis=0) - expected) / (means.std(axis=0) / 10.0))
    return np.max(found)


@pytest.mark.parametrize("q", [1, 3, 8])
def test_a_chain_has_the_target(q):
    """With elements in units of others, and with more numbers than are moved together."""
    assert largest_z(q) < 4.5


def test_a_planted_fault_of_units_is_found():
    """Without the determinant of the units their scale has another law."""
    assert largest_z(3, fault=1.0) > 20.0


# Log densities on a grid that ends where they are not small, and their quantiles.
TAILED = {
    "of a scale near zero": (stats.loggamma(1.0), (-6.0, 4.0)),
    "its mirror": (stats.gumbel_r(), (-4.0, 6.0)),
    "both": (stats.logistic(), (-5.0, 5.0)),
    "longer on one side": (stats.exponnorm(4.0), (-6.0, 8.0)),
    "normal": (stats.norm(), (-14.0, 14.0)),
}


@pytest.mark.parametrize(
    ("name", "is_planted"),
    [
        ("of a scale near zero", False),
        ("its mirror", False),
        ("both", False),
        ("longer on one side", False),
        ("normal", False),
        ("of a scale near zero", True),
        ("its mirror", True),
        ("both", True),
        ("longer on one side", True),
    ],
)
def test_tables_go_on_beyond_what_was_looked_at(monkeypatch, name, is_planted):
    """Planted fault: nothing is beyond the grid, so that a chain which gets there stays for long."""
    if is_planted:
        monkeypatch.setattr(tables, "_with_tails", lambda *given: given[:2])
    law, ends = TAILED[name]
    grid, scores = np.linspace(*ends, 281), np.linspace(-LAST, LAST, N_KNOTS)
    heights = law.logpdf(grid)
    falls = (heights[[1, -2]] - heights[[0, -1]]) / (grid[1] - grid[0])
    found = tables._table(grid, heights, scores, falls)
    low = scores < 0.0
    expected = np.where(low, law.ppf(stats.norm.cdf(scores)), law.isf(stats.norm.sf(scores)))
    errors = np.abs(found - expected) / law.std()
    assert (np.max(errors[np.abs(scores) <= 5.0]) > 0.5) == is_planted
