"""Parts of the density that depend only on variables of other steps are computed once for each draw."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import AusterityMH, FactorisationError, SubsamplingWarning, factorise
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.factorisation import vector_of
from tests.models import as_model
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("interpreted")
N = 1200


@pytest.fixture(scope="module")
@as_model
def model():
    """Neighbours in a chain, with a prior that couples all, and their standardised values as effects."""
    rng = np.random.default_rng(5)
    number = np.arange(N - 1)
    neighbours = np.zeros((N, N))
    neighbours[number, number + 1] = neighbours[number + 1, number] = 1
    size = pm.HalfNormal("size", 1)
    slope = pm.Normal("slope", 0, 1)
    phi = pm.ICAR("phi", W=neighbours, initval=rng.normal(size=N))
    standard = (phi - phi.mean()) / phi.std()
    pm.Normal("y", slope * rng.normal(size=N) + size * standard, 1, observed=rng.normal(size=N))


@pytest.fixture(scope="module")
def step(model):
    told = pytest.warns(SubsamplingWarning, match="phi.*in full once for each draw")
    with interpreted(), told as caught:
        step = AusterityMH([model["size"], model["slope"]], model=model, epsilon=0.0, batch_size=100)
    assert caught[0].filename == __file__
    return step


def test_the_vector_itself_is_refused(model):
    for variables in (None, [model["phi"]]):
        with pytest.raises(FactorisationError, match="'phi'|'y'"):
            factorise(model, variables)


def test_terms_are_those_of_the_model(model):
    split = factorise(model, [model["size"], model["slope"]])
    point = model.initial_point()
    expected = model.compile_logp(vars=[model["y"]], sum=False)(point)[0]
    np.testing.assert_allclose(split.log_density_terms(point), expected, rtol=1e-10)


def test_log_ratios_follow_the_other_variable(model, step):
    logp, rng = model.compile_logp(), np.random.default_rng(6)
    compiled = step._engine.target
    target = compiled.interpreted()
    for _ in range(3):
        old = {**model.initial_point(), "phi": rng.normal(size=N)}
        new = {**old, "size_log__": np.array(0.3), "slope": np.array(-0.4)}
        args = compiled.args(old)
        q, q_new = vector_of(step.factorisation, old), vector_of(step.factorisation, new)
        found = target.log_ratios(q_new, q, np.arange(N), args).sum()
        found += target.global_log_ratio(q_new, q, args)
        assert found == pytest.approx(logp(new) - logp(old), abs=1e-8)
        there, here = (target.log_terms(state, np.arange(N), args).sum() for state in (q_new, q))
        kept = there - here
        kept += target.global_log_ratio(q_new, q, args)
        assert kept == pytest.approx(logp(new) - logp(old), abs=1e-8)


def test_nothing_long_is_left_in_the_functions(step):
    """What a transition computes has no more elements than rows were asked for."""
    for name in ("log_ratios", "log_terms", "global_log_ratio"):
        function = step._engine.target._function(name)
        for node in function.maker.fgraph.apply_nodes:
            assert all(k is None or k < N for out in node.outputs for k in getattr(out.type, "shape", ()))


def test_product_with_a_vector_of_another_step():
    """A dense product is refused where its vector moves, and given where it does not."""
    kernel = np.tril(np.ones((N, N))) / N
    with pm.Model() as model:
        z, s = pm.Normal("z", shape=N), pm.HalfNormal("s")
        pm.Normal("y", pt.dot(kernel, z), s, observed=np.zeros(N))
    with pytest.raises(FactorisationError, match="in full"):
        factorise(model)
    split, point = factorise(model, [s]), model.initial_point()
    expected = model.compile_logp(vars=[model["y"]], sum=False)(point)[0]
    np.testing.assert_allclose(split.log_density_terms(point), expected, rtol=1e-10)


@pytest.mark.slow("builds and compiles several steps")
def test_sampling(model, step):
    with model:
        others = pm.NUTS([model["phi"]], max_treedepth=3)
        idata = sampled(30, [step, others], tune=30, chains=1, random_seed=7)
    assert np.isfinite(idata.posterior["size"]).all()
    assert idata.posterior["slope"].std() > 0
