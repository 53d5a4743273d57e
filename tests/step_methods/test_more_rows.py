"""`TunaMH.with_more_rows`: sums add, old bounds hold, and what does not continue is searched for anew."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit

import pymc_austerity as pma
from pymc_austerity import RowStore, TunaMH, stored_data
from pymc_austerity.mode import mode_fit
from pymc_austerity.model.factorisation import added_rows
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.step_methods.metropolis import tuna_plan
from pymc_austerity.step_methods.metropolis.plan import Survey
from pymc_austerity.step_methods.metropolis.tuna_plan import bounded_rows

N, MORE = 4000, 4400
RNG = np.random.default_rng(7)
X = RNG.normal(size=MORE)
EXPOSURE = RNG.uniform(0.5, 2.0, size=MORE)
Y = RNG.binomial(1, expit(0.3 + 0.5 * X))
COUNTS = RNG.poisson(EXPOSURE * np.exp(0.2 - 0.3 * X))


def model_of(n, x=X, y=Y, *, scale=False):
    """Two likelihoods that share a slope; with `scale` one has a free scale."""
    with pm.Model() as model:
        data, log_exposure = pm.Data("x", x[:n]), pm.Data("log_exposure", np.log(EXPOSURE[:n]))
        level, slope = pm.Normal("level"), pm.Normal("slope")
        pm.Bernoulli("y", logit_p=level + slope * data, observed=pm.Data("of_y", y[:n]))
        counts, mean = pm.Data("of_counts", COUNTS[:n]), pm.math.exp(log_exposure + level + slope * data)
        if scale:
            pm.Normal("counts", level + slope * data, pm.HalfNormal("scale"), observed=counts)
        else:
            pm.Poisson("counts", mean, observed=counts)
    return model


def grown(model, n, x=X, y=Y):
    with model:
        data = {"x": x[:n], "of_y": y[:n], "log_exposure": np.log(EXPOSURE[:n]), "of_counts": COUNTS[:n]}
        pm.set_data(data)


def quiet(model):
    return TunaMH(model=model, progressbar=False)


def sums_again(step, point):
    """Derivatives of all rows where the terms are expanded."""
    likelihood = Differentiable(TermStructure(step.factorisation), point).likelihood()
    return likelihood.at(step.recipe.mode_fit.expansion.center).total


def require_sums(step, model):
    found, total = step.recipe.mode_fit.expansion, sums_again(step, model.initial_point())
    np.testing.assert_allclose(found.gradient, total.gradient, rtol=1e-8, atol=1e-5)
    np.testing.assert_allclose(found.hessian, total.hessian, rtol=1e-8)


def searched(step):
    """Whether the mode was searched for."""
    return step.mode_fit.passes > 1


@pytest.mark.parametrize("scale", [False, True])
def test_sums_and_bounds_are_those_of_all_rows(scale):
    model = model_of(N, scale=scale)
    step = quiet(model)
    grown(model, MORE)
    more = step.with_more_rows(progressbar=False)
    assert not searched(more)
    assert step.recipe.n_local == 2 * N
    assert more.recipe.n_local == 2 * MORE
    point = model.initial_point()
    fit, total = more.recipe.mode_fit, sums_again(more, point)
    np.testing.assert_allclose(fit.expansion.gradient, total.gradient, rtol=1e-9, atol=1e-9 * len(X))
    np.testing.assert_allclose(fit.expansion.hessian, total.hessian, rtol=1e-9)
    anew = quiet(model).recipe.mode_fit
    assert np.abs(anew.whiten @ (fit.proxy.mode - anew.proxy.mode)).max() < 0.05
    np.testing.assert_allclose(fit.proxy.precision, anew.proxy.precision, rtol=0.1, atol=1.0)
    structure = TermStructure(more.factorisation)
    again = mode_fit.expanded_again(structure, point, fit)
    rows, _ = bounded_rows(more.options, Survey(structure, more.recipe.proposal, again), point)
    np.testing.assert_array_equal(more.engine.rows.state.constants, rows.state.constants)
    np.testing.assert_array_equal(more.engine.rows.state.radii, rows.state.radii)


def test_a_chain_is_that_of_a_new_step():
    model = model_of(N)
    step = quiet(model)
    grown(model, MORE)
    more, anew = step.with_more_rows(progressbar=False), quiet(model)

    def estimated(step, seed):
        idata = pma.sample(
            2000, tune=100, chains=4, cores=1, random_seed=seed, quiet=True, step=step, model=model
        )
        table = pma.estimates(idata)
        return table["mean"].to_numpy(), table["mcse_mean"].to_numpy(), table["sd"].to_numpy()

    def z(one, two):
        return np.abs(one[0] - two[0]) / np.hypot(one[1], two[1])

    found, true = estimated(more, 1), estimated(anew, 2)
    assert z(found, true).max() < 4.0
    np.testing.assert_allclose(found[2], true[2], rtol=0.06)


def test_new_rows_left_out_would_be_noticed(monkeypatch):
    """Planted fault: the sums lack a hundred of the new rows."""
    model = model_of(N)
    step = quiet(model)
    grown(model, MORE)
    monkeypatch.setattr(tuna_plan, "added_rows", lambda new, old: added_rows(new, old)[:-100])
    more = step.with_more_rows(progressbar=False)
    total = sums_again(more, model.initial_point())
    assert np.abs(more.recipe.mode_fit.expansion.hessian / total.hessian - 1.0).max() > 1e-3


@pytest.mark.slow("eleven models are set up")
def test_ten_appends_in_a_row_on_disk(tmp_path):
    """Rows of a store that grows: old ones are known by their checksums, but for the last chunk."""
    n, share = 3000, 140

    def part(first, last):
        return {"x": X[first:last], "y": Y[first:last].astype(np.int8)}

    def built(store):
        with pm.Model() as model:
            x, y = stored_data("x", store["x"]), stored_data("y", store["y"])
            level, slope = pm.Normal("level"), pm.Normal("slope")
            pm.Bernoulli("clicked", logit_p=level + slope * x, observed=y)
        return model

    store = RowStore.write(part(0, n), tmp_path / "clicks.rows", chunk_rows=1000)
    step = quiet(built(store))
    for k in range(10):
        store = store.append(part(n + k * share, n + (k + 1) * share))
        step = step.with_more_rows(built(store), progressbar=False)
        assert step.recipe.n_local == n + (k + 1) * share
    anew = quiet(step.model)
    fit, other = step.recipe.mode_fit, anew.recipe.mode_fit
    total = sums_again(step, step.model.initial_point())
    np.testing.assert_allclose(fit.expansion.hessian, total.hessian, rtol=1e-9)
    np.testing.assert_allclose(fit.expansion.gradient, total.gradient, atol=1e-6)
    assert np.abs(other.whiten @ (fit.proxy.mode - other.proxy.mode)).max() < 0.1
    idata = pma.sample(
        200, tune=50, chains=2, cores=1, random_seed=1, quiet=True, step=step, model=step.model
    )
    assert idata["sample_stats"]["acceptance_rate"].mean() > 0.85


def changed(x, y):
    x = x.copy()
    x[17] += 1.0
    return x, y


def far(x, y):
    y = y.copy()
    y[N:] = 1 - y[N:]
    x = x.copy()
    x[N:] *= 3.0
    return x, y


@pytest.mark.parametrize("change", [changed, far])
def test_what_does_not_continue_is_searched_for(change):
    """An earlier row that is another one now; new rows that move the mode by many standard deviations."""
    model = model_of(N)
    step = quiet(model)
    x, y = change(X, Y)
    grown(model, MORE, x, y)
    more = step.with_more_rows(progressbar=False)
    assert searched(more)
    total = sums_again(more, model.initial_point())
    np.testing.assert_allclose(more.recipe.mode_fit.expansion.hessian, total.hessian, rtol=1e-9)


def nested(table, n):
    """Coefficients of the rows are functions of a table: a logarithm of a sum, as of a nested logit."""
    with pm.Model() as model:
        z, x, y = pm.Data("z", table), pm.Data("x", X[:n]), pm.Data("counts", COUNTS[:n])
        power, level = pm.TruncatedNormal("power", 1, 1, lower=0.2), pm.Normal("level")
        pm.Poisson("y", pm.math.exp(level + 0.05 * x * pm.math.logsumexp(power * z)), observed=y)
    return model


@pytest.mark.slow("three set-ups with features")
def test_coefficients_of_the_rows_that_become_others_are_searched_for():
    """A table that every row reads grows with the rows, or does not."""
    table = RNG.normal(size=400)
    model = nested(table[:300], N)
    step = quiet(model)
    with model:
        pm.set_data({"x": X, "counts": COUNTS})
    more = step.with_more_rows(progressbar=False)
    assert more.recipe.mode_fit.of_features is not None
    assert not searched(more)
    require_sums(more, model)
    with model:
        pm.set_data({"z": table})
    more = step.with_more_rows(progressbar=False)
    assert searched(more)
    require_sums(more, model)


def test_bounds_that_are_wide_are_found_anew():
    """New rows whose covariates are many times as large, under a prior that holds the mode."""
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(size=N), 60.0 * rng.normal(size=MORE - N)])
    y = rng.binomial(1, expit(0.02 * x))

    def data(n):
        return {"x": x[:n], "y": y[:n]}

    with pm.Model() as model:
        values, observed = (pm.Data(name, one) for name, one in data(N).items())
        slope = pm.Normal("slope", 0.02, 0.01)
        pm.Bernoulli("clicked", logit_p=pm.Normal("level") + slope * values, observed=observed)
    step = quiet(model)
    with model:
        pm.set_data(data(MORE))
    more, anew = step.with_more_rows(progressbar=False), quiet(model)
    assert not more.reads_all
    assert more.prediction.terms < 2.0 * anew.prediction.terms + 2.0


def test_another_model_is_searched_for():
    """Priors differ, or rows are another function."""
    step = quiet(model_of(N))
    other = model_of(MORE)
    with other:
        pm.Potential("more", -((other["slope"] - 3.0) ** 2))
    assert searched(step.with_more_rows(other, progressbar=False))
    assert not searched(step.with_more_rows(model_of(MORE), progressbar=False))


def test_a_field_of_effects_is_set_up_anew(caplog):
    group = np.arange(MORE) % 40
    with pm.Model() as model:
        at, data, x = pm.Data("at", group[:N]), pm.Data("of_y", Y[:N]), pm.Data("x", X[:N])
        scale = pm.HalfNormal("scale")
        effect = pm.Normal("effect", 0, scale, shape=40)
        pm.Bernoulli("y", logit_p=effect[at] + 0.5 * x, observed=data)
    step = quiet(model)
    with model:
        pm.set_data({"at": group, "of_y": Y, "x": X})
    with caplog.at_level("INFO", "pymc.austerity"):
        more = step.with_more_rows(progressbar=False)
    assert "the step before does not serve for these data, and all is set up anew" in caplog.text
    assert more.recipe.is_field
    assert more.recipe.n_local == MORE
