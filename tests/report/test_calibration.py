"""`sbc`: ranks of right and of wrong models, what is told of failures, and what an interrupt leaves."""

import signal
from contextlib import nullcontext, suppress

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_austerity as pma
from pymc_austerity.report import calibration
from tests.models import as_model

QUICK = {"random_seed": 3, "progressbar": False}
X = np.random.default_rng(1).normal(size=(2000, 3))


@as_model
def normal():
    mu, z = pm.Normal("mu"), pm.Bernoulli("z", 0.5)
    pm.Normal("y", mu, 1, observed=np.zeros(4))
    pm.Normal("w", z, 1, observed=0.0)
    pm.Deterministic("twice", 2 * mu)


@as_model
def counts():
    intercept, beta = pm.Normal("intercept", 0, 1), pm.Normal("beta", 0, 1, shape=3)
    pm.Poisson("y", pm.math.exp(intercept + X @ beta), observed=np.zeros(2000, dtype=int))


@pytest.fixture
def calibrated(monkeypatch):
    """`sbc` of the normal model with draws of its posterior, but for faults; and lengths of its chains."""

    def run(fits=60, draws=50, *, shift=0.0, sd=1.0, repeat=1, happens=lambda k: None, **options):
        asked = []

        def sample(n, *, model, random_seed, var_names, **_):
            asked.append(n)
            happens(len(asked))
            rng = np.random.default_rng(random_seed)
            y, w = (model.rvs_to_values[model[name]].get_value() for name in "yw")
            mu = (y.sum() / 5 + (shift + sd * rng.normal(size=(2, n))) / np.sqrt(5)).repeat(repeat, 1)[:, :n]
            z = rng.random((2, n)) < 1 / (1 + np.exp(0.5 - w))
            found = {"mu": mu, "z": z.astype(int), "twice": 2 * mu}
            draws = xr.Dataset({name: (("chain", "draw"), found[name]) for name in var_names})
            return xr.DataTree.from_dict({"posterior": draws, "sample_stats": xr.Dataset()})

        monkeypatch.setattr(calibration, "sample", sample)
        return pma.sbc(normal(), fits, draws, **{**QUICK, "step": lambda model: None, **options}), asked

    return run


def test_the_right_posterior_does_not_deviate(calibrated):
    """Ranks of a variable of two values, which ties with many draws, are uniform, too."""
    found, asked = calibrated(100, var_names=["mu", "z", "twice"])
    assert found.verdict == "no deviation"
    assert set(found.to_dataframe().index) == {"mu", "z", "twice", "log_likelihood"}
    ranks = found.tree["ranks"]["mu"].to_numpy()
    assert ranks.min() < 5 < 45 < ranks.max()
    assert set(asked) == {500}
    assert 8 < int((found.tree["ranks"]["z"] < 10).sum()) < 33
    np.testing.assert_array_equal(found.tree["ranks"]["twice"], ranks)
    np.testing.assert_array_equal(calibrated(9)[0].tree["ranks"]["mu"], ranks[:9])


WRONG = [({"shift": 1.0}, "shift", 1), ({"sd": 0.5}, "width", -1), ({"sd": 2.0}, "width", 1)]


@pytest.mark.parametrize(("fault", "column", "sign"), WRONG)
def test_wrong_posteriors_deviate(calibrated, fault, column, sign):
    found = calibrated(**fault)[0]
    row = found.to_dataframe().loc["mu"]
    assert row["p_holm"] < 0.001
    assert sign * row[column] > 4
    assert "Deviates: ranks of" in repr(found)
    assert max(map(len, repr(found).splitlines())) <= 80


def test_few_effective_draws_are_told(calibrated):
    found, asked = calibrated(2, repeat=1000)
    assert "too few effective draws, which look too narrow: 2." in repr(found)
    assert asked[:2] == [500, 20_000]


def test_plots_are_drawn(calibrated):
    pytest.importorskip("arviz_plots")
    found = calibrated(20)[0]
    assert set(found.plot().viz["ecdf_lines"].data_vars) == {"mu", "z", "log_likelihood"}
    assert set(found.plot("mu", backend="none").viz["ecdf_lines"].data_vars) == {"mu"}


def test_fits_that_fail_are_counted(calibrated):
    def fail(k):
        if k % 5 == 0:
            raise pma.FactorisationError("Rows cannot\nbe split")

    found = calibrated(40, happens=fail)[0]
    assert list(found.failures) == list(range(4, 40, 5))
    assert found.verdict == "cannot tell"
    told = "failed and are left out: 8, the first by FactorisationError: Rows cannot"
    assert told in repr(found).replace("\n", " ")
    with pytest.raises(ValueError, match="None of 10 fits succeeded. ZeroDivisionError"):
        calibrated(happens=lambda k: k // 0)


@pytest.mark.parametrize("is_swallowed", [False, True])
def test_an_interrupt_keeps_the_fits_before(calibrated, ctrl_c, is_swallowed):
    """Steps return a part of their draws: that fit does not count."""

    def interrupt(k):
        if k == 4:
            with suppress(KeyboardInterrupt) if is_swallowed else nullcontext():
                signal.raise_signal(signal.SIGINT)

    found = calibrated(happens=interrupt)[0]
    assert found.tree["ranks"].sizes["fit"] == 3
    assert "Interrupted: 60 fits were asked for." in repr(found)
    with pytest.raises(KeyboardInterrupt):
        calibrated(happens=lambda k: interrupt(4))


REFUSED = {
    "no observed variables": (lambda: pm.Normal("a"), {}),
    "'a' has no random draws: give simulate=": (lambda: pm.Normal("y", pm.Flat("a"), observed=0.0), {}),
    "'p' is a potential": (lambda: pm.Potential("p", pm.Normal("y", observed=0.0)), {}),
    "Fits are of copies of your model": (lambda: None, {"step": "TunaMH"}),
    "'b' is not in the model": (lambda: pm.Normal("y", pm.Normal("a"), observed=0.0), {"var_names": "b"}),
    "simulate has to return a, y too": (
        lambda: pm.Normal("y", pm.Normal("a"), observed=0.0),
        {"simulate": lambda rng: {}},
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_calibrated_is_refused(message):
    define, options = REFUSED[message]
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        pma.sbc(as_model(define)(), 1, **{"step": pm.Slice, **QUICK, **options})


def test_nuts_is_compiled_once(monkeypatch):
    nutpie, made = pytest.importorskip("nutpie"), []
    once = nutpie.compile_pymc_model
    monkeypatch.setattr(nutpie, "compile_pymc_model", lambda *a, **k: made.append(1) or once(*a, **k))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10, initval=1.0)
        pm.Normal("y", mu, 1, observed=np.zeros(50))
    found = pma.sbc(model, 4, 50, **QUICK)
    assert len(made) == 1
    assert found.tree["ranks"]["mu"].std() > 5
    assert model.rvs_to_initial_values[mu] == 1.0


@pytest.mark.slow("three times 50 fits")
@pytest.mark.parametrize(("sd", "shape", "name"), [(1, 0, ""), (2, 0, "prior of beta"), (1, 20, "log_like")])
def test_planted_faults_are_found(sd, shape, name):
    """Slopes from another prior, and counts that are overdispersed, in the model of the README."""

    def simulate(rng):
        intercept, beta = rng.normal(), sd * rng.normal(size=3)
        mean = np.exp(intercept + X @ beta)
        y = rng.poisson(mean * rng.gamma(shape, 1 / shape, size=2000) if shape else mean)
        return {"intercept": intercept, "beta": beta, "y": y}

    found = pma.sbc(counts(), 50, simulate=simulate, random_seed=1, progressbar=False)
    print(found)
    p = found.to_dataframe()["p_holm"]
    assert p.filter(like=name).min() < 0.001 if name else p.min() > 0.01
