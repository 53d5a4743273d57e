"""Which fields steps move: spellings that are one model, what is refused and why, and variables of others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.basic import NormalRV

from pymc_austerity import TunaMH
from pymc_austerity.mode.fields.field_model import FieldModel
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.field import priors
from pymc_austerity.step_methods.metropolis.field_plan import FieldRecipe, field_of
from pymc_austerity.step_methods.metropolis.options import checked_options
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR
from pymc_austerity.testing.steps import move
from tests.models import as_model

N, G = 1200, 32
RNG = np.random.default_rng(31)
X = RNG.normal(size=(N, 2))
GROUPS = RNG.integers(0, G, N)
U = RNG.normal(0.0, 0.5, G)
ETA = X @ [0.5, -0.3] + U[GROUPS]
Y = (RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(int)
COUNTS = RNG.poisson(np.exp(ETA))
REALS = ETA + RNG.normal(size=N)


@as_model
def built(define: Callable[[], Any]) -> pm.Model:
    """The model that a function defines."""
    define()


def found(define: Callable[[], Any], names: list[str] | None = None) -> Any:
    """The field of a model, for a step that moves the variables of these names, or all; or why none."""
    model = built(define)
    with interpreted():
        vars = None if names is None else [model[name] for name in names]
        options = checked_options(vars, EXACT, control_variate=TAYLOR, model=model)
        point = model.initial_point()
        return field_of(options, factorised(options, point), point)


def beta() -> Any:
    return pm.Normal("beta", 0.0, 2.0, shape=2)


def scale() -> Any:
    return pm.HalfNormal("tau", 1.0)


def bernoulli(eta: Any) -> Any:
    return pm.Bernoulli("y", logit_p=eta, observed=Y)


# Two spellings of each model ----------------------------------------------------------------------

DAYS, BLOCKS = np.arange(N) % 7, GROUPS % 8
ONES = (GROUPS[:, None] == np.arange(G)).astype(float)
# So many groups that a matrix of their effects is as long as data.
MANY = 500
OF_MANY = np.arange(N) % MANY
KEPT = np.arange(G + 8) % 5 < 4  # so many as there are groups
W = np.c_[np.ones(N), X[:, 0]]


def normal(**kwargs):
    return pm.Normal("u", 0.0, scale(), **kwargs)


def scaled(**kwargs):
    return scale() * pm.Normal("u", **kwargs)


def factor():
    return pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(2, shape=2))[0]


def correlated(n_groups=G):
    """An intercept and a slope, not centred."""
    return pt.dot(factor(), pm.Normal("z", shape=(2, n_groups))).T


def with_slopes(effects):
    """The usual spelling, beside means of both."""

    def define():
        u = effects()
        a, b = pm.Normal("a"), pm.Normal("b")
        bernoulli(a + b * X[:, 0] + u[GROUPS, 0] + u[GROUPS, 1] * X[:, 0])

    return define


def with_rows_of(effects):
    """All effects of a group at once."""

    def define():
        u = effects()
        a, b = pm.Normal("a"), pm.Normal("b")
        bernoulli(a + b * X[:, 0] + (u[GROUPS] * W).sum(axis=-1))

    return define


def mean_inside():
    u = correlated()
    bernoulli(pm.Normal("a") + u[GROUPS, 0] + (pm.Normal("b") + u[GROUPS, 1]) * X[:, 0])


def columns_first():
    u = correlated()
    intercepts, slopes = u[:, 0], u[:, 1]
    bernoulli(pm.Normal("a") + pm.Normal("b") * X[:, 0] + intercepts[GROUPS] + slopes[GROUPS] * X[:, 0])


def predictor(effects):
    """The effects of rows beside coefficients of data."""
    return lambda: bernoulli(X @ beta() + effects())


def of_many_groups():
    u = correlated(MANY)
    bernoulli(X @ beta() + u[OF_MANY, 0] + u[OF_MANY, 1] * X[:, 0])


def of_many_groups_by_right_product():
    u = pm.Normal("z", shape=(MANY, 2)) @ factor().T
    bernoulli(X @ beta() + u[OF_MANY, 0] + u[OF_MANY, 1] * X[:, 0])


def independent():
    return pm.Normal("u", 0.0, pm.HalfNormal("tau", shape=2), shape=(G, 2))


def independent_scaled():
    return pm.HalfNormal("tau", shape=2) * pm.Normal("u", shape=(G, 2))


def two_vectors():
    tau = pm.HalfNormal("tau", shape=2)
    u, v = (pm.Normal(name, 0.0, tau[k], shape=G) for k, name in enumerate("uv"))
    a, b = pm.Normal("a"), pm.Normal("b")
    bernoulli(a + b * X[:, 0] + u[GROUPS] + v[GROUPS] * X[:, 0])


def two_indices_of_location():
    mean = pm.Normal("mean", shape=8)
    bernoulli(X @ beta() + pm.Normal("u", mean[:, None], scale(), shape=(8, 7))[BLOCKS, DAYS])


def one_index_of_location():
    mean = pm.Normal("mean", shape=8)
    u = pm.Normal("u", mean[np.arange(56) // 7], scale(), shape=56)
    bernoulli(X @ beta() + u[BLOCKS * 7 + DAYS])


def around(mean, shape):
    return pm.Normal("u", mean, scale(), shape=shape)


def beside_one(cells):
    """Cells of two short factors beside many groups."""

    def define():
        v = pm.Normal("v", 0.0, pm.HalfNormal("tau_v"), shape=G)
        bernoulli(X @ beta() + v[GROUPS] + cells())

    return define


SPELLINGS = {
    "two indices": (
        predictor(lambda: normal(shape=(G, 7))[GROUPS, DAYS]),
        predictor(lambda: normal(shape=G * 7)[GROUPS * 7 + DAYS]),
    ),
    "two indices, scaled": (
        predictor(lambda: scaled(shape=(G, 7))[GROUPS, DAYS]),
        predictor(lambda: scaled(shape=G * 7)[GROUPS * 7 + DAYS]),
    ),
    "two indices, nested": (two_indices_of_location, one_index_of_location),
    "cells beside groups": (
        beside_one(lambda: normal(shape=(3, 7))[BLOCKS % 3, DAYS]),
        beside_one(lambda: normal(shape=21)[BLOCKS % 3 * 7 + DAYS]),
    ),
    "cells beside groups, scaled": (
        beside_one(lambda: scaled(shape=(3, 7))[BLOCKS % 3, DAYS]),
        beside_one(lambda: scaled(shape=21)[BLOCKS % 3 * 7 + DAYS]),
    ),
    "cells with a location": (
        beside_one(lambda: around(pm.Normal("mean", shape=(3, 1)), (3, 7))[BLOCKS % 3, DAYS]),
        beside_one(lambda: around(pm.Normal("mean", shape=(3, 1)).repeat(7), 21)[BLOCKS % 3 * 7 + DAYS]),
    ),
    "less an effect": (
        predictor(lambda: -normal(shape=(G, 7))[GROUPS, DAYS]),
        predictor(lambda: -normal(shape=G * 7)[GROUPS * 7 + DAYS]),
    ),
    "a mask": (
        predictor(lambda: normal(shape=G + 8)[KEPT][GROUPS]),
        predictor(lambda: normal(shape=G + 8)[np.flatnonzero(KEPT)[GROUPS]]),
    ),
    "one column": (
        predictor(lambda: normal(shape=(G, 1))[GROUPS, 0]),
        predictor(lambda: normal(shape=G)[GROUPS]),
    ),
    "indicators": (
        predictor(lambda: pm.math.dot(ONES, normal(shape=G))),
        predictor(lambda: normal(shape=G)[GROUPS]),
    ),
    "indicators, scaled": (
        predictor(lambda: ONES @ scaled(shape=G)),
        predictor(lambda: scaled(shape=G)[GROUPS]),
    ),
    "sum over columns": (with_rows_of(correlated), with_slopes(correlated)),
    "mean inside": (mean_inside, with_slopes(correlated)),
    "columns first": (columns_first, with_slopes(correlated)),
    "many groups": (of_many_groups, of_many_groups_by_right_product),
    "independent": (with_slopes(independent), two_vectors),
    "independent, all at once": (with_rows_of(independent), two_vectors),
    "independent, scaled": (with_rows_of(independent_scaled), with_slopes(independent_scaled)),
}


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.covering(6)
def test_spellings_are_one_field(name):
    one, other = (found(define) for define in SPELLINGS[name])
    assert isinstance(one, FieldModel), one
    assert isinstance(other, FieldModel), other
    assert (one.n_effects, one.n_nodes) == (other.n_effects, other.n_nodes)
    assert one.n_nodes > G  # groups are nodes


def test_indicators_of_two_groups_are_no_look_up():
    """One row has numbers in two columns, and all columns stay a matrix."""

    def define():
        other = np.eye(G)[[(GROUPS[-1] + 1) % G]]
        bernoulli(X @ beta() + pm.math.dot(np.r_[ONES[:-1], ONES[-1:] + other], normal(shape=G)))

    assert found(define).n_nodes == 1


def drawn(model, name, vars=None):
    """An interpreted step, and its draws of a variable."""
    with interpreted():
        step = TunaMH(vars, model=model, switch_above=np.inf, progressbar=False)
        step.setup_chain(np.random.default_rng(4), 5, 25)
        points, _ = move(step, model.initial_point(), 10)
    return step, np.array([point[name] for point in points])


@pytest.mark.slow("pilots of two steps, interpreted")
def test_one_spelling_draws_as_another():
    """Effects of cells in a matrix, and in a vector."""
    paths = [drawn(built(define), "beta")[1] for define in SPELLINGS["two indices"]]
    np.testing.assert_allclose(*paths, rtol=1e-9)
    assert np.ptp(paths[0]) > 0.0


# What is no field, and why ------------------------------------------------------------------------

NEAR = (np.abs(np.arange(G)[:, None] - np.arange(G)) == 1).astype(int)


def in_a_potential():
    u = normal(shape=G)
    pm.Potential("p", -(u.sum() ** 2))
    bernoulli(X @ beta() + u[GROUPS])


REASONS = {
    "in a potential": (
        in_a_potential,
        "'u' (32, Normal), which are not moved together: effects enter the terms 'p', too",
    ),
    "scale of either sign": (
        lambda: bernoulli(X @ beta() + pm.Normal("tau", 0.7, 1.0) * pm.Normal("z", shape=G)[GROUPS]),
        "multiplied by a number that may be negative",
    ),
    "neighbours": (
        lambda: bernoulli(X @ beta() + (scale() * pm.ICAR("u", W=NEAR))[GROUPS]),
        "the rows have no intercept with a normal prior of a fixed scale",
    ),
    "no rule": (
        lambda: bernoulli(X @ beta() + pm.Gumbel("u", 0.0, scale(), shape=G)[GROUPS]),
        "the prior of 'u' has no rule",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_reason(name):
    define, reason = REASONS[name]
    said = str(found(define))
    assert reason in said
    assert said == reason or name != "no rule"
    assert "__" not in said  # names are those of the model


def outer_product():
    discrimination, ability = pm.HalfNormal("a", shape=(1, 6)), pm.Normal("t", shape=(N, 1))
    pm.Bernoulli("y", logit_p=discrimination * ability, observed=np.tile(GROUPS[:, None] % 2, 6))


def scales_of_columns():
    mean = pm.Normal("mu", shape=(2, 1))
    pm.Normal("y", mean, pm.HalfNormal("s", shape=3), observed=np.resize(X, (1331, 2, 3)))


def skewed():
    shape = pm.Normal("alpha", 0.0, 2.0, initval=1.0)
    pm.SkewNormal("y", mu=X @ beta(), sigma=scale(), alpha=shape, observed=X[:, 0])


UNLIKE = {
    "few groups": lambda: bernoulli(X @ beta() + pm.Normal("u", 0.0, scale(), shape=29)[GROUPS % 29]),
    "no groups": lambda: bernoulli(X @ beta()),
    "effects alone": lambda: bernoulli(pm.Normal("u", shape=G)[GROUPS]),
    "scales of columns": scales_of_columns,
    "skewed": skewed,
}


@pytest.mark.parametrize("name", UNLIKE)
@pytest.mark.covering(2)
def test_where_nothing_is_like_a_field_nothing_is_said(name):
    assert found(UNLIKE[name]) is None


TABLE = np.resize(Y, (G, 40))


def answers(effects, observed):
    return lambda: pm.Bernoulli("y", logit_p=effects(normal(shape=G)) + pm.Normal("a"), observed=observed)


WITHOUT_INDEX = {
    "repeated": (answers(lambda u: pt.repeat(u, 40), TABLE.ravel()), G),
    "tiled": (answers(lambda u: pt.tile(u, 40), TABLE.ravel()), G),
    "a table of answers": (answers(lambda u: u[:, None], TABLE), G),
    # Abilities in a table of answers, times numbers.
    "an outer product": (outer_product, N),
}


@pytest.mark.parametrize("name", WITHOUT_INDEX)
def test_effects_that_are_not_looked_up_by_an_index(name):
    define, n_groups = WITHOUT_INDEX[name]
    field = found(define)
    assert isinstance(field, FieldModel), field
    assert field.n_nodes == n_groups + 1
    assert field.layouts[0].columns.n_predictors == 1


def test_a_field_that_differs_from_its_model_is_not_described(monkeypatch):
    """A planted fault: a rule that doubles scales is said to differ, and nothing else is."""

    def doubled(drawn, rule=priors.RULES[NormalRV]):
        own = rule(drawn)
        return priors.replace(own, steps=(*own.steps, priors.Step("scale", pt.constant(2.0))))

    monkeypatch.setitem(priors.RULES, NormalRV, doubled)
    assert str(found(SPELLINGS["one column"][1])).startswith("the prior of 'beta' differs from its rule")


# Variables that other steps move ------------------------------------------------------------------


def around_mu():
    bernoulli(X @ beta() + pm.Normal("u", pm.Normal("mu"), scale(), shape=G)[GROUPS])


@pytest.mark.parametrize(
    ("names", "effects", "n_theta"),
    [
        (["tau", "u", "mu"], ("u", "mu"), 1),
        (["beta", "tau", "u"], ("beta", "u"), 1),
        (["beta", "mu", "u"], ("beta", "u", "mu"), 0),
    ],
)
def test_others_are_numbers(names, effects, n_theta):
    field = found(around_mu, names)
    assert isinstance(field, FieldModel), field
    assert (field.effects, len(field.layouts[0].which)) == (effects, n_theta)


@pytest.mark.slow("interpreted pilots")
@pytest.mark.parametrize("names", [["beta", "mu", "u"], ["mu", "u"]])
def test_a_step_that_moves_no_number(names):
    """Its root has no theta, or nothing at all."""
    step, draws = drawn(built(around_mu), "u", names)
    assert isinstance(step.recipe, FieldRecipe)
    assert np.ptp(draws, axis=0).min() > 0.0


def test_effects_whose_prior_is_fixed_are_coefficients():
    """No number of their prior is in the block, and there are few."""
    assert found(around_mu, ["u"]) is None
