"""A tempered mixture of two normals, a million points (Seita, Pan, Chen & Canny 2017, section 6.1).

Model, data and settings are those of `examples/barker_mixture.py`. The mean minibatch of the paper is 210.
"""

import runpy
from dataclasses import dataclass
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytest
from numba.extending import register_jitable

from pymc_austerity import MetropolisHastings, MinibatchBarker, RandomWalk
from pymc_austerity.acceptance import Barker
from pymc_austerity.acceptance.barker import noise_variance
from pymc_austerity.model.graph.rewrite import INTERPRETED
from tests.statistical.errors import LIMIT, error_of_mean, sd_with_error, z_of_mean, z_of_sd

pytestmark = pytest.mark.slow("chains of 300,000 transitions and more: two modes are visited in turns")

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "barker_mixture.py"))
N, TEMPERATURE = 1_000_000, 10_000.0


@pytest.fixture(scope="module")
def x():
    return EXAMPLE["make_data"](N)


@pytest.fixture(scope="module")
def model(x):
    return EXAMPLE["build_model"](x)


@pytest.fixture(scope="module")
def truth(x):
    return EXAMPLE["moments"](EXAMPLE["quadrature"](x, TEMPERATURE))


def sample(model, rule, draws, steps_per_draw=1, seed=1, **options):
    step = rule(
        model=model, temperature=TEMPERATURE, proposal=RandomWalk(EXAMPLE["STEP"]),
        steps_per_draw=steps_per_draw, **options,
    )  # fmt: skip
    return pm.sample(
        draws, tune=0, chains=1, cores=1, step=step, initvals={"theta_1": 0.0, "theta_2": 1.0}, model=model,
        random_seed=seed, progressbar=False, compute_convergence_checks=False, quiet=True,
    )  # fmt: skip


def test_quadrature(x, model, truth):
    points = [np.array(p) for p in [(0.0, 1.0), (1.0, -1.0), (0.5, 0.2), (-0.8, 2.0)]]
    likelihood = pm.compile(model.value_vars, model.logp(model.observed_RVs), mode=INTERPRETED)
    prior = pm.compile(model.value_vars, model.logp(model.free_RVs), mode=INTERPRETED)
    of_the_model = [prior(*p) + likelihood(*p) / TEMPERATURE for p in points]
    of_all_points = [EXAMPLE["log_density"](*p, x, np.ones(N), TEMPERATURE) for p in points]
    of_groups = [EXAMPLE["log_density"](*p, *EXAMPLE["group"](x), TEMPERATURE) for p in points]
    assert np.diff(of_all_points) == pytest.approx(np.diff(of_the_model), abs=1e-6)
    assert np.diff(of_groups) == pytest.approx(np.diff(of_the_model), abs=0.003)
    coarse = EXAMPLE["moments"](EXAMPLE["quadrature"](x, TEMPERATURE, points=81, bins=700))
    for name, moments in coarse.items():
        assert moments == pytest.approx(truth[name], abs=1e-3)
    assert truth["theta_1"][1] == pytest.approx(0.446, abs=0.01)
    assert truth["theta_2"][1] == pytest.approx(0.843, abs=0.02)


def test_minibatch_barker_reads_200_points(model):
    used = sample(model, MinibatchBarker, 10_000, batch_size=100).sample_stats["n_used"].values
    assert error_of_mean(used) < 4
    assert 185 < used.mean() < 215
    # The tail is short: nothing near the million points that the t-test reads for some decisions.
    assert np.quantile(used, 0.99) < 1100
    assert np.quantile(used, 0.999) < 2000
    assert used.max() < 5000


def z_of_moments(idata, truth):
    out = []
    for name, (mean, sd) in truth.items():
        values = idata.posterior[name].values[0]
        out += [z_of_mean(values, mean), z_of_sd(values, sd, mean)]
    return np.array(out)


def test_moments(model, truth):
    idata = sample(model, MinibatchBarker, 50_000, 10, batch_size=100)
    for name in truth:
        assert float(az.ess(idata.posterior[name].values)) > 1000
    z = z_of_moments(idata, truth)
    assert np.abs(z).max() < LIMIT, z


def test_a_pilot_has_no_error_by_the_stopping_rule(model, truth):
    """Posterior sds, which are 2 % too small without a pilot; and what it costs."""
    options = {"batch_size": 100, "pilot": True, "skew_correction": True}
    idata = sample(model, MinibatchBarker, 30_000, 10, seed=7, **options)
    z = z_of_moments(idata, truth)
    assert np.abs(z).max() < LIMIT, z
    for name, (_, exact) in truth.items():
        sd, error = sd_with_error(idata.posterior[name].values)
        assert error < 0.015 * exact
        assert abs(sd / exact - 1) < 0.03
    assert idata.sample_stats["n_used"].values.mean() == pytest.approx(339, rel=0.03)
    assert 0.003 < float(idata.sample_stats["clipped"].mean()) < 0.02


@pytest.mark.full_size("160,000 draws of ten transitions")
def test_moments_of_a_longer_chain(model, truth):
    """A longer chain sees what 100 points do not tell of their variance: sds are 2 % too small."""
    idata = sample(model, MinibatchBarker, 80_000, 10, seed=6, batch_size=1000)
    z = z_of_moments(idata, truth)
    assert np.abs(z).max() < LIMIT, z
    idata = sample(model, MinibatchBarker, 80_000, 10, seed=5, batch_size=100)
    for name, (_, exact) in truth.items():
        sd, error = sd_with_error(idata.posterior[name].values)
        assert error < 0.01 * exact
        assert -0.045 < sd / exact - 1 < -0.005


# A planted fault ----------------------------------------------------------------------------------------


@register_jitable
def accept_without_correction(schedule, sample, psi, rng):
    """Normal noise of variance 1 where a logistic variable (variance 3.3) belongs."""
    log_ratio = sample.n_local * (sample.mean - psi)
    return log_ratio + np.sqrt(max(0.0, 1.0 - noise_variance(sample))) * rng.standard_normal() > 0.0


@dataclass(frozen=True)
class WithoutCorrection(Barker):
    @property
    def functions(self):
        return super().functions._replace(accept=accept_without_correction)


def test_moments_notice_a_lost_correction(model, truth):
    idata = sample(model, MetropolisHastings, 15_000, 10, acceptance=WithoutCorrection(100))
    z = z_of_moments(idata, truth)
    assert np.abs(z).max() > 2 * LIMIT, z
