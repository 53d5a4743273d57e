"""`range_bound` of MHSubLhd: certificates that fit the data of now, and errors that say what to do."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from numba.extending import register_jitable

from pymc_austerity import MetropolisHastings, MHSubLhd, RandomWalk
from pymc_austerity.acceptance import Exact
from pymc_austerity.target import Target
from pymc_austerity.testing.steps import move
from tests.models import as_model

pytestmark = pytest.mark.usefixtures("interpreted")
N = 2000


@pytest.fixture
@as_model
def model():
    y = np.random.default_rng(1).normal(size=N)
    b = pm.Normal("b", 0, 100)
    pm.Normal("y", b, 1, observed=pm.Data("data", y))


def width(step):
    q = np.zeros(1)
    return step._engine._range_bound.function(
        step._engine._range_bound.at(step._model.initial_point()), q + 0.01, q, (), N, Target()
    )


@pytest.mark.slow("samples in several processes")
def test_a_worker_makes_certificates_for_the_data_it_has(model):
    step = MHSubLhd(model=model)
    before = width(step)
    y = model["data"].get_value()
    assert np.ptp(y) * 0.01 <= before < 1.1 * np.ptp(y) * 0.01
    with model:
        pm.set_data({"data": y * 1000})
    other = cloudpickle.loads(cloudpickle.dumps(step))
    other.setup_chain(np.random.default_rng(2), 0, 10)
    other.step(model.initial_point())
    assert width(other) == pytest.approx(1000 * before, rel=0.02)  # and the reach, which is the same


def test_certificates_travel_where_the_data_are_the_same(model, monkeypatch):
    step = MHSubLhd(model=model)
    other = cloudpickle.loads(cloudpickle.dumps(step))
    monkeypatch.setattr("pymc_austerity.step_methods.metropolis.plan.certify_log_ratios", None)
    other.step(model.initial_point())
    assert width(other) == width(step)


@pytest.mark.slow("builds a step several times")
def test_an_interrupted_rebuild_leaves_nothing_of_the_old_data(model, monkeypatch):
    step = MetropolisHastings(model=model, proposal=RandomWalk(0.1))
    with model:
        pm.set_data({"data": model["data"].get_value() + 5.0})

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pymc_austerity.step_methods.metropolis.plan.BlockPlan.compile", interrupted)
        with pytest.raises(KeyboardInterrupt):
            step.setup_chain(np.random.default_rng(2), 0, 10)
    step.setup_chain(np.random.default_rng(2), 0, 10)
    *_, point = move(step, model.initial_point(), 500)[0]
    assert abs(point["b"] - 5.0) < 0.5


def test_rows_that_other_steps_move_and_a_scale_in_the_block():
    rng = np.random.default_rng(3)
    s0 = np.where(rng.random(N) < 0.5, 1.0, 20.0)
    with pm.Model() as both:
        b = pm.Normal("b")
        log_tau = pm.Normal("log_tau", 0, 10, initval=0.0)
        pm.Normal("y", b, pm.math.sqrt(s0**2 + pm.math.exp(2 * log_tau)), observed=s0 * rng.normal(size=N))
    for block in ([b], [b, log_tau]):
        step = MHSubLhd(block, model=both, rng=1)
        point = both.initial_point()
        used = [step.step(point)[1][0]["n_used"] for _ in range(5)]
        assert 0 < np.mean(used) <= N


def test_what_has_no_bound_is_named():
    with pm.Model():
        b, u = pm.Normal("b"), pm.Normal("u", shape=N)
        pm.Normal("y", b + u, 1.0, observed=np.zeros(N))
        with pytest.raises(ValueError, match=r"contain 2001 variables.*range_bound=\"exact\".*AusterityMH"):
            MHSubLhd([b])


def test_a_bound_that_becomes_infinite_is_an_error(model):
    def bound(q, q_new):
        return np.inf if q_new[0] != q[0] else 0.0

    step = MHSubLhd(model=model, range_bound=bound)
    with pytest.raises(ValueError, match="it returned inf"):
        step.step(model.initial_point())


def test_a_bound_that_is_too_small_is_noticed(model):
    step = MHSubLhd(
        model=model, range_bound=lambda q, q_new: 1e-9, batch_size=50, rng=np.random.default_rng(4)
    )
    with pytest.raises(ValueError, match=r"was bounded by 1e-09, but those of 50 terms"):
        step.step(model.initial_point())


def test_errors_of_a_users_proposal_are_left_as_they_are(model):
    def proposal(q, rng):
        if proposal.calls > 3:
            raise ValueError("support is {0, 1}")
        proposal.calls += 1
        return q + 0.1, 0.0

    proposal.calls = 0
    step = MetropolisHastings(model=model, proposal=proposal)

    def several():
        for _ in range(6):
            step.step(model.initial_point())

    with pytest.raises(ValueError, match=r"support is \{0, 1\}"):
        several()


@register_jitable
def never(schedule, sample, psi, rng):
    return False


class Stubborn(Exact):
    @property
    def functions(self):
        return super().functions._replace(accept=never)


def test_a_rule_that_sees_everything_may_decide_otherwise(model):
    step = MetropolisHastings(model=model, acceptance=Stubborn(), proposal=RandomWalk(1e-4))
    point = model.initial_point()
    assert not any(step.step(point)[1][0]["accepted"] for _ in range(20))
