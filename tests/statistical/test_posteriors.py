"""Posteriors by `AusterityMH` against closed forms, quadrature and the theory of its error."""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pymc_austerity import AusterityMH, MetropolisHastings, RandomWalk
from pymc_austerity.acceptance import TTest
from pymc_austerity.bounds.jets.remainders import GlobalRows
from pymc_austerity.model.compile import numba_backend
from pymc_austerity.model.factorisation import vector_of
from pymc_austerity.step_methods.metropolis import plan
from tests.kernels.engines import significant_without_fpc
from tests.sampling import sampled
from tests.statistical.errors import LIMIT, sd_with_error, z_of_mean, z_of_sd
from tests.statistical.theory import sequential_test_law, stationary, walk_on_grid

# Planted faults: copies of the engine that are wrong about the target -----------------------------------

LOST_PRIOR = "lost prior"
TEMPERED = {
    name: (right, f"0.5 * {right}")
    for name, right in {
        "log_ratios": "log_ratios_function(q_new, q, index, *args)[0]",
        "log_terms": "log_terms_function(q, index, *args)[0]",
    }.items()
}


@pytest.fixture
def plant(monkeypatch):
    source_of = numba_backend.target_function_source

    def without_rows(fact, structure):
        return GlobalRows([], len(vector_of(fact, fact.graph.point)), None)

    def change(bug):
        if bug == LOST_PRIOR:
            monkeypatch.setattr(plan, "global_rows", without_rows)
            return

        def planted(name, kinds):
            source = source_of(name, kinds)
            right, wrong = bug.get(name, ("", ""))
            assert right in source
            return source.replace(right, wrong)

        monkeypatch.setattr(numba_backend, "target_function_source", planted)
        monkeypatch.setattr(numba_backend, "_targets", type(numba_backend._targets)())

    return change


# (i), (ii) The mean of normal data -------------------------------------------------------------------

N, SD, PRIOR_SD = 2000, 1.0, 0.05


@pytest.fixture(scope="module")
def normal_mean():
    """Model, and exact mean and sd of its posterior; the prior counts a sixth of the data."""
    x = np.random.default_rng(1).normal(0.1, SD, size=N)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, PRIOR_SD)
        pm.Normal("x", mu, SD, observed=x)
    precision = 1 / PRIOR_SD**2 + N / SD**2
    return model, x, x.sum() / SD**2 / precision, precision**-0.5


def draws_of_mean(model, seed, *, step=AusterityMH, draws=6000, **kwargs):
    step = step(model=model, steps_per_draw=8, **kwargs)
    start = {"mu": 0.08}
    idata = sampled(draws, step, tune=200, chains=2, random_seed=seed, initvals=start, model=model)
    return idata.posterior["mu"].values, idata.sample_stats


def test_normal_mean_with_epsilon_0(normal_mean):
    model, _, mean, sd = normal_mean
    mu, sample_stats = draws_of_mean(model, seed=2, epsilon=0)
    assert abs(z_of_mean(mu, mean)) < LIMIT
    assert abs(z_of_sd(mu, sd, mean)) < LIMIT
    assert abs(z_of_mean(mu < mean + sd, stats.norm.cdf(1))) < LIMIT
    assert np.all(sample_stats["fraction_used"] == 1)


def test_normal_mean_notices_a_lost_prior(normal_mean, plant):
    """Planted fault: a lost prior."""
    model, x, mean, sd = normal_mean
    plant(LOST_PRIOR)
    mu, _ = draws_of_mean(model, seed=2, epsilon=0)
    assert abs(z_of_mean(mu, mean)) > LIMIT
    assert abs(z_of_sd(mu, sd, mean)) > LIMIT
    assert abs(z_of_mean(mu, x.mean())) < LIMIT


BATCH = 200


def accept_probability(theta, new, x, epsilon, critical=None):
    """P(accept a move from theta to new) when batch means are normal, for arrays of moves.

    With v = -log u ~ Exp(1) and -v0 the exact log ratio, the drift is
    mu_std = (v - v0) sqrt(N - 1) / (N sigma_l).
    """
    ends = np.append(np.arange(BATCH, N, BATCH), N)
    critical = np.full(len(ends), stats.norm.isf(epsilon)) if critical is None else critical
    drift = np.linspace(-30, 30, 3001)
    law = sequential_test_law(drift, ends, critical)
    slope = (new - theta) / SD**2
    log_ratio = N * slope * (x.mean() - (theta + new) / 2)
    log_ratio = log_ratio - (new**2 - theta**2) / (2 * PRIOR_SD**2)
    width = N * np.abs(slope) * x.std() / np.sqrt(N - 1)  # of v for one unit of drift
    v0 = -log_ratio
    total = np.zeros(np.broadcast(theta, new).shape)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    edges = [0.0, v0 - 6 * width, v0 - 2 * width, v0, v0 + 2 * width, v0 + 6 * width, 40.0]
    edges = [np.broadcast_to(np.clip(e, 0, 40), total.shape) for e in edges]
    for low, high in pairwise(edges):
        for node, weight in zip(nodes, weights, strict=True):
            v = (low + high) / 2 + (high - low) / 2 * node
            mu_std = (v - v0) / np.maximum(width, 1e-300)
            accepted = np.interp(mu_std, drift, law.above)
            accepted += np.where(mu_std > 0, np.interp(mu_std, drift, law.exhausted), 0.0)
            total += weight * (high - low) / 2 * np.exp(-v) * accepted
    return total


def idealised(x, mean, sd, scale, epsilon, n_grid=241):
    """Mean and sd of the stationary law of the idealised austerity chain."""
    grid = mean + sd * np.linspace(-9, 9, n_grid)
    if epsilon:
        accept = accept_probability(grid[:, None], grid[None, :], x, epsilon)
    else:
        log_density = stats.norm.logpdf(grid, mean, sd)
        accept = np.exp(np.minimum(0, log_density[None, :] - log_density[:, None]))
    law = stationary(walk_on_grid(grid, scale, accept))
    center = law @ grid
    return center, np.sqrt(law @ (grid - center) ** 2)


@pytest.fixture(scope="module")
def theory(normal_mean):
    """The sd of the idealised chain with steps of two sds, in exact sds, for any epsilon."""
    _, x, mean, sd = normal_mean
    return cache(lambda epsilon: idealised(x, mean, sd, 2 * sd, epsilon)[1] / sd)


def test_the_idealised_chain_is_right_where_the_answer_is_known(normal_mean, theory):
    _, x, mean, sd = normal_mean
    center, spread = idealised(x, mean, sd, 2 * sd, 0)
    assert center == pytest.approx(mean, abs=1e-6 * sd)
    assert spread == pytest.approx(sd, rel=1e-6)
    # A small epsilon is close to it, a large one is not, and the grid is fine enough.
    spreads = [theory(e) for e in (1e-6, 0.01, 0.05)]
    assert spreads[0] == pytest.approx(1, abs=1e-3)
    assert spreads[0] < spreads[1] < spreads[2]
    coarse = idealised(x, mean, sd, 2 * sd, 0.05, n_grid=161)[1] / sd
    assert coarse == pytest.approx(spreads[2], rel=2e-3)


def width_of_chain(normal_mean, epsilon, seed=3, step=AusterityMH):
    """Its mean in standard errors from the exact one, and its sd with its error, in exact sds."""
    model, _, mean, sd = normal_mean
    mu, _ = draws_of_mean(
        model, seed, step=step, draws=12_000, epsilon=epsilon, batch_size=BATCH,
        proposal=RandomWalk(2 * sd),
    )  # fmt: skip
    spread, error = sd_with_error(mu)
    return z_of_mean(mu, mean), spread / sd, error / sd


@pytest.mark.parametrize("epsilon", [0.01, 0.05])
def test_normal_mean_is_as_wide_as_theory_says(normal_mean, theory, epsilon):
    wide = theory(epsilon)
    z, spread, error = width_of_chain(normal_mean, epsilon)
    assert abs(z) < LIMIT
    assert spread > 1 - LIMIT * error
    assert abs(spread - wide) < LIMIT * error
    # The check can tell 0.01 from 0.05, and that from no error at all.
    other = theory({0.01: 0.05, 0.05: 0.01}[epsilon])
    assert abs(spread - other) > LIMIT * error
    if epsilon == 0.05:
        assert spread - 1 > LIMIT * error


@dataclass(frozen=True)
class WithoutCorrection(TTest):
    """A planted fault: Student's test as if rows were drawn with replacement."""

    @property
    def functions(self):
        return super().functions._replace(decide=significant_without_fpc)


def without_correction(epsilon, batch_size, **options):
    return MetropolisHastings(acceptance=WithoutCorrection(epsilon, batch_size), **options)


def test_the_width_notices_a_lost_finite_population_correction(normal_mean, theory):
    """Planted fault: Student's test as if rows were drawn with replacement."""
    wide = theory(0.05)
    _, spread, error = width_of_chain(normal_mean, 0.05, step=without_correction)
    assert abs(spread - wide) > LIMIT * error


# (iii) Joint distribution ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def joint():
    """Fifty data that are variables of the model, so that they can be drawn again."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", mu, sigma, shape=50)
    return model, [mu, sigma]


def geweke_z(joint, n=20_000, seed=6, **kwargs):
    """Geweke (2004): parameters from the step, data from the model, in turns. Then the prior is their law."""
    model, block = joint
    rng = np.random.default_rng(seed)
    step = AusterityMH(
        block, model=model, epsilon=0, threshold=50, rng=rng, steps_per_draw=3,
        tune=False, **{"proposal": RandomWalk(0.25), **kwargs},
    )  # fmt: skip
    mu, sigma = rng.normal(), abs(rng.normal())
    point = {"mu": np.array(mu), "sigma_log__": np.array(np.log(sigma)), "y": np.zeros(50)}
    out = np.empty((n, 2))
    for t in range(n):
        mu, sigma = float(point["mu"]), float(np.exp(point["sigma_log__"]))
        point["y"] = mu + sigma * rng.standard_normal(50)
        point, _ = step.step(point)
        out[t] = mu, sigma
    mu, sigma = out.T
    return [
        z_of_mean(mu, 0),
        z_of_mean(mu**2, 1),
        z_of_mean(np.abs(mu) < 1, 2 * stats.norm.cdf(1) - 1),
        z_of_mean(sigma, np.sqrt(2 / np.pi)),
        z_of_mean(sigma**2, 1),
        z_of_mean(np.log(sigma), -(np.euler_gamma + np.log(2)) / 2),
        z_of_mean(mu * sigma, 0),
    ]


def test_joint_distribution(joint):
    z = geweke_z(joint)
    assert np.abs(z).max() < LIMIT


@pytest.mark.parametrize("bug", [LOST_PRIOR, TEMPERED])
def test_joint_distribution_notices_planted_faults(joint, plant, bug):
    """A lost prior, and terms that count half."""
    plant(bug)
    assert np.abs(geweke_z(joint)).max() > 1.5 * LIMIT
