"""Two crossed factors on the graph of a model, and what is said where they are in another form."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity.acceptance import TTest
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.plates import limits
from pymc_austerity.model.plates.crossed import CrossedModel
from pymc_austerity.model.plates.gathers import LargeFactor, NoPlate
from pymc_austerity.step_methods.metropolis.options import checked_options
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.step_methods.metropolis.plate_search import plate_for
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR
from tests.kernels.plates.cases import survey_of_model
from tests.kernels.plates.crossed_cases import crossed_of

N, G, H = 800, 60, 40
RNG = np.random.default_rng(81)
X, GROUPS, LEVELS = RNG.normal(size=(N, 2)), RNG.integers(G, size=N), RNG.integers(H, size=N)
THIRD, Y = RNG.integers(35, size=N), RNG.integers(2, size=N)


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    """Factors of 35 levels are large."""
    monkeypatch.setattr(limits, "MOST_SHARED", 20)


def scales():
    return pm.HalfNormal("tau"), pm.HalfNormal("tau_v")


def model_of(effects):
    """A model with these in the predictor."""
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 2.0, shape=2)
        pm.Bernoulli("y", logit_p=X @ beta + effects(), observed=Y)
    return model


def centered():
    tau, tau_v = scales()
    return pm.Normal("u", 0.0, tau, shape=G)[GROUPS] + pm.Normal("v", 0.0, tau_v, shape=H)[LEVELS]


def standardised():
    tau, tau_v = scales()
    return tau * pm.Normal("u", shape=G)[GROUPS] + (0.3 + tau_v * pm.Normal("v", shape=H))[LEVELS]


def around_means():
    tau, tau_v = scales()
    mu = pm.Normal("mu")
    u = pm.Normal("u", 2.0 * mu - 1.0, tau, shape=G)
    return u[GROUPS] + pm.Normal("v", np.zeros(H), tau_v, shape=H)[LEVELS]


def with_a_small_third():
    return centered() + pm.Normal("w", 0.0, pm.HalfNormal("tau_w"), shape=4)[THIRD % 4]


@pytest.mark.parametrize("effects", [centered, standardised, around_means, with_a_small_third])
@pytest.mark.covering(2)
def test_two_plates(effects):
    with pytest.raises(LargeFactor, match="one has to be nested in the other, or to be crossed"):
        survey_of_model(model_of(effects))
    crossed = crossed_of(model_of(effects))
    assert crossed.effects == ("u", "v")
    first, second = crossed.plates
    assert (first.n_groups, second.n_groups) == (G, H)
    assert first.is_centered is second.is_centered is (effects is not standardised)
    # In either turn the other effects and their scale are kept.
    assert not {"v", "tau_v_log__"} & set(first.factorisation.var_names)
    assert not {"u", "tau_log__"} & set(second.factorisation.var_names)
    rows = np.arange(N)
    np.testing.assert_array_equal(first.rows.groups(rows), GROUPS)
    np.testing.assert_array_equal(second.rows.groups(rows), LEVELS)
    if effects is around_means:  # of effects that are kept the location moves
        names = [second.shared.coordinate(int(k))[0] for k in second.rows.dense]
        column = second.rows(rows).x[:, names.index("mu")]
        np.testing.assert_array_equal(column, 2.0)
        np.testing.assert_array_equal(second.rows(rows).offsets, -1.0)


def test_nested_factors_are_not_crossed():
    parents = np.arange(G) % H

    def nested():
        tau, tau_v = scales()
        v = pm.Normal("v", 0.0, tau_v, shape=H)
        return pm.Normal("u", 0.0, tau, shape=G)[GROUPS] + v[parents[GROUPS]]

    assert crossed_of(model_of(nested)) is None


def random_slopes():
    return centered() + pm.Normal("b", 0.0, pm.HalfNormal("tau_b"), shape=G)[GROUPS] * X[:, 0]


def slope_alone():
    tau, tau_v = scales()
    v = pm.Normal("v", 0.0, tau_v, shape=H)
    return pm.Normal("u", 0.0, tau, shape=G)[GROUPS] + v[LEVELS] * X[:, 0]


def twice_as_much():
    tau, tau_v = scales()
    return pm.Normal("u", 0.0, tau, shape=G)[GROUPS] + 2.0 * pm.Normal("v", 0.0, tau_v, shape=H)[LEVELS]


def difference():
    tau, tau_v = scales()
    v = pm.Normal("v", pm.Normal("mu"), tau_v, shape=H)
    return pm.Normal("u", 0.0, tau, shape=G)[GROUPS] - v[LEVELS]


def three():
    return centered() + pm.Normal("w", 0.0, pm.HalfNormal("tau_w"), shape=35)[THIRD]


def in_the_location():
    tau, tau_v = scales()
    v = pm.Normal("v", 0.0, tau_v, shape=H)
    return pm.Normal("u", v[np.arange(G) % H], tau, shape=G)[GROUPS] + v[LEVELS]


def not_normal():
    tau, tau_v = scales()
    return (
        pm.StudentT("u", 4.0, mu=0.0, sigma=tau, shape=G)[GROUPS]
        + pm.Normal("v", 0.0, tau_v, shape=H)[LEVELS]
    )


def one_scale():
    tau = pm.HalfNormal("tau")
    return pm.Normal("u", 0.0, tau, shape=G)[GROUPS] + pm.Normal("v", 0.0, 2.0 * tau, shape=H)[LEVELS]


def location_by_group():
    tau, tau_v = scales()
    u = pm.Normal("u", pm.Normal("mu") * np.linspace(-1.0, 1.0, G), tau, shape=G)
    return u[GROUPS] + pm.Normal("v", 0.0, tau_v, shape=H)[LEVELS]


def more_levels_than_rows():
    tau, tau_v = scales()
    return pm.Normal("u", 0.0, tau, shape=N + 1)[GROUPS] + pm.Normal("v", 0.0, tau_v, shape=H)[LEVELS]


def in_a_potential():
    tau, tau_v = scales()
    v = pm.Normal("v", 0.0, tau_v, shape=H)
    pm.Potential("p", -(v.sum() ** 2))
    return pm.Normal("u", 0.0, tau, shape=G)[GROUPS] + v[LEVELS]


REASONS = {
    random_slopes: "are effects of the same groups, as random slopes are",
    slope_alone: "'v' is multiplied by data in rows of the term 'y', and random slopes of one factor",
    difference: "contain the difference of 'u' and 'v', .* write [+] in the place of -",
    twice_as_much: "not functions of the sum of 'u' and 'v'",
    three: "there are three large factors, 'u', 'v', 'w'",
    in_the_location: "the prior of 'u' depends on 'v', and rows look up both",
    not_normal: "the prior of 'u' is Student",
    one_scale: "functions of the same variable, 'tau'",
    location_by_group: "the location of 'u' differs by group",
    more_levels_than_rows: "'u' has more levels than there are rows",
    in_a_potential: "the effects 'v' enter the term 'p', too",
}


@pytest.mark.parametrize("effects", list(REASONS), ids=lambda effects: effects.__name__)
def test_reason(effects):
    with pytest.raises(NoPlate, match=REASONS[effects]):
        crossed_of(model_of(effects))


def test_free_dispersions():
    with pm.Model() as model:
        eta = X @ pm.Normal("beta", 0.0, 2.0, shape=2) + centered()
        pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=pm.Gamma("alpha", 2.0, 0.5), observed=Y)
    with pytest.raises(NoPlate, match="'y' has a free dispersion or the like, and .* are crossed factors"):
        crossed_of(model)


def plates_for(model, rule):
    with interpreted():
        options = checked_options(None, rule, control_variate=TAYLOR, model=model, threshold=100)
        point = model.initial_point()
        return plate_for(options, factorised(options, point), point)


def test_steps_on_crossed_factors():
    assert isinstance(plates_for(model_of(centered), EXACT), CrossedModel)
    assert "three large factors" in str(plates_for(model_of(three), EXACT))
    # Of tests on subsamples the errors of two kinds of turns would add up.
    found = plates_for(model_of(centered), TTest())
    assert isinstance(found, NoPlate)
    assert "'u' and 'v' are crossed factors, whose moves are decided exactly: use TunaMH()" in str(found)
