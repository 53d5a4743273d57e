"""Spellings of one plate, and of its likelihood, are found with the right rows."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.mode.plates.center import PlateSurvey
from pymc_austerity.mode.plates.expansion import predictors_at, with_phi
from tests.model.plates.plates import (
    COUNTS,
    DESIGN,
    EXPOSURE,
    GROUPS,
    POSITIVE,
    REALS,
    TRIALS,
    G,
    N,
    X,
    bernoulli,
    beta,
    built,
    plate_in,
    regression,
    scale,
)

LEVELS = np.arange(N) % 3


def _u():
    return pm.Normal("u", 0.0, scale(), shape=G)[GROUPS]


def both_scaled():
    v = pm.HalfNormal("tau_v") * pm.Normal("z_v", shape=5)
    u = pm.Deterministic("u", pm.Normal("mu") + scale() * pm.Normal("z", shape=G))
    return u[GROUPS] + v[np.arange(N) % 5]


# Effects in a logistic regression, and whether they are centred.
EFFECTS = {
    "scaled_around_a_design": (
        lambda: (DESIGN @ pm.Normal("gamma", shape=2) + scale() * pm.Normal("z", shape=G))[GROUPS],
        False,
    ),
    "both_scaled": (both_scaled, False),
    "effects_of_student": (lambda: pm.StudentT("u", 4.0, mu=0.0, sigma=scale(), shape=G)[GROUPS], True),
    "student_of_free_degrees": (
        lambda: pm.StudentT("u", pm.Gamma("nu", 4.0, 1.0), mu=pm.Normal("mu"), sigma=scale(), shape=G)[
            GROUPS
        ],
        True,
    ),
    "scaled_student": (
        lambda: (pm.Normal("mu") + scale() * pm.StudentT("z", 4.0, mu=0.0, sigma=1.0, shape=G))[GROUPS],
        False,
    ),
    "cauchy": (lambda: pm.Cauchy("u", 0.0, scale(), shape=G)[GROUPS], True),
    "laplace": (lambda: pm.Laplace("u", 0.0, scale(), shape=G)[GROUPS], True),
    "logistic": (lambda: pm.Logistic("u", pm.Normal("mu"), scale(), shape=G)[GROUPS], True),
    "centered": (_u, True),
    "around_mu": (lambda: pm.Normal("u", pm.Normal("mu"), scale(), shape=G)[GROUPS], True),
    "around_a_design": (
        lambda: pm.Normal("u", DESIGN @ pm.Normal("gamma", shape=2), scale(), shape=G)[GROUPS],
        True,
    ),
    "scaled_before_the_lookup": (
        lambda: pm.Deterministic("u", pm.Normal("mu") + scale() * pm.Normal("z", shape=G))[GROUPS],
        False,
    ),
    "scaled_after_the_lookup": (lambda: scale() * pm.Normal("z", shape=G)[GROUPS], False),
    "root_of_variance": (lambda: pm.Normal("u", 0.0, pm.math.sqrt(scale()), shape=G)[GROUPS], True),
    "precision": (lambda: pm.Normal("u", 0.0, tau=pm.Gamma("tau", 2, 2), shape=G)[GROUPS], True),
    "over_root_of_precision": (
        lambda: (pm.Normal("z", shape=G) / pm.math.sqrt(pm.Gamma("tau", 2, 2)))[GROUPS],
        False,
    ),
    "within_an_interval": (lambda: pm.Normal("u", 0.0, pm.Uniform("tau", 0, 5), shape=G)[GROUPS], True),
    "bytes_as_indices": (lambda: pm.Normal("u", 0.0, scale(), shape=G)[GROUPS.astype(np.int8)], True),
    "negative_indices": (
        lambda: pm.Normal("u", 0.0, scale(), shape=G)[np.where(GROUPS % 2 == 0, GROUPS - G, GROUPS)],
        True,
    ),
}


def dims_and_data():
    b = pm.Normal("beta", dims="column")
    u = pm.Normal("u", 0.0, scale(), dims="group")
    bernoulli(pm.Data("x", X) @ b + u[pm.Data("groups", GROUPS)])


def columns():
    b = beta()
    bernoulli(b[0] * X[:, 0] + X[:, 1] * b[1] + _u())


SPELLINGS = {name: (regression(effects), centered) for name, (effects, centered) in EFFECTS.items()} | {
    "dims_and_data": (dims_and_data, True),
    "columns": (columns, True),
    "deterministic_between": (lambda: bernoulli(pm.Deterministic("eta", X @ beta() + _u())), True),
}


def require_rows(plate):
    """The rows say what the predictor is: x . beta + u_g, with 1 for other linear coordinates."""
    some = np.arange(0, N, 7)
    rows = plate.rows(some)
    assert (rows.groups == GROUPS[some]).all()
    np.testing.assert_allclose(columns_of(plate, rows, "beta"), X[some], rtol=1e-12)
    assert plate.n_groups == G


def columns_of(plate, rows, name):
    """Of some rows, for a variable."""
    return rows.x[:, np.searchsorted(plate.rows.dense, places_of(plate, name))]


def places_of(plate, name):
    """Coordinates of a variable in theta."""
    names = [plate.factorisation.coordinate(k)[0] for k in range(plate.n_shared)]
    return np.flatnonzero(np.array(names) == name)


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.covering(7)
def test_spelling(name):
    define, centered = SPELLINGS[name]
    model = built(define)
    plate = plate_in(model)
    assert plate is not None
    assert plate.is_centered == centered
    require_rows(plate)
    assert set(plate.factorisation.var_names) == {v.name for v in model.value_vars}
    assert plate.factorisation.var_names[-1:] == plate.effects


@pytest.mark.parametrize(
    ("spelling", "name", "expected"),
    [("around_mu", "mu", np.ones((G, 1))), ("around_a_design", "gamma", DESIGN)],
)
def test_locations_of_effects(spelling, name, expected):
    model = built(SPELLINGS[spelling][0])
    survey = PlateSurvey(plate_in(model), model.initial_point())
    places = places_of(survey.plate, name)
    matrix = np.zeros((G, survey.plate.n_shared))
    matrix[:, survey.located.coordinates] = survey.located.matrix
    np.testing.assert_allclose(matrix[:, places], expected)
    assert not np.delete(matrix, places, axis=1).any()
    assert not survey.located.base.any()


def test_a_design_of_groups_is_looked_up_by_rows():
    plate = plate_in(built(SPELLINGS["scaled_around_a_design"][0]))
    some = np.arange(0, N, 7)
    own = np.searchsorted(plate.rows.dense, places_of(plate, "gamma"))
    np.testing.assert_allclose(plate.rows(some).x[:, own], DESIGN[GROUPS[some]], rtol=1e-12)


def eta():
    return X @ beta() + _u()


def mean():
    return pm.math.exp(eta())


LIKELIHOODS = {
    "free_dispersion": lambda: pm.NegativeBinomial(
        "y", mu=mean(), alpha=pm.HalfNormal("alpha"), observed=COUNTS
    ),
    "share_of_zeros": lambda: pm.ZeroInflatedPoisson(
        "y", psi=pm.Beta("psi", 2, 2), mu=mean(), observed=COUNTS
    ),
    "residuals_of_different_scales": lambda: pm.Normal(
        "y", eta(), pm.HalfNormal("sigma") * EXPOSURE, observed=REALS
    ),
    "free_student": lambda: pm.StudentT(
        "y", nu=pm.Gamma("nu", 2, 0.1), mu=eta(), sigma=pm.HalfNormal("sigma"), observed=REALS
    ),
    "binomial": lambda: pm.Binomial("y", n=TRIALS, logit_p=eta(), observed=np.minimum(COUNTS, TRIALS)),
    "exposures_as_factors": lambda: pm.Poisson("y", EXPOSURE * mean(), observed=COUNTS),
    "gamma": lambda: pm.Gamma("y", alpha=3.0, beta=3.0 / mean(), observed=POSITIVE),
    "normal": lambda: pm.Normal("y", eta(), 0.7, observed=REALS),
}


def terms_by_rows(plate, survey, theta, effects):
    """f at the predictors that the rows give, by the expression of the plate."""
    rows = survey.rows
    predictors = with_phi(predictors_at(rows, theta[survey.linear], effects), survey.phi(theta))
    return evaluate(plate.expression, list(predictors), dict(enumerate(rows.data)))


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.covering(5)
def test_likelihood(name):
    """The function of the predictor and of shared numbers adds up to the model's own term."""
    model = built(LIKELIHOODS[name])
    plate = plate_in(model)
    assert plate is not None
    assert not plate.is_normal
    require_rows(plate)
    require_same_sum(model, plate)


def require_same_sum(model, plate):
    """The terms by rows add up to the model's own term, but for a constant."""
    point = model.initial_point()
    survey = PlateSurvey(plate, point)
    own = model.compile_fn(
        model.logp(model["y"]), inputs=model.value_vars, on_unused_input="ignore", mode="FAST_COMPILE"
    )
    rng, found = np.random.default_rng(32), []
    for _ in range(3):
        near = {name: value + 0.3 * rng.standard_normal(value.shape) for name, value in point.items()}
        theta = np.concatenate([np.ravel(near[name]) for name in plate.factorisation.var_names[:-1]])
        found.append(own(near) - terms_by_rows(plate, survey, theta, near["u"]).sum())
    np.testing.assert_allclose(found, found[0], rtol=0, atol=1e-7)


PUT_TOGETHER = {
    "stacked": lambda: pm.math.dot(X, pt.stack([pm.Normal("b"), pm.Normal("c")])),
    "concatenated": lambda: (
        X * pt.concatenate([pt.atleast_1d(pm.Normal("b")), pm.Normal("c", shape=1)])
    ).sum(axis=1),
    "with_a_reference": lambda: X @ beta() + pt.concatenate([[0.4], pm.Normal("c", shape=2)])[LEVELS],
    "levels_put_together": lambda: X @ beta() - pt.stack([pm.Normal(name) for name in "cde"])[LEVELS],
    "sums_to_zero": lambda: X @ beta() + pm.ZeroSumNormal("c", shape=3)[LEVELS],
    "standardised_coefficients": lambda: (X - 0.3) @ (beta() / X.std(axis=0)) + 0.1,
    "means_of_groups": lambda: (
        (pt.stack([pm.Normal("b"), pm.Normal("c")])[np.arange(G) % 2])[GROUPS] + X @ beta()
    ),
}


@pytest.mark.parametrize("name", PUT_TOGETHER)
@pytest.mark.covering(3)
def test_coefficients_are_put_together(name):
    model = built(lambda: bernoulli(PUT_TOGETHER[name]() + _u()))
    plate = plate_in(model)
    assert plate is not None
    require_same_sum(model, plate)
    assert len(plate.rows.places) == plate.n_shared - 1  # all but the scale


def one_scale_for_both():
    tau = scale()
    u = pm.Normal("u", 0.0, tau, shape=G)
    pm.Normal("y", X @ beta() + u[GROUPS], 2.0 * tau, observed=REALS)


NORMAL = {
    "free_sigma": lambda: pm.Normal("y", eta(), pm.HalfNormal("sigma"), observed=REALS),
    "free_precision": lambda: pm.Normal("y", eta(), tau=pm.Gamma("sigma", 2, 2), observed=REALS),
    "one_scale_for_both": one_scale_for_both,
}


@pytest.mark.parametrize("name", NORMAL)
def test_normal_residuals_may_have_a_free_scale(name):
    plate = plate_in(built(NORMAL[name]))
    assert plate is not None
    assert plate.is_normal
    require_rows(plate)


def test_a_second_factor_is_among_the_shared_coefficients():
    other = np.arange(N) % 31

    def define():
        v = pm.Normal("v", shape=31)
        bernoulli(X @ beta() + _u() + v[other])

    plate = plate_in(built(define))
    assert plate.effects == ("u",)
    assert len(plate.rows.places) == 2 + 31
    np.testing.assert_array_equal(plate.rows.dense, places_of(plate, "beta"))
    np.testing.assert_array_equal(plate.rows.factors, [places_of(plate, "v")])
    np.testing.assert_array_equal(plate.rows.levels(np.arange(N)), [places_of(plate, "v")[other]])


def test_effects_may_stand_at_any_place_of_the_block():
    def define():
        u = pm.Normal("u", 0.0, 1.0, shape=G)
        bernoulli(scale() * u[GROUPS] + X @ beta())

    plate = plate_in(built(define))
    rows = plate.rows(np.arange(5))
    np.testing.assert_allclose(columns_of(plate, rows, "beta"), X[:5])
    assert plate.factorisation.var_names[-1] == "u"


def second_factor(location, spread):
    def define():
        b = beta()
        v = pm.Normal("v", location(b), spread(b), shape=7)
        bernoulli(X @ b + _u() + v[np.arange(N) % 7])

    return define


@pytest.mark.parametrize(
    ("location", "spread", "n"),
    [
        pytest.param(lambda b: 0.0, lambda b: pm.HalfNormal("tau_v"), 1, id="its own scale"),
        pytest.param(lambda b: pm.Normal("m"), lambda b: pm.HalfNormal("tau_v"), 1, id="and location"),
        pytest.param(lambda b: 0.0, lambda b: 1.5, 0, id="a fixed scale"),
        pytest.param(lambda b: 0.0, lambda b: pm.math.exp(b[0]), 0, id="a scale by a coefficient"),
        pytest.param(
            lambda b: 0.0, lambda b: pm.HalfNormal("tau_v") * np.arange(1.0, 8.0), 0, id="scales that differ"
        ),
    ],
)
def test_effects_of_a_second_factor(location, spread, n):
    """Those that have one scale, which is sampled and is no function of coefficients."""
    plate = plate_in(built(second_factor(location, spread)))
    assert plate.effects == ("u",)
    assert len(plate.inner) == n
    for one in plate.inner:
        np.testing.assert_array_equal(one.coordinates, places_of(plate, "v"))


def test_data_minus_one_and_take():
    """Labels that begin at one."""

    def define():
        u = pm.Normal("u", 0.0, scale(), shape=G)
        bernoulli(X @ beta() + pt.take(u, pm.Data("groups", GROUPS + 1) - 1) * np.ones(N))

    plate = plate_in(built(define))
    assert plate is not None
    require_rows(plate)
