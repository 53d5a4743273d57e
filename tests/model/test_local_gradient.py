"""The gradient of a sum of local terms at some positions, on graphs of several kinds."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import SGLD, Taylor, factorise
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import vector_of
from pymc_austerity.step_methods import DecreasingStepSize
from pymc_austerity.step_methods.langevin.sgld import SgldOptions, checked_options, plan_sgld
from tests.models import as_model

pytestmark = [
    pytest.mark.filterwarnings("ignore:SGLD accepts every move:pymc_austerity.SubsamplingWarning"),
    pytest.mark.filterwarnings("ignore:The posterior is far from:pymc_austerity.SubsamplingWarning"),
]
N = 1200
RNG = np.random.default_rng(1)
X, GROUP = RNG.normal(size=(N, 3)), np.arange(N) % 4
COUNTS = RNG.poisson(2.0, N)


def regression():
    beta = pm.Normal("beta", shape=3)
    pm.Bernoulli("y", logit_p=X @ beta, observed=COUNTS > 2)


def several_terms():
    level, sigma = pm.Normal("level"), pm.HalfNormal("sigma")
    pm.Normal("y", level, sigma, observed=X[:, 0])
    pm.Poisson("z", pt.exp(level), observed=COUNTS)


def non_centred():
    tau, z = pm.HalfNormal("tau"), pm.Normal("z", shape=4)
    pm.Poisson("y", pt.exp((tau * z)[GROUP]), observed=COUNTS)


def location_scale():
    mu, log_sd = pm.Normal("mu"), pm.Normal("log_sd")
    pm.StudentT("y", 4, mu=mu + 0.1 * X[:, 0], sigma=pt.exp(log_sd), observed=X[:, 1])


def random_walk():
    steps = pm.Normal("steps", 0, 0.1, shape=N)
    pm.Normal("y", steps, 1.0, observed=X[:, 0])


MODELS = (regression, several_terms, non_centred, location_scale, random_walk)


def require_gradient(fact, point, seed=2):
    """Compare with central differences, at a point near the initial one."""
    with interpreted():
        target = CompiledTarget(fact).interpreted()
        args = CompiledTarget(fact).args(point)
    rng = np.random.default_rng(seed)
    q = vector_of(fact, point) + 0.3 * rng.normal(size=len(vector_of(fact, point)))
    for index in (np.array([3]), rng.choice(fact.n_local, 50, replace=False)):
        found = target.local_gradient(q, index, args)
        assert found.shape == q.shape
        for d in rng.choice(len(q), min(4, len(q)), replace=False):
            h = 1e-5 * np.eye(len(q))[d]
            change = target.log_terms(q + h, index, args) - target.log_terms(q - h, index, args)
            assert found[d] == pytest.approx(change.sum() / 2e-5, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("build", MODELS, ids=lambda f: f.__name__)
def test_terms(build):
    model = as_model(build)()
    require_gradient(factorise(model), model.initial_point())


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("build", MODELS[:4], ids=lambda f: f.__name__)
@pytest.mark.covering(2)
def test_remainders(build, order):
    """Also those of features of the block."""
    model = as_model(build)()
    asked = SgldOptions(
        model, model.continuous_value_vars, DecreasingStepSize(1e-6), 100, Taylor(order=order), None, 1, 1000
    )
    options = checked_options(asked)
    _, terms, _ = plan_sgld(options, model.initial_point())
    assert terms.is_expanded
    require_gradient(terms, model.initial_point())


@pytest.mark.slow("compiles gradients of many terms")
def test_compiled_is_interpreted():
    """Several terms, of which a minibatch may miss one."""
    with pm.Model() as model:
        several_terms()
        compiled = SGLD(step_size=1e-5, batch_size=1, progressbar=False)
        with interpreted():
            slow = SGLD(step_size=1e-5, batch_size=1, progressbar=False)
    paths = []
    for step in (compiled, slow):
        step.setup_chain(np.random.default_rng(3), 0, 10)
        point = model.initial_point()
        for _ in range(10):
            point, _ = step.step(point)
        paths.append([float(value) for value in point.values()])
    np.testing.assert_allclose(*paths, rtol=1e-10)
