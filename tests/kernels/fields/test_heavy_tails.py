"""Precisions of heavy-tailed effects: what they are drawn from, and their density."""

import numpy as np
import pytest
from scipy import stats

from pymc_austerity.bounds.jets.compiled import of_records
from pymc_austerity.kernels.fields import heavy_tails
from pymc_austerity.kernels.fields.records import HeavyTails

draw_precisions, log_prior = (
    of_records(heavy_tails.draw_precisions),
    of_records(heavy_tails.log_prior_of_precisions),
)
FEATURES = np.array([1.0, 3.5])


def tails_of(n, degrees, number):
    return HeavyTails(np.arange(n), np.full(n, degrees), np.full(n, number))


@pytest.mark.parametrize("t", [0.0, 1e-4, 0.3, 4.0])
@pytest.mark.parametrize(("degrees", "number"), [(1.0, 1), (4.0, 0), (0.0, 0)])
def test_draws_are_those_given_the_effects(degrees, number, t):
    n, nu = 4000, degrees * FEATURES[number]
    found = np.zeros(n)
    draw_precisions(np.random.default_rng(1), tails_of(n, degrees, number), FEATURES, np.full(n, t), found)
    if degrees:
        law = stats.gamma(0.5 * (nu + 1.0), scale=2.0 / (nu + t * t))
    elif t == 0.0:  # the limit of long means: a chi-squared variable of one degree, inverted
        law = stats.invgamma(0.5, scale=0.5)
    else:
        law = stats.invgauss(1.0 / t)
    assert stats.kstest(found, law.cdf).pvalue > 1e-3
    planted = found * 1.1
    assert stats.kstest(planted, law.cdf).pvalue < 1e-3


@pytest.mark.parametrize("degrees", [1.0, 0.5])
def test_the_density_by_degrees_of_freedom(degrees):
    own = np.random.default_rng(2).gamma(2.0, size=30)
    tails = tails_of(30, degrees, 1)
    ours, theirs = [], []
    for nu in (0.7, 2.0, 9.0):
        ours.append(log_prior(tails, np.array([1.0, nu]), own))
        theirs.append(stats.gamma(0.5 * degrees * nu, scale=2.0 / (degrees * nu)).logpdf(own).sum())
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs))


def test_fixed_degrees_have_no_part_in_theta():
    assert log_prior(tails_of(5, 4.0, 0), FEATURES, np.ones(5)) == 0.0
