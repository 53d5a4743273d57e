"""TunaMH on normal regressions whose scale is in the block: against the closed form, for flat priors."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln

from pymc_austerity import TunaMH
from tests.models import as_model
from tests.sampling import sampled
from tests.statistical.errors import LIMIT, z_of_mean, z_of_sd

N, D = 2000, 3
RNG = np.random.default_rng(2024)
X = np.c_[np.ones(N), RNG.normal(size=(N, D - 1))]
Y = X @ [1.0, -2.0, 0.5] + 1.7 * RNG.standard_t(6, size=N)


@as_model
def regression():
    b = pm.Normal("b", 0, 1000, shape=D)
    pm.Normal("y", X @ b, pm.HalfNormal("sigma", 1000), observed=Y)


def closed_form():
    """Mean and standard deviation of b and sigma; 1 / sigma^2 has a gamma law."""
    b, squares, _, _ = np.linalg.lstsq(X, Y, rcond=None)
    shape, rate = (N - D - 1) / 2, squares[0] / 2
    mean = np.sqrt(rate) * np.exp(gammaln(shape - 0.5) - gammaln(shape))
    variance = rate / (shape - 1)
    of_b = np.sqrt(variance * np.diag(np.linalg.inv(X.T @ X)))
    return {"b": (b, of_b), "sigma": (mean, np.sqrt(variance - mean**2))}


@pytest.mark.slow("a long run")
def test_the_posterior_is_that_of_the_closed_form():
    """A few rows are read, and none is larger than its bound."""
    with regression():
        step = TunaMH(debug=True)
        idata = sampled(4000, step, tune=500, chains=1, random_seed=5)
    for name, (mean, sd) in closed_form().items():
        draws = idata["posterior"][name].to_numpy()[0].reshape(4000, -1)
        for x, m, s in zip(draws.T, np.atleast_1d(mean), np.atleast_1d(sd), strict=True):
            assert abs(z_of_mean(x, m)) < LIMIT
            assert abs(z_of_sd(x, s, m)) < LIMIT
    stats = idata["sample_stats"]
    assert float(stats["bound_violations"].sum()) == 0.0
    used = float(stats["n_used"].mean())
    assert 0.5 < used < 10.0
    assert used == pytest.approx(step.prediction.terms, rel=0.2)
    assert float(stats["accepted"].mean()) > 0.7
    assert float(stats["exhausted"].mean()) < 0.01
