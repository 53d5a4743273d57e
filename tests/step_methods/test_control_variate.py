"""Steps with `control_variate=` and `temperature=`: exact chains, defaults and refusals."""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import expit

from pymc_austerity import AusterityMH, MetropolisHastings, MHSubLhd, RandomWalk, SubsamplingWarning
from pymc_austerity.bounds.remainder import RemainderCertificate, remainder_range
from pymc_austerity.control_variates import Taylor
from pymc_austerity.kernels.log_ratio_range import certified_range, exact_range
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.proposals.laplace import LaplaceState
from pymc_austerity.proposals.surrogate import SurrogateState
from pymc_austerity.testing.steps import move
from tests.models import as_model
from tests.step_methods.chains import plain_chain

from .conftest import fresh

# Whether a chain has settled after so few draws is not the question here.
pytestmark = [pytest.mark.filterwarnings("ignore:Tuning ended"), pytest.mark.usefixtures("interpreted")]

N = 3000
TAYLOR = Taylor()


def logistic_data(n=N, n_dim=2):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, n_dim))
    slope = np.resize([0.5, -1.0], n_dim) / math.sqrt(n_dim / 2)
    return x, (rng.random(n) < expit(x @ slope)).astype(float)


@as_model
def logistic_model(n=N, n_dim=2):
    x, y = logistic_data(n, n_dim)
    outcome = pm.Data("outcome", y)
    beta = pm.Normal("beta", 0, 2, shape=n_dim)
    pm.Bernoulli("y", logit_p=pm.math.dot(x, beta), observed=outcome)


X, Y = logistic_data()


def log_terms(beta, y=Y):
    eta = X @ beta
    return y * eta - np.logaddexp(0, eta)


@pytest.fixture(scope="module")
def model():
    return logistic_model()


@pytest.fixture(scope="module")
def built(model):
    """Not to be moved."""
    with interpreted():
        return AusterityMH(model=model, control_variate=TAYLOR, rng=1)


@pytest.fixture
def step(built):
    """A copy of `built`, as if it were fresh."""
    return fresh(built)


@pytest.fixture
def near(built):
    return {"beta": built.recipe.mode_fit.proxy.mode + 0.01}


# The contract --------------------------------------------------------------------------------------


def test_it_subsamples(step, near):
    points, stats_ = move(step, near, 100)
    used = np.array([s["n_used"] for s in stats_])
    assert np.all(used[used > 0] >= 150)  # the exact rows, and one batch or more
    assert used.mean() < 400
    assert len({p["beta"][0] for p in points}) > 50


def test_new_data_move_the_center():
    model = logistic_model()
    step = AusterityMH(model=model, control_variate=TAYLOR, rng=1)
    before = step.recipe.mode_fit
    step.setup_chain(np.random.default_rng(2), 0, 10)
    assert step.recipe.mode_fit is before  # nothing has changed
    with model:
        pm.set_data({"outcome": 1.0 - Y})
    step.setup_chain(np.random.default_rng(2), 0, 10)
    # Responses the other way round: the mode has the other sign.
    np.testing.assert_allclose(step.recipe.mode_fit.proxy.mode, -before.proxy.mode, atol=1e-4)
    np.testing.assert_allclose(step.recipe.mode_fit.expansion.center, step.recipe.mode_fit.proxy.mode)
    _, stats_ = move(step, {"beta": step.recipe.mode_fit.proxy.mode}, 60)
    assert np.mean([s["mean_tree_accept"] for s in stats_]) > 0.7
    assert np.mean([s["n_used"] for s in stats_]) < 400


@pytest.mark.parametrize("temperature", [1.0, 5.0])
@pytest.mark.slow("chains of thousands of draws")
def test_without_an_error_it_is_a_plain_chain(model, near, temperature):
    """All remainders, the exact rows and the polynomial are together what the terms are."""
    scale = 0.08 * math.sqrt(temperature)
    step = AusterityMH(
        model=model,
        epsilon=0,
        control_variate=TAYLOR,
        temperature=temperature,
        proposal=RandomWalk(scale),
        rng=np.random.default_rng(5),
    )
    points, stats_ = move(step, near, 400)
    expected = plain_chain(model, model.value_vars, temperature, 400, scale, near, 5)
    np.testing.assert_allclose([p["beta"] for p in points], expected, rtol=1e-10)
    assert 40 < sum(s["accepted"] for s in stats_) < 360
    assert all(s["n_used"] == N for s in stats_)
    eta = X @ step.recipe.mode_fit.proxy.mode
    weights = expit(eta) * expit(-eta) / temperature
    precision = (X.T * weights) @ X + np.eye(2) / 4
    np.testing.assert_allclose(step.recipe.mode_fit.proxy.precision, precision, rtol=1e-6)


# MHSubLhd ------------------------------------------------------------------------------------------


def remainders(q_new, q, center):
    """Differences of the Taylor remainders of all rows, in plain numpy."""
    eta = X @ center
    slope, curvature = Y - expit(eta), -expit(eta) * expit(-eta)

    def polynomial(at):
        s = X @ (at - center)
        return slope * s + 0.5 * curvature * s**2

    return log_terms(q_new) - log_terms(q) - polynomial(q_new) + polynomial(q)


@pytest.mark.slow("builds and compiles several steps")
def test_certified_remainders(model, near):
    step = MHSubLhd(model=model, control_variate=TAYLOR, rng=np.random.default_rng(7))
    assert step._engine._range_bound.function is certified_range
    certificate, center = step.recipe.mode_fit.certificate, step.recipe.mode_fit.expansion.center
    assert isinstance(certificate, RemainderCertificate)
    others = np.setdiff1d(np.arange(N), step.recipe.mode_fit.exact)
    assert len(others) == N - 100
    rng = np.random.default_rng(8)
    for size in (0.01, 0.05, 0.3, 2.0):
        for _ in range(50):
            q, q_new = center + size * rng.standard_normal((2, 2))
            actual = np.ptp(remainders(q_new, q, center)[others])
            assert actual <= remainder_range(certificate, q_new, q) * (1 + 1e-9) + 1e-12
    _, stats_ = move(step, near, 200)
    assert np.mean([s["fraction_used"] for s in stats_]) < 0.5
    assert np.mean([s["mean_tree_accept"] for s in stats_]) > 0.7


@pytest.mark.slow("builds and compiles several steps")
def test_the_exact_range_of_remainders(model, near):
    with pytest.warns(SubsamplingWarning, match="evaluates all terms at each transition"):
        step = MHSubLhd(
            model=model, control_variate=TAYLOR, range_bound="exact", rng=np.random.default_rng(7)
        )
    assert step._engine._range_bound.function is exact_range
    _, stats_ = move(step, near, 200)
    assert np.mean([s["fraction_used"] for s in stats_]) < 0.5


def test_a_function_bounds_the_remainders(model, near):
    step = MHSubLhd(
        model=model,
        control_variate=TAYLOR,
        proposal=RandomWalk(0.05),
        batch_size=50,
        range_bound=lambda q, q_new: 1e-12 if q_new[0] > 5.0 else 0.2,
        rng=np.random.default_rng(7),
    )
    _, stats_ = move(step, near, 50)
    assert np.mean([s["mean_tree_accept"] for s in stats_]) > 0.2
    with pytest.raises(ValueError, match="was bounded by 1e-12, but those of 50 terms"):
        move(step, {"beta": np.array([6.0, 0.0])}, 20)


@as_model
def mixture():
    """Two exchangeable components."""
    rng = np.random.default_rng(9)
    y = np.r_[rng.normal(-2, 1, N // 2), rng.normal(2, 1, N // 2)]
    mu = pm.Normal("mu", 0, 5, shape=2, initval=[-1.0, 1.0])
    pm.NormalMixture("y", w=np.array([0.5, 0.5]), mu=mu, sigma=1.0, observed=y)


@as_model
def inverse_hyperbolic_sine():
    """A mean whose derivatives have no known bounds."""
    rng = np.random.default_rng(9)
    x = rng.normal(size=N)
    beta = pm.Normal("beta", 0, 5, shape=2, initval=[0.0, 1.0])
    pm.Normal("y", pt.arcsinh(beta[0] + beta[1] * x), 0.5, observed=np.arcsinh(x) + rng.normal(0, 0.5, N))


def test_without_a_certificate_it_says_what_to_do():
    taylor = Taylor(center={"beta": np.array([0.0, 1.0])})
    with pytest.raises(
        ValueError, match=r"of the Taylor remainders is known.*'beta' enters.*ArcSinh.*AusterityMH"
    ):
        MHSubLhd(model=inverse_hyperbolic_sine(), control_variate=taylor)


# Refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taylor", [None, TAYLOR], ids=["plain", "taylor"])
def test_blocks_are_refused_for_two_vectors_of_terms(taylor):
    with pm.Model():
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Bernoulli("y", logit_p=pm.math.dot(X, beta), observed=Y)
        pm.Normal("z", beta[0], 1.0, observed=np.random.default_rng(10).normal(size=2000))
        with pytest.raises(ValueError, match="this model has 2"):
            AusterityMH(subsample="block", control_variate=taylor)


def test_a_center_that_is_not_concave_is_refused(without_c):
    taylor = Taylor(center={"mu": np.zeros(2)})
    with pytest.raises(ValueError, match=r"not concave at the given center along mu\[\d\]"):
        AusterityMH(model=mixture(), control_variate=taylor)


# Hard posteriors -----------------------------------------------------------------------------------


def test_separable_data_are_refused():
    with pm.Model() as model:
        level, slope = pm.Normal("level"), pm.Flat("slope")
        pm.Bernoulli("y", logit_p=level + X[:, 0] * slope, observed=(X[:, 0] > 0).astype(float))
    start = {"level": np.array(0.0), "slope": np.array(0.0)}
    with pytest.raises(ValueError, match=r"has no mode to expand at: .* along slope\."):
        AusterityMH(model=model, control_variate=TAYLOR, initial_point=start)


@pytest.mark.slow("searches for the modes of a mixture from eight starts")
def test_several_modes_are_told():
    with pytest.warns(SubsamplingWarning, match=r"has 2 or more modes: .* in mu\[\d\], with 50.0%"):
        AusterityMH(model=mixture(), control_variate=TAYLOR)


# Defaults ------------------------------------------------------------------------------------------


@pytest.mark.slow("builds and compiles several steps")
def test_the_default_proposal(model):
    """For a hierarchical prior see `test_tuna.py`."""
    plain = AusterityMH(model=model)
    assert not isinstance(plain.proposal_state, LaplaceState | SurrogateState)
    fitted = AusterityMH(model=model, control_variate=TAYLOR)
    assert isinstance(fitted.proposal_state, LaplaceState)
    assert (fitted.proposal_state.mix[0], fitted.proposal_state.rho[0]) == (0.1, 0.0)
    own = AusterityMH(model=model, control_variate=TAYLOR, proposal=RandomWalk(0.1))
    assert not isinstance(own.proposal_state, LaplaceState)


@pytest.mark.parametrize(
    ("given", "expected"), [(Taylor(), 100), (Taylor(exact_rows=0), 0), (Taylor(exact_rows=7), 7)]
)
@pytest.mark.covering(1)
def test_the_number_of_exact_rows(model, given, expected):
    step = AusterityMH(model=model, control_variate=given)
    rows = step._engine.exact_rows
    assert len(np.unique(rows)) == len(rows) == step.configuration["n_exact"] == expected
    assert step._engine._schedule.ends[-1] == step._engine.n_others == N - expected


def test_the_name_of_a_term_does_not_choose_the_kernel():
    """Sums of all terms are kept unless the terms are remainders, whatever a potential is called."""
    with logistic_model() as named:
        pm.Potential("Taylor polynomial", -(named["beta"] ** 2).sum())
    assert MetropolisHastings(model=named)._engine.full
    expanded = MetropolisHastings(model=named, control_variate=Taylor(exact_rows=0))
    assert not expanded._engine.full


# A temperature divides the likelihood, and nothing else --------------------------------------------------


@pytest.fixture(scope="module")
@as_model
def tempered():
    """A long likelihood, a short one, a potential, a latent vector that is long, and priors."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=1500)
    y = 0.3 + 0.7 * x + 0.5 * rng.normal(size=1500)
    slope = pm.Normal("slope", 0, 2, shape=2)
    sigma = pm.HalfNormal("sigma", 1)
    latent = pm.Normal("latent", slope[0], 1, shape=1200)
    pm.Normal("y", slope[0] + slope[1] * x, sigma, observed=y)
    pm.Normal("few", slope[1], 1, observed=[0.2, 0.9, 0.5])
    pm.Potential("fence", -((latent - slope[0]) ** 4))


# Other variables of this model are not updated at all.
@pytest.mark.filterwarnings("ignore:temperature applies:pymc_austerity.SubsamplingWarning")
@pytest.mark.slow("an interpreted chain that reads all rows")
def test_an_exact_chain_is_a_plain_chain_on_the_tempered_density(tempered):
    start = tempered.initial_point() | {
        "slope": np.array([0.3, 0.7]),
        "sigma_log__": np.array(math.log(0.5)),
        "latent": np.random.default_rng(2).normal(0.3, 0.3, 1200),
    }
    scale = 0.02 * math.sqrt(40.0)
    options = {"proposal": RandomWalk(scale), "temperature": 40.0, "rng": np.random.default_rng(3)}
    step = MetropolisHastings(["slope", "sigma"], model=tempered, **options)
    points, stats = move(step, start, 300)
    ours = [np.r_[point["slope"], point["sigma_log__"]] for point in points]
    variables = [v for v in tempered.value_vars if v.name != "latent"]
    theirs = plain_chain(tempered, variables, 40.0, 300, scale, start, seed=3)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert 20 < sum(one["accepted"] for one in stats) < 280


def test_steps_without_the_temperature_are_named(tempered):
    with (
        tempered,
        pytest.warns(SubsamplingWarning, match=r"temperature applies to this step only.*sigma_log__"),
    ):
        MetropolisHastings([tempered["slope"]], temperature=2.0)
