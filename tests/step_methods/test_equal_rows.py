"""Steps on joined rows: the posterior is that of all rows, by quadrature and by the plain step."""

import logging

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from pymc_austerity import AusterityMH, MetropolisHastings, RowStore, Taylor, TunaMH, recommend, stored_data
from pymc_austerity.acceptance import ExactBarker
from pymc_austerity.model import equal_rows
from pymc_austerity.proposals import Langevin
from pymc_austerity.proposals.laplace import Laplace
from tests.models import as_model
from tests.sampling import sampled

N, G = 20_000, 40
RNG = np.random.default_rng(8)
X = RNG.integers(5, size=N) / 2.0 - 1.0
Y = RNG.poisson(0.05 * np.exp(0.5 * X))
GROUP = np.sort(RNG.integers(G, size=N))
EFFECTS = 0.5 * RNG.normal(size=G)
SUCCESS = (RNG.random(N) < 1.0 / (1.0 + np.exp(-EFFECTS[GROUP] - 0.3 * X))).astype(int)
QUIET = {"progressbar": False}


@as_model
def counts(x=X, y=Y):
    pm.Poisson("y", pm.math.exp(-3.0 + pm.Normal("slope") * x), observed=y)


@as_model
def groups():
    effect = pm.Normal("effect", 0.0, pm.HalfNormal("tau"), shape=G)
    pm.Bernoulli("y", logit_p=effect[GROUP] + pm.Normal("slope") * X, observed=SUCCESS)


@as_model
def normal_groups():
    effect = pm.Normal("effect", 0.0, pm.HalfNormal("tau"), shape=G)
    pm.Normal("y", effect[GROUP] + pm.Normal("slope") * X, pm.HalfNormal("sigma"), observed=SUCCESS)


def moments_by_quadrature():
    """Mean and standard deviation of the slope, from all rows."""
    slopes = np.linspace(0.2, 0.8, 2001)
    log_p = np.array([Y @ (s * X) - np.exp(-3.0 + s * X).sum() - 0.5 * s * s for s in slopes])
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ slopes
    return mean, np.sqrt(p @ (slopes - mean) ** 2)


def standard_score(idata):
    """How far the mean of the slope is from the exact one, in standard errors of independent draws."""
    mean, sd = moments_by_quadrature()
    draws = idata.posterior["slope"].values.ravel()
    return (draws.mean() - mean) / sd * np.sqrt(len(draws)), draws.std() / sd


@pytest.mark.parametrize("step", [TunaMH, lambda **o: MetropolisHastings(proposal=Laplace(mix=0.0), **o)])
def test_the_posterior_is_that_of_all_rows(step):
    """Independent draws, of which nearly all are accepted."""
    with counts():
        own = step(**QUIET)
        score, ratio = standard_score(sampled(4000, own, tune=100, chains=1, random_seed=1))
    assert own.factorisation.n_local < 50
    assert abs(score) < 5.0
    assert abs(ratio - 1.0) < 0.1


def test_a_planted_fault_in_the_weights_moves_the_posterior(monkeypatch):
    """Planted fault: the weights of other kinds."""
    kinds = equal_rows._kinds
    monkeypatch.setattr(equal_rows, "_kinds", lambda *given: (kinds(*given)[0], kinds(*given)[1][::-1]))
    with counts():
        score, _ = standard_score(sampled(1000, TunaMH(**QUIET), tune=100, chains=1, random_seed=1))
    assert abs(score) > 20.0


def test_effects_of_groups_have_the_posterior_of_all_rows():
    """A field, joined and plain: means within Monte Carlo errors, from fewer rows."""
    found = []
    with groups():
        for compress in (True, False):
            step = TunaMH(compress=compress, **QUIET)
            assert step.field is not None
            idata = sampled(2000, step, tune=100, chains=2, random_seed=2)
            found.append((step, idata.posterior))
    (joined, ours), (plain, theirs) = found
    assert plain.recipe.n_local == N
    assert joined.recipe.n_local == len(np.unique(np.column_stack([X, GROUP, SUCCESS]), axis=0))
    for name in ("effect", "slope", "tau"):
        a, b = (one[name].values.reshape(4000, -1) for one in (ours, theirs))
        sd = b.std(axis=0)
        assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 0.25 * sd).all()
        assert (np.abs(a.std(axis=0) / sd - 1.0) < 0.15).all()


def test_normal_groups_need_no_rows_and_are_not_joined():
    """Their sums are sufficient, which weights would hide."""
    with normal_groups():
        step = TunaMH(**QUIET)
    assert "no row is read" in step.certificate
    assert step.recipe.n_local == N


def test_rows_on_disk_are_joined(tmp_path):
    """In the order of groups, so that a field can be read."""
    order = np.argsort(GROUP, kind="stable")
    source = {"x": X[order], "g": GROUP[order].astype("int16"), "y": SUCCESS[order].astype("int8")}
    store = RowStore.write(source, tmp_path / "rows", chunk_rows=2000)
    with pm.Model() as model:
        effect = pm.Normal("effect", 0.0, pm.HalfNormal("tau"), shape=G)
        eta = effect[stored_data("g", store["g"])] + pm.Normal("slope") * stored_data("x", store["x"])
        pm.Bernoulli("y", logit_p=eta, observed=stored_data("z", store["y"]))
    on_disk, in_memory = (TunaMH(model=one, rng=3, **QUIET) for one in (model, groups()))
    assert on_disk.recipe.n_local == in_memory.recipe.n_local < 500
    start = {k: np.asarray(v) for k, v in model.initial_point().items()}
    ours, theirs = (step.step(start)[0] for step in (on_disk, in_memory))
    assert all(np.allclose(ours[name], theirs[name]) for name in ours)


def test_it_is_said_once(caplog):
    with caplog.at_level(logging.INFO, "pymc_austerity"):
        for model in (counts(), groups()):
            TunaMH(model=model, **QUIET)
    said = [one.getMessage() for one in caplog.records if "different ones" in one.getMessage()]
    n_kinds = [len(np.unique(np.column_stack(rows), axis=0)) for rows in ((X, Y), (X, GROUP, SUCCESS))]
    expected = [f"20,000 rows of 'y' are {n} different ones" for n in n_kinds]
    assert [one.partition(":")[0] for one in said] == expected


def test_the_exact_test_on_few_kinds_is_no_warning(recwarn):
    """Of 128 kinds TunaMH would draw too many: all are read, which costs next to nothing."""
    x, y = X[:1000] > 0.0, SUCCESS[:1000]
    factors = np.column_stack([x, RNG.integers(2, size=(1000, 5))])
    for compress in (True, False):
        with pm.Model():
            pm.Bernoulli("y", logit_p=2.0 * factors @ pm.Normal("beta", shape=6), observed=y)
            step = TunaMH(compress=compress, switch_above=1e-3, **QUIET)
        assert step.reads_all
        warned = [one for one in recwarn if "the exact test on all data" in str(one.message)]
        assert bool(warned) != compress


@pytest.mark.parametrize(
    "build",
    [
        lambda: TunaMH(compress=False, **QUIET),
        lambda: TunaMH(curvature={"y": lambda low, high, i: np.ones(len(i))}, **QUIET),
        lambda: AusterityMH(**QUIET),
        lambda: MetropolisHastings(acceptance=ExactBarker(), **QUIET),
        lambda: MetropolisHastings(proposal=Langevin(step_size=1e-3), **QUIET),
        lambda: MetropolisHastings(control_variate=Taylor(exact_rows=20), **QUIET),
    ],
)
def test_steps_that_count_rows_have_all(build):
    """Tests on subsamples, bounds by positions, minibatches of a proposal, rows that are asked for."""
    with counts():
        assert build().recipe.n_local == N


def test_another_process_joins_the_same_rows():
    """What a recipe was made for is read again, and what was not joined is not looked at."""
    for model in (counts(), groups()):
        for compress in (True, False):
            step = TunaMH(model=model, compress=compress, **QUIET)
            other = cloudpickle.loads(cloudpickle.dumps(step))
            other.setup_chain(np.random.default_rng(1), 0, 10)
            other.step({k: np.asarray(v) for k, v in model.initial_point().items()})
            assert other.recipe.n_local == step.recipe.n_local
            assert other.factorisation.local_terms == step.factorisation.local_terms


def test_other_data_are_joined_anew():
    with pm.Model() as model:
        x = pm.Data("x", X)
        pm.Poisson("y", pm.math.exp(-3.0 + pm.Normal("slope") * x), observed=Y)
        step = MetropolisHastings(**QUIET)
        first = step.factorisation.n_local
        pm.set_data({"x": np.round(X)})
        step.setup_chain(np.random.default_rng(1), 0, 10)
        step.step(model.initial_point())
        assert step.factorisation.n_local < first
        pm.set_data({"x": RNG.normal(size=N)})
        step.setup_chain(np.random.default_rng(1), 0, 10)
        step.step(model.initial_point())
        assert step.factorisation.n_local == N


def test_recommend_joins_equal_rows():
    with counts():
        step = recommend(**QUIET)
    assert step.recipe.n_local < 50


def test_compress_is_a_switch():
    with counts(), pytest.raises(ValueError, match="compress must be True or False"):
        MetropolisHastings(compress="yes", **QUIET)
