"""From a model to bounds of remainders, by one predictor or more: they hold for its rows."""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity.bounds.remainder import plain_move
from pymc_austerity.model.factorise import build
from pymc_austerity.model.structure.fixed_variables import in_the_way
from pymc_austerity.model.structure.term_structure import TermStructure

from .row_functions import sampler_of

M = 1100
RNG = np.random.default_rng(6)
X, Z, T = RNG.normal(size=(M, 3)), np.c_[np.ones(M), RNG.normal(size=M)], RNG.gamma(3.0, size=M)
Y = X @ [1.0, 2.0, 3.0] + RNG.standard_t(4, size=M)
COUNTS, EXPOSURE = RNG.poisson(2.0, size=M), 1e5 * RNG.gamma(2.0, size=M)


def vector(name="b", n=3):
    return pm.Normal(name, shape=n)


def matrix(name):
    return pm.Normal(name, shape=(3, 2))


def mean():
    """Of positive data."""
    return pt.exp(0.2 * X @ vector())


def two_terms():
    eta = 0.2 * X @ vector()
    pm.Bernoulli("y", logit_p=eta, observed=COUNTS > 1)
    pm.Poisson("z", pt.exp(eta), observed=COUNTS)


# Those of one predictor.
ONE = {
    "exposure": lambda: pm.NegativeBinomial(
        "y", mu=EXPOSURE * pt.exp(-11.0) * mean(), alpha=2.0, observed=COUNTS
    ),
    "dispersions": lambda: pm.NegativeBinomial("y", mu=mean(), alpha=T, observed=COUNTS),
    "softplus": lambda: pm.NegativeBinomial("y", mu=pt.softplus(X @ vector()), alpha=2.0, observed=COUNTS),
    "gamma": lambda: pm.Gamma("y", mu=(m := mean()), sigma=0.5 * m, observed=T),
    "exponential by scale": lambda: pm.Exponential("y", scale=mean(), observed=T),
    "Weibull": lambda: pm.Weibull("y", 1.5, mean(), observed=T),
    "two terms": two_terms,
}
MODELS = ONE | {
    "half normal": lambda: pm.Normal("y", X @ vector(), pm.HalfNormal("s"), observed=Y),
    "exponential": lambda: pm.Normal("y", X @ vector(), pm.Exponential("s", 1.0), observed=Y),
    "precision": lambda: pm.Normal("y", X @ vector(), tau=pm.Gamma("s", 1.0, 1.0), observed=Y),
    "log scale": lambda: pm.Normal("y", X @ vector(), pt.exp(Z @ vector("g", 2)), observed=Y),
    "weights": lambda: pm.Normal("y", X @ vector(), pm.HalfNormal("s") / pt.sqrt(T), observed=Y),
    "shifted": lambda: pm.Normal("y", 1e6 + X @ vector(), pm.HalfNormal("s"), observed=1e6 + 1e3 * Y),
    "scales of groups": lambda: pm.Normal(
        "y", X @ vector(), pm.HalfNormal("s", shape=3)[np.arange(M) % 3], observed=Y
    ),
    "scales of groups and effects": lambda: pm.Normal(
        "y",
        pm.Normal("a", shape=5)[np.arange(M) % 5],
        pm.HalfNormal("s", shape=3)[np.arange(M) % 3] * T,
        observed=Y,
    ),
    "no predictor": lambda: pm.Normal("y", pm.Normal("m"), pm.HalfNormal("s"), observed=Y),
    "log-normal": lambda: pm.LogNormal("y", X @ vector(), pm.HalfNormal("s"), observed=np.exp(Y / 5)),
    "in both": lambda: pm.Normal("y", X @ (b := vector()), pt.exp(Z @ vector("g", 2) + X @ b), observed=Y),
    "Student's t": lambda: pm.StudentT("y", nu=4.0, mu=X @ vector(), sigma=pm.HalfNormal("s"), observed=Y),
    "counts": lambda: pm.NegativeBinomial(
        "y", mu=pt.exp(0.2 * X @ vector()), alpha=pm.HalfNormal("s"), observed=np.arange(M) % 7
    ),
    "uniform scale": lambda: pm.Normal("y", X @ vector(), pm.Uniform("s", 0.0, 3.0), observed=Y),
    "Student's t of any shape": lambda: pm.StudentT(
        "y", nu=pm.Gamma("nu", 2.0, 0.1), mu=X @ vector(), sigma=pm.HalfNormal("s"), observed=Y
    ),
    "censored": lambda: pm.Censored(
        "y", pm.Normal.dist(X @ vector(), pm.HalfNormal("s")), 0.0, 2.5, observed=np.clip(Y, 0.0, 2.5)
    ),
    "truncated": lambda: pm.TruncatedNormal(
        "y", X @ vector(), pm.HalfNormal("s"), lower=0.0, observed=np.abs(Y)
    ),
    "by hand": lambda: pm.Potential(
        "y", -(e := pm.Normal("e")) - 0.5 * ((X @ vector() - Y) * pt.exp(-e)) ** 2
    ),
}


def factorised(make):
    with pm.Model() as model:
        make()
    return build(model, model.value_vars, threshold=1000, initial_point=None, check=True)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.covering(1)
def test_models_have_bounds(name):
    """Of the rows of the model itself, by differences of its log density along a line."""
    fact = factorised(MODELS[name])
    functions = TermStructure(fact).row_functions
    n_predictors = 1 if name in ONE else 3 if name == "Student's t of any shape" else 2
    assert {term.n_predictors for term in functions} == {n_predictors}
    d, rng = functions[0].n_dim, np.random.default_rng([7, *map(ord, name)])
    rows = functions[0].rows(np.arange(M))
    center = 0.1 * rng.normal(size=d)
    if name == "shifted":
        center[-1] = math.log(1e3)
    _, singular, right = np.linalg.svd(rows[..., :-1].reshape(-1, d), full_matrices=False)
    V, W = right.T / singular, right * singular[:, None]
    sampler = sampler_of(functions, center, V, W)

    def terms(w):
        parts, start, q = {}, 0, center + V @ w
        for var in fact.var_names:
            shape = fact.graph.values[var].type.shape
            parts[var] = q[start : start + math.prod(shape)].reshape(shape)
            start += math.prod(shape)
        return fact.log_density_terms(parts)

    shares = []
    for length in (2.0, 4.0):
        w = rng.normal(size=d)
        w *= length / np.linalg.norm(w)
        # A fit of degree eight in the interval has the polynomial of order two at its middle.
        t = np.cos(np.pi * (np.arange(9) + 0.5) / 9)
        fit = np.polynomial.polynomial.polyfit(t, np.array([terms(x * w) for x in t]), 8)
        remainder = terms(w) - fit[0] - fit[1] - fit[2]
        tier, expected = plain_move(sampler, center + V @ w, center)
        noise = 1e-8 * (1 + np.abs(fit[:3]).max(axis=0))
        bound = sampler.constants[tier] / sampler.totals[tier] * expected
        shares.append((np.abs(remainder) - noise) / bound)
    assert np.max(shares) <= 1.0
    assert np.max(shares) > 0.02


REFUSED = {
    "ten": (
        lambda: pm.Potential("y", sum(pt.sigmoid(X @ matrix(f"b{k}")).sum(axis=1) for k in range(5))),
        "the term 'y' is a function of 10 linear predictors, and bounds are known for 9 at most",
    ),
    "concentration": (
        lambda: pm.VonMises("y", X @ vector(), pm.HalfNormal("s"), observed=Y % 3),
        "'s_log__' enters the term 'y' through I0e, whose derivatives have no known bounds",
    ),
    "incomplete gamma": (
        lambda: pm.Potential("y", pt.log(pt.gammaincc(2.5, T * pt.exp(X @ vector())))),
        "'b' enters the term 'y' through GammaIncC, whose derivatives have no known bounds",
    ),
    "incomplete beta": (
        lambda: pm.Potential("y", pt.log(pt.betainc(2.0 + pm.HalfNormal("s"), T, pt.sigmoid(X @ vector())))),
        "'s_log__' and 'b' enter the term 'y' through BetaInc",
    ),
    "Cholesky": (
        lambda: pm.Potential("y", T * pt.linalg.cholesky(pt.exp(pm.Normal("s")) * np.eye(2))[0, 0]),
        "'s' enters the term 'y' through Cholesky",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_operation_and_variable(name):
    make, message = REFUSED[name]
    structure = TermStructure(factorised(make))
    with pytest.raises(ValueError, match=message):
        structure.row_functions  # noqa: B018


def test_a_variable_in_the_way_is_named():
    """Without the concentration of this model, or without any one of the five, there would be a function."""
    for name, expected in (("concentration", ("s_log__",)), ("ten", tuple(f"b{k}" for k in range(5)))):
        fact = factorised(REFUSED[name][0])
        assert in_the_way(TermStructure(fact)) == expected
    assert in_the_way(TermStructure(factorised(REFUSED["Cholesky"][0]))) == ()
