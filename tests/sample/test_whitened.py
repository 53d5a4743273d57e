"""NUTS in coordinates in which the posterior is nearly round: the same posterior, and result."""

import inspect
import pickle
from abc import ABC, abstractmethod

import cloudpickle
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_austerity as pma
from pymc_austerity.recommendation.evidence import options_of
from pymc_austerity.recommendation.nuts import NUTS, WhitenedPotential, search_whitening
from pymc_austerity.sampling import whitened
from pymc_austerity.sampling.sampler import Sampler
from tests.models import as_model
from tests.sampling import sampled

N = 1200
RNG = np.random.default_rng(8358)
X = RNG.normal(size=(N, 3)) @ [[1.0, 0.95, 0.9], [0.0, 0.3, 0.2], [0.0, 0.0, 0.3]]
GROUP = np.arange(N) % 12
Y = X @ [0.3, -0.2, 0.1] + RNG.normal(size=12)[GROUP] + RNG.normal(size=N)
QUIET = {"progressbar": False, "quiet": True, "random_seed": 11}


@as_model
def line():
    """A posterior that is known: normal coefficients, and a known scale."""
    beta = pm.Normal("beta", 0, 1, shape=3)
    pm.Deterministic("double", 2 * beta)
    pm.Normal("outcome", pm.math.dot(X, beta), 1.0, observed=Y)


def labelled():
    with pm.Model(coords={"group": list("abcdefghijkl"), "row": np.arange(N)}) as model:
        group = pm.Data("index", GROUP, dims="row")
        tau = pm.HalfNormal("tau")
        effect = pm.Normal("effect", 0, tau, dims="group")
        pm.Deterministic("share", effect / tau, dims="group")
        pm.Deterministic("square", effect[:, None] * effect[None, :])
        pm.Normal("outcome", pm.Normal("mu") + effect[group], 1.0, observed=Y, dims="row")
    return model


def coordinates(model):
    white = search_whitening(options_of(model, model.continuous_value_vars), progressbar=False)
    assert white is not None
    return white


@pytest.fixture(params=["nutpie", "pymc"])
def own_nuts(request, monkeypatch):
    """NUTS of nutpie, and of PyMC where nutpie is not installed."""
    if request.param == "nutpie":
        pytest.importorskip("nutpie")
    else:
        monkeypatch.setattr(whitened, "find_spec", lambda name: None)
    monkeypatch.setattr("pymc_austerity.recommendation.nuts._LONG", 1.0)
    monkeypatch.setattr(pm, "sample", _only_in_coordinates(pm.sample))
    return request.param


def _only_in_coordinates(sample):
    def of_whitened(*args, model, **kwargs):
        is_own = kwargs.get("step") is None and not model.free_RVs[0].name.startswith("whitened")
        assert not is_own, "PyMC's own choice was run instead"
        return sample(*args, model=model, **kwargs)

    return of_whitened


def moments():
    """Mean and covariance of the posterior of `line`."""
    covariance = np.linalg.inv(X.T @ X + np.eye(3))
    return covariance @ X.T @ Y, covariance


def require_posterior(draws):
    """Means and covariances within five standard errors of independent draws."""
    mean, covariance = moments()
    w = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    n = w.shape[1] / 3.0  # effective ones
    assert np.abs(w.mean(axis=1)).max() < 5.0 / np.sqrt(n)
    assert np.abs(np.cov(w) - np.eye(3)).max() < 5.0 * np.sqrt(2.0 / n)


def test_posterior(own_nuts):
    idata = pma.sample(1500, tune=200, chains=2, step="nuts", model=line(), **QUIET)
    require_posterior(idata.posterior["beta"].to_numpy().reshape(-1, 3))
    assert np.allclose(idata.posterior["double"], 2 * idata.posterior["beta"])
    assert idata.sample_stats["n_steps"].mean() < 8


def test_planted_fault_a_density_of_another_place(monkeypatch):
    """Planted fault: draws are shown a quarter of a standard deviation away from where they were made."""
    pytest.importorskip("nutpie")
    replaced = whitened.graph_replace

    def wrong(graphs, places, **options):
        density = replaced(graphs, places, **options)[0]
        shifted = {value: part + 0.25 * np.sqrt(moments()[1][0, 0]) for value, part in places.items()}
        return [density, *replaced(graphs, shifted, **options)[1:]]

    monkeypatch.setattr(whitened, "graph_replace", wrong)
    idata = pma.sample(1500, tune=200, chains=2, step="nuts", model=line(), **QUIET)
    with pytest.raises(AssertionError):
        require_posterior(idata.posterior["beta"].to_numpy().reshape(-1, 3))


def test_density_and_values():
    model = labelled()
    white = coordinates(model)
    other = whitened.whitened_model(model, white, model.unobserved_RVs)
    inputs = other.value_vars
    density = other.compile_fn(other.logp(), inputs=inputs)
    graphs = other.replace_rvs_by_values([other[rv.name] for rv in model.free_RVs])
    values = other.compile_fn(graphs, inputs=inputs)
    of_model = model.compile_logp()
    apart = []
    for w in RNG.normal(size=(5, len(white.center))):
        point = {inputs[0].name: w}
        own = dict(zip([rv.name for rv in model.free_RVs], values(point), strict=True))
        own["tau_log__"] = np.log(own.pop("tau"))
        apart.append(density(point) - of_model(own))
    assert np.ptp(apart) < 1e-8


def test_result_is_that_of_pymc(own_nuts):
    model = labelled()
    given = {"tune": 50, "chains": 2, "model": model, **QUIET}
    idata = pma.sample(60, step="nuts", discard_tuned_samples=False, **given)
    expected = sampled(20, pm.Metropolis(model=model), tune=0, chains=2, model=model)
    ours, theirs = idata.posterior, expected.posterior
    assert set(ours.data_vars) == set(theirs.data_vars)
    for name, one in theirs.data_vars.items():
        assert ours[name].dims == one.dims, name
        assert ours[name].shape == (2, 60, *one.shape[2:])
    assert list(ours["group"].to_numpy()) == list("abcdefghijkl")
    assert idata.warmup_posterior.sizes["draw"] == 50
    for group in ("observed_data", "constant_data"):
        assert idata[group].to_dataset().equals(expected[group].to_dataset())
    assert ours.attrs["sampling_time"] > 0
    again = pma.sample(60, step="nuts", var_names=["share"], **given)
    assert list(again.posterior.data_vars) == ["share"]
    assert np.allclose(again.posterior["share"], ours["share"], rtol=1e-12)


def test_statistics_and_attributes(own_nuts):
    model = line()
    idata = pma.sample(20, tune=30, chains=2, step="nuts", model=model, **QUIET)
    name = "logp" if own_nuts == "nutpie" else "lp"
    expected = [model.compile_logp()({"beta": beta}) for beta in idata.posterior["beta"].to_numpy()[0]]
    assert np.allclose(idata.sample_stats[name][0], expected)
    assert idata.posterior.attrs["inference_library"] == own_nuts
    assert idata.posterior.attrs["tuning_steps"] == 30


def test_names_that_are_taken():
    with pm.Model() as model:
        beta = pm.Normal("whitened", 0, 1, shape=3)
        pm.Deterministic("whitened_density", beta.sum())
        pm.Normal("outcome", pm.math.dot(X, beta), 1.0, observed=Y)
    other = whitened.whitened_model(model, coordinates(model), model.unobserved_RVs)
    assert other.free_RVs[0].name not in model.named_vars


def test_draws_go_to_disk(own_nuts, tmp_path):
    pytest.importorskip("zarr")
    given = {"tune": 50, "chains": 2, "model": line(), **QUIET}
    idata = pma.sample(60, step="nuts", trace=tmp_path / "draws.zarr", **given)
    assert idata.posterior["beta"].shape == (2, 60, 3)


@pytest.mark.parametrize(
    "given", [{"initvals": {"beta": np.zeros(3)}}, {"idata_kwargs": {"log_likelihood": True}}]
)
def test_what_coordinates_do_not_have_is_left_to_pymc(given, monkeypatch):
    called = []
    monkeypatch.setattr(pm, "sample", lambda **kwargs: called.append(kwargs["step"]))
    pma.sample(step="nuts", model=line(), **{**QUIET, **given})
    assert called == [None]


def pilot(w, steps=7, diverging=0.0):
    """A pilot run with draws w."""
    stats = {"n_steps": np.full(w.shape[:2], steps), "diverging": np.full(w.shape[:2], diverging)}
    return xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"w": (("chain", "draw", "k"), w)}),
            "sample_stats": xr.Dataset({name: (("chain", "draw"), one) for name, one in stats.items()}),
        }
    )


DRAWN = np.random.default_rng(1).normal(size=(2, 100, 200))
PILOTS = {
    "round": (pilot(DRAWN), True),
    "long trajectories": (pilot(DRAWN, steps=63), False),
    "divergences": (pilot(DRAWN, diverging=0.5), False),
    "of another size": (pilot(0.5 * DRAWN), False),
    "hardly moves": (pilot(np.repeat(DRAWN[:, :5], 20, axis=1)), False),
}


@pytest.mark.parametrize("case", PILOTS)
def test_pilot(case):
    tree, is_round = PILOTS[case]
    assert whitened._is_round(tree, "w") is is_round


def test_pilot_that_was_interrupted():
    with pytest.raises(KeyboardInterrupt):
        whitened._is_round(pilot(DRAWN[:, :30]), "w")


def test_pilot_that_speaks_against_it(own_nuts, monkeypatch):
    monkeypatch.setattr(whitened, "_is_round", lambda *_: False)
    with pytest.raises(AssertionError, match="own choice"):
        pma.sample(10, step="nuts", model=line(), **QUIET)


def test_some_variables_that_are_not_there():
    with pytest.raises(ValueError, match="the model has no variable 'gamma'"):
        pma.sample(10, step="nuts", model=line(), var_names=["gamma"], **QUIET)


# As a step ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, -1])
def test_step(order):
    """Whatever the order of the variables: PyMC takes gradients for those of others if it is another one."""
    with pm.Model() as model:
        one, two = pm.Normal("one", 0, 1), pm.Normal("two", 0, 1, shape=2)
        pm.Normal("outcome", X[:, 0] * one + pm.math.dot(X[:, 1:], two), 1.0, observed=Y)
    step = NUTS.in_coordinates(model.continuous_value_vars[::order], model, coordinates(model))
    idata = sampled(1500, step, tune=300, chains=2, random_seed=5, model=model)
    draws = np.concatenate([idata.posterior["one"].to_numpy()[..., None], idata.posterior["two"]], axis=-1)
    require_posterior(draws.reshape(-1, 3))
    assert idata.sample_stats["n_steps"].mean() < 8


def test_planted_fault_momenta_of_other_coordinates(monkeypatch):
    """Planted fault: momenta are drawn as if w were the unconstrained values."""

    model = line()
    monkeypatch.setattr(WhitenedPotential, "random", WhitenedPotential.__mro__[1].random)
    step = NUTS.in_coordinates(model.continuous_value_vars, model, coordinates(model))
    idata = sampled(1500, step, tune=300, chains=2, random_seed=5, model=model)
    with pytest.raises(AssertionError):
        require_posterior(idata.posterior["beta"].to_numpy().reshape(-1, 3))


def test_step_is_pickled_after_it_has_drawn():
    model = line()
    step = NUTS.in_coordinates(model.continuous_value_vars, model, coordinates(model))
    sampled(2, step, tune=2, chains=1, model=model)
    again = pickle.loads(cloudpickle.dumps(step))
    assert np.allclose(again.whitening.solve(np.ones(3)), step.whitening.solve(np.ones(3)))


def test_recommended(monkeypatch):
    """Where the fit is known and another step would cost more, NUTS has its coordinates."""
    monkeypatch.setattr("pymc_austerity.recommendation.evidence.fits_normal", lambda *_, **__: False)
    step = pma.recommend(line(), verbose=False)
    assert isinstance(step, NUTS)
    assert step.whitening is not None


# The interface that PyMC discusses -----------------------------------------------------------------


class OfPyMC(ABC):
    """Stands for the base class of samplers."""

    @abstractmethod
    def sample_from_init(
        self, *, model, draws, tune, chains, cores, initvals, random_seed, progressbar, discard_tuned_samples,
        keep_warning_stat, var_names, idata_kwargs, compute_convergence_checks, compile_kwargs,
    ): ...  # fmt: skip


def of_pymc(sampler, **given):
    """Stands for ``pm.sample(sampler=sampler)``: all parameters are passed, with the defaults of PyMC."""
    names = OfPyMC.sample_from_init.__kwdefaults__ or {}
    rest = {
        "tune": None, "chains": None, "cores": None, "initvals": None, "progressbar": True,
        "discard_tuned_samples": True, "keep_warning_stat": False, "var_names": None, "idata_kwargs": None,
        "compute_convergence_checks": True, "compile_kwargs": None,
    }  # fmt: skip
    return sampler.sample_from_init(**{**names, **rest, **given})


def test_sampler_has_the_shape_of_pymc():

    own = inspect.signature(Sampler.sample_from_init).parameters
    theirs = inspect.signature(OfPyMC.sample_from_init).parameters
    assert list(own) == list(theirs)
    of_sample = inspect.signature(pm.sample).parameters
    assert set(own) - {"self"} <= set(of_sample)


def test_sampler_draws_what_sample_draws(interpreted):
    model = line()
    own = {"draws": 20, "tune": 10, "chains": 2, "cores": 1, "random_seed": 3}
    ours = of_pymc(pma.sampler(quiet=True), model=model, progressbar=False, **own)
    again = pma.sample(model=model, progressbar=False, quiet=True, **own)
    assert ours.posterior.to_dataset().equals(again.posterior.to_dataset())


def test_sampler_is_configuration_only():
    with pytest.raises(ValueError, match='"recommend" or "nuts"'):
        pma.sampler("fast")
    assert pma.sampler("nuts", nuts={"target_accept": 0.9}) == pma.sampler(
        "nuts", nuts={"target_accept": 0.9}
    )
