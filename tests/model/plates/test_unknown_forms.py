"""Rows that look effects of groups up in forms that are no plate: the reason says which, and what to write.

Where another spelling of the same model is told, that one is a plate.
"""

import numpy as np
import pymc as pm
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

W = np.c_[np.ones(N), X[:, 0]]
NEAR = (np.abs(np.arange(G)[:, None] - np.arange(G)) == 1).astype(int)


def normal(**kwargs):
    return pm.Normal("u", 0.0, scale(), **kwargs)


def counts(mean):
    pm.Poisson("y", EXPOSURE * mean, observed=COUNTS)


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


NO_SUM = "rows of the term 'y' are not functions of a sum of"
REASONS = {
    beta_rates: "the prior of 'u' is Beta, and a plate's is one of Normal",
    gamma_frailty: "the prior of 'u' is Gamma, and a plate's is one of Normal",
    log_normal_frailty: "the prior of 'u' is LogNormal, .*: write pm.math.exp(eta + u[index]), with u of",
    less_their_mean: "contain all of 'u' beside the element of their group",
    neighbours: "the prior of 'u' is ICAR, one of all its elements together",
    residual_scale_of_groups: NO_SUM,
    half_normal_scale_of_groups: "one of them enters another parameter of the likelihood, as a scale",
    discrimination: "or they are multiplied",
    five_at_once: "contain 5 effects of their group in 'u', and 4 at most are moved group by group",
    slopes_of_two_factors: "random slopes are moved group by group where one factor has them",
    teams: "look up 5 elements of 'u' each",
    part_worths: "the likelihood 'y' is of categories, as of an ordered response or a choice",
}
FOUND = [exponential_frailty, zero_sum_beside_normal]


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
