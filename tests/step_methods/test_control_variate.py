"""Steps with `control_variate=`: the step contract, exact chains, defaults and refusals."""

import math
from copy import deepcopy
from dataclasses import replace

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import expit

from pymc_austerity import AusterityMH, MetropolisHastings, MHSubLhd, RandomWalk, SubsamplingWarning
from pymc_austerity.bounds.remainder import RemainderCertificate, remainder_range
from pymc_austerity.control_variates import Taylor
from pymc_austerity.kernels.log_ratio_range import certified_remainder_range, exact_range
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.proposals import AdaptiveRandomWalk, Laplace, Surrogate
from pymc_austerity.proposals.laplace import LaplaceState
from pymc_austerity.proposals.surrogate import SurrogateState
from pymc_austerity.testing.steps import move, require_same_path
from tests.statistical.errors import LIMIT, error_of_mean

# The process is multi-threaded, says Python 3.12 when it forks.
FORK = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
# Whether a chain has settled after so few draws is not the question here.
pytestmark = [pytest.mark.filterwarnings("ignore:Tuning ended"), pytest.mark.usefixtures("interpreted")]

N = 3000
TAYLOR = Taylor()


def logistic_data(n=N, n_dim=2):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, n_dim))
    slope = np.resize([0.5, -1.0], n_dim) / math.sqrt(n_dim / 2)
    return x, (rng.random(n) < expit(x @ slope)).astype(float)


def logistic_model(n=N, n_dim=2):
    x, y = logistic_data(n, n_dim)
    with pm.Model() as model:
        outcome = pm.Data("outcome", y)
        beta = pm.Normal("beta", 0, 2, shape=n_dim)
        pm.Bernoulli("y", logit_p=pm.math.dot(x, beta), observed=outcome)
    return model


X, Y = logistic_data()


def log_terms(beta, y=Y):
    eta = X @ beta
    return y * eta - np.logaddexp(0, eta)


def log_density(beta, temperature=1.0):
    return log_terms(beta).sum() / temperature - 0.125 * beta @ beta


@pytest.fixture(scope="module")
def model():
    return logistic_model()


@pytest.fixture(scope="module")
def built(model):
    """Not to be moved."""
    with interpreted():
        return AusterityMH(model=model, control_variate=TAYLOR, rng=1)


@pytest.fixture(scope="module")
def compiled(model):
    return AusterityMH(model=model, control_variate=TAYLOR, rng=1)


@pytest.fixture
def step(built):
    """A copy of `built`, as if it were fresh."""
    copy = deepcopy(built)
    copy.setup_chain(np.random.default_rng(1), 0, 0)
    return copy


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


@pytest.mark.parametrize("copier", [deepcopy, lambda s: cloudpickle.loads(cloudpickle.dumps(s))])
def test_copies_and_pickles_draw_the_same(step, near, copier):
    move(step, near, 20)
    other = copier(step)
    require_same_path("A copy", move(other, near, 40), move(step, near, 40), "It differs.")


def test_an_unpickled_step_does_not_search_again(step, near, monkeypatch):
    other = cloudpickle.loads(cloudpickle.dumps(step))
    monkeypatch.setattr("pymc_austerity.step_methods.metropolis.plan.fit_mode", None)
    require_same_path("A pickle", move(other, near, 10), move(step, near, 10), "It differs.")


def test_pickle_and_state_do_not_grow_with_the_data():
    sizes = []
    for n in (N, 10 * N):
        step = AusterityMH(model=logistic_model(n), control_variate=TAYLOR, rng=1)
        sizes.append(len(cloudpickle.dumps(step)) - len(cloudpickle.dumps(step._model)))
    assert max(sizes) < 20_000
    # 27,000 more rows are 216 kB for each number of a row.
    assert abs(sizes[1] - sizes[0]) < 2000


@pytest.mark.parametrize("proposal", [Laplace(), Surrogate(), AdaptiveRandomWalk()], ids=str)
def test_the_sampling_state_is_small(proposal):
    step = AusterityMH(model=logistic_model(n_dim=10), control_variate=TAYLOR, proposal=proposal, rng=1)
    assert len(cloudpickle.dumps(step.sampling_state)) < 20_000


@FORK
def test_parallel_chains_are_those_in_sequence(model, compiled, draw, same):
    one = draw(model, deepcopy(compiled), tune=30, draws=30)
    other = draw(model, deepcopy(compiled), tune=30, draws=30, cores=2, mp_ctx="fork")
    assert same(one, other)
    assert np.unique(one["posterior"]["beta"].to_numpy()[..., 0]).size > 20


def test_several_steps_for_each_draw(built, near):
    one, several = deepcopy(built), deepcopy(built)
    several._options = replace(several._options, steps_per_draw=5)
    for step in (one, several):
        step.setup_chain(np.random.default_rng(3), 0, 10)
    points, stats_ = move(one, near, 50)
    fives, means = move(several, near, 10)
    for k in range(10):
        np.testing.assert_array_equal(fives[k]["beta"], points[5 * k + 4]["beta"])
        some = stats_[5 * k : 5 * k + 5]
        assert means[k]["n_used"] == pytest.approx(np.mean([s["n_used"] for s in some]))
        assert means[k]["mean_tree_accept"] == pytest.approx(np.mean([s["accepted"] for s in some]))


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


# Other variables -----------------------------------------------------------------------------------


def hierarchy():
    """Normal coefficients with an unknown scale; no remainder of first order is zero."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(N, 3))
    y = x @ [0.5, -0.8, 0.3] + rng.normal(size=N)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1.0)
        beta = pm.Normal("beta", 0.0, tau, shape=3)
        pm.Normal("y", pm.math.dot(x, beta), 1.0, observed=y)
    return model, x, y


def marginal_of_tau(x, y):
    """Mean and standard deviation of log tau, by quadrature; beta is integrated out."""
    log_tau = np.linspace(-3.5, 3.0, 800)
    gram, xty, log_weight = x.T @ x, x.T @ y, []
    for s in np.exp(log_tau):
        precision = gram + np.eye(3) / s**2
        log_weight.append(
            0.5 * xty @ np.linalg.solve(precision, xty) - 0.5 * np.linalg.slogdet(precision)[1]
            - 3 * math.log(s) + stats.halfnorm.logpdf(s) + math.log(s)
        )  # fmt: skip
    weight = np.exp(np.array(log_weight) - max(log_weight))
    weight /= weight.sum()
    mean = weight @ log_tau
    return mean, math.sqrt(weight @ (log_tau - mean) ** 2)


@pytest.fixture(scope="module")
def with_another_step(draw):
    """A compiled chain."""
    model, x, y = hierarchy()
    with model:
        steps = [
            AusterityMH([model["beta"]], control_variate=Taylor(order=1), steps_per_draw=2),
            pm.Slice([model["tau"]]),
        ]
    return x, y, draw(model, steps, draws=800, tune=200)


@pytest.mark.filterwarnings("ignore:The posterior is not as its expansion:pymc_austerity.SubsamplingWarning")
@pytest.mark.slow("compiles two engines")
def test_a_scale_by_another_step(with_another_step):
    x, y, idata = with_another_step
    log_tau = np.log(idata["posterior"]["tau"].to_numpy())
    mean, sd = marginal_of_tau(x, y)
    assert abs(log_tau.mean() - mean) < LIMIT * error_of_mean(log_tau)
    squares = (log_tau - mean) ** 2
    assert abs(squares.mean() - sd**2) < LIMIT * error_of_mean(squares)
    beta = idata["posterior"]["beta"].to_numpy()
    exact = np.linalg.solve(x.T @ x + np.eye(3) / np.exp(2 * mean), x.T @ y)
    spread = np.sqrt(np.diag(np.linalg.inv(x.T @ x)))
    np.testing.assert_allclose(beta.mean(axis=(0, 1)), exact, atol=0.2 * spread.min())
    np.testing.assert_allclose(beta.std(axis=(0, 1)), spread, rtol=0.15)


def test_variables_of_other_steps_in_the_local_terms_are_named():
    x, y = X, Y
    with pm.Model():
        level, shift = pm.Normal("level"), pm.Normal("shift")
        beta = pm.Normal("beta", 0, 2, shape=2)
        pm.Bernoulli("y", logit_p=level + shift + pm.math.dot(x, beta), observed=y)
        with pytest.raises(ValueError, match=r"the term 'y' .* but (level|shift), \w+ would be moved"):
            AusterityMH([beta], control_variate=TAYLOR)


# Exact chains --------------------------------------------------------------------------------------


def plain_chain(n, temperature, scale, start, seed):
    """Metropolis-Hastings with numpy."""
    rng, q, draws = np.random.default_rng(seed), start, []
    here = log_density(q, temperature)
    for _ in range(n):
        q_new = q + scale * rng.standard_normal(2)
        there = log_density(q_new, temperature)
        if math.log(rng.random()) < there - here:
            q, here = q_new, there
        draws.append(q)
    return np.array(draws)


def as_array(points):
    return np.array([p["beta"] for p in points])


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
    expected = plain_chain(400, temperature, scale, near["beta"], 5)
    np.testing.assert_allclose(as_array(points), expected, rtol=1e-10)
    assert 40 < sum(s["accepted"] for s in stats_) < 360
    assert all(s["n_used"] == N for s in stats_)
    eta = X @ step.recipe.mode_fit.proxy.mode
    weights = expit(eta) * expit(-eta) / temperature
    precision = (X.T * weights) @ X + np.eye(2) / 4
    np.testing.assert_allclose(step.recipe.mode_fit.proxy.precision, precision, rtol=1e-6)


@pytest.mark.slow("builds and compiles several steps")
def test_a_rule_that_reads_everything_is_not_blamed_for_it(model):
    """The warning is about posteriors; with an exact rule every decision reads all rows."""
    step = MetropolisHastings(model=model, control_variate=TAYLOR, rng=1)
    step.setup_chain(np.random.default_rng(1), 300, 10)
    _, stats_ = move(step, {"beta": step.recipe.mode_fit.proxy.mode}, 300)
    assert np.mean([s["mean_tree_accept"] for s in stats_]) > 0.7


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
    assert step._engine._range_bound.function is certified_remainder_range
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


def mixture():
    """Two exchangeable components."""
    rng = np.random.default_rng(9)
    y = np.r_[rng.normal(-2, 1, N // 2), rng.normal(2, 1, N // 2)]
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5, shape=2, initval=[-1.0, 1.0])
        pm.NormalMixture("y", w=np.array([0.5, 0.5]), mu=mu, sigma=1.0, observed=y)
    return model


def inverse_hyperbolic_sine():
    """A mean whose derivatives have no known bounds."""
    rng = np.random.default_rng(9)
    x = rng.normal(size=N)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 5, shape=2, initval=[0.0, 1.0])
        pm.Normal("y", pt.arcsinh(beta[0] + beta[1] * x), 0.5, observed=np.arcsinh(x) + rng.normal(0, 0.5, N))
    return model


def test_without_a_certificate_it_says_what_to_do():
    taylor = Taylor(center={"beta": np.array([0.0, 1.0])})
    with pytest.raises(
        ValueError, match=r"of the Taylor remainders is known.*'beta' enters.*ArcSinh.*AusterityMH"
    ):
        MHSubLhd(model=inverse_hyperbolic_sine(), control_variate=taylor)


# Refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["taylor", True, Taylor, {"order": 2}])
def test_a_control_variate_is_an_object(model, given):
    with pytest.raises(TypeError, match=r"control_variate must be None or Taylor\(\), got"):
        AusterityMH(model=model, control_variate=given)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"proposal": Surrogate()},
            r"Surrogate moves on the second-order.*control_variate=Taylor\(order=2\)",
        ),
        ({"subsample": "blocks"}, 'subsample must be "gather", "block" or None, got \'blocks\''),
        (
            {"control_variate": Taylor(exact_rows=N - 1)},
            "exact_rows=2999 leaves too few of the 3000 local terms",
        ),
        ({"control_variate": Taylor(exact_rows=N + 5)}, "exact_rows=3005 leaves too few"),
        ({"control_variate": Taylor(center={"b": np.zeros(2)})}, "center has no value for beta"),
        (
            {"control_variate": Taylor(center={"beta": np.zeros(3)})},
            r"center\['beta'\] must have shape \(2,\), got \(3,\)",
        ),
        ({"control_variate": Taylor(center={"beta": 0.0})}, r"must have shape \(2,\), got \(\)"),
        (
            {"control_variate": Taylor(center={"beta": np.full(2, math.nan)})},
            "not finite at the given center",
        ),
    ],
)
@pytest.mark.covering(3)
def test_wrong_options_are_refused(model, options, said):
    with pytest.raises(ValueError, match=said):
        AusterityMH(model=model, **options)


@pytest.mark.parametrize("taylor", [None, TAYLOR], ids=["plain", "taylor"])
def test_blocks_are_refused_where_single_rows_are_promised(model, taylor):
    with pytest.raises(ValueError, match="guarantee of the decision rule holds for single rows"):
        MHSubLhd(model=model, subsample="block", control_variate=taylor)


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


def test_a_flat_direction_is_named():
    with pm.Model():
        beta, level = pm.Flat("beta", shape=2), pm.Normal("level")
        eta = level + X[:, 0] * beta[0] + X[:, 0] * beta[1]
        pm.Bernoulli("y", logit_p=eta, observed=Y)
        with pytest.raises(ValueError, match=r"has no curvature .* along beta\[[01]\], beta\[[01]\]\."):
            AusterityMH(control_variate=TAYLOR)


@pytest.mark.slow("searches for the modes of a mixture from eight starts")
def test_several_modes_are_told():
    with pytest.warns(SubsamplingWarning, match=r"has 2 or more modes: .* in mu\[\d\], with 50.0%"):
        AusterityMH(model=mixture(), control_variate=TAYLOR)


# Defaults ------------------------------------------------------------------------------------------


def test_the_default_batch_size(model):
    def batch(**options):
        return AusterityMH(model=model, **options).configuration["rule"]["batch_size"]

    assert batch() == 500
    assert batch(control_variate=TAYLOR) == 50
    assert batch(control_variate=TAYLOR, batch_size=200) == 200
    assert batch(control_variate=TAYLOR, batch_size=500) == 500


@pytest.mark.slow("builds and compiles several steps")
def test_the_default_proposal(model):
    plain = AusterityMH(model=model)
    assert not isinstance(plain.proposal_state, LaplaceState | SurrogateState)
    fitted = AusterityMH(model=model, control_variate=TAYLOR)
    assert isinstance(fitted.proposal_state, LaplaceState)
    assert (fitted.proposal_state.mix[0], fitted.proposal_state.rho[0]) == (0.1, 0.0)
    hierarchical = hierarchy()[0]
    both = AusterityMH(model=hierarchical, control_variate=TAYLOR)
    assert isinstance(both.proposal_state, SurrogateState)
    alone = AusterityMH([hierarchical["beta"]], model=hierarchical, control_variate=TAYLOR)
    assert isinstance(alone.proposal_state, LaplaceState)
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


def test_few_rows_have_fewer_exact_ones():
    step = AusterityMH(model=logistic_model(500), control_variate=TAYLOR, threshold=100)
    assert len(step._engine.exact_rows) == 50


def test_the_name_of_a_term_does_not_choose_the_kernel():
    """Sums of all terms are kept unless the terms are remainders, whatever a potential is called."""
    with logistic_model() as named:
        pm.Potential("Taylor polynomial", -(named["beta"] ** 2).sum())
    assert MetropolisHastings(model=named)._engine.full
    expanded = MetropolisHastings(model=named, control_variate=Taylor(exact_rows=0))
    assert not expanded._engine.full
