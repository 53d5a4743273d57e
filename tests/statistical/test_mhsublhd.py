"""`MHSubLhd` on the Gaussian models of Bardenet, Doucet & Holmes (2014), sections 4.1 and 4.3.

Models, data and settings are those of `examples/mhsublhd_gaussian.py`. With flat priors on mu and sigma,
p(mu, sigma | x) is proportional to sigma^-n exp(-(n S^2 + n (mean - mu)^2) / (2 sigma^2)). Integrated over
mu this is sigma^-(n-1) exp(-n S^2 / (2 sigma^2)) d sigma. With v = sigma^2, d sigma = dv / (2 sqrt(v)), it is
an inverse gamma law of v with shape (n - 2) / 2 and scale n S^2 / 2: a scaled inverse chi-square with n - 2
degrees of freedom.
"""

import runpy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numba.extending import register_jitable
from scipy import stats

from pymc_austerity import MetropolisHastings, RandomWalk, SubsamplingWarning
from pymc_austerity.acceptance import Concentration
from tests.statistical.errors import LIMIT, error_of_mean, z_of_mean, z_of_sd

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "mhsublhd_gaussian.py"))


def make_data(law):
    """A fifth of the example's 100,000 points: posterior, steps and errors scale with their number."""
    return EXAMPLE["make_data"](law)[:20_000]


# Section 4.1 ------------------------------------------------------------------------------------------


def test_closed_form():
    x = np.random.default_rng(1).normal(0, 0.1, 50)
    exact = EXAMPLE["exact_sigma"](x)
    sigma = np.linspace(0.05, 0.25, 20_001)
    density = np.exp(exact["log_density"](sigma) - exact["log_density"](exact["mode"]))
    assert sigma[density.argmax()] == pytest.approx(exact["mode"], abs=1e-5)
    density /= density.sum()
    mean = density @ sigma
    assert mean == pytest.approx(exact["mean"], rel=1e-6)
    assert np.sqrt(density @ (sigma - mean) ** 2) == pytest.approx(exact["sd"], rel=1e-4)
    law = stats.invgamma(24, scale=25 * x.var())  # of sigma^2
    assert density @ sigma**2 == pytest.approx(law.mean(), rel=1e-6)


@pytest.mark.slow("reads nearly all rows at every transition")
def test_posterior_of_sigma():
    x = make_data("lognormal")
    exact = EXAMPLE["exact_sigma"](x)
    sigma, means = EXAMPLE["sample_sigma"](x, "MHSubLhd", 500, 8000)
    assert error_of_mean(sigma) < 0.07 * exact["sd"]
    assert abs(z_of_mean(sigma, exact["mean"])) < LIMIT
    assert abs(z_of_sd(sigma, exact["sd"], exact["mean"])) < LIMIT
    assert 0.99 <= means["share of data"] <= 1


@register_jitable
def outside_without_range(schedule, stage, sample, psi, width):
    """The bound without its term in the range, the part that allows for rows not seen."""
    t, n = sample.n, sample.n_local
    half = np.sqrt(sample.m2 / t * 2 * (1 - t / n) * (np.log(5) + schedule.bounds[stage]) / t)
    return t == n or abs(sample.mean - psi) > half


@dataclass(frozen=True)
class WithoutRange(Concentration):
    @property
    def functions(self):
        return super().functions._replace(decide=outside_without_range)


@pytest.mark.slow("the example's own chain, which reads nearly all of its rows")
def test_posterior_of_sigma_notices_a_lost_range():
    """Planted fault: a bound without its term in the range."""
    x = make_data("lognormal")
    exact = EXAMPLE["exact_sigma"](x)
    sds = np.array([x.std() / np.sqrt(len(x)), 1 / np.sqrt(2 * len(x))])
    model = EXAMPLE["normal_model"](x)
    rule = WithoutRange(delta=0.01, batch_size=2)
    with pytest.warns(SubsamplingWarning, match="exact"):
        step = MetropolisHastings(
            acceptance=rule, range_bound="exact", proposal=RandomWalk(2 / np.sqrt(3) * sds), model=model
        )
    idata = EXAMPLE["chain"](model, step, {"mu": x.mean(), "sigma": x.std()}, 8000)
    sigma = idata.posterior["sigma"].values
    z = z_of_mean(sigma, exact["mean"]), z_of_sd(sigma, exact["sd"], exact["mean"])
    assert np.abs(z).max() > LIMIT
    assert idata.sample_stats["fraction_used"].mean() < 0.99


# Section 4.3 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "draws", "expected"),
    [
        (100_000, 5000, 0.53),
        pytest.param(1_000_000, 5000, 0.45, marks=pytest.mark.full_size("a million rows")),
        pytest.param(10_000_000, 2500, 0.40, marks=pytest.mark.full_size("a quarter of an hour, and 1 GB")),
    ],
)
def test_share_of_the_data_at_equilibrium(n, draws, expected):
    share, z = EXAMPLE["sample_share"](n, draws)
    assert error_of_mean(share) < 0.01
    assert abs(share.mean() - expected) < 0.015
    # The posterior is normal, and theta is standardised.
    assert abs(z_of_mean(z, 0)) < LIMIT
    assert abs(z_of_sd(z, 1, 0)) < LIMIT
