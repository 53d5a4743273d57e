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
    Y,
    bernoulli,
    beta,
    built,
    plate_in,
    scale,
)

LEVELS = np.arange(N) % 3


def centered():
    bernoulli(X @ beta() + pm.Normal("u", 0.0, scale(), shape=G)[GROUPS])


def around_mu():
    u = pm.Normal("u", pm.Normal("mu"), scale(), shape=G)
    bernoulli(X @ beta() + u[GROUPS])


def around_a_design():
    u = pm.Normal("u", DESIGN @ pm.Normal("gamma", shape=2), scale(), shape=G)
    bernoulli(X @ beta() + u[GROUPS])


def scaled_before_the_lookup():
    u = pm.Deterministic("u", pm.Normal("mu") + scale() * pm.Normal("z", shape=G))
    bernoulli(X @ beta() + u[GROUPS])


def scaled_after_the_lookup():
    z = pm.Normal("z", shape=G)
    bernoulli(X @ beta() + scale() * z[GROUPS])


def root_of_variance():
    bernoulli(X @ beta() + pm.Normal("u", 0.0, pm.math.sqrt(scale()), shape=G)[GROUPS])


def precision():
    bernoulli(X @ beta() + pm.Normal("u", 0.0, tau=pm.Gamma("tau", 2, 2), shape=G)[GROUPS])


def over_root_of_precision():
    z = pm.Normal("z", shape=G) / pm.math.sqrt(pm.Gamma("tau", 2, 2))
    bernoulli(X @ beta() + z[GROUPS])


def within_an_interval():
    bernoulli(X @ beta() + pm.Normal("u", 0.0, pm.Uniform("tau", 0, 5), shape=G)[GROUPS])


def dims_and_data():
    b = pm.Normal("beta", dims="column")
    u = pm.Normal("u", 0.0, scale(), dims="group")
    bernoulli(pm.Data("x", X) @ b + u[pm.Data("groups", GROUPS)])


def bytes_as_indices():
    bernoulli(X @ beta() + pm.Normal("u", 0.0, scale(), shape=G)[GROUPS.astype(np.int8)])


def negative_indices():
    u = pm.Normal("u", 0.0, scale(), shape=G)
    bernoulli(X @ beta() + u[np.where(GROUPS % 2 == 0, GROUPS - G, GROUPS)])


def columns():
    b = beta()
    bernoulli(b[0] * X[:, 0] + X[:, 1] * b[1] + pm.Normal("u", 0.0, scale(), shape=G)[GROUPS])


def deterministic_between():
    b, u = beta(), pm.Normal("u", 0.0, scale(), shape=G)
    bernoulli(pm.Deterministic("eta", X @ b + u[GROUPS]))


def effects_of_student():
    bernoulli(X @ beta() + pm.StudentT("u", 4.0, mu=0.0, sigma=scale(), shape=G)[GROUPS])


def student_of_free_degrees():
    u = pm.StudentT("u", pm.Gamma("nu", 4.0, 1.0), mu=pm.Normal("mu"), sigma=scale(), shape=G)
    bernoulli(X @ beta() + u[GROUPS])


def scaled_student():
    z = pm.StudentT("z", 4.0, mu=0.0, sigma=1.0, shape=G)
    bernoulli(X @ beta() + (pm.Normal("mu") + scale() * z)[GROUPS])


def cauchy():
    bernoulli(X @ beta() + pm.Cauchy("u", 0.0, scale(), shape=G)[GROUPS])


def laplace():
    bernoulli(X @ beta() + pm.Laplace("u", 0.0, scale(), shape=G)[GROUPS])


def logistic():
    bernoulli(X @ beta() + pm.Logistic("u", pm.Normal("mu"), scale(), shape=G)[GROUPS])


def negative():
    bernoulli(X @ beta() - pm.Normal("u", 0.0, scale(), shape=G)[GROUPS])


def negative_scale():
    bernoulli(X @ beta() - scale() * pm.Normal("z", shape=G)[GROUPS])


def both_scaled():
    v = pm.HalfNormal("tau_v") * pm.Normal("z_v", shape=5)
    u = pm.Deterministic("u", pm.Normal("mu") + scale() * pm.Normal("z", shape=G))
    bernoulli(X @ beta() + u[GROUPS] + v[np.arange(N) % 5])


def scaled_around_a_design():
    u = DESIGN @ pm.Normal("gamma", shape=2) + scale() * pm.Normal("z", shape=G)
    bernoulli(X @ beta() + u[GROUPS])


SPELLINGS = {
    scaled_around_a_design: False,
    both_scaled: False,
    effects_of_student: True,
    student_of_free_degrees: True,
    scaled_student: False,
    cauchy: True,
    laplace: True,
    logistic: True,
    centered: True,
    around_mu: True,
    around_a_design: True,
    scaled_before_the_lookup: False,
    scaled_after_the_lookup: False,
    root_of_variance: True,
    precision: True,
    over_root_of_precision: False,
    within_an_interval: True,
    dims_and_data: True,
    bytes_as_indices: True,
    negative_indices: True,
    columns: True,
    deterministic_between: True,
}
named = pytest.mark.parametrize("define", list(SPELLINGS), ids=lambda define: define.__name__)


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


@named
@pytest.mark.covering(7)
def test_spelling(define):
    plate = plate_in(built(define))
    assert plate is not None
    assert plate.is_centered == SPELLINGS[define]
    require_rows(plate)
    assert set(plate.factorisation.var_names) == {v.name for v in built(define).value_vars}
    assert plate.factorisation.var_names[-1:] == plate.effects


@pytest.mark.parametrize(
    ("define", "name", "expected"), [(around_mu, "mu", np.ones((G, 1))), (around_a_design, "gamma", DESIGN)]
)
def test_locations_of_effects(define, name, expected):
    model = built(define)
    survey = PlateSurvey(plate_in(model), model.initial_point())
    places = places_of(survey.plate, name)
    matrix = np.zeros((G, survey.plate.n_shared))
    matrix[:, survey.located.coordinates] = survey.located.matrix
    np.testing.assert_allclose(matrix[:, places], expected)
    assert not np.delete(matrix, places, axis=1).any()
    assert not survey.located.base.any()


def test_a_design_of_groups_is_looked_up_by_rows():
    plate = plate_in(built(scaled_around_a_design))
    some = np.arange(0, N, 7)
    own = np.searchsorted(plate.rows.dense, places_of(plate, "gamma"))
    np.testing.assert_allclose(plate.rows(some).x[:, own], DESIGN[GROUPS[some]], rtol=1e-12)


def _u():
    return pm.Normal("u", 0.0, scale(), shape=G)[GROUPS]


def binomial():
    pm.Binomial("y", n=TRIALS, logit_p=X @ beta() + _u(), observed=np.minimum(COUNTS, TRIALS))


def by_probability():
    pm.Bernoulli("y", p=pm.math.sigmoid(X @ beta() + _u()), observed=Y)


def probit():
    pm.Bernoulli("y", p=pm.math.invprobit(X @ beta() + _u()), observed=Y)


def cloglog():
    pm.Bernoulli("y", p=1 - pm.math.exp(-pm.math.exp(X @ beta() + _u())), observed=Y)


def exposures_as_factors():
    pm.Poisson("y", EXPOSURE * pm.math.exp(X @ beta() + _u()), observed=COUNTS)


def exposures_as_offsets():
    pm.Poisson("y", pm.math.exp(np.log(EXPOSURE) + X @ beta() + _u()), observed=COUNTS)


def negative_binomial():
    pm.NegativeBinomial("y", mu=pm.math.exp(X @ beta() + _u()), alpha=3.0, observed=COUNTS)


def gamma():
    pm.Gamma("y", alpha=3.0, beta=3.0 / pm.math.exp(X @ beta() + _u()), observed=POSITIVE)


def student():
    pm.StudentT("y", nu=5.0, mu=X @ beta() + _u(), sigma=0.7, observed=REALS)


def normal():
    pm.Normal("y", X @ beta() + _u(), 0.7, observed=REALS)


def free_dispersion():
    eta = X @ beta() + _u()
    pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=pm.HalfNormal("alpha"), observed=COUNTS)


def share_of_zeros():
    eta = X @ beta() + _u()
    pm.ZeroInflatedPoisson("y", psi=pm.Beta("psi", 2, 2), mu=pm.math.exp(eta), observed=COUNTS)


def residuals_of_different_scales():
    pm.Normal("y", X @ beta() + _u(), pm.HalfNormal("sigma") * EXPOSURE, observed=REALS)


def free_student():
    nu, sigma = pm.Gamma("nu", 2, 0.1), pm.HalfNormal("sigma")
    pm.StudentT("y", nu=nu, mu=X @ beta() + _u(), sigma=sigma, observed=REALS)


LIKELIHOODS = [
    free_dispersion,
    share_of_zeros,
    residuals_of_different_scales,
    free_student,
    binomial,
    by_probability,
    probit,
    cloglog,
    exposures_as_factors,
    exposures_as_offsets,
    negative_binomial,
    gamma,
    student,
    normal,
]


def terms_by_rows(plate, survey, theta, effects):
    """f at the predictors that the rows give, by the expression of the plate."""
    rows = survey.rows
    predictors = with_phi(predictors_at(rows, theta[survey.linear], effects), survey.phi(theta))
    return evaluate(plate.expression, list(predictors), dict(enumerate(rows.data)))


@pytest.mark.parametrize("define", LIKELIHOODS, ids=lambda define: define.__name__)
@pytest.mark.covering(5)
def test_likelihood(define):
    """The function of the predictor and of shared numbers adds up to the model's own term."""
    model = built(define)
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


def stacked():
    return pm.math.dot(X, pt.stack([pm.Normal("b"), pm.Normal("c")]))


def concatenated():
    return (X * pt.concatenate([pt.atleast_1d(pm.Normal("b")), pm.Normal("c", shape=1)])).sum(axis=1)


def with_a_reference():
    return X @ beta() + pt.concatenate([[0.4], pm.Normal("c", shape=2)])[LEVELS]


def levels_put_together():
    return X @ beta() - pt.stack([pm.Normal(name) for name in "cde"])[LEVELS]


def sums_to_zero():
    return X @ beta() + pm.ZeroSumNormal("c", shape=3)[LEVELS]


def standardised_coefficients():
    return (X - 0.3) @ (beta() / X.std(axis=0)) + 0.1


def means_of_groups():
    return (pt.stack([pm.Normal("b"), pm.Normal("c")])[np.arange(G) % 2])[GROUPS] + X @ beta()


PUT_TOGETHER = [stacked, concatenated, with_a_reference, levels_put_together, sums_to_zero,
                standardised_coefficients, means_of_groups]  # fmt: skip


@pytest.mark.parametrize("eta", PUT_TOGETHER, ids=lambda eta: eta.__name__)
@pytest.mark.covering(3)
def test_coefficients_are_put_together(eta):
    model = built(lambda: bernoulli(eta() + _u()))
    plate = plate_in(model)
    assert plate is not None
    require_same_sum(model, plate)
    assert len(plate.rows.places) == plate.n_shared - 1  # all but the scale


def free_sigma():
    pm.Normal("y", X @ beta() + _u(), pm.HalfNormal("sigma"), observed=REALS)


def free_precision():
    pm.Normal("y", X @ beta() + _u(), tau=pm.Gamma("sigma", 2, 2), observed=REALS)


def one_scale_for_both():
    tau = scale()
    u = pm.Normal("u", 0.0, tau, shape=G)
    pm.Normal("y", X @ beta() + u[GROUPS], 2.0 * tau, observed=REALS)


@pytest.mark.parametrize(
    "define", [free_sigma, free_precision, one_scale_for_both], ids=lambda define: define.__name__
)
def test_normal_residuals_may_have_a_free_scale(define):
    plate = plate_in(built(define))
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
