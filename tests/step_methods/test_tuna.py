"""`TunaMH`: parameters, defaults, predictions, bounds that are wrong, and models of several kinds."""

import math
from copy import deepcopy
from dataclasses import replace

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import expit

import pymc_austerity.step_methods.metropolis.tuna_plan as module
from pymc_austerity import MetropolisHastings, RandomWalk, SubsamplingWarning, TunaMH
from pymc_austerity.acceptance import Exact
from pymc_austerity.bounds.remainder import plain_draws, plain_move
from pymc_austerity.bounds.row_constants import BoundsByJets
from pymc_austerity.control_variates import Taylor
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.proposals import Laplace, Surrogate
from pymc_austerity.proposals.laplace import LaplaceState
from pymc_austerity.proposals.surrogate import SurrogateState
from pymc_austerity.step_methods.messages import few_digits
from pymc_austerity.step_methods.metropolis.engine.sequential import RuleEngine
from pymc_austerity.step_methods.metropolis.tuna_plan import TunaEngine
from pymc_austerity.testing.steps import move, require_same_path
from tests.models import as_model
from tests.statistical.errors import LIMIT, error_of_mean, z_of_mean

from .conftest import fresh

# Whether a chain has settled after so few draws is not the question here.
pytestmark = [pytest.mark.filterwarnings("ignore:Tuning ended"), pytest.mark.usefixtures("interpreted")]

N = 3000


def design(n, n_dim, seed=1):
    rng = np.random.default_rng(seed)
    return rng, np.c_[np.ones(n), rng.normal(size=(n, n_dim - 1))]


@as_model
def logistic_model(n=N, n_dim=3, intercept=0.3, seed=1):
    rng, x = design(n, n_dim, seed)
    slope = np.r_[intercept, rng.normal(size=n_dim - 1) / math.sqrt(n_dim)]
    y = (rng.random(n) < expit(x @ slope)).astype(float)
    outcome = pm.Data("outcome", y)
    beta = pm.Normal("beta", 0, 1, shape=n_dim)
    pm.Bernoulli("y", logit_p=pm.math.dot(x, beta), observed=outcome)


def rare_model():
    """Some 30 positives for 15 coefficients."""
    return logistic_model(n_dim=15, intercept=-4.9, seed=0)


@pytest.fixture(scope="module")
def model():
    return logistic_model()


@pytest.fixture(scope="module")
def built(model):
    """Not to be moved."""
    with interpreted():
        return TunaMH(model=model, rng=1)


@pytest.fixture
def step(built):
    """A copy of `built`, as if it were fresh."""
    return fresh(built)


def mode_of(step):
    """A point at the center; the order of the variables is that of the step."""
    q, point, start = step.recipe.mode_fit.proxy.mode, {}, 0
    shapes = step._model.initial_point()
    for v in step.vars:
        size = np.size(shapes[v.name])
        point[v.name] = q[start : start + size].reshape(np.shape(shapes[v.name]))
        start += size
    return {**shapes, **point}


@pytest.fixture
def near(built):
    return mode_of(built)


def total(stats_, name):
    return sum(s[name] for s in stats_)


def mean(stats_, name):
    return total(stats_, name) / len(stats_)


# The contract -----------------------------------------------------------------------------------------


def test_it_reads_a_handful_of_rows(step, near):
    points, stats_ = move(step, near, 500)
    assert 0.0 < mean(stats_, "n_used") < 3.0
    assert total(stats_, "exhausted") == 0.0
    assert mean(stats_, "mean_tree_accept") > 0.75
    assert len({p["beta"][0] for p in points}) > 300
    for s in stats_:
        assert s["fraction_used"] == s["n_used"] / N
        assert not {"log_ratio_se", "psi", "n_stages", "bound_violations"} & set(s)


def test_an_unpickled_step_does_not_search_or_predict_again(step, near, monkeypatch):
    other = cloudpickle.loads(cloudpickle.dumps(step))
    monkeypatch.setattr("pymc_austerity.step_methods.metropolis.plan.fit_mode", None)
    monkeypatch.setattr(module, "predict", None)
    require_same_path("A pickle", move(other, near, 10), move(step, near, 10), "It differs.")


def test_copies_count_on_their_own(model, near):
    """Violations of one chain are not those of another."""
    step = TunaMH(model=model, debug=True, rng=1)
    one, other = fresh(step), fresh(step)
    one._engine.violations[0] = 7
    assert move(other, near, 1)[1][0]["bound_violations"] == 0.0
    assert move(one, near, 1)[1][0]["bound_violations"] == 7.0
    assert move(one, near, 1)[1][0]["bound_violations"] == 0.0


# Parameters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"chi": 1, "switch_above": 2, "debug": np.True_},
        {"chi": np.float32(0.5), "switch_above": math.inf, "curvature": {}},
        {"control_variate": Taylor(exact_rows=0)},
        {"control_variate": Taylor(order=1)},
        {"control_variate": Taylor(center={"beta": np.array([0.3, 0.0, 0.0])}), "switch_above": math.inf},
    ],
    ids=["chi", "inf", "no exact rows", "order 1", "center"],
)
@pytest.mark.filterwarnings("ignore:The given center is:pymc_austerity.SubsamplingWarning")
@pytest.mark.filterwarnings("ignore:The posterior is far:pymc_austerity.SubsamplingWarning")
@pytest.mark.filterwarnings("ignore:TunaMH would draw:pymc_austerity.SubsamplingWarning")
@pytest.mark.covering(1)
def test_options_that_are_right(model, options):
    step = TunaMH(model=model, **options)
    assert len(step.recipe.mode_fit.exact) == 0
    assert step._engine.rows.state.order == options.get("control_variate", Taylor()).order


def test_the_default_is_without_exact_rows(built):
    assert len(built.recipe.mode_fit.exact) == 0
    assert built._engine.n_local == built._engine.n_others == N
    assert built._engine.rows.state.most == N
    tuna = built.options
    assert (tuna.chi, tuna.switch_above, tuna.debug, tuna.curvature) == (0.0, 0.25, False, {})


@pytest.mark.slow("builds and compiles several steps")
def test_the_default_proposal(model):
    step = TunaMH(model=model)
    assert isinstance(step.proposal_state, LaplaceState)
    assert (step.proposal_state.mix[0], step.proposal_state.rho[0]) == (0.1, 0.0)
    hierarchical = hierarchy()
    assert isinstance(TunaMH(model=hierarchical).proposal_state, SurrogateState)
    alone = TunaMH([hierarchical["beta"]], model=hierarchical)
    assert isinstance(alone.proposal_state, LaplaceState)


# Bounds -----------------------------------------------------------------------------------------------


def remainders(model, step, q):
    """Second-order remainders of all rows, in plain numpy."""
    x = np.asarray(design(N, 3)[1])
    y = model["outcome"].get_value()
    center = step.recipe.mode_fit.expansion.center
    start, t = x @ center, x @ (q - center)
    p = expit(start)

    def f(eta):
        return y * eta - np.logaddexp(0, eta)

    return f(start + t) - f(start) - (y - p) * t + 0.5 * p * (1 - p) * t**2


def test_the_bounds_hold_on_the_model(model, built):
    sampler, rng = built._engine.rows.state, np.random.default_rng(8)
    for size in (0.01, 0.05, 0.3, 2.0):
        for _ in range(30):
            q, q_new = sampler.center + size * rng.standard_normal((2, 3))
            tier, expected = plain_move(sampler, q_new, q)
            bound = sampler.constants[tier] * expected / sampler.totals[tier] + 1e-12
            change = remainders(model, built, q_new) - remainders(model, built, q)
            assert np.all(np.abs(change) <= bound)


def smooth(low, high, rows):
    """Largest third derivative of a logistic term."""
    return np.full(len(low), 1 / (6 * math.sqrt(3)))


def test_a_users_curvature_is_used(model, near):
    step = TunaMH(model=model, curvature={"y": smooth}, rng=1)
    move(fresh(step), near, 300)
    sampler = step._engine.rows.state
    np.testing.assert_array_equal(sampler.totals, sampler.totals[0])
    other = cloudpickle.loads(cloudpickle.dumps(fresh(step)))  # the function travels
    require_same_path("A pickle", move(other, near, 20), move(fresh(step), near, 20), "It differs.")


def too_small(low, high, rows):
    return smooth(low, high, rows) / 200


def test_a_wrong_curvature_is_an_error_while_sampling(model, near):
    """Planted fault: a curvature that is too small."""
    step = TunaMH(model=model, curvature={"y": too_small}, rng=1)
    with pytest.raises(ValueError, match="the bound is wrong") as raised:
        move(fresh(step), near, 5000)
    text = str(raised.value)  # in words
    assert "{" not in text
    assert "term number" in text
    assert "AusterityMH" in text
    copy = fresh(step)
    copy._options = replace(copy._options, steps_per_draw=100)
    with pytest.raises(
        ValueError, match=r"term number \d+ changed by -?\d.* bound on that is \d.*`curvature`"
    ):
        move(copy, near, 50)


@pytest.mark.slow("a planted fault, in steps of its own")
def test_a_wrong_curvature_is_counted_in_debug_mode(model, near):
    """Planted fault: a curvature that is too small."""
    step = TunaMH(model=model, curvature={"y": too_small}, debug=True, steps_per_draw=100, rng=1)
    _, stats_ = move(fresh(step), near, 50)
    assert 0 < total(stats_, "bound_violations") <= 100 * total(stats_, "n_used")


def test_a_wrong_bound_is_an_error(model, near, monkeypatch):
    """Planted fault: bounds that are too small."""
    right = BoundsByJets.constants
    monkeypatch.setattr(BoundsByJets, "constants", lambda self, *rows: right(self, *rows) / 200)
    step = TunaMH(model=model, steps_per_draw=100, rng=1)
    with pytest.raises(ValueError, match="the bound is wrong"):
        move(fresh(step), near, 50)


def huber():
    """Residuals with a slope that has kinks."""
    rng, x = design(N, 2)
    beta, y = pm.Normal("beta", 0, 1, shape=2), x @ [0.2, 0.5] + rng.laplace(size=N)
    r = pt.abs(y - pm.math.dot(x, beta))
    pm.Potential("y", -pt.where(r < 1.0, r**2 / 2, r - 0.5))


def gamma_of_at_least():
    """Waiting times that are longer than what was seen, with a free unit."""
    rng, x = design(N, 2)
    mean = pm.math.exp(pm.math.dot(x, pm.Normal("beta", 0, 1, shape=2)) * pm.HalfNormal("unit"))
    pm.Potential("y", pt.log(pt.gammaincc(2.5, rng.gamma(2.0, size=N) / mean)))


def ten_predictors():
    _, x = design(N, 2)
    slopes = [pm.Normal(f"b{k}", [[0.0, 2.0], [2.0, 0.0]], 0.1, shape=(2, 2)) for k in range(5)]
    pm.Potential("y", -sum(pt.softplus(pm.math.dot(x, b)).sum(axis=1) for b in slopes))


@as_model
def without_bound(make):
    make()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            gamma_of_at_least,
            "a function of 'beta' and 'unit_log__' enters the term 'y' through GammaIncC",
        ),
        (
            ten_predictors,
            "the term 'y' is a function of 10 linear predictors, and bounds are known for 9",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:The (posterior is far|given center is):pymc_austerity.SubsamplingWarning")
@pytest.mark.covering(1)
def test_without_a_bound_it_says_what_to_do(make, said):
    with pytest.raises(
        ValueError, match=r"needs a bound on the Taylor remainder of every local term"
    ) as raised:
        TunaMH(model=without_bound(make))
    text = str(raised.value)
    assert said in text
    assert "AusterityMH(control_variate=Taylor()), which needs no bound" in text
    assert "curvature" in text
    fixed = "With a fixed number in place of 'b0' or 'b1' or 'b2' or 'b3' or 'b4' there may be one"
    assert (fixed in text) == (make is ten_predictors)


def test_a_kink_within_reach_is_told():
    with pytest.warns(SubsamplingWarning, match="exact test on all data is used instead.*a kink or a pole"):
        step = TunaMH(model=without_bound(huber))
    assert step.reads_all


@pytest.mark.slow("builds and compiles several steps")
def test_a_bound_of_the_user_has_precedence(model, built):
    """Over derived bounds, and where there are none for a kink."""
    given, larger = (
        TunaMH(model=model, rng=1, curvature={"y": function})
        for function in (smooth, lambda *of: 2 * smooth(*of))
    )
    assert "function of 1 predictor of each row" in built.recipe.certificate
    assert "'y': curvature given" in given.recipe.certificate
    np.testing.assert_allclose(larger.prediction.total, 2 * given.prediction.total, rtol=1e-12)
    kinks = {"y": lambda low, high, rows: np.ones(len(low))}
    assert np.isfinite(TunaMH(model=without_bound(huber), curvature=kinks, rng=1).prediction.total)


# Prediction -------------------------------------------------------------------------------------------


def posterior_cov(step):
    return np.linalg.inv(step.recipe.mode_fit.proxy.precision)


PROPOSALS = {
    "default": lambda built: None,
    "independence": lambda built: Laplace(mix=0),
    "pcn": lambda built: Laplace(kind="pcn", rho=0.7),
    "random walk": lambda built: RandomWalk(cov=posterior_cov(built)),
}


@pytest.mark.compiled
@pytest.mark.parametrize(("proposal", "chi"), [*((name, 0.0) for name in PROPOSALS), ("independence", 0.2)])
@pytest.mark.covering(1)
def test_the_prediction_comes_true(model, built, near, proposal, chi):
    step = TunaMH(
        model=model, proposal=PROPOSALS[proposal](built), chi=chi, steps_per_draw=100, switch_above=10, rng=1
    )
    _, stats_ = move(fresh(step), near, 600)
    used = np.array([s["n_used"] for s in stats_[20:]])
    assert abs(used.mean() - step.prediction.terms) < 0.2 * step.prediction.terms + LIMIT * error_of_mean(
        used
    )
    assert mean(stats_, "mean_tree_accept") > 0.15


def test_the_prediction_in_words(built):
    p = built.prediction
    assert p.n_dim == 3
    assert p.total == pytest.approx(built._engine.rows.state.totals[0])
    assert p.terms == pytest.approx(p.total * p.size, rel=0.05)
    assert str(p) == f"{few_digits(p.terms)} rows for a transition (C = {p.total:.3g}, M = {p.size:.3g})"


@pytest.mark.compiled
@pytest.mark.slow("builds and compiles several steps")
def test_more_rows_accept_more_often(built, model, near):
    """With chi, on a model where it matters."""
    few = logistic_model(n=300, n_dim=5, seed=4)
    rates, used = [], []
    for chi in (0.0, 1.0):
        step = TunaMH(model=few, proposal=Laplace(mix=0), chi=chi, threshold=100, steps_per_draw=200, rng=1)
        _, stats_ = move(fresh(step), mode_of(step), 100)
        rates.append(mean(stats_, "mean_tree_accept"))
        used.append(mean(stats_, "n_used"))
    assert rates[1] > rates[0] + 0.01  # three standard errors
    assert used[1] > 2 * used[0]


# Models that are too much -----------------------------------------------------------------------------

FAR = pytest.mark.filterwarnings("ignore:The posterior is (far|not as):pymc_austerity.SubsamplingWarning")


@pytest.fixture(scope="module")
def rare():
    return rare_model()


@FAR
def test_few_positives_are_decided_on_all_rows(rare, draw):
    with pytest.warns(
        SubsamplingWarning, match=r"about [\d,.e+]+ of 3,000 rows .* exact test on all data"
    ) as w:
        step = TunaMH(model=rare, rng=1)
    said = [str(x.message) for x in w if "TunaMH would draw" in str(x.message)]
    assert len(said) == 1
    assert "far from the normal distribution at its mode" in said[0]
    assert "pm.NUTS" in said[0]
    assert isinstance(step._engine, RuleEngine)
    for other in (deepcopy(step), cloudpickle.loads(cloudpickle.dumps(step))):
        assert other.reads_all
        assert other.prediction == step.prediction
    exact = MetropolisHastings(model=rare, acceptance=Exact(), proposal=Laplace(), rng=1)
    near = mode_of(step)
    ours, theirs = (move(fresh(s), near, 200) for s in (step, exact))
    for one, other in zip(*(o[0] for o in (ours, theirs)), strict=True):
        np.testing.assert_array_equal(one["beta"], other["beta"])
    assert 20 < total(ours[1], "accepted") < 190
    for one, other in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_equal(one, {name: other[name] for name in one})
    idata = draw(rare, step, draws=5, tune=5)  # nothing is warned of again
    assert np.all(idata["sample_stats"]["n_used"] == N)


@FAR
def test_a_surrogate_on_all_rows(rare):
    with pytest.warns(SubsamplingWarning, match="exact test on all data"):
        step = TunaMH(model=rare, proposal=Surrogate(), rng=1)
    assert step._engine.target.factorisation.is_expanded
    _, stats_ = move(fresh(step), mode_of(step), 50)
    assert mean(stats_, "mean_tree_accept") > 0.3


@FAR
def test_it_is_never_switched_if_nobody_wants_it(rare):
    step = TunaMH(model=rare, switch_above=math.inf)
    assert isinstance(step._engine, TunaEngine)
    assert step._engine.rows.state.most == 1e6  # more would take long for a move
    assert step.prediction.terms > N / 4
    with pytest.warns(SubsamplingWarning, match="exact test on all data"):
        TunaMH(model=rare, switch_above=0.01)


WITHOUT_SCREEN = "pymc_austerity.step_methods.metropolis.tuna_plan._MANY_DIMENSIONS"


def test_many_dimensions(monkeypatch):
    """Of terms that cannot be screened, as those of several predictors."""
    monkeypatch.setattr(WITHOUT_SCREEN, 1000)
    with pytest.warns(SubsamplingWarning, match=r"loose in 62 dimensions, not the data difficult") as w:
        step = TunaMH(model=logistic_model(n_dim=62, seed=0))
    assert step.reads_all
    assert step.prediction.n_dim == 62
    assert any("AusterityMH(control_variate=Taylor()) would read some 150 rows" in str(x.message) for x in w)


def test_loose_bounds_are_told_where_they_pay_too(monkeypatch):
    monkeypatch.setattr(WITHOUT_SCREEN, 1000)
    monkeypatch.setattr(
        "pymc_austerity.step_methods.metropolis.tuna_plan._MANY_TIMES", 1
    )  # else for more rows
    with pytest.warns(SubsamplingWarning, match=r"TunaMH draws about .*loose in 62 dimensions.*AusterityMH"):
        step = TunaMH(model=logistic_model(n_dim=62, seed=0), switch_above=np.inf)
    assert not step.reads_all


def test_few_rows(model):
    with pytest.warns(SubsamplingWarning, match=r"3,000 rows are few for 3 dimensions.*AusterityMH"):
        TunaMH(model=model, switch_above=1e-6)


def nowhere(low, high, rows):
    return np.where(rows == 5, np.inf, 1.0)


def test_no_finite_bound(model):
    with pytest.warns(SubsamplingWarning, match="no finite bound near the mode"):
        step = TunaMH(model=model, curvature={"y": nowhere})
    assert step.reads_all


# Several terms ----------------------------------------------------------------------------------------

TRUTH = np.array([0.5, -0.4, 0.3])


def binary_and_counts():
    """Disjoint rows of two kinds, which share their coefficients."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(1500, 3)), rng.normal(size=(2500, 3))
    y = (rng.random(1500) < expit(a @ TRUTH)).astype(float)
    k = rng.poisson(np.exp(0.2 + 0.5 * b @ TRUTH))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        level = pm.Normal("level")
        pm.Bernoulli("y", logit_p=a @ beta, observed=y)
        pm.Poisson("k", pm.math.exp(level + 0.5 * b @ beta), observed=k)

    def log_density(q):
        binary, counts = a @ q[:3], q[3] + 0.5 * b @ q[:3]
        return y @ binary - np.logaddexp(0, binary).sum() + k @ counts - np.exp(counts).sum() - 0.5 * q @ q

    return model, log_density


def importance(log_density, step, n=4000):
    """Posterior means and standard deviations by weighing draws of a wider normal law, and their errors."""
    rng, mode = np.random.default_rng(4), step.recipe.mode_fit.proxy.mode
    z = 1.1 * rng.standard_normal((n, len(mode)))
    q = mode + z @ np.linalg.cholesky(posterior_cov(step)).T
    log_w = np.array([log_density(x) for x in q]) + 0.5 * (z**2).sum(axis=1) / 1.1**2
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    center = w @ q
    return center, np.sqrt(w @ (q - center) ** 2), np.sqrt(w**2 @ (q - center) ** 2)


@pytest.fixture(scope="module")
def several():
    model, log_density = binary_and_counts()
    return TunaMH(model=model, proposal=Laplace(mix=0), steps_per_draw=20, rng=1), log_density


@pytest.mark.slow("compiles an engine of several terms")
def test_several_terms(several):
    """All bounds hold, so that rows are those of the bounds; the posterior is right."""
    step, log_density = several
    points, stats_ = move(fresh(step), mode_of(step), 2000)
    assert total(stats_, "n_used") > 300
    q = np.array([np.r_[p["beta"], p["level"]] for p in points])
    center, sd, error = importance(log_density, step)
    for d in range(4):
        assert abs(q[:, d].mean() - center[d]) < LIMIT * math.hypot(error_of_mean(q[:, d]), error[d])
    np.testing.assert_allclose(q.std(axis=0), sd, rtol=0.1)


@pytest.mark.compiled
@pytest.mark.slow("a planted fault that compiles a kernel of its own")
def test_rows_of_another_term_are_noticed(several, monkeypatch):
    """A planted fault: the terms come in the other order than their bounds."""
    step = fresh(several[0])
    sampler = step._engine.rows.state
    turned = np.concatenate([sampler.constants[:, 1500:], sampler.constants[:, :1500]], axis=1)
    draws = plain_draws(sampler._replace(constants=0.2 * turned, totals=0.2 * sampler.totals))
    step._engine.given["rows"] = draws
    with pytest.raises(ValueError, match="the bound is wrong"):
        move(step, mode_of(step), 2000)


# Other blocks, and other proposals; these are compared in `tests/statistical/test_tuna.py` ----------------


@as_model
def hierarchy():
    """Logistic coefficients with an unknown scale."""
    rng, x = design(N, 4, seed=5)
    y = (rng.random(N) < expit(x @ [0.3, -0.8, 0.5, 0.1])).astype(float)
    tau = pm.HalfNormal("tau", 1.0)
    beta = pm.Normal("beta", 0.0, tau, shape=4)
    pm.Bernoulli("y", logit_p=x @ beta, observed=y)


@pytest.mark.compiled
def test_a_proposal_that_cannot_be_compiled(model, near):
    def fancy(q, rng):
        options = dict(scale=0.04)
        return q + options["scale"] * rng.standard_normal(q.shape[0]), 0.0

    with pytest.warns(SubsamplingWarning, match="interpreted"):
        step = TunaMH(model=model, proposal=fancy, rng=1)
    points, _ = move(fresh(step), near, 60)
    assert len({p["beta"][0] for p in points}) > 10


@pytest.mark.compiled
@pytest.mark.slow("compiles an engine")
def test_temperature(model, built, near):
    """The likelihood to the power of 1 / T; variances grow about T times."""
    step = TunaMH(model=model, temperature=5.0, proposal=Laplace(mix=0), steps_per_draw=10, rng=1)
    points, _ = move(fresh(step), near, 1500)
    sd = np.array([p["beta"] for p in points]).std(axis=0)
    np.testing.assert_allclose(sd, np.sqrt(np.diag(posterior_cov(step))), rtol=0.1)
    np.testing.assert_allclose(sd, math.sqrt(5.0) * np.sqrt(np.diag(posterior_cov(built))), rtol=0.15)


# Far from the center ----------------------------------------------------------------------------------


@as_model
def counts_model():
    rng, x = design(N, 2, seed=7)
    beta = pm.Normal("beta", 0, 5, shape=2)
    pm.Poisson("y", pm.math.exp(x @ beta), observed=rng.poisson(np.exp(x @ [1.0, 0.3])))


def test_far_away_counts_are_decided_on_all_rows():
    """Nothing is known of exponentials there; a walk finds its way back."""
    step = TunaMH(model=counts_model(), proposal=RandomWalk(0.05), steps_per_draw=10, rng=1)
    points, stats_ = move(fresh(step), {"beta": np.array([2.5, -0.5])}, 60)
    assert stats_[0]["n_used"] == N
    assert stats_[0]["exhausted"] == 1.0
    assert 0.0 < stats_[-1]["n_used"] < 20.0
    assert stats_[-1]["exhausted"] == 0.0
    np.testing.assert_allclose(points[-1]["beta"], [1.0, 0.3], atol=0.1)


def test_normal_terms_have_no_remainders():
    """The polynomial is the likelihood, and no row is ever read."""
    rng, x = design(N, 2, seed=8)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Normal("y", x @ beta, 1.0, observed=x @ [0.5, -0.5] + rng.normal(size=N))
    step = TunaMH(model=model, proposal=Laplace(mix=0), rng=1)
    assert step.prediction.terms == 0.0
    points, stats_ = move(fresh(step), mode_of(step), 2000)
    assert total(stats_, "n_used") == 0.0
    assert mean(stats_, "mean_tree_accept") > 0.999
    q = np.array([p["beta"] for p in points])
    for d in range(2):
        assert abs(z_of_mean(q[:, d], step.recipe.mode_fit.proxy.mode[d])) < LIMIT
