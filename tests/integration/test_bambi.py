"""Models that Bambi writes: effects of groups beside common terms, of which one is categorical."""

import re
import warnings
from pathlib import Path

import arviz as az
import numpy as np
import pandas as pd
import pytest

import pymc_austerity as pma
from pymc_austerity.mode.fields import order
from pymc_austerity.mode.fields.field_model import FieldModel
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.step_methods.metropolis.field_plan import field_of
from pymc_austerity.step_methods.metropolis.options import checked_options
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # those of its own imports
    import bambi as bmb

N, G, H = 3000, 40, 35
FAMILIES = ["gaussian", "bernoulli", "poisson", "negativebinomial", "gamma"]
GROUPS = ["(1|g)", "(x|g)", "(1|g) + (1|h)", "(1|g/part)"]


def rows(family):
    """Data of a family, with effects of both factors, of parts and a slope."""
    rng = np.random.default_rng(4703)
    g, h, part = rng.integers(0, G, N), rng.integers(0, H, N), rng.integers(0, 3, N)
    x, z, kind = rng.normal(1.0, 1.0, N), rng.normal(size=N), rng.integers(0, 3, N)
    u, v, w, b = (rng.normal(0.0, 0.5, size) for size in (G, H, 3 * G, G))
    eta = 0.2 + 0.5 * x - 0.3 * z + np.array([0.0, 0.4, -0.2])[kind]
    eta += u[g] + 0.6 * v[h] + 0.5 * w[3 * g + part] + 0.6 * b[g] * x
    y = {
        "gaussian": lambda: rng.normal(eta, 1.5),
        "bernoulli": lambda: (rng.random(N) < 1.0 / (1.0 + np.exp(-eta))).astype(int),
        "poisson": lambda: rng.poisson(np.exp(0.5 * eta)),
        "negativebinomial": lambda: rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(0.5 * eta))),
        "gamma": lambda: rng.gamma(3.0, np.exp(0.5 * eta) / 3.0),
    }[family]()
    factors = pd.DataFrame({"kind": kind, "part": part, "g": g, "h": h}).astype("category")
    return pd.DataFrame({"y": y, "x": x, "z": z}).join(factors)


def built(family, groups, **options):
    link = "log" if family == "gamma" else None
    model = bmb.Model(f"y ~ x + z + kind + {groups}", rows(family), family=family, link=link, **options)
    model.build()
    return model


def found(model):
    """The structure of a model of Bambi's, or why it has none."""
    with interpreted():
        options = checked_options(None, EXACT, control_variate=TAYLOR, model=model.backend.model)
        point = model.backend.model.initial_point()
        return field_of(options, factorised(options, point), point)


NODES = {"(1|g)": G, "(x|g)": G, "(1|g) + (1|h)": G + H, "(1|g/part)": 4 * G}


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.covering(3)
def test_effects_are_a_field(family, groups, monkeypatch):
    """Two factors are moved in turns."""
    monkeypatch.setattr(order, "WIDE", 20)
    field = found(built(family, groups))
    assert isinstance(field, FieldModel), field
    names = {"1|g", *(["x|g"] if "x" in groups else []), *(["1|h"] if "h" in groups else [])}
    assert {f"{name}_offset" for name in names} <= set(field.effects)
    assert {"Intercept", "x", "z", "kind"} <= set(field.effects)
    assert len(field.layouts) == (2 if "h" in groups else 1)
    assert field.n_nodes == NODES[groups] + len(field.layouts)
    assert field.is_normal == (family == "gaussian")


@pytest.mark.parametrize("options", [{"noncentered": False}, {"center_predictors": False}], ids=str)
def test_other_ways_that_bambi_writes_them(options):
    one, other = (found(built("bernoulli", "(x|g)", **given)) for given in ({}, options))
    assert isinstance(other, FieldModel), other
    assert (one.n_effects, one.n_nodes) == (other.n_effects, other.n_nodes)


def test_slopes_beside_a_crossed_factor_are_a_field(monkeypatch):
    monkeypatch.setattr(order, "WIDE", 20)
    field = found(built("bernoulli", "(x|g) + (1|h)"))
    assert isinstance(field, FieldModel), field
    assert len(field.layouts) == 2


SAMPLED = [("bernoulli", "(x|g)"), ("poisson", "(1|g) + (1|h)")]
# Means and standard deviations of `functionals`, with their Monte Carlo errors, of
# fit(inference_method="nutpie", draws=3000, tune=1000, chains=4, random_seed=5, target_accept=0.9).
REFERENCE = Path(__file__).with_name("bambi_reference.csv")
# Standard errors at which a check fails: of fifty one would, in 3,000 seeds.
LIMIT = 4.5


def functionals(model, result):
    """Numbers of a posterior: what is one, two elements of what is a vector, and two predictions."""
    table = result.posterior.to_dataset()
    found = {}
    for name, values in table.data_vars.items():
        one = values.ndim == 2
        found |= {name: values.values} if one else {f"{name}[{k}]": values.values[..., k] for k in range(2)}
    predicted = model.predict(result, data=model.data.iloc[:2], inplace=False).posterior
    (name,) = set(predicted.data_vars) - set(table.data_vars)
    return found | {f"{name} of row {k}": predicted[name].values[..., k] for k in range(2)}


@pytest.mark.slow("whole chains against an independent reference")
# Of PyMC's own function for responses.
@pytest.mark.filterwarnings("ignore:Cannot cache compiled function")
@pytest.mark.parametrize(("family", "groups"), SAMPLED)
def test_posteriors_and_predictions_are_those_of_nuts(family, groups):
    model = built(family, groups)
    step = pma.recommend(model=model.backend.model)
    assert isinstance(step, pma.TunaMH)
    assert "field of" in " ".join(str(step.recommendation).split())
    result = model.fit(step=step, draws=2000, tune=500, chains=2, cores=1, random_seed=6, progressbar=False)
    reference = pd.read_csv(REFERENCE).query("family == @family and groups == @groups").set_index("name")
    found = functionals(model, result)
    assert set(found) == set(reference.index)
    for name, draws in found.items():
        expected = reference.loc[name]
        errors = az.mcse(draws), az.mcse(draws, method="sd")
        assert errors[0] < 0.1 * expected["sd"], name
        for own, error, what in zip((draws.mean(), draws.std()), errors, ("mean", "sd"), strict=True):
            assert abs(own - expected[what]) < LIMIT * np.hypot(error, expected[f"{what}_error"]), (
                name,
                what,
            )
    some = model.data.iloc[:100]
    responses = model.predict(result, kind="response", data=some, inplace=False).posterior_predictive["y"]
    means = responses.mean("__obs__").values
    assert abs(means.mean() - some["y"].mean()) < LIMIT * means.std()


# In one call --------------------------------------------------------------------------------------


def test_sample_takes_a_model_and_returns_what_fit_does(caplog, interpreted):
    """The intercept is that of predictors that are not centred; parameters of rows are left out."""
    model = bmb.Model("y ~ x + z + kind + (1|g)", rows("gaussian"))
    with caplog.at_level("INFO", "pymc.austerity"):
        idata = pma.sample(40, model=model, tune=20, chains=1, random_seed=1, progressbar=False)
    assert "Deterministic" not in caplog.text
    pymc_model = model.backend.model
    with pymc_model:
        raw = pma.sample(40, tune=20, chains=1, random_seed=1, progressbar=False, quiet=True)
    fitted = model.fit(draws=5, tune=5, chains=1, random_seed=1, progressbar=False)
    assert set(idata.posterior.data_vars) == set(fitted.posterior.data_vars)
    assert idata.posterior["1|g"].dims == fitted.posterior["1|g"].dims
    columns = model.backend.components["mu"].design_matrix_without_intercept
    slopes = np.concatenate([np.ravel(raw.posterior[name][0, 0]) for name in ("x", "z", "kind")])
    expected = float(raw.posterior["Intercept"][0, 0]) - columns.mean(axis=0) @ slopes
    assert np.isclose(float(idata.posterior["Intercept"][0, 0]), expected)
    assert "mu" in model.predict(idata, inplace=False).posterior


def test_sample_takes_a_model_in_the_place_of_draws(monkeypatch):
    given = {}
    place = "pymc_austerity.sampling.sample.Sampler.sample_from_init"
    monkeypatch.setattr(place, lambda self, **own: given.update(own))
    model = built("gaussian", "(1|g)").backend.model
    for call, draws in (
        (lambda: pma.sample(model), 1000),
        (lambda: pma.sample(model, draws=50), 50),
        (lambda: pma.sample(model, 50), 50),
        (lambda: pma.sample(50, model=model), 50),
    ):
        call()
        assert (given["draws"], given["model"]) == (draws, model)
    with pytest.raises(TypeError, match="two models"):
        pma.sample(model, model=model)


def test_recommend_takes_a_model(interpreted):
    model = bmb.Model("y ~ x + z", rows("gaussian"))
    assert pma.recommend(model, verbose=False).recommendation.step == "TunaMH()"


def test_comparisons_are_in_the_form_of_fit(interpreted):
    """Draws of `fit` are a reference, and parameters of rows are not recorded."""
    model = bmb.Model("y ~ x + (1|kind)", rows("gaussian"))
    few = {"tune": 10, "chains": 1, "random_seed": 1}
    step = pma.MetropolisHastings(proposal=pma.RandomWalk(0.01), model=model)
    reference = model.fit(step=step, draws=10, cores=1, progressbar=False, **few)
    options = {"budget": {"draws": 10}, "n_pairs": 1, "initvals": None, **few}
    comparison = pma.compare(model, {"walk": step}, reference=reference, **options)
    posterior = comparison.runs["walk"].posterior
    assert set(comparison.var_names) == set(posterior.data_vars) == set(reference.posterior.data_vars)
    with pytest.raises(ValueError, match=r"some of sigma, Intercept, x, .*, got \['mu'\]"):
        pma.compare(model, [step], var_names=["mu"])


def test_draws_of_a_model_are_not_written_to_disk(tmp_path):
    with pytest.raises(ValueError, match="results of a Bambi model"):
        pma.sample(model=built("gaussian", "(1|g)"), trace=tmp_path / "draws.zarr")


@pytest.mark.slow("two pilot runs in Python")
@pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")
def test_the_page_on_bambi(interpreted):
    """With fewer rows and draws than it has."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "bambi.md"
    first, second = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    short = {"n = 200_000": "n = 3_000", "sample(model, chains=4": "sample(20, tune=5, model=model, chains=1"}
    short |= {"draws=1000, chains=4": "draws=5, tune=5, chains=1"}
    scope = {}
    for source in (first, second):
        for long, brief in short.items():
            source = source.replace(long, brief)
        exec(source, scope)
    assert "income|state" in scope["idata"].posterior
