"""`pm.set_data` between two runs with the same step."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from pymc_austerity import AusterityMH, RandomWalk, TunaMH
from pymc_austerity.control_variates import Taylor
from pymc_austerity.model.compile import native
from pymc_austerity.proposals import Laplace
from tests.models import as_model

from .conftest import N, line_data

WALK = RandomWalk(scale=0.02)
X, Y = line_data(N)
pytestmark = pytest.mark.usefixtures("interpreted")


@as_model
def regression():
    x = pm.Data("x", X)
    outcome = pm.Data("outcome", Y)
    beta = pm.Normal("beta", 0, 10, shape=2)
    pm.Normal("y", beta[0] + beta[1] * x, 1.0, observed=outcome, shape=x.shape[0])


NEW = {
    "same length": {"outcome": 0.5 * Y + 3.0, "x": X[::-1].copy()},
    "fewer rows": {"outcome": 0.5 * Y[:1500], "x": X[:1500]},
    "more rows": {"outcome": np.tile(Y, 2) + 1, "x": np.tile(X, 2)},
}


def check(draw, same, model, change, **kwargs):
    """After `change`, a step that has run before, here, draws what a fresh step draws in one process."""
    step = AusterityMH(model=model, proposal=WALK)
    before = draw(model, step)
    with model:
        change()
    after = draw(model, step, **kwargs)
    fresh = draw(model, AusterityMH(model=model, proposal=WALK))
    assert same(after, fresh)
    assert not same(before, after)


@pytest.mark.slow("builds a step several times")
def test_data_changed_in_place(draw, same):
    model = regression()

    def change():
        model["outcome"].get_value(borrow=True)[:] += 1.0

    check(draw, same, model, change)


def test_data_are_not_changed_by_sampling(draw):
    model = regression()
    draw(model, AusterityMH(model=model, proposal=WALK))
    np.testing.assert_array_equal(model["x"].get_value(), X)
    np.testing.assert_array_equal(model["outcome"].get_value(), Y)


@pytest.mark.slow("builds a step several times")
def test_a_pickled_step_with_other_data_begins_its_chain_afresh():
    """What its proposal was fitted to is of the old data."""
    model = regression()
    step = AusterityMH(model=model, proposal=Laplace(), control_variate=Taylor(), rng=1)
    step.setup_chain(np.random.default_rng(5), 0, 1)
    old = step.proposal_state.mode
    with model:
        pm.set_data({"outcome": 0.5 * Y + 3.0})
    other = cloudpickle.loads(cloudpickle.dumps(step))
    np.testing.assert_array_equal(other.proposal_state.mode, old)
    other.step({"beta": 0.5 * old + [3.0, 0.0]})
    np.testing.assert_array_equal(other.proposal_state.mode, other.recipe.mode_fit.proxy.mode)
    np.testing.assert_allclose(other.proposal_state.mode, 0.5 * old + [3.0, 0.0], atol=0.01)


@pytest.mark.parametrize(
    ("before", "after"),
    [(np.array(2), np.array(5)), (np.array([2.0]), np.array([5.0]))],
    ids=["integer", "vector"],
)
@pytest.mark.covering(1)
def test_short_data(draw, same, before, after):
    with pm.Model() as model:
        factor = pm.Data("factor", before)
        mu = pm.Normal("mu")
        pm.Normal("y", mu * factor.sum(), 1.0, observed=Y)
    check(draw, same, model, lambda: pm.set_data({"factor": after}))


@pytest.mark.slow("builds a step several times")
def test_lengths_given_by_dims(draw, same):
    with pm.Model(coords={"row": np.arange(N)}) as model:
        x = pm.Data("x", X, dims="row")
        outcome = pm.Data("outcome", Y, dims="row")
        beta = pm.Normal("beta", 0, 10, shape=2)
        pm.Normal("y", beta[0] + beta[1] * x, 1.0, observed=outcome, dims="row")
    new = NEW["fewer rows"]
    check(draw, same, model, lambda: pm.set_data(new, coords={"row": np.arange(len(new["outcome"]))}))


@as_model
def latent():
    outcome = pm.Data("outcome", Y)
    mu = pm.Normal("mu")
    z = pm.Normal("z", mu, 1.0, shape=outcome.shape[0])
    pm.Normal("y", z, 1.0, observed=outcome)


@pytest.mark.slow("builds a step several times")
def test_a_latent_vector_that_changes_its_length(draw, same):
    """The block itself has another dimension afterwards."""
    check(draw, same, latent(), lambda: pm.set_data({"outcome": Y[:1500]}))


@pytest.mark.slow("builds a step several times")
def test_a_latent_vector_outside_the_block_that_changes_its_length(draw):
    model = latent()
    mu, z = model["mu"], model["z"]
    draw(model, [AusterityMH([mu], model=model), AusterityMH([z], model=model, proposal=WALK)])
    step = AusterityMH([mu], model=model)
    with model:
        pm.set_data({"outcome": Y[:1500]})
    step.setup_chain(np.random.default_rng(5), 0, 1)
    _, (stats,) = step.step(model.initial_point())
    assert stats["n_used"] / stats["fraction_used"] == pytest.approx(1500)


def with_other_data(values, **options):
    """A step that was built before its data were replaced."""
    model = regression()
    step = AusterityMH(model=model, proposal=WALK, **options)
    with model:
        pm.set_data(values)
    return model, step


MISSING = np.where(np.arange(N) == 17, np.nan, Y)


@pytest.mark.parametrize(
    ("values", "options", "error", "said"),
    [
        ({"outcome": Y[:100], "x": X[:100]}, {}, ValueError, "(?s)nothing to subsample.*100 rows"),
        (NEW["fewer rows"], {"batch_size": 1600}, ValueError, "1500, got 1600"),
        ({"outcome": Y[:1500]}, {}, (ValueError, pm.exceptions.ShapeError), None),
        ({"outcome": MISSING}, {}, ValueError, "'y' is nan in row 17"),
    ],
    ids=["few rows", "fewer than a batch", "lengths that do not fit", "nan"],
)
def test_data_that_are_refused(draw, values, options, error, said):
    model, step = with_other_data(values, **options)
    with pytest.raises(error, match=said):
        draw(model, step)


@pytest.mark.slow("builds a step several times")
def test_a_failed_rebuild_is_tried_again(draw, same):
    """Once the data are good again the step works, with the new data."""
    model, step = with_other_data({"outcome": Y[:100], "x": X[:100]})
    for _ in range(2):
        with pytest.raises(ValueError, match="nothing to subsample"):
            draw(model, step)
    with model:
        pm.set_data(NEW["fewer rows"])
    fresh = draw(model, AusterityMH(model=model, proposal=WALK))
    assert same(draw(model, step), fresh)


@pytest.mark.compiled
def test_other_data_make_no_machine_code(monkeypatch):
    """numba never forgets any, so that a process would grow."""
    model, made, make = regression(), [], native.compile_numba_function_src
    TunaMH(model=model)
    monkeypatch.setattr(
        native, "compile_numba_function_src", lambda *a, **k: made.append(a[1]) or make(*a, **k)
    )
    for new in (NEW["same length"], {"outcome": 0.5 * Y}):
        with model:
            pm.set_data(new)
        point = model.initial_point()
        second, own = TunaMH(model=model), np.random.default_rng(3)
        second.setup_chain(own, 0, 100)
        for _ in range(20):
            point, _ = second.step(point)
        x = model["x"].get_value()
        assert np.polyfit(x, new["outcome"], 1)[::-1] == pytest.approx(point["beta"], abs=0.2)
    assert not made
    monkeypatch.setattr(native, "_made", type(native._made)())
    TunaMH(model=model)
    assert "engine" in made  # the check sees what is made
