"""`TunaMH` on models of groups: odd groups and priors, PyMC's contract, other data, other steps."""

import json

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import (
    AusterityMH,
    MetropolisHastings,
    MHSubLhd,
    MinibatchBarker,
    SubsamplingWarning,
    Taylor,
    TunaMH,
)
from pymc_austerity.model.compile.backend import interpreted as without_compilation
from pymc_austerity.report import probe
from pymc_austerity.step_methods.metropolis import field_pilot
from pymc_austerity.step_methods.metropolis.field_plan import FieldRecipe
from pymc_austerity.step_methods.metropolis.mixing_pilot import draws_of_pilot
from pymc_austerity.testing.steps import require_same_path
from tests.models import as_model

from .test_contract import path

N, G = 1500, 32
pytestmark = pytest.mark.usefixtures("interpreted")


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


# Odd groups --------------------------------------------------------------------------------------


PURE = np.where(GROUPS == 3, 0, np.where(GROUPS == 5, 1, Y))


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param(np.where(GROUPS % 4 == 0, 1, GROUPS), id="empty"),
        pytest.param(0 * GROUPS, id="one group has all rows"),
        pytest.param(np.sort(GROUPS)[::-1].copy(), id="sorted the other way"),
    ],
)
@pytest.mark.covering(1)
def test_groups(groups):
    """Where some are empty, two have outcomes of one kind. For negative indices see the next test."""
    model = model_of(groups=groups, y=PURE)
    step = TunaMH(model=model, rng=1)
    assert isinstance(step.recipe, FieldRecipe)
    assert not step.reads_all
    _, found = drawn(step, model)
    assert mean(found, "effects_acceptance") > 0.7
    assert mean(found, "n_used") < 0.1 * N


@pytest.mark.slow("builds a step several times")
def test_equal_groups_of_other_labels_have_equal_chains(short_pilots):
    """Whether an index is counted from the front or from the back, and of which type, is the same."""
    found = []
    for groups in (GROUPS, (GROUPS - G).astype(np.int8)):
        model = model_of(groups=groups)
        found.append(drawn(TunaMH(model=model, rng=1), model))
    require_same_path("Of negative bytes", found[1], found[0], "Indices mean the same.")


@pytest.mark.parametrize("group", [G, -G - 1])
def test_index_out_of_range(short_pilots, group):
    """Also in data that come later."""
    model, groups = model_of(), GROUPS.copy()
    step = TunaMH(model=model)
    groups[7] = group
    with model:
        pm.set_data({"groups": groups})
    for raises in (lambda: TunaMH(model=model), lambda: drawn(step, model)):
        with pytest.raises(IndexError, match=str(group)):
            raises()


def test_few_rows():
    """Below the threshold there is nothing to subsample, in the words that other models get."""
    some = slice(0, 400)
    with pytest.raises(ValueError, match="threshold"):
        TunaMH(model=model_of(X[some], GROUPS[some], Y[some]))


# Priors ------------------------------------------------------------------------------------------


PRIORS = {
    "improper": lambda: pm.HalfFlat("tau"),
    "within an interval": lambda: pm.Uniform("tau", 0.0, 5.0),
    "inverse gamma": lambda: pm.InverseGamma("tau", 2.0, 1.0),
}


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.covering(1)
def test_priors_of_the_scale(short_pilots, name):
    model = model_of(tau=PRIORS[name])
    step = TunaMH(model=model, rng=1)
    _, found = drawn(step, model)
    assert isinstance(step.recipe, FieldRecipe)
    assert mean(found, "accepted") > 0.3


def test_a_posterior_without_a_mode_is_a_named_error():
    """Flat coefficients, of which no row depends on one."""
    x = np.c_[X[:, 0], np.zeros(N)]
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=G)
        pm.Bernoulli("y", logit_p=x @ pm.Flat("beta", shape=2) + u[GROUPS], observed=Y)
    with pytest.raises(ValueError, match="'beta' has no proper prior.*Give it a prior"):
        TunaMH(model=model)


# What is reported --------------------------------------------------------------------------------


def test_a_pilot_counts_what_groups_cost():
    """Else the pilot of a field of 10,000 groups takes longer than the chain."""
    assert draws_of_pilot(8.0 * 1000, 10, 1, is_surrogate=False) >= 100
    assert draws_of_pilot(8.0 * 10_000, 10, 1, is_surrogate=False) == 0


def test_configuration(built):
    configuration = json.loads(json.dumps(built.configuration))
    assert configuration["proposal"]["n_nodes"] == G + 1
    assert configuration["proposal"]["effects"] == "beta, u"
    assert configuration["n_local"] == N
    assert "1,500 local terms" in repr(built)
    assert f"field of {G + 2} effects" in str(built.prediction)


# Pickles and copies ------------------------------------------------------------------------------


@pytest.mark.slow("interpreted pilots over many groups")
def test_poor_acceptance_is_told(monkeypatch):
    """Four events: moves of theta are hardly accepted, as a third of a pilot says too."""
    monkeypatch.setattr(field_pilot, "_SETTLE", 14)
    monkeypatch.setattr(field_pilot, "_COUNTED", 33)
    groups = np.random.default_rng(57).integers(0, 100, 1200)
    y = np.zeros(1200, dtype=int)
    y[:4] = 1
    with pm.Model() as model:
        u = pm.Normal("u", pm.Normal("mu", 0.0, 5.0), pm.HalfNormal("tau"), shape=100)
        pm.Bernoulli("y", logit_p=u[groups], observed=y)
    with pytest.warns(SubsamplingWarning, match="101 effects share"):
        TunaMH(model=model, compress=False)


# Random slopes ------------------------------------------------------------------------------------

COVARIATE = X[:, 1]
ODD_ROW = np.flatnonzero(GROUPS % 2)[0]


@as_model
def slopes(groups=GROUPS, x=COVARIATE, y=Y, *, correlated=False):
    """A logistic model whose data may be changed."""
    groups, x, beta = pm.Data("groups", groups), pm.Data("x", x), pm.Normal("beta", 0.0, 2.0, shape=2)
    if correlated:
        scales = pm.HalfNormal.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=scales)
        u = pm.MvNormal("u", np.zeros(2), chol=chol, shape=(G, 2))
        eta = u[groups, 0] + u[groups, 1] * x
    else:
        a, b = (pm.Normal(name, 0.0, pm.HalfNormal(f"tau_{name}"), shape=G) for name in "ab")
        eta = a[groups] + b[groups] * x
    pm.Bernoulli("y", logit_p=X @ beta + eta, observed=pm.Data("outcome", y), shape=N)


@pytest.mark.parametrize(
    ("groups", "x"),
    [
        pytest.param(np.where(GROUPS % 4 == 0, 1, GROUPS), 1e-6 * COVARIATE, id="empty, small units"),
        pytest.param(
            np.r_[np.arange(G), np.full(N - G, 3)], 2000.0 + 5.0 * COVARIATE, id="one row each, far from zero"
        ),
        pytest.param(
            GROUPS,
            np.where(np.arange(N) == ODD_ROW, 100.0, np.where(GROUPS % 2 == 0, 1.0 + GROUPS, COVARIATE)),
            id="constant in some, one large in another",
        ),
    ],
)
@pytest.mark.slow("compiles a field with slopes")
def test_odd_groups_and_covariates(short_pilots, groups, x):
    model = slopes(groups, x)
    _, found = drawn(TunaMH(model=model, rng=1), model)
    assert mean(found, "effects_acceptance") > 0.3


@pytest.mark.slow("reads all rows, interpreted, hundreds of times")
def test_all_rows_of_slopes(short_pilots):
    model = slopes(correlated=True)
    step = MetropolisHastings(model=model, control_variate=Taylor(), rng=1)
    _, found = drawn(step, model)
    assert mean(found, "n_used") == step.engine.n_moves * N


def test_slopes_of_a_covariate_of_groups_are_moved():
    """Rows tell the sum of an intercept and a slope alone; their priors tell the rest."""
    model = slopes(x=np.linspace(-1.0, 1.0, G)[GROUPS])
    step = TunaMH(model=model)
    assert isinstance(step.recipe, FieldRecipe)
    assert step.recipe.prediction.shared_acceptance > 0.3


# Moves that are decided by a test -----------------------------------------------------------------

TESTED = {"control_variate": Taylor(), "rng": 1}


@pytest.mark.parametrize("step", [AusterityMH, MinibatchBarker])
@pytest.mark.covering(1)
def test_theta_is_tested_and_small_groups_are_read(step, short_pilots):
    """Groups of some 50 rows are too small for batches of 50; all rows of theta's moves are not."""
    model = model_of()
    step = step(model=model, **TESTED)
    assert isinstance(step.recipe, FieldRecipe)
    assert step.recipe.rule.batch_size == 50
    assert not step.engine.reads_all
    _, found = drawn(step, model)
    assert mean(found, "effects_n_used") == N
    assert 0 < mean(found, "shared_n_used") < N
    assert type(step.recipe.rule).__name__ in str(step.configuration["rule"])
    with pytest.raises(TypeError, match="sweeps over 34 effects.*compare"):
        probe(model, step)


def test_decisions_after_a_pilot(short_pilots):
    """Rows of the pilot are counted, and decisions whose variance was cut."""
    model = model_of()
    step = MinibatchBarker(pilot=True, batch_size=10, model=model, **TESTED)
    _, found = drawn(step, model)
    assert 2 * 10 <= mean(found, "shared_n_used") < N
    assert 32 * 2 * 10 <= mean(found, "effects_n_used") < N
    assert 0.0 <= mean(found, "clipped") < 0.5


def test_without_a_tolerance_all_rows_are_read(short_pilots):
    model = model_of()
    step = AusterityMH(epsilon=0, model=model, **TESTED)
    assert step.engine.reads_all
    _, found = drawn(step, model, n=3)
    assert mean(found, "n_used") == 2 * N


def test_a_rule_that_needs_the_range_moves_the_block():
    """Bounds on the range of remainders are those of the block."""
    step = MHSubLhd(model=model_of(), **TESTED)
    assert not isinstance(step.recipe, FieldRecipe)
    assert step.recipe.mode_fit is not None


# Processes ---------------------------------------------------------------------------------------


@pytest.mark.slow("builds and compiles several steps")
def test_a_part_of_the_trace(draw):
    """Effects that are not wanted are not kept, and summaries of them are."""
    model = model_of()
    with model:
        pm.Deterministic("largest", model["u"].max())
    found = draw(model, TunaMH(model=model), var_names=["beta", "tau", "largest"])
    assert set(found.posterior.data_vars) == {"beta", "tau", "largest"}
    assert {"effects_acceptance", "shared_n_used", "effects_n_used"} <= set(found.sample_stats.data_vars)


@pytest.mark.compiled
@pytest.mark.slow("samples in processes, which build the step again")
def test_draws_are_equal_in_other_processes(draw, same):
    model = model_of(is_centered=False)
    step = TunaMH(model=model)
    one = draw(model, step, chains=2, cores=1)
    assert same(draw(model, step, chains=2, cores=2, mp_ctx="forkserver"), one)
    with model:
        pm.set_data(dict(zip(("x", "groups", "outcome"), rows(1800, seed=54), strict=True)))
    other = draw(model, step, chains=2, cores=1)
    assert not same(other, one)
    assert same(draw(model, step, chains=2, cores=2, mp_ctx="fork"), other)
