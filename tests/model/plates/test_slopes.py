"""Spellings of random slopes are found with the right covariates; others are refused by name."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.mode.plates.center import PlateSurvey
from pymc_austerity.model.compile.backend import interpreted
from tests.model.plates.plates import (
    COUNTS,
    EXPOSURE,
    GROUPS,
    REALS,
    G,
    X,
    bernoulli,
    beta,
    built,
    plate_in,
    reason,
    scale,
)

x = X[:, 0]


def slope_scale():
    return pm.HalfNormal("tau_b", 1.0)


def cholesky(n=2):
    return pm.LKJCholeskyCov("chol", n=n, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, shape=n))[0]


def centered():
    a, b = pm.Normal("a", pm.Normal("mu"), scale(), shape=G), pm.Normal("b", 0.0, slope_scale(), shape=G)
    bernoulli(X @ beta() + a[GROUPS] + b[GROUPS] * x)


def slopes_first():
    a, b = pm.Normal("a", 0.0, scale(), shape=G), pm.Normal("b", 0.0, slope_scale(), shape=G)
    bernoulli(X @ beta() + a[GROUPS] * x + b[GROUPS])


def scaled_before_the_lookup():
    a, b = scale() * pm.Normal("a", shape=G), slope_scale() * pm.Normal("b", shape=G)
    bernoulli(X @ beta() + a[GROUPS] + b[GROUPS] * x)


def scaled_after_the_data():
    a, b = pm.Normal("a", shape=G), pm.Normal("b", shape=G)
    bernoulli(X @ beta() + scale() * a[GROUPS] + b[GROUPS] * x * slope_scale() - 0.5)


def three_of_pm_data():
    g, values = pm.Data("g", GROUPS), pm.Data("x", x)
    a, b = pm.Normal("a", pm.Normal("mu"), scale(), shape=G), pm.Normal("b", 0.0, slope_scale(), shape=G)
    c = pm.Normal("c", 0.0, pm.HalfNormal("tau_c"), shape=G)
    pm.Poisson("y", EXPOSURE * pm.math.exp(a[g] + b[g] * values - c[g] * X[:, 1] / 3.0), observed=COUNTS)


def normal_errors():
    a, b = pm.Normal("a", pm.Normal("mu"), scale(), shape=G), pm.Normal("b", 0.0, slope_scale(), shape=G)
    pm.Normal("y", a[GROUPS] + b[GROUPS] * x, pm.HalfNormal("sigma"), observed=REALS)


def matrix():
    u = pm.MvNormal("u", pm.Normal("mu", shape=2), chol=cholesky(), shape=(G, 2))
    bernoulli(X @ beta() + u[GROUPS, 0] + u[GROUPS, 1] * x)


def columns_of_a_matrix():
    u = pm.MvNormal("u", np.zeros(2), chol=cholesky(), shape=(G, 2))
    bernoulli(X @ beta() + u[:, 0][GROUPS] + u[:, 1][GROUPS] * x)


def product():
    u = pm.Deterministic("u", pm.Normal("z", shape=(G, 2)) @ cholesky().T)
    bernoulli(X @ beta() + u[GROUPS, 0] + u[GROUPS, 1] * x)


def transposed_product():
    u = pm.math.dot(cholesky(), pm.Normal("z", shape=(2, G))).T
    bernoulli(X @ beta() + u[GROUPS, 0] + u[GROUPS, 1] * x)


# Effects, whether they are centred, vectors, and theta.
FOUND = {
    centered: (("a", "b"), True, 2, 5),
    slopes_first: (("b", "a"), True, 2, 4),
    scaled_before_the_lookup: (("a", "b"), False, 2, 4),
    scaled_after_the_data: (("a", "b"), False, 2, 4),
    three_of_pm_data: (("a", "b", "c"), True, 3, 4),
    normal_errors: (("a", "b"), True, 2, 4),
    matrix: (("u[:, 0]", "u[:, 1]"), True, 1, 7),
    columns_of_a_matrix: (("u[:, 0]", "u[:, 1]"), True, 1, 5),
    product: (("z[:, 0]", "z[:, 1]"), False, 1, 5),
    transposed_product: (("z[0]", "z[1]"), False, 2, 5),
}


@pytest.mark.parametrize("define", list(FOUND), ids=lambda define: define.__name__)
@pytest.mark.covering(4)
def test_found(define):
    plate = plate_in(built(define))
    assert plate is not None
    assert (plate.effects, plate.is_centered, plate.n_vectors, plate.n_shared) == FOUND[define]
    rows = plate.rows(np.arange(40, 80))
    expected = [x[40:80], -X[40:80, 1] / 3.0][: plate.n_effects - 1]
    np.testing.assert_allclose(rows.covariates, np.transpose(expected), rtol=1e-14)
    np.testing.assert_array_equal(rows.groups, GROUPS[40:80])
    assert plate.is_normal == (define is normal_errors)


def dispersion():
    a, b = pm.Normal("a", pm.Normal("mu"), scale(), shape=G), pm.Normal("b", 0.0, slope_scale(), shape=G)
    mean = pm.math.exp(a[GROUPS] + b[GROUPS] * x)
    pm.NegativeBinomial("y", mu=mean, alpha=pm.HalfNormal("alpha"), observed=COUNTS)


def one_in_the_prior_of_the_other():
    a = pm.Normal("a", pm.Normal("mu"), scale(), shape=G)
    bernoulli(a[GROUPS] + pm.Normal("b", 0.5 * a, slope_scale(), shape=G)[GROUPS] * x)


def one_of_them_standardised():
    a = pm.Normal("a", pm.Normal("mu"), scale(), shape=G)
    bernoulli(a[GROUPS] + (slope_scale() * pm.Normal("b", shape=G))[GROUPS] * x)


def not_normal():
    a = pm.Normal("a", pm.Normal("mu"), scale(), shape=G)
    bernoulli(a[GROUPS] + pm.StudentT("b", 4.0, sigma=slope_scale(), shape=G)[GROUPS] * x)


def many():
    a = pm.Normal("a", pm.Normal("mu"), scale(), shape=G)
    slopes = [pm.Normal(name, 0.0, pm.HalfNormal(f"tau_{name}"), shape=G) for name in "bcde"]
    bernoulli(a[GROUPS] + sum(b[GROUPS] * x**k for k, b in enumerate(slopes, 1)))


def no_intercepts():
    u = pm.MvNormal("u", np.zeros(2), chol=cholesky(), shape=(G, 2))
    bernoulli(X @ beta() + u[GROUPS, 0] * X[:, 1] + u[GROUPS, 1] * x)


def intercepts_last():
    u = pm.MvNormal("u", np.zeros(2), chol=cholesky(), shape=(G, 2))
    bernoulli(X @ beta() + u[GROUPS, 0] * x + u[GROUPS, 1])


def full_matrix():
    u = pm.Normal("z", shape=(G, 2)) @ cholesky()
    bernoulli(X @ beta() + u[GROUPS, 0] + u[GROUPS, 1] * x)


def not_standard():
    u = pm.Normal("z", 0.0, 2.0, shape=(G, 2)) @ cholesky().T
    bernoulli(X @ beta() + u[GROUPS, 0] + u[GROUPS, 1] * x)


REASONS = {
    dispersion: "has a free dispersion or the like",
    one_in_the_prior_of_the_other: "the prior of 'b' depends on the effects 'a'",
    one_of_them_standardised: "write all in the same way",
    not_normal: "the prior of 'b' is StudentT",
    many: "a plate has 3 at most beside the intercepts",
    no_intercepts: "there are no intercepts",
    intercepts_last: "are to be intercepts, and all others slopes",
    full_matrix: "not triangular",
    not_standard: "not of location 0 and scale 1",
}


@pytest.mark.parametrize("define", list(REASONS), ids=lambda define: define.__name__)
@pytest.mark.covering(4)
def test_refused(define):
    assert REASONS[define] in reason(define)


def test_a_covariate_that_is_constant_within_groups():
    def define():
        a, b = pm.Normal("a", 0.0, scale(), shape=G), pm.Normal("b", 0.0, slope_scale(), shape=G)
        bernoulli(X @ beta() + a[GROUPS] + b[GROUPS] * np.linspace(-1.0, 1.0, G)[GROUPS])

    model = built(define)
    plate = plate_in(model)
    assert plate is not None
    with interpreted(), pytest.raises(UnsuitableError, match="slopes 'b' is constant within each group"):
        PlateSurvey(plate, model.initial_point())
