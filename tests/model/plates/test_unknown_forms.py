"""Rows that look effects of groups up in forms that are no plate: the reason says which, and what to write.

Where another spelling of the same model is told, that one is a plate.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from tests.model.plates.plates import (
    COUNTS,
    EXPOSURE,
    GROUPS,
    REALS,
    G,
    N,
    X,
    bernoulli,
    beta,
    reason,
    scale,
)

DAYS = np.arange(N) % 7
ONES = (GROUPS[:, None] == np.arange(G)).astype(float)
# So many groups that a matrix of their effects is as long as data.
MANY = 500
OF_MANY = np.arange(N) % MANY
W = np.c_[np.ones(N), X[:, 0]]
NEAR = (np.abs(np.arange(G)[:, None] - np.arange(G)) == 1).astype(int)


def normal(**kwargs):
    return pm.Normal("u", 0.0, scale(), **kwargs)


def counts(mean):
    pm.Poisson("y", EXPOSURE * mean, observed=COUNTS)


def correlated(n_groups=G):
    """Of an intercept and a slope."""
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(2, shape=2))
    return pt.dot(chol, pm.Normal("z", shape=(2, n_groups))).T


def two_indices():
    bernoulli(X @ beta() + normal(shape=(G, 7))[GROUPS, DAYS])


def one_index():
    bernoulli(X @ beta() + normal(shape=G * 7)[GROUPS * 7 + DAYS])


def scaled_two_indices():
    bernoulli(X @ beta() + (scale() * pm.Normal("u", shape=(G, 7)))[GROUPS, DAYS])


def two_indices_beside_one():
    v = pm.Normal("v", 0.0, pm.HalfNormal("tau_v"), shape=G)
    bernoulli(X @ beta() + normal(shape=(8, 7))[GROUPS % 8, DAYS] + v[GROUPS])


def indicators():
    bernoulli(X @ beta() + pm.math.dot(ONES, normal(shape=G)))


def scaled_indicators():
    bernoulli(X @ beta() + ONES @ (scale() * pm.Normal("u", shape=G)))


def nearly_indicators():
    bernoulli(X @ beta() + pm.math.dot(np.r_[ONES[:-1], 0.5 * ONES[-1:]], normal(shape=G)))


def beta_rates():
    tau = scale()
    pm.Bernoulli("y", p=pm.Beta("u", 2 * tau, 3 * tau, shape=G)[GROUPS], observed=np.minimum(COUNTS, 1))


def gamma_frailty():
    tau = scale()
    counts(pm.math.exp(X @ beta()) * pm.Gamma("u", tau, tau, shape=G)[GROUPS])


def log_normal_frailty():
    counts(pm.math.exp(X @ beta()) * pm.LogNormal("u", 0.0, scale(), shape=G)[GROUPS])


def exponential_frailty():
    counts(pm.math.exp(X @ beta() + normal(shape=G)[GROUPS]))


def less_their_mean():
    u = normal(shape=G)
    bernoulli(X @ beta() + (u - u.mean())[GROUPS])


def neighbours():
    bernoulli(X @ beta() + (scale() * pm.ICAR("u", W=NEAR))[GROUPS])


def zero_sum_beside_normal():
    v = pm.Normal("v", 0.0, pm.HalfNormal("tau_v"), shape=G)
    bernoulli(X @ beta() + v[GROUPS] + pm.ZeroSumNormal("u", scale(), shape=40)[np.arange(N) % 40])


def residual_scale_of_groups():
    sigma = pm.math.exp(pm.Normal("s", 0.0, pm.HalfNormal("tau_s"), shape=G)[GROUPS])
    pm.Normal("y", X @ beta() + normal(shape=G)[GROUPS], sigma, observed=REALS)


def half_normal_scale_of_groups():
    sigma = pm.HalfNormal("s", shape=G)[GROUPS]
    pm.Normal("y", X @ beta() + normal(shape=G)[GROUPS], sigma, observed=REALS)


def discrimination():
    ability = pm.Normal("ability", shape=40)[np.arange(N) % 40]
    bernoulli(pm.LogNormal("s", 0.0, 0.5, shape=G)[GROUPS] * (ability - normal(shape=G)[GROUPS]))


def all_effects_at_once():
    bernoulli(X @ beta() + (correlated()[GROUPS] * W).sum(-1))


def of_many_groups():
    u = correlated(MANY)
    bernoulli(X @ beta() + u[OF_MANY, 0] + u[OF_MANY, 1] * X[:, 0])


def of_many_groups_as_told():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(2, shape=2))
    u = pm.MvNormal("u", np.zeros(2), chol=chol, shape=(MANY, 2))
    bernoulli(X @ beta() + u[OF_MANY, 0] + u[OF_MANY, 1] * X[:, 0])


def mean_slope_inside():
    u = correlated()
    bernoulli(pm.Normal("a") + u[GROUPS, 0] + (pm.Normal("b") + u[GROUPS, 1]) * X[:, 0])


def mean_slope_apart():
    u = correlated()
    bernoulli(pm.Normal("a") + u[GROUPS, 0] + pm.Normal("b") * X[:, 0] + u[GROUPS, 1] * X[:, 0])


def columns_first():
    u = correlated()
    bernoulli(X @ beta() + u[:, 0][GROUPS] + u[:, 1][GROUPS] * X[:, 0])


def independent_columns():
    u = normal(shape=(G, 2))
    bernoulli(X @ beta() + u[GROUPS, 0] + u[GROUPS, 1] * X[:, 0])


def five_at_once():
    bernoulli((normal(shape=(G, 5))[GROUPS] * np.c_[W, X, np.ones(N)]).sum(-1) + pm.Normal("a"))


def slopes_of_two_factors():
    other = pm.Normal("v", 0.0, pm.HalfNormal("tau_v"), shape=(40, 2))
    own = (normal(shape=(G, 2))[GROUPS] * W).sum(-1)
    bernoulli(pm.Normal("a") + own + (other[np.arange(N) % 40] * W).sum(-1))


def teams():
    players = np.random.default_rng(6).integers(0, G, (N, 5))
    bernoulli(X @ beta() + (scale() * pm.Normal("u", shape=G))[players].sum(axis=1))


def part_worths():
    worth = normal(shape=(G, 3))[GROUPS]
    offers = np.random.default_rng(5).normal(size=(N, 3, 3))
    share = pm.math.softmax((offers * worth[:, None]).sum(-1), axis=1)
    pm.Categorical("y", p=share, observed=np.minimum(COUNTS, 2))


BY_TWO = "rows of the term 'y' look 'u' up by 2 indices"
NO_SUM = "rows of the term 'y' are not functions of a sum of"
REASONS = {
    two_indices: f"{BY_TWO}, and effects of groups are a vector with one: write it with shape={7 * G}",
    scaled_two_indices: f"shape={7 * G}, and look it up by i * 7 + j in the place of i, j",
    two_indices_beside_one: BY_TWO,
    indicators: "contain one element of 'u' each, by a product with a matrix that has a single 1 in each row",
    scaled_indicators: "contain one element of 'u' each",
    beta_rates: "the prior of 'u' is Beta, and a plate's is one of Normal",
    gamma_frailty: "the prior of 'u' is Gamma, and a plate's is one of Normal",
    log_normal_frailty: "the prior of 'u' is LogNormal, .*: write pm.math.exp(eta + u[index]), with u of",
    less_their_mean: "contain all of 'u' beside the element of their group",
    neighbours: "the prior of 'u' is ICAR, one of all its elements together",
    residual_scale_of_groups: NO_SUM,
    half_normal_scale_of_groups: "one of them enters another parameter of the likelihood, as a scale",
    discrimination: "or they are multiplied",
    all_effects_at_once: "look all 2 effects of their group up at once in 'z', and those that",
    of_many_groups: f"by a product that each row computes, .*shape=({MANY}, 2)",
    mean_slope_inside: "write u[index, 0] + b * x + u[index, 1] * x, with the mean slope b apart",
    columns_first: "look a column up of what is made of 'z': write u[index, 0]",
    independent_columns: f"'u' has the shape ({G}, 2), and independent effects of groups are vectors",
    five_at_once: "contain 5 effects of their group in 'u', and 4 at most are moved group by group",
    slopes_of_two_factors: "random slopes are moved group by group where one factor has them",
    teams: "look up 5 elements of 'u' each",
    part_worths: "the likelihood 'y' is of categories, as of an ordered response or a choice",
}
FOUND = [one_index, exponential_frailty, of_many_groups_as_told, mean_slope_apart, zero_sum_beside_normal]


@pytest.mark.parametrize("define", list(REASONS), ids=lambda define: define.__name__)
@pytest.mark.covering(6)
def test_reason(define):
    found = reason(define)
    for part in REASONS[define].split(".*"):
        assert part in found
    assert "transform, so that" not in found
    assert "__" not in found  # names are those of the model


@pytest.mark.parametrize("define", FOUND, ids=lambda define: define.__name__)
@pytest.mark.covering(1)
def test_what_is_told_is_a_plate(define):
    assert not reason(define)


def test_other_matrices_are_no_groups():
    assert reason(nearly_indicators) == "nothing like a plate"
