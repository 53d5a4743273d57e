"""Rows at the edge of a support: exposures, weights, probabilities of zero, infinite bounds and offsets.

PyMC gives them finite densities. So do row functions, with derivatives and bounds: zero for a constant.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import factorise
from pymc_austerity.bounds.expressions.curvature import is_concave
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.row_constants import ExpansionCoordinates, bounded_term
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE
from pymc_austerity.model.self_check import jittered
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.predictor_values import opaque_function
from pymc_austerity.model.structure.term_structure import TermStructure

N = 400
RNG = np.random.default_rng(7)
X = RNG.normal(size=N)
SOME = RNG.random(N) < 0.6
EXPOSURE = SOME * RNG.uniform(0.1, 1.0, N)
COUNTS = RNG.poisson(EXPOSURE)
TRIALS = RNG.integers(0, 4, N)
with np.errstate(divide="ignore"):
    OFFSET = np.log(EXPOSURE)
EITHER = np.where(SOME, 0.0, np.where(RNG.random(N) < 0.5, np.inf, -np.inf))
POSITIVE = SOME * RNG.exponential(size=N)
PIECE = RNG.integers(0, 3, N)
BOUND = np.choose(PIECE, [-np.inf, 9.0, np.inf])
CUTS = np.array([-np.inf, -0.5, 0.5, np.inf])
TABLE = SOME[:, None] * RNG.uniform(0.1, 1.0, (N, 2))


def rate(scale=1.0):
    return scale * pm.math.exp(pm.Normal("a") + pm.Normal("b") * X)


def share(scale=1.0):
    return scale * pm.math.sigmoid(pm.Normal("a") + pm.Normal("b") * X)


def linear(offset=0.0):
    return pm.Normal("a") + pm.Normal("b") * X + offset


def interval():
    d = pm.Normal.dist(linear(), 1.0)
    return pm.math.logdiffexp(pm.logcdf(d, CUTS[PIECE + 1]), pm.logcdf(d, CUTS[PIECE]))


def two_pieces():
    eta = linear()
    return -0.5 * pt.switch(eta < BOUND, eta**2, (eta - 1.0) ** 2 + pt.exp(eta))


def x_log_x(x):
    return pt.switch(pt.eq(x, 0.0), 0.0, x * pt.log(x)) - x**2


# A model, and rows that are constants: their bounds and derivatives are zero.
CONSTANT = {
    "exposure": (lambda: pm.Poisson("y", rate(EXPOSURE), observed=COUNTS), ~SOME),
    "exposure as offset": (lambda: pm.Poisson("y", pm.math.exp(linear(OFFSET)), observed=COUNTS), ~SOME),
    "identity link": (
        lambda: pm.Poisson("y", EXPOSURE * (pm.HalfNormal("a") + pm.HalfNormal("b") * X**2), observed=COUNTS),
        ~SOME,
    ),
    "negative binomial": (
        lambda: pm.NegativeBinomial("y", mu=rate(EXPOSURE), alpha=2.0, observed=COUNTS), ~SOME,
    ),
    "zero-inflated": (
        lambda: pm.ZeroInflatedPoisson("y", psi=0.5, mu=rate(EXPOSURE), observed=COUNTS), ~SOME,
    ),
    "zero-inflated negative binomial": (
        lambda: pm.ZeroInflatedNegativeBinomial("y", psi=0.5, mu=rate(EXPOSURE), alpha=2.0, observed=COUNTS),
        ~SOME,
    ),
    "weights": (lambda: pm.Potential("y", SOME * pm.logp(pm.Poisson.dist(rate()), COUNTS)), ~SOME),
    "no trials": (lambda: pm.Binomial("y", n=TRIALS, p=share(), observed=TRIALS // 2), TRIALS == 0),
    "probability 0": (lambda: pm.Binomial("y", n=3, p=share(SOME), observed=2 * SOME), ~SOME),
    "probability 1": (lambda: pm.Binomial("y", n=3, p=1.0 - share(SOME), observed=3 - SOME), ~SOME),
    "Bernoulli of 0": (lambda: pm.Bernoulli("y", p=share(SOME), observed=SOME), ~SOME),
    "infinite log odds": (
        lambda: pm.Bernoulli("y", logit_p=linear(EITHER), observed=(EITHER > 0) | (SOME & (X > 0))), ~SOME,
    ),
    "hazard": (
        lambda: pm.Binomial("y", n=3, p=1.0 - pm.math.exp(-rate(EXPOSURE)), observed=SOME), ~SOME,
    ),
    "x log x": (lambda: pm.Potential("y", x_log_x(rate(EXPOSURE))), ~SOME),
    "unavailable": (
        lambda: pm.Potential("y", pm.math.log(pm.math.sigmoid(pt.switch(SOME, linear(), np.inf)))), ~SOME,
    ),
}  # fmt: skip
# Rows that move, at the edge of a support.
MOVING = {
    "Weibull": lambda: pm.Weibull("y", 1.0, rate(), observed=POSITIVE),
    "gamma": lambda: pm.Gamma("y", 1.0, rate(), observed=POSITIVE),
    "pieces": lambda: pm.Potential("y", two_pieces()),
    "only zeros": lambda: pm.ZeroInflatedNegativeBinomial(
        "y", psi=pm.Beta("psi", 1, 1), mu=rate(EXPOSURE), alpha=1.0, observed=np.zeros(N, dtype=int)
    ),
    "interval": lambda: pm.Potential("y", interval()),
    "Multinomial": lambda: pm.Multinomial(
        "y", n=3, p=pt.stack([1 - share(SOME), share_again(SOME)], axis=1), observed=np.c_[3 - SOME, SOME]
    ),
    "mixture with a weight of 0": lambda: pm.Mixture(
        "y",
        np.c_[TABLE[:, 0], 1 - TABLE[:, 0]],
        [pm.Poisson.dist(rate()), pm.Poisson.dist(2.0)],
        observed=COUNTS,
    ),
    "component without exposure": lambda: pm.Mixture(
        "y", np.full(2, 0.5), [pm.Poisson.dist(rate(EXPOSURE)), pm.Poisson.dist(2.0)], observed=TRIALS
    ),
}


def share_again(scale):
    return scale * pm.math.sigmoid(pm.modelcontext(None)["a"] + pm.modelcontext(None)["b"] * X)


def structure_of(make):
    with pm.Model() as model:
        make()
    return TermStructure(factorise(model, threshold=100))


def bounds(function, features):
    """Third derivatives near a point."""
    k = len(features)
    near = ExpansionCoordinates(2, features, 0.05 * np.eye(k), 20.0 * np.eye(k))
    found = [c for _, c in bounded_term(function, near, np.array([1.0])).constants()]
    return np.concatenate(found, axis=1)[0]


def check(make, constant):
    structure = structure_of(make)
    fact, (function,) = structure.factorisation, structure.row_functions
    (term,) = [one for one in fact.locals if one.name == function.name]
    values = jittered(fact.graph)
    point = dict(zip(fact.graph.values, values, strict=True))
    every = np.arange(term.size)
    compiled = fact.compile(term.rows, [term.index], mode=INTERPRETED_STABLE, stabilised=True)
    with np.errstate(all="ignore"):
        theirs = compiled(*values, every, *fact.leaf_values)
    assert np.all(np.isfinite(theirs))

    found = Differentiable(structure, point)
    features = found.features(found.start)
    features = np.asarray(getattr(features, "values", features))
    rows = function.rows(every)
    ours = evaluate(function.expression, (rows[..., :-1] @ features + rows[..., -1]).T, function.data(every))
    np.testing.assert_allclose(np.broadcast_to(ours, len(every)), theirs, rtol=1e-7, atol=1e-7)

    total = found.likelihood()(found.start)
    assert total.value == pytest.approx(theirs.sum(), rel=1e-7)
    assert np.all(np.isfinite(total.gradient))
    assert np.all(np.isfinite(total.hessian))
    near = bounds(function, features)
    assert np.all(np.isfinite(near))
    assert not near[constant].any()
    assert near.any()


@pytest.mark.parametrize("name", CONSTANT)
def test_rows_that_are_constants(name):
    check(*CONSTANT[name])


def test_infinite_offsets_are_in_no_predictor():
    found = opaque_function(structure_of(CONSTANT["exposure as offset"][0]).forms_in_block[0])
    assert np.all(np.isfinite(found.rows(np.arange(N))))


def test_counts_with_exposures_of_zero_are_concave():
    """The data decide which rows these are."""
    (function,) = structure_of(CONSTANT["exposure"][0]).row_functions
    assert is_concave(function.expression)


@pytest.mark.parametrize("name", MOVING)
def test_rows_that_move_at_the_edge(name):
    check(MOVING[name], np.zeros(N, dtype=bool))
