"""From a model to certified remainders: those of every row of the model are within."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import expit

from pymc_austerity.bounds.remainder import certify_remainders, remainder_range
from pymc_austerity.bounds.row_constants import ExpansionCoordinates
from pymc_austerity.model.factorise import build
from pymc_austerity.model.structure.term_structure import TermStructure

from .families import whitened
from .test_remainder import moves

N = 1100
RNG = np.random.default_rng(0)
X = np.c_[np.ones(N), 0.5 * RNG.normal(size=(N, 2))]
BINARY = RNG.integers(0, 2, size=N)
COUNTS = RNG.poisson(2.0, size=N)
EXPOSURE = 1e5 * RNG.gamma(2.0, size=N)
TIMES = RNG.gamma(2.0, size=N)
SIGMA = 0.7 + TIMES


def negative_binomial(alpha, exposure):
    """f' and f'' of counts with mean exposure * exp(eta)."""

    def slopes(eta):
        p = expit(eta + np.log(exposure / alpha))
        return COUNTS - (COUNTS + alpha) * p, -(COUNTS + alpha) * p * (1 - p)

    return slopes


def softplus_negative_binomial(eta):
    """f' and f'' of counts with mean softplus(eta) and dispersion 2."""
    mean, p = np.logaddexp(0.0, eta), expit(eta)
    first = COUNTS / mean - (COUNTS + 2.0) / (mean + 2.0)
    second = (COUNTS + 2.0) / (mean + 2.0) ** 2 - COUNTS / mean**2
    return first * p, second * p**2 + first * p * (1 - p)


def gamma(alpha):
    def slopes(eta):
        part = alpha * TIMES * np.exp(-eta)
        return part - alpha, -part

    return slopes


def poisson(eta):
    return COUNTS - np.exp(eta), -np.exp(eta)


def logistic(eta):
    p = expit(eta)
    return BINARY - p, -p * (1 - p)


# name: (likelihood of a predictor, f' and f'', intercept that suits the data)
MODELS = {
    "negative binomial": (
        lambda e: pm.NegativeBinomial("y", mu=pt.exp(e), alpha=2.0, observed=COUNTS),
        negative_binomial(2.0, 1.0),
        0.7,
    ),
    "negative binomial with exposure": (
        lambda e: pm.NegativeBinomial("y", mu=EXPOSURE * pt.exp(e), alpha=2.0, observed=COUNTS),
        negative_binomial(2.0, EXPOSURE),
        -11.0,
    ),
    "negative binomial with log exposure": (
        lambda e: pm.NegativeBinomial("y", mu=pt.exp(e + np.log(EXPOSURE)), alpha=2.0, observed=COUNTS),
        negative_binomial(2.0, EXPOSURE),
        -11.0,
    ),
    "negative binomial with many dispersions": (
        lambda e: pm.NegativeBinomial("y", mu=pt.exp(e), alpha=TIMES, observed=COUNTS),
        negative_binomial(TIMES, 1.0),
        0.7,
    ),
    "gamma": (
        lambda e: pm.Gamma("y", alpha=3.0, beta=3.0 / pt.exp(e), observed=TIMES),
        gamma(3.0),
        0.7,
    ),
    "gamma by mean and sd": (
        lambda e: pm.Gamma("y", mu=pt.exp(e), sigma=0.5 * pt.exp(e), observed=TIMES),
        gamma(4.0),
        0.7,
    ),
    "exponential": (lambda e: pm.Exponential("y", 1 / pt.exp(e), observed=TIMES), gamma(1.0), 0.7),
    "exponential by scale": (lambda e: pm.Exponential("y", scale=pt.exp(e), observed=TIMES), gamma(1.0), 0.7),
    "negative binomial by softplus": (
        lambda e: pm.NegativeBinomial("y", mu=pt.softplus(e), alpha=2.0, observed=COUNTS),
        softplus_negative_binomial,
        2.0,
    ),
    "Weibull": (
        lambda e: pm.Weibull("y", 1.5, pt.exp(e), observed=TIMES),
        lambda eta: (1.5 * (u := (TIMES * np.exp(-eta)) ** 1.5) - 1.5, -2.25 * u),
        0.7,
    ),
    "normal": (
        lambda e: pm.Normal("y", e, SIGMA, observed=TIMES),
        lambda eta: ((TIMES - eta) / SIGMA**2, -(SIGMA**-2.0)),
        2.0,
    ),
    "normal of one scale": (
        lambda e: pm.Normal("y", e, 0.7, observed=TIMES),
        lambda eta: ((TIMES - eta) / 0.49, np.full(N, -1 / 0.49)),
        2.0,
    ),
}


def factorised(likelihood):
    with pm.Model() as model:
        likelihood(X @ pm.Normal("b", shape=X.shape[1]))
    return build(model, [model["b"]], threshold=1000, initial_point=None, check=True)


def certified(fact, center, order, n_exact=0):
    V, W = whitened(np.c_[X, np.zeros(N)])
    coordinates = ExpansionCoordinates(order, center, 0.1 * V, 10 * W)
    return V, *certify_remainders(TermStructure(fact).row_functions, coordinates, n_exact)


def changes(fact, slopes, center, order, q_new, q):
    """R_i(q_new) - R_i(q) of all rows; `slopes` are those of the terms one after the other."""

    def polynomial(q):
        t = X @ (q - center)
        parts = [first * t + (order - 1) * second * t**2 / 2 for first, second in slopes]
        return np.concatenate(parts)

    exact = fact.log_density_terms({"b": q_new}) - fact.log_density_terms({"b": q})
    return exact - (polynomial(q_new) - polynomial(q))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.covering(1)
def test_remainders_of_models(name):
    likelihood, slopes, intercept = MODELS[name]
    fact = factorised(likelihood)
    center = np.array([intercept, 0.1, -0.2])
    for order in (1, 2):
        V, certificate, exact = certified(fact, center, order, n_exact=7)
        if name.startswith("normal") and order == 2:
            np.testing.assert_array_equal(certificate.constants, 0.0)
        ratios = []
        for q_new, q in moves(np.random.default_rng(1), center, 0.1 * V):
            change = np.delete(changes(fact, [slopes(X @ center)], center, order, q_new, q), exact)
            bound = remainder_range(certificate, q_new, q)
            assert np.ptp(change) <= bound + 1e-10
            ratios.append(bound / np.ptp(change))
        assert min(ratios) < 10.0


def test_several_observed_variables():
    def likelihood(eta):
        pm.Bernoulli("y", logit_p=eta, observed=BINARY)
        pm.Poisson("z", pt.exp(eta), observed=COUNTS)

    fact = factorised(likelihood)
    center = np.array([0.2, 0.1, -0.2])
    slopes = [logistic(X @ center), poisson(X @ center)]
    assert [term.name for term in fact.locals] == ["y", "z"]
    for order in (1, 2):
        V, certificate, exact = certified(fact, center, order, n_exact=20)
        assert np.all(np.diff(exact) > 0)
        assert exact[0] >= 0
        assert exact[-1] < 2 * N
        for q_new, q in moves(np.random.default_rng(2), center, 0.1 * V):
            change = changes(fact, slopes, center, order, q_new, q)
            assert np.ptp(np.delete(change, exact)) <= remainder_range(certificate, q_new, q)


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (
            lambda e: pm.NegativeBinomial("y", mu=pt.exp(e), alpha=pm.HalfNormal("alpha"), observed=COUNTS),
            "term 'y' depends on variables of other steps .'alpha_log__'",
        ),
        (
            lambda e: pm.VonMises("y", mu=0.0, kappa=pt.exp(e), observed=TIMES % 3),
            "'b' enters the term 'y' through I0e, whose derivatives have no known bounds",
        ),
        (
            lambda e: pm.Potential("y", pt.log(pt.gammaincc(2.5, TIMES * pt.exp(e)))),
            "'b' enters the term 'y' through GammaIncC, whose derivatives have no known bounds",
        ),
    ],
)
def test_refusals_name_the_term(likelihood, message):
    fact = factorised(likelihood)
    with pytest.raises(ValueError, match=message):
        certified(fact, np.zeros(3), 2)
