"""Forked and freshly started workers draw what one process draws, with every step of the package at once."""

from copy import deepcopy

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import (
    SCIR,
    SGLD,
    AusterityGibbs,
    AusterityMH,
    DecreasingStepSize,
    Langevin,
    MetropolisHastings,
    MHSubLhd,
    MinibatchBarker,
    MinibatchCategoricalGibbs,
    ParticleGibbs,
    ReversibleJump,
    StiefelWalk,
    Taylor,
    TunaMH,
    UniformStiefel,
    restricted_nuts,
    restricted_slice,
)
from pymc_austerity.acceptance import TTest
from tests.statistical.fields import table_of, triples

pytestmark = [
    pytest.mark.filterwarnings("ignore:SGLD accepts every move:pymc_austerity.SubsamplingWarning"),
    pytest.mark.filterwarnings("ignore:range_bound=:pymc_austerity.SubsamplingWarning"),
    # The process is multi-threaded, says Python 3.12 when it forks.
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
    # Whether a chain has settled after so few draws is not the question here.
    pytest.mark.filterwarnings("ignore:Tuning ended"),
]
N = 1500
METROPOLIS = {
    AusterityMH: {},
    MHSubLhd: {"range_bound": "exact"},
    MinibatchBarker: {},
    MetropolisHastings: {},
}
PLATES = ("plate", "tested")


@pytest.fixture(scope="module")
def model():
    """A part for each step: they are built, sent to workers and built again together."""
    rng = np.random.default_rng(1)
    x, group = rng.normal(size=(N, 4)), np.arange(N) % 32
    eta = 0.5 * x[:, 0] + 0.6 * rng.normal(size=32)[group]
    with pm.Model() as model:
        for kind in METROPOLIS:
            y = pm.Data(f"data_{kind.__name__}", rng.normal(0.7, 1.0, N))
            pm.Normal(f"y_{kind.__name__}", pm.Normal(kind.__name__, 0.0, 2.0), 1.0, observed=y)
        eta_of = pm.Normal("eta", -3.0, 1.0, shape=2)
        pm.Poisson("count", pt.exp(eta_of[np.arange(N) % 2]), observed=rng.poisson(0.05, N))
        w = pm.Dirichlet("w", np.ones(3))
        z = pm.Categorical("z", w, shape=300)
        level = pm.Normal("level", 0.0, 2.0, shape=3, initval=[-1.0, 0.3, 1.5])
        pm.Normal("y_level", level[z], 1.0, observed=rng.normal([-1.0, 0.3, 1.5], 1.0, (100, 3)).ravel())
        for name in ("langevin", "dynamics", "slice"):
            pm.Normal(f"y_{name}", pm.Normal(name), 1.0, observed=rng.normal(0.7, 1.0, N))
        W = UniformStiefel("W", 2)
        pm.Potential("x", pm.logp(pm.Logistic.dist(0, 1), rng.laplace(size=(N, 2)) @ W.T).sum(1))
        outcome = (rng.random(N) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
        pm.Bernoulli("y_remainders", logit_p=x @ pm.Normal("remainders", shape=4), observed=outcome)
        for name in PLATES:
            u = pm.HalfNormal(f"tau_{name}") * pm.Normal(f"u_{name}", shape=32)
            slope = pm.Normal(f"slope_{name}", shape=4)
            y = pm.Data(f"data_{name}", outcome)
            pm.Bernoulli(f"y_{name}", logit_p=x @ slope + u[group], observed=y)
        gamma, beta = pm.Bernoulli("gamma", 0.5, shape=4), pm.Normal("beta", shape=4)
        pm.Normal("y_jumps", x @ (gamma * beta), 1.0, observed=0.05 * x.sum(1) + rng.normal(size=N))
        i, j, k = triples(6)
        X = pm.Bernoulli("X", 0.5, shape=6)
        pm.Potential("psi", pt.as_tensor(table_of(6, 0.5, 3))[np.arange(20), 4 * X[i] + 2 * X[j] + X[k]])
        phi, sigma, scale = pm.Beta("phi", 5, 1), pm.HalfNormal("sigma"), pm.HalfNormal("scale")
        h = pm.AR("h", rho=[phi], sigma=sigma, init_dist=pm.Normal.dist(0, sigma), shape=(20, 60))
        pm.Normal("y_states", 0, scale * pt.exp(h / 2), observed=rng.normal(size=(20, 60)))
    return model


@pytest.fixture(scope="module")
def sample(model):
    plate, tested = ([f"{part}_{name}" for part in ("tau", "u", "slope")] for name in PLATES)
    with model:
        steps = [kind([model[kind.__name__]], **options) for kind, options in METROPOLIS.items()]
        steps += [TunaMH([model["eta"]]), SCIR([model["w"]]), MinibatchCategoricalGibbs([model["z"]])]
        # The rows of an element follow z, which another step moves.
        steps.append(AusterityMH(["level"], batch_size=20, elementwise=True))
        steps.append(AusterityMH(["W"], epsilon=0.05, proposal=StiefelWalk()))
        steps.append(AusterityMH(["langevin"], epsilon=0.05, proposal=Langevin(1e-3)))
        steps.append(SGLD(["dynamics"], step_size=DecreasingStepSize(1e-4, 10)))
        steps.append(AusterityMH(["remainders"], control_variate=Taylor()))
        steps += [TunaMH(plate), AusterityMH(tested, control_variate=Taylor(), batch_size=10)]
        steps.append(ReversibleJump(["gamma", "beta"], acceptance=TTest(0.05, 100)))
        steps.append(AusterityGibbs(["X"], epsilon=0.3, batch_size=4))
        # The transitions of the states are local terms.
        steps += [AusterityMH(["phi", "sigma"], epsilon=0.0), ParticleGibbs(["h"])]
        steps += [restricted_nuts(["scale"]), restricted_slice(["slice"])]

    def run(**options):
        """With copies: PyMC's own steps remember their last run."""
        return pm.sample(
            model=model, step=deepcopy(steps), draws=20, tune=20, chains=2, random_seed=3, progressbar=False,
            quiet=True, compute_convergence_checks=False, **options,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def expected(sample):
    return sample(cores=1)


def different(one, other, group):
    """What is not equal, bit by bit."""
    return [name for name, values in one[group].data_vars.items() if not values.equals(other[group][name])]


@pytest.mark.parametrize("mp_ctx", ["fork", "forkserver"])
def test_same_draws(sample, expected, mp_ctx):
    found = sample(cores=2, mp_ctx=mp_ctx)
    assert different(found, expected, "posterior") == different(found, expected, "sample_stats") == []


def test_other_data(model, sample, expected):
    """Steps that have run before are built again: for fewer rows, and for other outcomes of the plates."""
    names = [*(kind.__name__ for kind in METROPOLIS), *PLATES]
    values = {f"data_{name}": model[f"data_{name}"].get_value() for name in names}
    new = {name: y[:1200] - 1.0 if y.dtype.kind == "f" else 1 - y for name, y in values.items()}
    pm.set_data(new, model=model)
    one, other = sample(cores=1), sample(cores=2, mp_ctx="fork")
    pm.set_data(values, model=model)
    assert different(one, other, "posterior") == []
    for name in ("AusterityMH", "u_plate", "u_tested"):
        assert not np.array_equal(one["posterior"][name], expected["posterior"][name])


def test_all_variables_moved(model, expected):
    for rv in model.free_RVs:
        draws = expected["posterior"][rv.name].to_numpy()
        assert not np.array_equal(draws[0], draws[1])
        assert np.any(draws[:, 0] != draws[:, -1])
