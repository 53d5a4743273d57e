"""Steps on fields: PyMC's contract, other processes, other data, refusals and recommendations."""

import pickle
from functools import partial

import arviz as az
import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor.tensor as pt
import pytest

import pymc_austerity as pma
from pymc_austerity import factorise
from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.mode.fields.field_model import field_model
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.factorisation import vector_of
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.step_methods.metropolis.engine import fields as fields_engine
from pymc_austerity.step_methods.metropolis.field_plan import FieldPlan, FieldRecipe
from pymc_austerity.step_methods.metropolis.options import checked_options
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR
from pymc_austerity.testing.steps import check_chains, check_interface, check_points, check_state
from tests.mode.fields import fields
from tests.models import as_model
from tests.sampling import sampled

pytestmark = pytest.mark.filterwarnings("ignore:The step mixes badly:pymc_austerity.SubsamplingWarning")


CHAINS = partial(check_chains, carried=("memory", "others"))


@pytest.fixture(scope="module")
@as_model
def model():
    """A random walk, with data that can be replaced."""
    rng, n, n_periods = np.random.default_rng(2), 3000, 60
    t, x = rng.integers(n_periods, size=n), rng.normal(size=n)
    eta = np.cumsum(0.2 * rng.normal(size=n_periods))[t] + 0.5 * x
    y = pm.Data("answers", (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float))
    slope, tau = pm.Normal("slope"), pm.HalfNormal("tau", 0.5)
    w = pm.GaussianRandomWalk("w", sigma=tau, init_dist=pm.Normal.dist(0.0, 2.0), shape=n_periods)
    pm.Bernoulli("y", logit_p=slope * x + w[t], observed=y)


@pytest.fixture(scope="module")
def step(model):
    with model:
        return pma.TunaMH(rng=np.random.default_rng(1))


def test_a_field_is_moved_by_few_rows(step):
    assert isinstance(step.recipe, FieldRecipe)
    assert step.prediction.terms < 100
    assert step.prediction.shared_acceptance > 0.5
    assert str(step.prediction).startswith("field of")
    assert "third derivatives" in step.certificate


def _with_others():
    """Slopes whose scale, and a coefficient of rows whose value, another step moves."""
    rng = np.random.default_rng(3)
    g, x = rng.integers(40, size=800), rng.normal(size=800)
    with pm.Model() as model:
        tau, s, b = pm.HalfNormal("tau"), pm.HalfNormal("s"), pm.Normal("b")
        u, w = pm.Normal("u", 0.0, tau * s, shape=40), tau * pm.Normal("w", shape=40)
        pm.Bernoulli("y", logit_p=u[g] + (b + w[g]) * x, observed=rng.integers(2, size=800))
    return model, [model[name] for name in ("tau", "u", "w")]


@pytest.mark.parametrize("is_planted", [False, True])
def test_other_steps_may_move_what_is_not_of_the_block(monkeypatch, is_planted):
    """A chain whose other variables change is, draw by draw, one that begins anew with these.

    Planted fault: what was computed for the values before is kept.
    """
    model, own = _with_others()
    with interpreted():
        step = pma.TunaMH(own, model=model, switch_above=np.inf, threshold=100, progressbar=False)
        engine, fact, point = step.engine, step.factorisation, model.initial_point()
        if is_planted:
            monkeypatch.setattr(fields_engine, "_replaced", lambda kept, values: False)
        paths = []
        for is_anew in (False, True):
            rng, state = np.random.default_rng(4), engine.new_state()
            q, path = vector_of(fact, point), []
            for k in range(6):
                others = point | {"s_log__": np.array(0.5 * (k % 2)), "b": np.array(0.3 * k)}
                if is_anew:
                    engine.restart()
                    state = engine.new_state()
                engine.run(1, False, rng, q, others, state)
                path.append(q.copy())
            paths.append(np.array(path))
    assert np.ptp(paths[1][:, 0]) > 0.0
    assert np.allclose(*paths, rtol=1e-8, atol=1e-10) != is_planted


@pytest.mark.parametrize("likelihood", ["bernoulli", "normal"])
def test_data_in_priors_and_scales(likelihood):
    """Draws are those with numbers in the place of the data."""
    rng, paths = np.random.default_rng(6), []
    g, y = rng.integers(40, size=600), rng.integers(2, size=600).astype(float)
    for is_data in (True, False):
        with pm.Model() as model:
            k, most = (pm.Data("k", 2.0), pm.Data("most", 1.5)) if is_data else (2.0, 1.5)
            u = pm.Normal("u", k * pm.Normal("level"), k * pm.HalfNormal("tau", most), shape=40)[g]
            if likelihood == "normal":
                pm.Normal("y", u, k * pm.HalfNormal("sigma", most), observed=y)
            else:
                pm.Bernoulli("y", logit_p=u, observed=y)
        with interpreted():
            field = field_model(model, factorise(model, threshold=100))
            engine, point = _engine(field, reads_all=True, point=model.initial_point()), model.initial_point()
            rng = np.random.default_rng(4)
            q, state = engine.drawn(rng, point), engine.new_state()
            paths.append([engine.run(1, False, rng, q, point, state).q.copy() for _ in range(3)])
    np.testing.assert_allclose(*paths, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("check", [check_interface, check_points, check_state, CHAINS])
def test_the_contract_of_steps(step, model, check):
    check(step, model.initial_point())


def test_statistics(step, model):
    point = model.initial_point()
    _, (found,) = step.step(point)
    assert found["n_used"] == found["shared_n_used"] + found["effects_n_used"]
    assert found["exhausted"] == 0.0
    assert "bound_violations" not in found
    assert 0.0 <= found["effects_acceptance"] <= 1.0
    assert step.stats_dtypes == [{name: kind for name, (kind, _) in step.stats_dtypes_shapes.items()}]
    assert "effects_acceptance" not in pma.TunaMH.stats_dtypes_shapes


def test_another_process_makes_the_same_plan(step, model):
    """The recipe has numbers by effects, and gives the same draws."""
    other = pickle.loads(pickle.dumps(step.recipe))
    assert len(pickle.dumps(other)) < 60_000
    plan = step._planned(model.initial_point(), other)
    assert isinstance(plan, FieldPlan)
    for name in ("hessian", "right", "hessian_change"):
        np.testing.assert_array_equal(
            getattr(plan.engine.turns[0].sums, name), getattr(step.engine.turns[0].sums, name)
        )
    ours, theirs = plan.engine.turns[0].bounds, step.engine.turns[0].bounds
    np.testing.assert_array_equal(ours.cumulative, theirs.cumulative)


@pytest.mark.slow("a field with turns is fitted twice")
def test_another_process_takes_the_same_turns():
    """Effects that are moved in turns, of which one moves a scale that all of them share."""
    model = fields.bradley_terry()
    point = model.initial_point()
    with model:
        step = pma.TunaMH(switch_above=np.inf)
    plan = step._planned(point, pickle.loads(pickle.dumps(step.recipe)))
    assert len(plan.engine.turns) > 1
    draws = [_run(engine, point, 3, n=20) for engine in (step.engine, plan.engine)]
    np.testing.assert_array_equal(*draws)
    check_points(step, point)
    check_state(step, point)


def test_counts_that_are_far_from_the_start():
    """Newton's steps from predictors of zero would overshoot by thousands."""
    rng, t = np.random.default_rng(0), np.arange(1200) % 60
    with pm.Model() as model:
        w = pm.GaussianRandomWalk("w", sigma=pm.HalfNormal("s"), init_dist=pm.Normal.dist(0, 20), shape=60)
        pm.Poisson("y", pm.math.exp(w[t]), observed=rng.poisson(np.exp(14.0 + 0.3 * rng.normal(size=60)[t])))
        step = pma.TunaMH()
    assert step.prediction.shared_acceptance > 0.5
    center = step.recipe.fitted_draw(step.factorisation, step.engine, model.initial_point(), rng)
    assert np.abs(center[-60:] - 14.0).max() < 2.0


def test_labels_change_no_draw():
    """A hierarchy of `pymc.dims` is the field of the same one without labels."""
    rng, n = np.random.default_rng(7), 3000
    t, x = rng.integers(60, size=n), rng.normal(size=n)
    y = rng.integers(2, size=n).astype(float)
    with pm.Model() as plain:
        slope, tau = pm.Normal("slope"), pm.HalfNormal("tau", 0.5)
        path = pm.Normal("level") + (tau * pm.Normal("z", shape=60)).cumsum()
        pm.Bernoulli("y", logit_p=slope * x + path[t], observed=y)
    with pm.Model(coords={"period": range(60), "row": range(n)}) as model:
        slope, tau = pmd.Normal("slope"), pmd.HalfNormal("tau", 0.5)
        path = pmd.Normal("level") + (tau * pmd.Normal("z", dims="period")).cumsum("period")
        by_row = path.isel(period=pmd.Data("period_of", t, dims="row"))
        logit = slope * pmd.as_xtensor(x, dims="row") + by_row
        pmd.Bernoulli("y", logit_p=logit, observed=pmd.as_xtensor(y, dims="row"))
    draws = []
    for one in plain, model:
        with one:
            step = pma.TunaMH()
            assert isinstance(step.recipe, FieldRecipe)
            idata = sampled(20, step, tune=0, chains=1, random_seed=3)
        draws.append(idata.posterior)
    for name in "tau", "slope", "z":
        np.testing.assert_allclose(draws[0][name].values, draws[1][name].values, rtol=1e-8)


@pytest.mark.slow("two runs of thousands of draws")
@pytest.mark.parametrize("name", ["nested_slopes", "walk", "rasch", "normal_rows", "bradley_terry"])
def test_drawn_rows_and_all_rows_agree(name):
    """Means and standard deviations of two long runs, of which one reads all rows."""
    model = fields.MODELS[name]()
    n_draws = 400 if name == "bradley_terry" else 4000  # with turns a sweep takes longer
    with model:
        point = model.initial_point()
        runs = []
        for switch_above in (np.inf, 0.0):
            options = checked_options(
                list(model.continuous_value_vars), EXACT, control_variate=TAYLOR, model=model, fewest_groups=5
            )
            field = field_model(model, factorised(options, point))
            engine = _engine(field, reads_all=switch_above == 0.0, point=point)
            runs.append([_run(engine, point, seed, n_draws) for seed in range(3)])
    drawn, whole = (np.array(one) for one in runs)
    sizes = [np.array([float(az.ess(one[:, :, j])) for j in range(one.shape[2])]) for one in (drawn, whole)]
    means, sds = [one.mean((0, 1)) for one in (drawn, whole)], [one.std((0, 1)) for one in (drawn, whole)]
    z = (means[0] - means[1]) / np.sqrt(sds[0] ** 2 / sizes[0] + sds[1] ** 2 / sizes[1])
    assert np.abs(z).max() < 5.0
    assert np.sqrt((z**2).mean()) < 1.5
    assert 0.9 < np.median(sds[0] / sds[1]) < 1.1


def _engine(field, *, reads_all, point):
    from pymc_austerity.step_methods.metropolis.engine.fields import FieldEngine

    return FieldEngine(field.values, field.arrays(field.fit(), reads_all=reads_all, debug=False), point)


def _run(engine, point, seed, n=4000):
    rng = np.random.default_rng(seed)
    q, state, draws = engine.drawn(rng, point), engine.new_state(), []
    for k in range(n + 200):
        engine.run(1, False, rng, q, point, state)
        if k >= 200:
            draws.append(q.copy())
    assert engine.take_violations() == 0.0
    return draws


def test_interrupted_draws_go_on(step, model):
    """What an interrupt leaves is not taken for a state."""
    engine, point = step.engine, model.initial_point()
    rng = np.random.default_rng(3)
    q, state = engine.drawn(rng, point), engine.new_state()
    engine.run(1, False, rng, q, point, state)
    state.memory.q[:] = np.nan  # as within a draw
    engine.restart()
    kept = q.copy()
    engine.run(0, False, rng, q, point, state)
    np.testing.assert_allclose(q, kept, atol=1e-10)


def test_copies_of_an_engine_have_room_of_their_own(step, model):
    engine, point = step.engine, model.initial_point()
    other, states = engine.copy(), []
    for one in (engine, other):
        rng = np.random.default_rng(4)
        states.append([engine.drawn(rng, point), rng, one.new_state()])
    for _ in range(20):  # in turn
        for one, (q, rng, state) in zip((engine, other), states, strict=True):
            one.run(1, False, rng, q, point, state)
    np.testing.assert_array_equal(states[0][0], states[1][0])


def test_a_start_far_away_is_told_of(step, model):
    start = {**model.initial_point(), "tau_log__": np.array(-25.0)}
    step.setup_chain(np.random.default_rng(1), 5, 5)
    with pytest.warns(pma.SubsamplingWarning, match="standard deviations from the distribution"):
        step.step(start)


def _asked(model):
    return str(_found(model))


def _found(model):
    try:
        return field_model(model, factorise(model, threshold=100))
    except NoField as reason:
        return reason


def test_reasons_why_a_field_is_not_moved():
    with pm.Model() as walk:
        steps = pm.StudentT("steps", nu=4.0, mu=0.0, sigma=pm.HalfNormal("tau"), shape=50)
        pm.Poisson("y", pm.math.exp(pt.cumsum(steps)[np.arange(500) % 50]), observed=np.ones(500))
    assert "not normal, and sums are taken" in _asked(walk)
    rng, n = np.random.default_rng(1), 6000
    with pm.Model() as crossed:
        tau = pm.HalfNormal("tau")
        w = pm.GaussianRandomWalk("w", sigma=tau, init_dist=pm.Normal.dist(0.0, 1.0), shape=700)
        u = pm.Normal("u", 0.0, tau, shape=690)
        eta = w[rng.integers(700, size=n)] + u[rng.integers(690, size=n)]
        pm.Bernoulli("y", logit_p=eta, observed=rng.integers(2, size=n))
    assert "effects of 'w' share a start" in _asked(crossed)
    with pm.Model() as negative:
        u = pm.Normal("u", 0.0, pm.Normal("tau", 0.3, 0.5), shape=50)
        pm.Poisson("y", pm.math.exp(u[np.arange(500) % 50]), observed=np.ones(500))
    assert "may be negative" in _asked(negative)
    with pm.Model() as wide:
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=(50, 12))
        p = pm.math.softmax(u[np.arange(500) % 50], axis=1)
        pm.Categorical("y", p, observed=np.arange(500) % 12)
    assert "functions of 11 predictors" in _asked(wide)


def test_degrees_of_freedom_are_moved_with_their_effects():
    """Two large factors take turns: where Student's effects are held, nothing says what their tails are."""
    rng, n = np.random.default_rng(1), 3000
    with pm.Model() as model:
        u = pm.StudentT("u", nu=pm.Gamma("nu", 2, 0.5), sigma=pm.HalfNormal("of_u"), shape=300)
        v = pm.Normal("v", pm.Normal("level"), pm.HalfNormal("of_v"), shape=290)
        eta = u[rng.integers(300, size=n)] + v[rng.integers(290, size=n)]
        pm.Bernoulli("y", logit_p=eta, observed=rng.integers(2, size=n))
    found = _found(model)
    names = found.values.shared.var_names
    moved = [[names[k] for k in one.which] for one in found.layouts]
    assert len(moved) == 2
    of_tails = [len(one.prior.tails.coordinates) > 0 for one in found.layouts]
    assert [("nu_log__" in one, "of_u_log__" in one) for one in moved] == [(own, own) for own in of_tails]
    assert sorted(of_tails) == [False, True]


def test_a_curve_of_effects_has_a_scale_beside_it():
    for curve in (pm.math.exp, pm.math.arctan):
        with pm.Model() as curved:
            u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=50)
            pm.Normal("y", curve(u[np.arange(500) % 50]), pm.HalfNormal("s"), observed=np.ones(500))
        found = _found(curved)
        assert not found.is_normal
        assert found.layouts[0].columns.n_predictors == 2


def test_a_number_that_few_rows_have_differs_by_row():
    """A scale of rows that depends on a covariate which is nearly always zero."""
    rng, n = np.random.default_rng(1), 60_000
    flag = np.zeros(n)
    flag[rng.choice(n, 20, replace=False)] = 1.0
    g, y = np.arange(n) % 40, rng.normal(size=n)
    with pm.Model() as model:
        u, more = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=40), pm.Normal("more")
        pm.Normal("y", u[g], pm.math.exp(more * flag), observed=y)
    assert _found(model).layouts[0].columns.n_predictors == 2


def test_improper_directions_are_refused():
    """Two intercepts without priors, of which rows know the sum; and a number that no row knows."""
    rng, g = np.random.default_rng(1), np.arange(600) % 60
    y = rng.integers(2, size=600)
    with pm.Model() as twice:
        u = pm.HalfNormal("tau") * pm.Normal("u", shape=60)
        eta = pm.Flat("a") + pm.Flat("b") + u[g] * rng.normal(size=600)
        pm.Bernoulli("y", logit_p=eta, observed=y)
    with pytest.raises(UnsuitableError, match="'[ab]' has no proper prior, and the rows do not tell it"):
        field_model(twice, factorise(twice, threshold=100)).fit()
    with pm.Model() as unknown:
        u = pm.HalfNormal("tau") * pm.Normal("u", shape=60)
        pm.Flat("c")
        pm.Bernoulli("y", logit_p=u[g], observed=y)
    with pytest.raises(UnsuitableError, match="'c' has no proper prior, and the rows do not depend on it"):
        field_model(unknown, factorise(unknown, threshold=100)).fit()


@pytest.mark.slow("two fields of each likelihood")
@pytest.mark.parametrize("likelihood", ["bernoulli", "normal"])
def test_a_temperature(likelihood):
    """It divides the log density of rows, as a factor in the model does; of normal rows, too."""
    rng = np.random.default_rng(12)
    group, x = rng.integers(30, size=900), rng.normal(size=900)
    eta = rng.normal(0.0, 0.7, 30)[group] + 0.4 * x
    y = (rng.random(900) < 1.0 / (1.0 + np.exp(-eta))).astype(float)

    def drawn(*, in_model):
        with pm.Model():
            u = pm.Normal("u", pm.Normal("mu"), pm.HalfNormal("tau"), shape=30)
            v = pm.Normal("v", 0.0, pm.HalfNormal("tau_v"), shape=30)
            eta, sigma = u[group] + v[group] * x, pm.HalfNormal("sigma")
            own = {
                "bernoulli": lambda: pm.Bernoulli.dist(logit_p=eta + sigma),
                "normal": lambda: pm.Normal.dist(eta, sigma),
            }[likelihood]()
            if in_model:
                pm.Potential("rows", pm.logp(own, y) / 3.0)
            elif likelihood == "normal":
                pm.Normal("rows", eta, sigma, observed=y)
            else:
                pm.Bernoulli("rows", logit_p=eta + sigma, observed=y)
            step = pma.MetropolisHastings(
                control_variate=pma.Taylor(), temperature=1.0 if in_model else 3.0, threshold=100
            )
            assert isinstance(step.recipe, FieldRecipe)
            found = sampled(60, step, tune=10, chains=1, random_seed=3)
        return found.posterior

    ours, theirs = drawn(in_model=False), drawn(in_model=True)
    for name in ("mu", "tau", "tau_v", "sigma", "u"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-6, err_msg=name)
