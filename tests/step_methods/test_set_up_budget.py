"""A set-up that would take too much work ends, with that reason; the others go on as before."""

import warnings
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import expit

import pymc_austerity as pma
from pymc_austerity.exceptions import SetUpBudgetError
from pymc_austerity.kernels.metropolis import Outcome
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.step_methods.metropolis import mixing_pilot, tuna_plan
from tests.models import as_model

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.fixture
def strict(monkeypatch):
    """A budget is as small as it is given: small models cost less than 1,000 gradients."""
    monkeypatch.setattr(pma.work, "_GRADIENTS", 0.0)


@cache
@as_model
def logistic(n_dim=4):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, n_dim))
    y = (rng.random(3000) < expit(0.5 * x.sum(axis=1) / np.sqrt(n_dim))).astype(float)
    beta = pm.Normal("beta", 0, 2, shape=n_dim)
    pm.Bernoulli("y", logit_p=pm.math.dot(x, beta), observed=y)


@cache
@as_model
def media(n_rows, n_areas):
    """Sales of areas by what was spent on four channels, each of which saturates: no field, no design."""
    rng = np.random.default_rng(3)
    spend, area = rng.gamma(2.0, size=(n_rows, 4)), rng.integers(n_areas, size=n_rows)
    effects = (1.0 - np.exp(-np.array([0.3, 0.6, 1.0, 1.5]) * spend)) @ [1.0, 0.5, 0.8, 0.2]
    sales = 2.0 + 0.4 * rng.normal(size=n_areas)[area] + effects + rng.normal(0.0, 0.8, n_rows)
    rate, beta = pm.HalfNormal("rate", 1, shape=4), pm.Laplace("beta", 0, 1, shape=4)
    a, tau, sigma = pm.Normal("a", 0, 3), pm.HalfNormal("tau", 1), pm.HalfNormal("sigma", 1)
    z = pm.Normal("z", shape=n_areas)
    mean = a + pt.dot(1.0 - pt.exp(-rate * spend), beta) + tau * z[area]
    pm.Normal("sales", mean, sigma, observed=sales)


@cache
@as_model
def groups():
    rng = np.random.default_rng(2)
    group = rng.integers(40, size=2000)
    tau = pm.HalfNormal("tau", 1)
    u = pm.Normal("u", 0, tau, shape=40)
    exposure = rng.uniform(2.0, 4.0, size=2000)  # rows that were equal would be joined
    pm.Poisson("y", exposure * pm.math.exp(u[group]), observed=rng.poisson(exposure))


class Counted:
    """What was taken of all budgets, by what needed it."""

    def __init__(self, monkeypatch):
        self.taken, spend = {}, pma.work.spend

        def counted(operations, what):
            spend(operations, what)
            self.taken[what] = self.taken.get(what, 0.0) + operations

        monkeypatch.setattr(pma.work, "spend", counted)


MAKERS = {
    "TunaMH": pma.TunaMH,
    "AusterityMH": lambda **options: pma.AusterityMH(control_variate=pma.Taylor(), **options),
    "a fitted proposal": lambda **options: pma.MetropolisHastings(proposal=Laplace(), **options),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_step_says_how_much_it_would_take(strict, name):
    with pytest.raises(
        SetUpBudgetError,
        match=r"^The search for the mode of 3,000 rows in 4 dimensions would take at least 0\.00\d+ billion "
        r"operations, and the budget for the set-up is 1e-05\. set_up_budget=0\.0\d* goes on",
    ):
        MAKERS[name](model=logistic(), set_up_budget=1e-5)


def test_nothing_was_done_before_it_was_refused(strict, monkeypatch):
    counted = Counted(monkeypatch)
    with pytest.raises(SetUpBudgetError):
        pma.TunaMH(model=logistic(), set_up_budget=1e-5)
    assert counted.taken == {}


def test_small_models_have_the_budget_of_a_thousand_gradients():
    assert not pma.TunaMH(model=logistic(), set_up_budget=1e-5).reads_all


def test_it_is_recommended_what_is_cheaper(strict):
    step = pma.recommend(media(2000, 40), set_up_budget=1e-3)
    why = step.recommendation
    assert why.step == "pm.NUTS()"
    assert "the search for the mode of 2,000 rows in 51 dimensions would take at least" in why.reason
    assert "the budget for the set-up is 0.001" in why.reason
    assert "set_up_budget=" in why.otherwise
    assert "so that they are a field." in why.otherwise


def test_a_field_has_the_same_budget(strict):
    why = pma.recommend(groups(), set_up_budget=1e-3).recommendation
    assert why.step == "pm.NUTS()"
    assert "of a field of 2,000 rows in 41 dimensions would take more than 0.001 billion" in why.reason
    with pytest.raises(SetUpBudgetError, match="^The fit of a field of 2,000 rows"):
        pma.TunaMH(model=groups(), set_up_budget=1e-3)


def test_bounds_that_cost_too_much_leave_a_step_that_needs_none(strict, monkeypatch):
    counted = Counted(monkeypatch)
    assert pma.recommend(logistic()).recommendation.step == "TunaMH()"
    mode = counted.taken["The search for the mode"]
    assert counted.taken["Bounds"] > 0.0
    why = pma.recommend(logistic(), set_up_budget=1.000001 * mode / pma.work.UNIT).recommendation
    assert why.step == "MetropolisHastings(proposal=Laplace())"
    assert "the normal distribution at the mode fits, but bounds of 3,000 rows" in why.reason
    assert why.otherwise.count("set_up_budget=") == 1


def test_a_second_search_that_costs_too_much(strict, monkeypatch):
    """`AusterityMH` searches again: a budget for one search is none for it."""
    counted = Counted(monkeypatch)
    monkeypatch.setattr("pymc_austerity.recommendation.evidence.MOST_ROWS", 1e-9)
    pma.recommend(logistic())
    enough = sum(counted.taken.values())
    why = pma.recommend(
        logistic(), approximate=True, set_up_budget=1.2 * enough / pma.work.UNIT
    ).recommendation
    assert why.step == "MetropolisHastings(proposal=Laplace())"
    assert "the budget for the set-up is" in why.reason
    assert "approximate=True" not in why.otherwise  # that was asked for


@pytest.mark.full_size("the default budget, of which a thousandth is shown to end a search above")
def test_a_search_without_end_ends(monkeypatch):
    """With eight starts of some sixty passes each it would take several minutes."""
    counted = Counted(monkeypatch)
    why = pma.recommend(media(30_000, 200)).recommendation
    assert why.step == "pm.NUTS()"
    assert "the search for the mode of 30,000 rows in 211 dimensions would take at least" in why.reason
    assert sum(counted.taken.values()) < pma.work.DEFAULT_BUDGET * pma.work.UNIT


# Rows without end -------------------------------------------------------------------------------------


@cache
@as_model
def mixture():
    """24 rows of two components: bounds are many times the rows, and millions of times further out."""
    rng = np.random.default_rng(7)
    y = np.where(rng.random(24) < 0.4, -2.0, 2.0) + rng.normal(size=24)
    mu, s = pm.Normal("mu", [-2.0, 2.0], 1.0, shape=2), pm.HalfNormal("s", 2.0)
    pm.NormalMixture("y", w=[0.5, 0.5], mu=mu, sigma=s, observed=y)


def test_a_move_that_may_draw_more_rows_than_there_are_is_told_and_has_an_end():
    with pytest.warns(pma.SubsamplingWarning, match=r"TunaMH draws about [\d,]+ of 24 rows for a transition"):
        step = pma.TunaMH(model=mixture(), threshold=10, switch_above=np.inf)
    assert not step.reads_all
    assert step._engine.rows.state.most == tuna_plan._MOST_DRAWN < np.inf
    assert 24 < step.prediction.terms < tuna_plan._MOST_DRAWN


class Reader:
    """An engine whose moves read so many rows."""

    def __init__(self, rows):
        self.rows, self.calls = rows, 0

    def copy(self):
        return self

    def restart(self):
        pass

    def run(self, n, tune, rng, q, point, state):
        self.calls += 1
        q = q + rng.normal(size=len(q))
        return Outcome(q, n, n * self.rows, n, 0, 0, True, 0.0, 0.0, 0.0)


def test_a_pilot_that_reads_without_end_is_given_up():
    engine, options = Reader(1_000_000), {"point": {}, "proposal_state": (), "n_draws": 200}
    with pytest.warns(pma.SubsamplingWarning, match="pilot run was given up after 41,000,000 rows"):
        assert mixing_pilot.try_out(engine, lambda rng: np.zeros(2), **options) is None
    assert engine.calls == 41
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mixing_pilot.try_out(Reader(100), lambda rng: np.zeros(2), **options).size == 1600


def test_jumps_have_the_same_budget(strict):
    """Their mode is that of the full model."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2000, 3))
    with pm.Model() as model:
        gamma, beta = pm.Bernoulli("gamma", 0.2, shape=3), pm.Normal("beta", 0, 1, shape=3)
        pm.Normal("y", x @ (gamma * beta), 1, observed=x[:, 0] + rng.normal(size=2000))
    with pytest.raises(SetUpBudgetError, match="of 2,000 rows in 3 dimensions"):
        pma.ReversibleJump(model=model, set_up_budget=1e-6)
