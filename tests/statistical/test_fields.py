"""The distribution that subsampled Gibbs updates of a field have, which is not that of the field."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import softmax

from pymc_austerity import AusterityGibbs
from pymc_austerity.model.element_terms import ElementTerms
from pymc_austerity.testing.compare import error_of_mean
from tests.sampling import sampled
from tests.statistical.fields import all_states, field, log_density, table_of

D = 10
# By the matrix of a sweep whose conditionals are those of the sequential test on 36 rows.
MARGINALS = {
    0.0: ".7758 .3304 .5388 .2313 .5363 .1197 .3559 .8734 .2813 .8507",
    0.1: ".7287 .3525 .5495 .2783 .4937 .1424 .3419 .8607 .3066 .8130",
}


def chain(epsilon, draws, seed=3, **options):
    with field(D, 0.3, 28):
        step = AusterityGibbs(epsilon=epsilon, batch_size=12, subsample="gather", **options)
        return sampled(draws, step, tune=100, chains=1, random_seed=seed)


def distances(idata, expected):
    """How far marginals are off, less .005, in standard errors."""
    x = idata.posterior["X"].to_numpy()[0].astype(float)
    errors = [error_of_mean(column) for column in x.T]
    return (np.abs(x.mean(axis=0) - expected) - 0.005) / errors


def given(epsilon):
    return np.array(MARGINALS[epsilon].split(), dtype=float)


def test_the_reference_is_the_sum_over_all_states():
    probability = softmax(log_density(all_states(D), table_of(D, 0.3, 28)))
    np.testing.assert_allclose(probability @ all_states(D), given(0.0), atol=6e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_marginals_are_those_of_the_sampler(epsilon):
    idata = chain(epsilon, 12_000)
    assert distances(idata, given(epsilon)).max() < 4.0
    if epsilon:
        assert distances(idata, given(0.0)).max() > 6.0  # and the bias is seen
        assert abs(idata.sample_stats["fraction_used"].mean() - 0.683) < 0.03


def test_rows_of_all_sites_in_psi_are_noticed(monkeypatch):
    """A planted fault: the global log ratio over the number of all triples, not of those of the site."""
    right = ElementTerms.rows

    def wrong(self, point):
        found = right(self, point)
        everything = np.arange(self.n_own, self.n_own + self.n_tested, dtype=np.int32)
        tested = found.tested._replace(starts=np.arange(D + 1) * len(everything), rows=np.tile(everything, D))
        return type(found)(found.own, tested)

    monkeypatch.setattr(ElementTerms, "rows", wrong)
    idata = chain(0.1, 3000)
    assert distances(idata, given(0.1)).max() > 6.0


def test_a_site_of_the_paper():
    """Log odds of 1.8 over 4851 rows: the conditional comes out as .825 at epsilon .05, not as .858."""
    n, rng = 4851, np.random.default_rng(1)
    terms = rng.normal(0.0, 0.02 * np.sqrt(2.0), n)
    terms += (1.8 - terms.sum()) / n
    for epsilon, expected in ((0.05, 0.825), (0.25, 0.709)):
        with pm.Model():
            X = pm.Bernoulli("X", 0.5, shape=3)
            pm.Potential("psi", pm.math.constant(terms) * X[np.zeros(n, dtype=int)])
            step = AusterityGibbs(epsilon=epsilon, subsample="gather")
            idata = sampled(20_000, step, tune=1, chains=1, random_seed=4)
        x = idata.posterior["X"].to_numpy()[0, :, 0].astype(float)
        assert abs(x.mean() - expected) < 0.004 + 4 * error_of_mean(x)
