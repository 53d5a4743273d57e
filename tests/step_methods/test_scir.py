"""SCIR: PyMC's contract, what is kept from draw to draw, and errors that say what to do."""

import re
from contextlib import nullcontext
from copy import deepcopy

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_austerity import FactorisationError, SubsamplingWarning
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.step_methods.categorical_gibbs import MinibatchCategoricalGibbs
from pymc_austerity.step_methods.gamma.scir import SCIR
from pymc_austerity.step_methods.step_size import DecreasingStepSize
from pymc_austerity.testing.steps import fresh, move
from tests.models import as_model

# Small batches are told of; see `test_minibatches_that_widen_the_law_are_told_of`.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Minibatches of:pymc_austerity.SubsamplingWarning"),
    pytest.mark.usefixtures("interpreted"),
]
N, K = 1500, 4
_rng = np.random.default_rng(3)
Z = _rng.choice(K, N, p=[0.6, 0.3, 0.1, 0.0])
X = _rng.gamma(2.0, 1.0, N)
Y = _rng.poisson(0.7 * X)


@as_model
def build_model():
    """One variable of each kind, a likelihood with another free variable, and one that is not conjugate."""
    w = pm.Dirichlet("w", np.full(K, 0.05))
    pm.Categorical("z", w, observed=Z)
    mu = pm.Normal("mu")
    v = pm.InverseGamma("v", 2.0, 2.0)
    pm.Normal("x", mu, pt.sqrt(v), observed=X)
    p = pm.Beta("p", 1.0, 1.0, shape=2)
    pm.Bernoulli("b", p[Z % 2], observed=Y > 0)
    pm.Poisson("y", pm.Gamma("rate", 2.0, 1.0) * X, observed=Y)


@pytest.fixture(scope="module")
def model():
    return build_model()


MINE = ("w", "p", "rate", "v")
OPTIONS = {
    "exact": {},
    "minibatch": {"batch_size": 40},
    "share, schedule": {
        "batch_size": 0.05,
        "steps_per_draw": 2,
        "step_size": DecreasingStepSize(0.5, 10.0, 0.5),
    },
    "anchor": {"batch_size": 40, "control_variate": "anchor", "refresh": 7},
}


@pytest.fixture(scope="module")
def steps(model):
    """A step for each set of options; not to be moved."""
    found = {}

    def make(name):
        if name not in found:
            told = pytest.warns(SubsamplingWarning, match="rate of 'v' depends")
            with model, told if "batch_size" in OPTIONS[name] else nullcontext(), interpreted():
                found[name] = SCIR([model[n] for n in MINE], rng=1, **OPTIONS[name])
        return found[name]

    return make


@pytest.mark.slow("builds and compiles several steps")
def test_sample_statistics(model, steps, draw):
    found = draw(model, [deepcopy(steps("minibatch")), _slice(model)], draws=10).sample_stats
    for name in ("step_size", "n_used", "fraction_used", "variance_inflation"):
        assert found[name].dtype == np.float64
    np.testing.assert_allclose(found["step_size"], 0.1)
    # 40 rows for each of three variables; the rate of v depends on mu, so its rows are all read.
    np.testing.assert_allclose(found["n_used"], 3 * 40 + N)
    np.testing.assert_allclose(found["fraction_used"], (3 * 40 + N) / (4 * N))
    assert np.all(found["variance_inflation"] > 1.0)


def _slice(model):
    with model:
        return pm.Slice([model["mu"]])


def test_exact_statistics_read_data_once(model, steps):
    step = fresh(steps("exact"))
    _, found = move(step, model.initial_point(), 3)
    assert [stat["n_used"] for stat in found] == [N] * 3  # v, whose mean mu moves
    assert [stat["variance_inflation"] for stat in found] == [1.0] * 3


def test_step_sizes_decrease():
    with pm.Model() as small:
        step = SCIR([pm.Gamma("x", 2.0, 1.0)], step_size=DecreasingStepSize(0.5, 10.0, 0.5))
    _, found = move(step, small.initial_point(), 31)
    assert found[0]["step_size"] == 0.5
    np.testing.assert_allclose(found[30]["step_size"], 0.25)
    step.setup_chain(np.random.default_rng(1), 0, 0)
    assert step.step(small.initial_point())[1][0]["step_size"] == 0.5


def test_values_of_other_steps_are_taken_up(model, steps):
    """A simplex that somebody else moved keeps its components and gets another total."""
    step, point = fresh(steps("exact")), model.initial_point()
    point, _ = step.step(point)
    total = np.log(np.exp(step.log_theta[0]).sum())
    point["w_simplex__"] = np.array([2.0, -1.0, 0.0])
    logs = np.array([2.0, -1.0, 0.0, -1.0])
    step._schedule = DecreasingStepSize(1e-9)  # stay there
    step.step(point)
    found = step.log_theta[0][0] - np.log(np.exp(step.log_theta[0]).sum())
    np.testing.assert_allclose(found, logs - np.log(np.exp(logs).sum()), atol=1e-2)
    assert abs(np.log(np.exp(step.log_theta[0]).sum()) - total) > 1e-6


@pytest.mark.slow("builds and compiles several steps")
def test_total_begins_at_a_gamma_variable(model, steps):
    """Gamma(sum of a_hat on all data)."""
    step, point = fresh(steps("minibatch")), model.initial_point()
    step._schedule = DecreasingStepSize(1e-12)
    totals = []
    for seed in range(300):
        step.setup_chain(np.random.default_rng(seed), 0, 0)
        step.step(point)
        totals.append(np.exp(step.log_theta[0]).sum())
    assert stats.kstest(totals, stats.gamma(N + K * 0.05).cdf).pvalue > 1e-3


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.covering(1)
def test_total_is_drawn_anew_where_its_law_depends_on_other_variables(observed):
    """Allocations move tokens from topic to topic, and know nothing of totals."""
    words = _rng.integers(3, size=40)
    with pm.Model() as model:
        phi = pm.Dirichlet("phi", np.full(3, 0.5), shape=(2, 3))
        z = words % 2 if observed else pm.Categorical("z", p=[0.5, 0.5], shape=40)
        pm.Categorical("y", p=phi[z], observed=words)
        step = SCIR([phi], step_size=0.01)
    point = model.initial_point()
    step.setup_chain(np.random.default_rng(1), 0, 10)
    point, _ = step.step(point)
    (at,) = step.processes
    step.processes = [at._replace(log_theta=at.log_theta + np.log(1e6))]
    step.step(point)
    totals = np.exp(step.log_theta[0]).sum(axis=1)
    assert np.all(totals > 1e6 if observed else totals < 200)


def test_components_far_below_the_smallest_number(draw):
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.array([0.0005, 1.0, 1.0]))
        pm.Categorical("z", w, observed=np.arange(1000) % 2 + 1)
        step = SCIR([w], batch_size=20, step_size=2.0)
    found = draw(model, step, draws=200)
    value = model.rvs_to_values[w].name
    values = np.array([point[value] for point in move(step, model.initial_point(), 200)[0]])
    assert np.all(np.isfinite(values))
    assert values[:, 0].min() < -750.0  # e^-750 is no floating-point number
    assert np.all(np.isfinite(found.posterior["w"]))


def test_several_steps_unless_blocked(model):
    with model:
        step = SCIR([model["w"], model["rate"]], blocked=False)
    assert [type(one) for one in step.methods] == [SCIR, SCIR]


class Counts:
    """A step that knows the counts of its allocations."""

    def __init__(self, z, factor=1):
        self.vars, self.factor = [z], factor

    def counts(self, point):
        return self.factor * np.bincount(point[self.vars[0].name], minlength=3)


def test_counts_of_another_step():
    """No row is read, and draws are those of exact statistics."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        z = pm.Categorical("z", w, shape=60, initval=np.arange(60) % 3)
        v = pm.Dirichlet("v", np.ones(3))
        value = model.rvs_to_values[z]
        step, plain = SCIR([w], counts=Counts(value), rng=1), SCIR([w], rng=1)
        with pytest.raises(ValueError, match="'z' are not the sufficient statistics of 'w'.*they differ"):
            SCIR([w], counts=Counts(value, factor=2))
        with pytest.raises(ValueError, match="'z' are not the sufficient statistics of 'v'"):
            SCIR([v], counts=Counts(value))
        with pytest.raises(ValueError, match="counts= makes statistics exact: leave out batch_size=4"):
            SCIR([w], counts=Counts(value), batch_size=4)
        with pytest.raises(ValueError, match="counts= is for one variable, got 2"):
            SCIR([w, v], counts=Counts(value))
        with pytest.raises(TypeError, match="counts must be a step such as .*, got 3"):
            SCIR([w], counts=3)
    (one, stat), (other, plain_stat) = (s.step(model.initial_point()) for s in (step, plain))
    np.testing.assert_allclose(one["w_simplex__"], other["w_simplex__"], rtol=1e-12)
    assert stat[0]["n_used"] == 0.0
    assert plain_stat[0]["n_used"] == 60.0


# Bad input --------------------------------------------------------------------------------


def test_no_gamma_type_prior(model):
    with model, pytest.raises(ValueError, match="The prior of 'mu' is .*pm.NUTS"):
        SCIR([model["w"], model["mu"]])


def test_alpha_with_zeros():
    with pm.Model():
        w = pm.Dirichlet("w", np.array([1.0, 0.0, 1.0]))
        pm.Categorical("z", w, observed=Z % 3)
        with pytest.raises(ValueError, match=r"alpha\) of the prior of 'w' must be positive, got 0\.0"):
            SCIR([w])


def test_nothing_to_draw_rows_from():
    with pm.Model():
        w = pm.Dirichlet("w", np.ones(3))
        with pytest.raises(ValueError, match=r"no term that contains 'w' has rows .*batch_size=None"):
            SCIR([w], batch_size=4)
        pm.Multinomial("z", 10, w, observed=[5, 3, 2])
        with pytest.raises(FactorisationError, match="'z'"):
            SCIR([w], batch_size=4)


def test_twenty_rows_are_enough():
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        pm.Categorical("z", w, observed=np.arange(20) % 3)
        step = SCIR([w], batch_size=5)
    assert step.step(model.initial_point())[1][0]["n_used"] == 5


def test_drift_that_is_frozen_is_warned_of_once(draw):
    with pm.Model() as model:
        w = pm.Gamma("w", 1.0, 1.0)
        pm.Normal("y", w, 1.0, observed=np.full(20, 3.0))
        with pytest.warns(
            SubsamplingWarning, match=r"not linear in the logarithm of 'w'.*'y'.*biases"
        ) as told:
            step = SCIR([w], shift=20.0)
    assert len(told) == 1
    assert step.forms == {"w": "frozen"}
    draw(model, step)


def test_a_shape_that_is_not_positive():
    """Too few exposures in the initial point's favour: theta dl/dtheta = -20 theta^2 + ... below zero."""
    with pm.Model() as model:
        w = pm.Gamma("w", 1.0, 1.0, initval=10.0)
        pm.Normal("y", w, 1.0, observed=np.full(20, 3.0))
        with pytest.warns(SubsamplingWarning):
            step = SCIR([w])
        with pytest.warns(SubsamplingWarning):
            shifted = SCIR([w], shift=200.0)
    with pytest.raises(ValueError, match=r"shape a of 'w' from the terms 'y' is -.* larger shift="):
        step.step(model.initial_point())
    shifted.step(model.initial_point())


def test_an_anchor_that_is_too_old():
    """Counts from an anchor may be negative: an error, not a clipped count."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.full(2, 0.01))
        z = pm.Categorical("z", w, shape=400, initval=np.zeros(400, dtype=int))
        step = SCIR([w], batch_size=4, control_variate="anchor", refresh=50)
    point, _ = step.step({**model.initial_point(), z.name: np.arange(400) % 2})

    def go_on(point):
        for _ in range(40):
            point, _ = step.step({**point, z.name: np.zeros(400, dtype=int)})

    with pytest.raises(ValueError, match=r"shape a of 'w' .*anchor is too old .* refresh="):
        go_on(point)


def test_a_minibatched_rate_is_told_of(model):
    with (
        model,
        pytest.warns(
            SubsamplingWarning, match=r"rate of 'rate' is estimated .*c\^2 h / 2 = .* at most"
        ) as told,
    ):
        SCIR([model["rate"]], batch_size=40, minibatch_rate=True)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("w", {"shift": 20.0}, r"shift=20.0 was not used: the likelihood of 'w' is conjugate"),
        ("rate", {"minibatch_rate": True}, "minibatch_rate=True was not used: without a batch_size"),
        (
            "w",
            {"minibatch_rate": True, "batch_size": 1400, "step_size": 0.01},
            "minibatch_rate=True was not used: the likelihood adds no sum over rows to the rate of 'w'",
        ),
    ],
)
def test_an_option_without_a_use_is_told_of(model, name, options, told):
    with model, pytest.warns(SubsamplingWarning, match=told) as record:
        SCIR([model[name]], **options)
    assert len(record) == 1


def test_a_start_outside_the_support(model, steps):
    step = fresh(steps("exact"))
    with pytest.raises(ValueError, match="'rate' is zero or infinite"):
        step.step({**model.initial_point(), "rate_log__": np.array(-np.inf)})


@pytest.mark.filterwarnings("error")
def test_minibatches_that_widen_the_law_are_told_of(model):
    with model, pytest.warns(SubsamplingWarning, match=rf"of {N:,} rows .*'rate' about .* times too large"):
        SCIR([model["rate"]], batch_size=40)
    with model:
        SCIR([model["rate"]], batch_size=1400, step_size=0.01)
        SCIR([model["rate"]], batch_size=40, control_variate="anchor")
        with pytest.warns(SubsamplingWarning, match="too large by an unknown factor"):
            SCIR([model["rate"]], batch_size=1)


def told_factor(model, name, **options):
    """By how much the standard deviation is said to be too large."""
    with model, pytest.warns(SubsamplingWarning, match="about .* times too large") as told:
        step = SCIR([model[name]], **options)
    (factor,) = re.findall(r"about (\S+) times", " ".join(str(each.message) for each in told))
    return step, float(factor)


def test_the_factor_that_is_told_is_the_true_one():
    """That of a stationary process, in closed form."""
    n_rows, n = 5000, 100
    y = np.random.default_rng(0).poisson(3.0, n_rows)
    with pm.Model() as model:
        pm.Poisson("y", pm.Gamma("rate", 2.0, 1.0), observed=y)
    _, told = told_factor(model, "rate", batch_size=n, step_size=1.0)
    noise = n_rows * (n_rows - n) / n * y.var(ddof=1)
    assert told == pytest.approx(np.sqrt(1 + np.tanh(0.5) * noise / (2 + y.sum())), rel=0.1)


@pytest.mark.filterwarnings("ignore:The likelihood is not linear:pymc_austerity.SubsamplingWarning")
def test_the_factor_that_is_told_is_that_of_the_statistic():
    """With a drift that is frozen its shape has M in it."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        pm.Potential("y", pt.log(w[0] * X + w[1]))
    step, told = told_factor(model, "w", batch_size=40, step_size=1.0)
    point, found = {"w_simplex__": model.initial_point()["w_simplex__"]}, []
    for _ in range(100):
        found.append(step.step(point)[1][0]["variance_inflation"])
    assert told == pytest.approx(np.sqrt(np.mean(found)), rel=0.15)


# Likelihoods that depend on other variables where the step was not built ------------------------------


def test_a_rate_that_is_estimated_must_not_move():
    """Time would be measured by the rate where the step was built."""
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, tau=pm.Gamma("tau", 1.0, 1.0), observed=X)
        with pytest.raises(ValueError, match="rate of 'tau' that does not depend .* on 'mu'"):
            SCIR([model["tau"]], batch_size=40, minibatch_rate=True)


def conditional(model, step, point, name, draws=1500):
    """Draws of a variable with all others held where they are."""
    step.setup_chain(np.random.default_rng(1), 0, draws)
    return np.exp([point[name] for point in move(step, point, draws)[0]])


def test_statistics_follow_other_variables_that_jump():
    """A change point: small moves of it change nothing."""
    t, y = np.arange(20) + 0.5, np.array([8] * 5 + [2] * 15)
    with pm.Model() as model:
        a = pm.Gamma("a", 2.0, 0.5)
        change = pm.Uniform("change", 0, 20)
        pm.Poisson("y", pt.switch(t < change, a, 2.0), observed=y)
        step = SCIR([a], step_size=6.0)
    there = {**model.initial_point(), "change_interval__": np.array(np.log(5.2 / 14.8))}
    draws = conditional(model, step, there, "a_log__")
    assert stats.kstest(draws, stats.gamma(2 + 40, scale=1 / (0.5 + 5)).cdf).pvalue > 1e-3


def test_statistics_far_from_where_the_step_was_built():
    """Exposures that grow by twelve powers of ten."""
    with pm.Model() as model:
        eta = pm.Normal("eta", 0, 10)
        w = pm.Gamma("w", 1.0, 1.0)
        pm.Exponential("y", w * pt.exp(eta), observed=X)
        step = SCIR([w], step_size=6.0)
    there = {**model.initial_point(), "eta": np.array(27.6), "w_log__": np.array(-27.6)}
    draws = conditional(model, step, there, "w_log__")
    assert stats.kstest(draws, stats.gamma(1 + N, scale=1 / (1 + X.sum() * np.exp(27.6))).cdf).pvalue > 1e-3


def test_rates_of_minibatches_are_those_of_the_present_allocations():
    """All allocations are zero where the chain begins, and so is the rate."""
    with pm.Model() as model:
        w = pm.Gamma("w", 2.0, 2.0)
        z = pm.Categorical("z", [0.6, 0.4], shape=N)
        pm.Exponential("y", pt.switch(pt.eq(z, 1), w, 5.0), observed=X)
        with pytest.warns(SubsamplingWarning, match="rate of 'w' depends on other variables"):
            step = SCIR([w], step_size=0.01, batch_size=750)
    step.setup_chain(np.random.default_rng(1), 0, 10)
    point = {**model.initial_point(), "z": np.arange(N) % 2}
    mean = np.log((2 + N / 2) / (2 + X[1::2].sum()))
    values = [step.step({**point, "w_log__": np.array(mean)})[0]["w_log__"] for _ in range(50)]
    assert abs(np.mean(values) - mean) < 0.02


@pytest.mark.parametrize("start", ["other", "zero"])
def test_sums_of_rates_are_not_conjugate_wherever_allocations_begin(start):
    with pm.Model():
        w = pm.Gamma("w", 1.0, 1.0)
        z = pm.Categorical("z", [0.6, 0.4], shape=N, initval=np.full(N, int(start == "other")))
        pm.Poisson("y", w + 5.0 * z, observed=Y)
        with pytest.warns(SubsamplingWarning, match="not linear in the logarithm of 'w': see the term 'y'"):
            step = SCIR([w])
    assert step.forms == {"w": "frozen"}


def test_a_form_is_verified_once_more_where_the_chain_has_come_to():
    """Far beyond what is tried when the step is built the rate has a second part."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 100)
        w = pm.Gamma("w", 1.0, 1.0)
        pm.Poisson("y", (w + pt.maximum(b - 50.0, 0.0)) * X, observed=Y)
        step = SCIR([w], steps_per_draw=60)
    step.setup_chain(np.random.default_rng(1), 0, 100)
    with pytest.raises(ValueError, match="looked conjugate when the step was built.*'y'"):
        step.step({**model.initial_point(), "b": np.array(60.0)})


@pytest.mark.slow("builds a step several times")
def test_counts_after_other_data(draw):
    """Whichever of the two steps comes first."""
    with pm.Model() as model:
        data = pm.Data("data", np.arange(50) % 2 * 4.0)
        w = pm.Dirichlet("w", np.ones(2))
        z = pm.Categorical("z", w, shape=data.shape[0])
        pm.Normal("y", 4.0 * z, 1.0, observed=data)
        allocate = MinibatchCategoricalGibbs([z])
        steps = [SCIR([w], step_size=3.0, counts=allocate), allocate]
    draw(model, steps, draws=5)
    with model:
        pm.set_data({"data": np.arange(80) % 2 * 4.0})
    assert draw(model, steps, draws=5).posterior["z"].shape[1:] == (5, 80)
