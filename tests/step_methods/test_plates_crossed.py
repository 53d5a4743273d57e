"""`TunaMH` on two crossed factors: PyMC's contract, other data, what is told before the start."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from pymc_austerity import TunaMH, recommend
from pymc_austerity.model.plates import limits
from pymc_austerity.step_methods.metropolis import crossed_plan
from pymc_austerity.step_methods.metropolis.crossed_plan import CrossedRecipe
from pymc_austerity.testing.steps import require_same_path

from .test_every_step import path

N, G, H = 1500, 50, 40
RNG = np.random.default_rng(91)
X, GROUPS, LEVELS = RNG.normal(size=N), RNG.integers(G, size=N), RNG.integers(H, size=N)
ETA = 0.3 - 0.5 * X + 0.6 * RNG.normal(size=G)[GROUPS] + 0.5 * RNG.normal(size=H)[LEVELS]
Y = (RNG.random(N) < 1.0 / (1.0 + np.exp(-ETA))).astype(int)


pytestmark = pytest.mark.slow("compiles two plates, which are moved in turn")


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    """Factors of 40 levels are large."""
    monkeypatch.setattr(limits, "MOST_SHARED", 20)


def model_of(*, is_centered=True, normal=False):
    """Around a mean, if centred."""
    with pm.Model() as model:
        mu, b = pm.Normal("mu", 0.0, 2.0), pm.Normal("b", 0.0, 2.0)
        tau, tau_v = pm.HalfNormal("tau"), pm.HalfNormal("tau_v")
        groups, y = pm.Data("groups", GROUPS), pm.Data("outcome", Y)
        if is_centered:
            u, v = pm.Normal("u", mu, tau, shape=G), pm.Normal("v", 0.0, tau_v, shape=H)
        else:
            u, v = mu + tau * pm.Normal("u", shape=G), tau_v * pm.Normal("v", shape=H)
        eta = b * X + u[groups] + v[LEVELS]
        if normal:
            pm.Normal("y", eta, pm.HalfNormal("sigma"), observed=y)
        else:
            pm.Bernoulli("y", logit_p=eta, observed=y)
    return model


def drawn(step, model, n=5):
    step.setup_chain(np.random.default_rng(92), 5, n)
    return path(step, model.initial_point(), n)


@pytest.fixture(scope="module")
def built():
    """A model, and a step on it that is not to be moved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MOST_SHARED", 20)
        model = model_of()
        return model, recommend(model=model, verbose=False)


def test_what_a_sweep_costs(built):
    _, step = built
    cells = len(np.unique(GROUPS * H + LEVELS))
    assert isinstance(step.recipe, CrossedRecipe)
    assert f"crossed plates of {G} and {H} groups: a sweep passes {cells:,} occupied" in str(step.prediction)
    assert "third derivatives of 'y'" in step.certificate
    assert 0.3 < step.prediction.shared_acceptance <= 1.0


def test_nothing_that_travels_has_the_size_of_the_data(built):
    _, step = built
    assert len(cloudpickle.dumps((step.recipe, step.sampling_state))) < 8 * N * 4


def test_a_state_is_the_models(built):
    """Effects less their location, and back."""
    model, step = built
    engine, point = step.engine, model.initial_point()
    point = {name: value + 0.3 for name, value in point.items()}
    q = np.concatenate([np.ravel(point[name]) for name in step.factorisation.var_names])
    state = engine.new_state()
    outcome = engine.run(0, False, np.random.default_rng(1), q.copy(), point, state)
    np.testing.assert_array_equal(outcome.q, q)
    # In the second turn u - mu stays, and mu moves.
    outcome, new = engine.turn(1, np.random.default_rng(1), point, state)
    before, after = ({**one, "u": one["u"] - one["mu"]} for one in (point, new))
    np.testing.assert_allclose(after["u"], before["u"], atol=1e-12)
    assert new["tau_log__"] == point["tau_log__"]
    assert (new["v"] != point["v"]).any()
    _, new = engine.turn(0, np.random.default_rng(1), point, engine.new_state())
    np.testing.assert_array_equal(new["v"], point["v"])
    assert new["tau_v_log__"] == point["tau_v_log__"]


def test_statistics(built):
    model, step = built
    _, found = drawn(step, model)
    for one in found:
        used = one["shared_n_used of step 0"] + one["plate_n_used of step 0"]
        assert one["n_used of step 0"] == used
        assert 0.0 <= one["mean_tree_accept of step 0"] <= 1.0
        assert 0.5 < one["plate_acceptance of step 0"] <= 1.0
        assert one["bound_violations of step 0"] == 0.0


@pytest.fixture
def short_pilots(monkeypatch, interpreted):
    """What is found by them does not matter, and nothing is compiled for a few draws."""
    monkeypatch.setattr(crossed_plan, "_SETTLE", 3)
    monkeypatch.setattr(crossed_plan, "_COUNTED", 8)


def test_a_worker_has_the_same_bounds(short_pilots):
    """They are made of standard deviations of the other factor's effects, which travel."""
    model = model_of()
    step = TunaMH(model=model, switch_above=np.inf, rng=1)
    assert step.engine.draws_rows
    other = cloudpickle.loads(cloudpickle.dumps(step))
    require_same_path("Of a worker", drawn(other, model), drawn(step, model), "Bounds are the same.")
    for own, again in zip(step.engine.turns, other.engine.turns, strict=True):
        np.testing.assert_array_equal(own.plate.bounds.reaches, again.plate.bounds.reaches)
        np.testing.assert_array_equal(own.plate.bounds.levels, again.plate.bounds.levels)


def test_other_data(short_pilots):
    """A step that has run draws what a fresh step draws."""
    model = model_of()
    step = TunaMH(model=model, rng=1)
    drawn(step, model)
    with model:
        pm.set_data({"outcome": 1 - Y})
    fresh = drawn(TunaMH(model=model, rng=1), model)
    require_same_path("A rebuilt step", drawn(step, model), fresh, "It has kept something of the old data.")


def test_normal_residuals_read_no_row():
    model = model_of(is_centered=False, normal=True)
    step = TunaMH(model=model, rng=1)
    assert "normal, sums are sufficient and no row is read" in step.certificate
    _, found = drawn(step, model, 20)
    assert all(one["n_used of step 0"] == 0.0 for one in found)
    assert step.prediction.shared_acceptance > 0.5
    assert step.prediction.plate_acceptance > 0.95


def test_recommended(built):
    _, step = built
    text = str(step.recommendation)
    assert "'u' and 'v' are effects of 90 groups" in text
    assert "crossed plates of 50 and 40 groups" in text
