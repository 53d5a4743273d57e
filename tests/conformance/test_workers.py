"""Forked and freshly started workers draw what one process draws, with every step of the package at once."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_austerity as pma
from pymc_austerity.step_methods import DecreasingStepSize
from tests.models import as_model

pytestmark = [
    pytest.mark.filterwarnings("ignore:SGLD accepts every move:pymc_austerity.SubsamplingWarning"),
    pytest.mark.filterwarnings("ignore:range_bound=:pymc_austerity.SubsamplingWarning"),
    # Whether a chain has settled after so few draws is not the question here.
    pytest.mark.filterwarnings("ignore:Tuning ended"),
]
N = 1500
METROPOLIS = {
    pma.AusterityMH: {},
    pma.MHSubLhd: {"range_bound": "exact"},
    pma.MinibatchBarker: {},
    pma.MetropolisHastings: {},
}


@pytest.fixture(scope="module")
@as_model
def model():
    """A part for each step: they are built, sent to workers and built again together."""
    rng = np.random.default_rng(1)
    for kind in METROPOLIS:
        mu = pm.Normal(kind.__name__, 0.0, 2.0)
        pm.Normal(f"y_{kind.__name__}", mu, 1.0, observed=rng.normal(0.7, 1.0, N))
    eta = pm.Normal("eta", -3.0, 1.0, shape=2)
    pm.Poisson("count", pt.exp(eta[np.arange(N) % 2]), observed=rng.poisson(0.05, N))
    w = pm.Dirichlet("w", np.ones(3))
    z = pm.Categorical("z", w, shape=300)
    level = pm.Normal("level", 0.0, 2.0, shape=3, initval=[-1.0, 0.3, 1.5])
    pm.Normal("y", level[z], 1.0, observed=rng.normal([-1.0, 0.3, 1.5] * 100))
    gamma, beta = pm.Bernoulli("gamma", 0.5, shape=3), pm.Normal("beta", shape=3)
    pm.Normal("y_jumps", 0.01 * rng.normal(size=(N, 3)) @ (gamma * beta), observed=rng.normal(size=N))
    X = pm.Bernoulli("X", 0.5, shape=8)
    pm.Potential("pairs", 0.5 * X[np.arange(7)] * X[np.arange(1, 8)])
    phi, sigma = pm.Beta("phi", 5, 1), pm.HalfNormal("sigma", 1)
    h = pm.AR("h", rho=[phi], sigma=sigma, init_dist=pm.Normal.dist(0, sigma), shape=(20, 60))
    pm.Normal("y_states", h, 1.0, observed=rng.normal(size=(20, 60)))
    for name in ("langevin", "dynamics"):
        pm.Normal(f"y_{name}", pm.Normal(name), 1.0, observed=rng.normal(0.7, 1.0, N))
    W = pma.distributions.UniformStiefel("W", 2)
    pm.Potential("x", pm.logp(pm.Logistic.dist(0, 1), rng.laplace(size=(N, 2)) @ W.T).sum(1))


@pytest.fixture(scope="module")
def sample(model):
    with model:
        steps = [kind([model[kind.__name__]], **options) for kind, options in METROPOLIS.items()]
        steps += [
            pma.TunaMH([model["eta"]]),
            pma.SCIR([model["w"]]),
            pma.MinibatchCategoricalGibbs([model["z"]]),
        ]
        steps.append(pma.AusterityMH(["W"], epsilon=0.05, proposal=pma.proposals.StiefelWalk()))
        steps.append(pma.AusterityMH(["langevin"], epsilon=0.05, proposal=pma.proposals.Langevin(1e-3)))
        steps.append(pma.SGLD(["dynamics"], step_size=DecreasingStepSize(1e-4, 10)))
        # Rows of an element follow z, which another step moves.
        steps.append(pma.AusterityMH(["level"], batch_size=20, elementwise=True))
        steps += [
            pma.ReversibleJump(["gamma", "beta"]),
            pma.AusterityGibbs(["X"], epsilon=0),
            pma.ParticleGibbs(["h"]),
        ]
        steps.append(pma.AusterityMH(["phi", "sigma"], epsilon=0))
    # Its local terms are the transitions of the states.
    assert steps[-1].configuration["n_local"] == 20 * 59

    def run(**options):
        return pm.sample(
            model=model, step=steps, draws=20, tune=20, chains=2, random_seed=3, progressbar=False,
            quiet=True, compute_convergence_checks=False, **options,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def expected(sample):
    return sample(cores=1)


@pytest.mark.parametrize("mp_ctx", ["fork", "forkserver"])
def test_same_draws(sample, expected, mp_ctx):
    found = sample(cores=2, mp_ctx=mp_ctx)
    for group in ("posterior", "sample_stats"):
        assert found[group].to_dataset().equals(expected[group].to_dataset())


def test_all_variables_moved(model, expected):
    for rv in model.free_RVs:
        draws = expected["posterior"][rv.name].to_numpy()
        assert not np.array_equal(draws[0], draws[1])
        assert np.any(draws[:, 0] != draws[:, -1])
