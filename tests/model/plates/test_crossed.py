"""Two crossed factors on the graph of a model, and what is said where they are in another form."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity.acceptance import TTest
from pymc_austerity.mode.fields.field_model import FieldModel
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


def u(location=0.0, n_groups=G):
    """Effects of the first factor, of each row."""
    return pm.Normal("u", location, pm.HalfNormal("tau"), shape=n_groups)[GROUPS]


def second(location=0.0):
    """Effects of the second factor."""
    return pm.Normal("v", location, pm.HalfNormal("tau_v"), shape=H)


def v(location=0.0):
    """And of each row."""
    return second(location)[LEVELS]


def model_of(effects):
    """A model with these in the predictor."""
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 2.0, shape=2)
        pm.Bernoulli("y", logit_p=X @ beta + effects(), observed=Y)
    return model


def centered():
    return u() + v()


def standardised():
    tau, tau_v = pm.HalfNormal("tau"), pm.HalfNormal("tau_v")
    return tau * pm.Normal("u", shape=G)[GROUPS] + (0.3 + tau_v * pm.Normal("v", shape=H))[LEVELS]


def around_means():
    return u(2.0 * pm.Normal("mu") - 1.0) + v(np.zeros(H))


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

    assert crossed_of(model_of(lambda: u() + second()[parents[GROUPS]])) is None


def three():
    return centered() + pm.Normal("w", 0.0, pm.HalfNormal("tau_w"), shape=35)[THIRD]


def in_the_location():
    effects = second()
    return u(effects[np.arange(G) % H]) + effects[LEVELS]


def one_scale():
    tau = pm.HalfNormal("tau")
    return pm.Normal("u", 0.0, tau, shape=G)[GROUPS] + pm.Normal("v", 0.0, 2.0 * tau, shape=H)[LEVELS]


def in_a_potential():
    effects = second()
    pm.Potential("p", -(effects.sum() ** 2))
    return u() + effects[LEVELS]


REASONS = {
    "random_slopes": (
        lambda: centered() + pm.Normal("b", 0.0, pm.HalfNormal("tau_b"), shape=G)[GROUPS] * X[:, 0],
        "are effects of the same groups, as random slopes are",
    ),
    "slope_alone": (
        lambda: u() + v() * X[:, 0],
        "'v' is multiplied by data in rows of the term 'y', and random slopes of one factor",
    ),
    "difference": (
        lambda: u() - v(pm.Normal("mu")),
        "contain the difference of 'u' and 'v', .* write [+] in the place of -",
    ),
    "twice_as_much": (lambda: u() + 2.0 * v(), "not functions of the sum of 'u' and 'v'"),
    "three": (three, "there are three large factors, 'u', 'v', 'w'"),
    "in_the_location": (in_the_location, "the prior of 'u' depends on 'v', and rows look up both"),
    "not_normal": (
        lambda: pm.StudentT("u", 4.0, mu=0.0, sigma=pm.HalfNormal("tau"), shape=G)[GROUPS] + v(),
        "the prior of 'u' is Student",
    ),
    "one_scale": (one_scale, "functions of the same variable, 'tau'"),
    "location_by_group": (
        lambda: u(pm.Normal("mu") * np.linspace(-1.0, 1.0, G)) + v(),
        "the location of 'u' differs by group",
    ),
    "more_levels_than_rows": (lambda: u(n_groups=N + 1) + v(), "'u' has more levels than there are rows"),
    "in_a_potential": (in_a_potential, "the effects 'v' enter the term 'p', too"),
}


@pytest.mark.parametrize("name", REASONS)
def test_reason(name):
    effects, message = REASONS[name]
    with pytest.raises(NoPlate, match=message):
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
    assert isinstance(plates_for(model_of(three), EXACT), FieldModel)
    assert isinstance(plates_for(model_of(centered), TTest()), FieldModel)  # which is tested by nodes
