"""`TunaMH` on models with a plate: odd groups and priors, PyMC's contract, other data, other steps."""

import json
from copy import deepcopy

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pymc_austerity import SubsamplingWarning, TunaMH
from pymc_austerity.model.compile.backend import interpreted as without_compilation
from pymc_austerity.step_methods.metropolis import plate_pilot
from pymc_austerity.step_methods.metropolis.mixing_pilot import draws_of_pilot
from pymc_austerity.step_methods.metropolis.plate_plan import PlateRecipe
from pymc_austerity.testing.steps import require_same_path

from .test_state import path

N, G = 1500, 32
INTERPRETED = pytest.mark.usefixtures("interpreted")
FORK = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def rows(n=N, n_groups=G, seed=51):
    """Covariates, groups, and outcomes."""
    rng = np.random.default_rng(seed)
    x, groups = rng.normal(size=(n, 2)), rng.integers(0, n_groups, n)
    eta = x @ [0.5, -0.3] + rng.normal(0.0, 0.6, n_groups)[groups]
    return x, groups, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)


X, GROUPS, Y = rows()


def model_of(x=X, groups=GROUPS, y=Y, tau=lambda: pm.HalfNormal("tau"), *, is_centered=True):
    """A logistic model whose data may be changed."""
    with pm.Model(coords={"group": range(G)}) as model:
        x, groups = pm.Data("x", x), pm.Data("groups", groups)
        beta, scale = pm.Normal("beta", 0.0, 2.0, shape=2), tau()
        u = pm.Normal("u", 0.0, scale, dims="group") if is_centered else scale * pm.Normal("z", dims="group")
        pm.Bernoulli("y", logit_p=x @ beta + u[groups], observed=pm.Data("outcome", y), shape=x.shape[0])
    return model


def drawn(step, model, n=10, point=None):
    """Statistics and points of some draws."""
    point = model.initial_point() if point is None else point
    step.setup_chain(np.random.default_rng(52), 5, n)
    points, found = path(step, point, n)
    for one in points:
        assert all(np.isfinite(value).all() for value in one.values())
    return points, found


def mean(found, name):
    return np.mean([one[f"{name} of step 0"] for one in found])


@pytest.fixture(scope="module")
def built():
    """A step that is not to be moved."""
    with without_compilation():
        return TunaMH(model=model_of(), rng=1)


@pytest.fixture
def short_pilots(monkeypatch):
    """Few sweeps of a pilot, where its findings do not matter: interpreted ones take long."""
    monkeypatch.setattr(plate_pilot, "_SETTLE", 3)
    monkeypatch.setattr(plate_pilot, "_COUNTED", 6)


# Odd groups --------------------------------------------------------------------------------------


@INTERPRETED
@pytest.mark.parametrize(
    ("groups", "y"),
    [
        pytest.param(np.where(GROUPS % 4 == 0, 1, GROUPS), Y, id="empty"),
        pytest.param(0 * GROUPS, Y, id="one group has all rows"),
        pytest.param(GROUPS - G, Y, id="negative indices"),
        pytest.param(GROUPS, np.where(GROUPS == 3, 0, np.where(GROUPS == 4, 1, Y)), id="all zero, all one"),
        pytest.param(np.sort(GROUPS)[::-1].copy(), Y, id="sorted the other way"),
        pytest.param(GROUPS.astype(np.int8), Y, id="bytes"),
    ],
)
@pytest.mark.covering(1)
def test_groups(groups, y):
    model = model_of(groups=groups, y=y)
    step = TunaMH(model=model, rng=1)
    assert isinstance(step.recipe, PlateRecipe)
    assert not step.reads_all
    _, found = drawn(step, model)
    assert mean(found, "plate_acceptance") > 0.7
    assert mean(found, "n_used") < 0.1 * N


@INTERPRETED
@pytest.mark.slow("builds a step several times")
def test_equal_groups_of_other_labels_have_equal_chains(short_pilots):
    """Whether an index is counted from the front or from the back, and of which type, is the same."""
    found = []
    for groups in (GROUPS, (GROUPS - G).astype(np.int8)):
        model = model_of(groups=groups)
        found.append(drawn(TunaMH(model=model, rng=1), model))
    require_same_path("Of negative bytes", found[1], found[0], "Indices mean the same.")


@INTERPRETED
@pytest.mark.slow("builds and compiles several steps")
def test_an_empty_group_has_its_prior():
    """eps of a group without rows is that of the effect, in units of tau."""
    model = model_of(groups=np.where(GROUPS == 5, 6, GROUPS))
    points, _ = drawn(TunaMH(model=model, rng=1), model, n=400)
    z = np.array([one["u"][5] / np.exp(one["tau_log__"]) for one in points])
    assert stats.kstest(z, "norm").pvalue > 1e-4


@INTERPRETED
def test_fewer_than_thirty_groups_are_coefficients():
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=12)
        pm.Bernoulli("y", logit_p=X @ pm.Normal("beta", shape=2) + u[GROUPS % 12], observed=Y)
    assert not isinstance(TunaMH(model=model, rng=1).recipe, PlateRecipe)


@INTERPRETED
@pytest.mark.parametrize("group", [G, -G - 1])
def test_index_out_of_range(group):
    groups = GROUPS.copy()
    groups[7] = group
    with pytest.raises(IndexError, match=str(group)):
        TunaMH(model=model_of(groups=groups))


@INTERPRETED
@pytest.mark.slow("builds and compiles several steps")
def test_few_rows(short_pilots):
    """Below the threshold there is nothing to subsample, in the words that other models get."""
    some = slice(0, 400)
    model = model_of(X[some], GROUPS[some], Y[some])
    with pytest.raises(ValueError, match="threshold"):
        TunaMH(model=model)
    step = TunaMH(model=model, threshold=100, rng=1)
    assert isinstance(step.recipe, PlateRecipe)
    drawn(step, model)


# Priors ------------------------------------------------------------------------------------------


def improper():
    return pm.HalfFlat("tau")


def within_an_interval():
    return pm.Uniform("tau", 0.0, 5.0)


def inverse_gamma():
    return pm.InverseGamma("tau", 2.0, 1.0)


@INTERPRETED
@pytest.mark.parametrize("tau", [improper, within_an_interval, inverse_gamma], ids=lambda f: f.__name__)
@pytest.mark.covering(1)
def test_priors_of_the_scale(short_pilots, tau):
    model = model_of(tau=tau)
    step = TunaMH(model=model, rng=1)
    _, found = drawn(step, model)
    assert isinstance(step.recipe, PlateRecipe)
    assert mean(found, "accepted") > 0.3


@INTERPRETED
def test_a_posterior_without_a_mode_is_a_named_error():
    """Flat coefficients, of which no row depends on one."""
    x = np.c_[X[:, 0], np.zeros(N)]
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=G)
        pm.Bernoulli("y", logit_p=x @ pm.Flat("beta", shape=2) + u[GROUPS], observed=Y)
    with pytest.raises(ValueError, match="Give proper priors.*Add an intercept"):
        TunaMH(model=model)


# What is reported --------------------------------------------------------------------------------


@pytest.mark.slow("builds and compiles several steps")
def test_statistics(built):
    step = deepcopy(built)
    points, found = drawn(step, built._model, n=20)
    assert len(points) == 20
    names = step.stats_dtypes_shapes
    assert step.stats_dtypes == [{name: kind for name, (kind, _) in names.items()}]
    for one in found:
        own = {name.removesuffix(" of step 0"): value for name, value in one.items()}
        assert set(own) == set(names)
        assert all(np.asarray(own[name]).dtype == kind for name, (kind, _) in names.items())
        assert own["n_used"] == own["shared_n_used"] + own["plate_n_used"]
        assert 0.0 <= own["plate_acceptance"] <= 1.0
        assert own["bound_violations"] == own["exhausted"] == 0.0
    assert "plate_acceptance" not in TunaMH.stats_dtypes_shapes


def test_a_pilot_counts_what_groups_cost(built):
    """Else the pilot of a plate of 10,000 groups takes longer than the chain."""
    assert built.recipe.rows_a_draw > built.plate.prediction.terms + 5.0 * built.plate.prediction.n_groups
    assert draws_of_pilot(8.0 * 1000, 10, 1, is_surrogate=False) >= 100
    assert draws_of_pilot(8.0 * 10_000, 10, 1, is_surrogate=False) == 0


@pytest.mark.slow("builds and compiles several steps")
def test_several_sweeps_for_a_draw(short_pilots):
    model = model_of()
    with without_compilation():
        one, three = (TunaMH(model=model, rng=1, steps_per_draw=k) for k in (1, 3))
    expected, single = drawn(one, model, n=9)
    points, found = drawn(three, model, n=3)
    for k, point in enumerate(points):
        np.testing.assert_allclose(point["u"], expected[3 * k + 2]["u"], rtol=0, atol=1e-9)
    assert mean(found, "n_used") == pytest.approx(mean(single, "n_used"))


def test_configuration(built):
    configuration = json.loads(json.dumps(built.configuration))
    assert configuration["proposal"]["n_groups"] == G
    assert configuration["proposal"]["effects"] == "u"
    assert configuration["n_local"] == N
    assert "1,500 local terms" in repr(built)
    assert f"plate of {G} groups" in str(built.prediction)


# Pickles and copies ------------------------------------------------------------------------------


def test_pickles_have_no_rows(built):
    """But for the model's own data; the state of a chain is small."""
    model = len(cloudpickle.dumps(built._model))
    assert len(cloudpickle.dumps(built)) < model + 16 * N
    assert len(cloudpickle.dumps(built.sampling_state)) < 4000
    recipe = cloudpickle.dumps(built.recipe)
    assert len(recipe) < 6000
    arrays = [built.recipe.fit.mean, built.recipe.fit.factor, *built.recipe.fit.center]
    assert max(array.size for array in arrays) == G


def test_copies_go_their_own_ways(built):
    step = deepcopy(built)
    first = drawn(deepcopy(step), built._model)
    drawn(step, built._model, n=7)
    require_same_path("A copy", drawn(deepcopy(step), built._model), first, "Copies share something.")


def test_a_chain_goes_on_from_its_state(built):
    step, fresh = deepcopy(built), deepcopy(built)
    with without_compilation():
        unpickled = cloudpickle.loads(cloudpickle.dumps(built))
        step.setup_chain(np.random.default_rng(53), 12, 20)
        point, done = built._model.initial_point(), 0
        for here in (0, 7, 16):
            points, _ = path(step, point, here - done, done)
            point, done = (points or [point])[-1], here
            state = step.sampling_state
            expected = path(step, point, 5, here)
            for what, other in {"A fresh step": fresh, "A pickle": unpickled}.items():
                other.sampling_state = cloudpickle.loads(cloudpickle.dumps(state))
                require_same_path(what, path(other, point, 5, here), expected, "Its state misses something.")
            step.sampling_state = state


@pytest.mark.slow("interpreted pilots over many groups")
@INTERPRETED
def test_poor_acceptance_is_told(monkeypatch):
    """Four events: moves of theta are hardly accepted, as a third of a pilot says too."""
    monkeypatch.setattr(plate_pilot, "_SETTLE", 14)
    monkeypatch.setattr(plate_pilot, "_COUNTED", 33)
    groups = np.random.default_rng(57).integers(0, 100, 1200)
    y = np.zeros(1200, dtype=int)
    y[:4] = 1
    with pm.Model() as model:
        u = pm.Normal("u", pm.Normal("mu", 0.0, 5.0), pm.HalfNormal("tau"), shape=100)
        pm.Bernoulli("y", logit_p=u[groups], observed=y)
    with pytest.warns(SubsamplingWarning, match="100 groups"):
        TunaMH(model=model)
