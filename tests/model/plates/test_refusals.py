"""Models whose effects are no plate, and what is said of them."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from tests.model.plates.plates import (
    COUNTS,
    EXPOSURE,
    GROUPS,
    G,
    N,
    U,
    X,
    bernoulli,
    beta,
    built,
    plate_in,
    reason,
    regression,
    scale,
)

ORDERED = pm.distributions.transforms.ordered


def _u():
    return pm.Normal("u", 0.0, scale(), shape=G)


def in_a_second_term():
    u = _u()
    pm.Normal("w", u, 0.1, observed=U)
    return u[GROUPS]


def in_a_potential():
    u = _u()
    pm.Potential("p", -(u.sum() ** 2))
    return u[GROUPS]


def standardised_in_a_potential():
    z = pm.Normal("z", shape=G)
    pm.Potential("p", -(z.sum() ** 2))
    return scale() * z[GROUPS]


def scales_of_classes():
    tau = pm.HalfNormal("tau", shape=4)
    return pm.Normal("u", 0.0, tau[np.arange(G) % 4], shape=G)[GROUPS]


def location_in_units_of_the_scale():
    tau = scale()
    return pm.Normal("u", pm.Normal("mu") * tau, tau, shape=G)[GROUPS]


def dispersions_of_rows():
    alpha = pm.math.exp(pm.Normal("a") + pm.Normal("b") * X[:, 0] + pm.Normal("c") * X[:, 1])
    eta = X @ beta() + _u()[GROUPS]
    pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=alpha + pm.math.exp(eta / 2), observed=COUNTS)


def many_numbers():
    eta = X @ beta() + _u()[GROUPS]
    weights = [pm.math.exp(pm.Normal(name)) for name in "abcd"]
    pm.Potential("y", -sum(w * EXPOSURE**k for k, w in enumerate(weights)) * pt.softplus(eta))


def hurdle():
    eta = X @ beta() + _u()[GROUPS]
    pm.HurdlePoisson("y", psi=pm.Beta("psi", 2.0, 2.0), mu=pm.math.exp(eta), observed=COUNTS)


def another_likelihood():
    b = beta()
    pm.Poisson("w", pm.math.exp(X @ b), observed=COUNTS)
    bernoulli(X @ b + _u()[GROUPS])


def two_likelihoods_of_the_effects():
    b, u = beta(), _u()
    pm.Poisson("w", pm.math.exp(X @ b + u[GROUPS]), observed=COUNTS)
    bernoulli(X @ b + u[GROUPS])


def two_lookups():
    u = _u()
    return u[GROUPS] + u[(GROUPS + 1) % G]


def column_of_rows():
    eta = (X @ beta())[:, None] + pm.Normal("u", 0.0, scale(), shape=(G, 1))[GROUPS]
    pm.Poisson("y", pm.math.exp(eta), observed=COUNTS[:, None])


def ordered_response():
    cut = pm.Normal("cut", shape=2, transform=ORDERED, initval=[-1.0, 1.0])
    eta = X @ beta() + _u()[GROUPS]
    pm.OrderedLogistic("y", eta=eta, cutpoints=cut, observed=np.minimum(COUNTS, 2), compute_p=False)


# Effects in a logistic regression, and a part of what is said.
EFFECTS = {
    "effect_of_each_row": (
        lambda: pm.Normal("u", pm.Normal("mu"), scale(), shape=N)[np.arange(N)],
        "each row of the term 'y' has an element of 'u' of its own",
    ),
    "zero_sum": (lambda: pm.ZeroSumNormal("u", scale(), shape=G)[GROUPS], "(32, ZeroSumNormal), which"),
    "ordered": (
        lambda: pm.Normal("u", shape=G, transform=ORDERED, initval=np.linspace(-1, 1, G))[GROUPS],
        "a function of 'u' (32, without a rule of a prior)",
    ),
    "sums_of_effects": (
        lambda: (scale() * pt.cumsum(pm.Normal("z", shape=G)))[GROUPS],
        "'z' (32, Normal, summed up, scaled)",
    ),
    "random_slopes": (lambda: _u()[GROUPS] * X[:, 0], "there are no intercepts of the same groups"),
    "scaled_random_slopes": (
        lambda: scale() * pm.Normal("z", shape=G)[GROUPS] * X[:, 0],
        "there are no intercepts of the same groups",
    ),
    "in_a_second_term": (in_a_second_term, "enter the term 'w', too"),
    "in_a_potential": (in_a_potential, "enter the term 'p', too"),
    "standardised_in_a_potential": (standardised_in_a_potential, "enter the term 'p', too"),
    "multivariate_prior": (lambda: pm.MvNormal("u", np.zeros(G), np.eye(G), shape=G)[GROUPS], "MvNormal"),
    "random_walk_prior": (
        lambda: pm.GaussianRandomWalk("u", sigma=scale(), init_dist=pm.Normal.dist(), shape=G)[GROUPS],
        "RandomWalk",
    ),
    "scales_that_differ": (
        lambda: pm.Normal("u", 0.0, scale() * np.linspace(1, 2, G), shape=G)[GROUPS],
        "scales that differ",
    ),
    "scales_of_classes": (scales_of_classes, "scales that differ"),
    "not_standardised": (
        lambda: scale() * pm.Normal("z", 0.0, 2.0, shape=G)[GROUPS],
        "not of location 0 and scale 1",
    ),
    "scale_of_either_sign": (
        lambda: pm.Normal("tau", 0.7, 1.0) * pm.Normal("z", shape=G)[GROUPS],
        "is not positive",
    ),
    "positive_location": (
        lambda: pm.Normal("u", pm.HalfNormal("mu"), scale(), shape=G)[GROUPS],
        "not a linear function",
    ),
    "exponential_location": (
        lambda: pm.Normal("u", pm.math.exp(pm.Normal("mu")), scale(), shape=G)[GROUPS],
        "the location of the effects 'u' is not a linear function of the variables as they are",
    ),
    "location_in_units_of_the_scale": (location_in_units_of_the_scale, "not a linear function"),
    "two_lookups": (two_lookups, "in more than one way"),
    "not_linear_in_effects": (
        lambda: pm.math.exp(_u()[GROUPS]),
        "2 predictors of the likelihood differ by row",
    ),
}
REASONS = {
    "column_of_rows": (column_of_rows, "the predictors of 'y' are a matrix"),
    "ordered_response": (ordered_response, "of categories, as of an ordered response"),
    "effects_alone": (lambda: bernoulli(pm.Normal("u", shape=G)[GROUPS]), "no shared variables"),
    "another_likelihood": (another_likelihood, "other long terms ('w')"),
    "two_likelihoods_of_the_effects": (two_likelihoods_of_the_effects, "other long terms"),
    "dispersions_of_rows": (dispersions_of_rows, "2 predictors of the likelihood differ by row"),
    "many_numbers": (many_numbers, "depends on 4 numbers beside a linear predictor"),
    "hurdle": (hurdle, "do not contain the effects"),
}
REASONS |= {name: (regression(effects), said) for name, (effects, said) in EFFECTS.items()}


@pytest.mark.parametrize("name", REASONS)
@pytest.mark.covering(8)
def test_reason(name):
    define, said = REASONS[name]
    found = reason(define)
    assert found
    assert found != "nothing like a plate"
    assert said in found


def around_mu():
    bernoulli(X @ beta() + pm.Normal("u", pm.Normal("mu"), scale(), shape=G)[GROUPS])


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["tau", "u", "mu"], "depends on 'beta', which other steps move"),
        (["beta", "tau", "u"], "depends on 'mu', which other steps move"),
    ],
)
def test_variables_of_other_steps(names, said):
    assert said in reason(around_mu, names)


def test_the_scale_may_be_moved_by_another_step():
    plate = plate_in(built(around_mu), ["beta", "mu", "u"])
    assert plate is not None
    assert plate.n_shared == 3


def few_groups():
    bernoulli(X @ beta() + pm.Normal("u", 0.0, scale(), shape=29)[GROUPS % 29])


def no_groups():
    bernoulli(X @ beta())


@pytest.mark.parametrize("define", [few_groups, no_groups], ids=lambda f: f.__name__)
def test_nothing_like_a_plate(define):
    assert reason(define) == "nothing like a plate"


def test_index_out_of_range():
    def define(row, group):
        groups = GROUPS.copy()
        groups[row] = group
        bernoulli(X @ beta() + _u()[groups])

    for group in (G, -G - 1):
        with pytest.raises(IndexError, match=str(group)):
            plate_in(built(lambda group=group: define(N // 2, group)))
