"""Rows that look effects of groups up and are no plate: the reason says what they are, from their field.

Where another spelling of the same model is told, that one is a plate.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.basic import NormalRV

from pymc_austerity.model.field import priors
from tests.model.plates.plates import COUNTS, EXPOSURE, GROUPS, REALS, G, N, X, bernoulli, beta, reason, scale

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


def walks():
    u = pm.GaussianRandomWalk("u", sigma=scale(), init_dist=pm.Normal.dist(), shape=(8, 5))
    bernoulli(X @ beta() + u[np.arange(N) % 8, GROUPS % 5])


def cells(prior):
    return lambda: bernoulli(X @ beta() + prior((8, 5))[np.arange(N) % 8, GROUPS % 5])


gamma_cells = cells(lambda shape: pm.Gamma("u", 2.0, 2.0, shape=shape))
log_normal_cells = cells(lambda shape: pm.math.log(pm.LogNormal("u", 0.0, scale(), shape=shape)))
zero_sum_cells = cells(lambda shape: pm.ZeroSumNormal("u", scale(), n_zerosum_axes=2, shape=shape))
summed_cells = cells(lambda shape: pt.cumsum(scale() * pm.Normal("u", shape=shape), axis=0))


def location_of_a_positive_scale():
    mu = pm.math.exp(pm.Normal("mu"))
    bernoulli(X @ beta() + pm.Normal("u", mu, scale(), shape=(8, 5))[np.arange(N) % 8, GROUPS % 5])


def without_effects():
    bernoulli(X @ beta() + pm.math.exp(X @ pm.Normal("b", shape=2)))


ONE_PREDICTOR = "2 predictors of the likelihood differ by row, and one of a plate's does"
# What rows are linear in, and what plates say of it.
REASONS = {
    beta_rates: (
        "'u' (32, Beta on a logit scale)",
        "the prior of 'u' is Beta, and a plate's is one of Normal",
    ),
    gamma_frailty: (
        "'u' (32, Gamma on a log scale)",
        "the prior of 'u' is Gamma, and a plate's is one of Normal",
    ),
    log_normal_frailty: (
        "'u' (32, LogNormal on a log scale)",
        "write pm.math.exp(eta + u[index]), with u of pm.Normal",
    ),
    less_their_mean: ("'u' (32, Normal)", "independent effects of groups, an intercept and"),
    neighbours: ("'u' (32, ICAR, scaled)", "the prior of 'u' is ICAR, and a plate's is one of Normal"),
    residual_scale_of_groups: ("'s' (32, Normal) and 'u' (32, Normal)", ONE_PREDICTOR),
    half_normal_scale_of_groups: (
        "linear in a function of 's' (32, without a rule of a prior)",
        "the prior of 's' is HalfNormal",
    ),
    discrimination: ("'ability' (40, Normal)", ONE_PREDICTOR),
    five_at_once: ("'u' (160, Normal)", "'u' has 5 effects for each of 32 groups, and a plate 4 at most"),
    slopes_of_two_factors: ("'u' (64, Normal) and 'v' (80, Normal)", "independent effects of groups, an"),
    teams: ("'u' (32, Normal, scaled)", "look up 'u' in more than one way"),
    part_worths: ("'u' (96, Normal)", "the predictors of 'y' are a matrix, and a plate's are a vector"),
    walks: ("'u' (40, RandomWalk)", "in one predictor"),
    gamma_cells: ("'u' (40, Gamma on a log scale)", "independent effects of groups"),
    log_normal_cells: ("'u' (40, LogNormal on a log scale)", "independent effects of groups"),
    zero_sum_cells: ("'u' (40, ZeroSumNormal)", "independent effects of groups"),
    summed_cells: ("'u' (40, Normal, scaled, summed up)", "independent effects of groups"),
}
FOUND = [exponential_frailty, zero_sum_beside_normal]


@pytest.mark.parametrize("define", list(REASONS), ids=lambda define: define.__name__)
@pytest.mark.covering(6)
def test_reason(define):
    found = reason(define)
    for part in REASONS[define]:
        assert part in found
    assert "which are no plate: " in found
    assert "__" not in found  # names are those of the model


def test_the_location_of_a_positive_scale_is_a_number_of_the_field():
    expected = "the location of the effects 'u' is not a linear function of the variables as they are sampled"
    assert expected in reason(location_of_a_positive_scale)


def test_without_groups_nothing_is_said():
    assert reason(without_effects) == "nothing like a plate"


def test_a_field_that_differs_from_its_model_is_not_described(monkeypatch):
    """A planted fault: a rule that doubles scales is said to differ, and nothing else is."""

    def doubled(drawn, rule=priors.RULES[NormalRV]):
        found = rule(drawn)
        return priors.replace(found, steps=(*found.steps, priors.Step("scale", pt.constant(2.0))))

    monkeypatch.setitem(priors.RULES, NormalRV, doubled)
    assert reason(summed_cells).startswith("the prior of 'beta' differs from its rule")


@pytest.mark.parametrize("define", FOUND, ids=lambda define: define.__name__)
@pytest.mark.covering(1)
def test_what_is_told_is_a_plate(define):
    assert not reason(define)
