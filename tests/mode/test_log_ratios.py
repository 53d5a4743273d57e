"""From a model to a certified range: the log ratios of all rows are no further apart."""

import pickle

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity.bounds.remainder import remainder_range
from pymc_austerity.mode.log_ratios import bounded_state, certify_log_ratios
from pymc_austerity.model.factorise import build
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.structure.term_structure import TermStructure
from tests.model.features import model_of, scaled, simplex

N = 1100
RNG = np.random.default_rng(0)
X = np.c_[np.ones(N), RNG.normal(size=(N, 2)), np.eye(3)[RNG.integers(0, 3, N)]]
D = X.shape[1]
T = RNG.normal(size=N)
BINARY = RNG.integers(0, 2, size=N)
COUNTS = RNG.poisson(2.0, size=N)
EXPOSURE = RNG.gamma(2.0, size=N)
G = RNG.integers(0, 4, N)
SPREAD = RNG.negative_binomial(1, 0.5, N)


def scale(fixed):
    return 0.7 if fixed else pm.HalfNormal("sigma")


def huber(eta, sigma):
    z = pt.abs((T - eta) / sigma)
    return -pt.switch(z <= 1.345, z**2 / 2, 1.345 * z - 1.345**2 / 2)


# Likelihoods of a predictor.
MODELS = {
    "logit": lambda e: pm.Bernoulli("y", logit_p=e, observed=BINARY),
    "binomial": lambda e: pm.Binomial("y", n=10 + COUNTS, logit_p=e, observed=COUNTS),
    "probit": lambda e: pm.Bernoulli("y", p=pm.math.invprobit(e), observed=BINARY),
    "cloglog": lambda e: pm.Bernoulli("y", p=1 - pt.exp(-pt.exp(e)), observed=BINARY),
    "Poisson": lambda e: pm.Poisson("y", pt.exp(e), observed=COUNTS),
    "Poisson with exposure": lambda e: pm.Poisson("y", EXPOSURE * pt.exp(e), observed=COUNTS),
    "softplus link": lambda e: pm.Poisson("y", 0.1 + pt.softplus(e), observed=COUNTS),
    "exponential by rate": lambda e: pm.Exponential("y", pt.exp(e), observed=EXPOSURE),
    "normal": lambda e: pm.Normal("y", e, scale(True), observed=T),
    "normal of another scale": lambda e: pm.Normal("y", e, scale(False), observed=T),
    "normal with weights": lambda e: pm.Normal("y", e, scale(False) * EXPOSURE, observed=T),
    "scales that change out of proportion": lambda e: pm.Normal(
        "y", e, pt.sqrt(EXPOSURE + scale(False) ** 2), observed=T
    ),
    "two normals": lambda e: pm.NormalMixture(
        "y", [0.3, 0.7], mu=pt.stack([e, e + 1], axis=1), sigma=1, observed=T
    ),
    "Student": lambda e: pm.StudentT("y", nu=3, mu=e, sigma=scale(True), observed=T),
    "Student of another scale": lambda e: pm.StudentT(
        "y", nu=2 + pm.Exponential("nu", 1), mu=e, sigma=scale(False), observed=T
    ),
    "Laplace": lambda e: pm.Laplace("y", e, scale(True), observed=T),
    "Laplace of another scale": lambda e: pm.Laplace("y", e, scale(False), observed=T),
    "quantiles": lambda e: pm.AsymmetricLaplace("y", mu=e, b=1.3, q=0.2, observed=T),
    "Huber": lambda e: pm.Potential("y", huber(e, scale(True))),
    "negative binomial": lambda e: pm.NegativeBinomial(
        "y", mu=EXPOSURE * pt.exp(e), alpha=2.5, observed=COUNTS
    ),
    "negative binomial of another dispersion": lambda e: pm.NegativeBinomial(
        "y", mu=pt.exp(e), alpha=scale(False), observed=SPREAD
    ),
    "gamma": lambda e: pm.Gamma("y", alpha=2.5, beta=2.5 / pt.exp(e), observed=EXPOSURE),
    "affine": lambda e: pm.Potential("y", 2.0 * e + 1.0),
    "offsets of another step": lambda e: pm.Poisson(
        "y", pt.exp(e + pm.Normal("u", 0, 0.3, shape=4)[G]), observed=COUNTS
    ),
    "several terms": lambda e: (
        pm.Normal("y", e, scale(False), observed=T),
        pm.Bernoulli("z", logit_p=0.5 * e, observed=BINARY),
    ),
}


def made(model, *names):
    fact = build(model, [model[n] for n in names], threshold=1000, initial_point=None, check=True)
    structure = TermStructure(fact)
    certificate = certify_log_ratios(model, structure, fact.graph.point)
    graph = bounded_state(structure)
    values = list(fact.graph.values.values())
    phi = (lambda *own: own[0].ravel()) if graph is None else function_of(values, graph)

    def bound(new, old):
        states = ([point[name] for name in fact.graph.values] for point in (new, old))
        return remainder_range(certificate, *(np.asarray(phi(*own), dtype=float) for own in states))

    return fact, certificate, bound


def with_predictor(likelihood):
    with pm.Model() as model:
        likelihood(X @ pm.Normal("b", shape=D))
    return model


def ratios(fact, bound, near, rng, block):
    """Ranges of log ratios, and their bounds, of moves of a block from points near and far."""
    for k in range(8):
        point = {n: v + (2.0 if k == 0 else 0.2) * rng.normal(size=v.shape) for n, v in near.items()}
        new = {**point, **{n: point[n] + 10.0 ** (-k) * rng.normal(size=point[n].shape) for n in block}}
        with np.errstate(invalid="ignore"):  # far out PyMC's density of some rows is minus infinity
            found = fact.log_density_terms(new) - fact.log_density_terms(point)
        yield np.ptp(found[np.isfinite(found)]), bound(new, point)


# Its bounds are searched for as long as those of all others; other models here have several predictors, and
# tests/bounds/test_models.py has its likelihood.
LONG = pytest.mark.full_size("half a minute for three predictors in place of two")
LONGEST = ("Student of another scale",)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[LONG] if n in LONGEST else []) for n in MODELS])
@pytest.mark.covering(6)
def test_log_ratios_of_models(name):
    fact, certificate, bound = made(with_predictor(MODELS[name]), "b")
    found = list(ratios(fact, bound, fact.graph.point, np.random.default_rng(1), ["b"]))
    for exact, width in found:
        assert exact <= width + 1e-12
    assert np.isfinite(certificate.constants[:3]).all()
    assert np.isfinite([width for _, width in found]).any()


@pytest.mark.parametrize("parameters", [simplex, scaled])
def test_features(parameters):
    model = model_of(parameters, 2000)
    names = [rv.name for rv in model.free_RVs]
    fact, _, bound = made(model, *names)
    for exact, width in ratios(fact, bound, fact.graph.point, np.random.default_rng(2), fact.var_names):
        assert exact <= width + 1e-12


def test_pickle_and_size():
    _, certificate, _ = made(with_predictor(MODELS["normal of another scale"]), "b")
    assert len(certificate.center) == D + 1
    again = pickle.loads(pickle.dumps(certificate))
    q = np.zeros(D + 1)
    assert remainder_range(again, q + 0.1, q) == remainder_range(certificate, q + 0.1, q)
    assert len(pickle.dumps(certificate)) < 5_000


def test_the_block_itself_is_no_feature():
    model = with_predictor(MODELS["logit"])
    fact = build(model, [model["b"]], threshold=1000, initial_point=None, check=True)
    assert bounded_state(TermStructure(fact)) is None


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (
            lambda e: pm.Potential("y", pt.iv(0.5, pt.exp(e))),
            "enters? the term 'y' through",
        ),
        (
            lambda e: pm.Normal("y", e, 1.0 + pm.Bernoulli("k", 0.5), observed=T),
            "variables of other steps .'k'",
        ),
        (lambda e: pm.Normal("y", e + pm.Normal("u", shape=N), 1.0, observed=T), "contain 1106 variables"),
        # A jump has no slope.
        (
            lambda e: pm.Potential("y", -pt.abs(e) + pt.where(e > 0.0, 1.0, 0.0)),
            "the term 'y' have no bound",
        ),
    ],
)
def test_refusals_name_the_term(likelihood, message):
    with pytest.raises(ValueError, match=message):
        made(with_predictor(likelihood), "b")
