"""From a model to a certified range: every log ratio of the model is within it."""

import pickle

import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity.bounds.log_ratio_range import certified_interval, certified_range, certify
from pymc_austerity.model.factorise import build
from pymc_austerity.model.structure.term_structure import TermStructure

from .families import predictor

N = 1100
RNG = np.random.default_rng(0)
X = np.c_[np.ones(N), RNG.normal(size=(N, 2)), np.eye(3)[RNG.integers(0, 3, N)]]
D = X.shape[1]
T = RNG.normal(size=N)
BINARY = RNG.integers(0, 2, size=N)
COUNTS = RNG.poisson(2.0, size=N)
EXPOSURE = RNG.gamma(2.0, size=N)


def scale(fixed):
    return 0.7 if fixed else pm.HalfNormal("sigma")


def huber(eta, sigma):
    z = pt.abs((T - eta) / sigma)
    return -pt.switch(z <= 1.345, z**2 / 2, 1.345 * z - 1.345**2 / 2)


# By family, likelihoods of a predictor.
FAMILIES = {
    "binary logistic": {"logit": lambda e: pm.Bernoulli("y", logit_p=e, observed=BINARY)},
    "logistic": {
        "binomial": lambda e: pm.Binomial("y", n=10 + COUNTS, logit_p=e, observed=COUNTS),
        # PyMC's rewrites make a sigmoid of log(alpha) - eta of it, and so y + alpha trials.
        "negative binomial": lambda e: pm.NegativeBinomial("y", mu=pt.exp(e), alpha=2.5, observed=COUNTS),
    },
    "probit": {"probit": lambda e: pm.Bernoulli("y", p=pm.math.invprobit(e), observed=BINARY)},
    "complementary log-log": {
        "cloglog": lambda e: pm.Bernoulli("y", p=1 - pt.exp(-pt.exp(e)), observed=BINARY)
    },
    "Poisson": {
        "Poisson": lambda e: pm.Poisson("y", pt.exp(e), observed=COUNTS),
        "Poisson with exposure": lambda e: pm.Poisson("y", EXPOSURE * pt.exp(e), observed=COUNTS),
        "gamma by inverse scale": lambda e: pm.Gamma("y", 2.5, beta=pt.exp(e), observed=EXPOSURE),
        "exponential by rate": lambda e: pm.Exponential("y", pt.exp(e), observed=EXPOSURE),
    },
    "normal": {
        "normal": lambda e: pm.Normal("y", e, scale(True), observed=T),
        "normal of another scale": lambda e: pm.Normal("y", e, scale(False), observed=T),
        "normal with weights": lambda e: pm.Normal("y", e, scale(False) * EXPOSURE, observed=T),
    },
    "Student's t": {
        "Student": lambda e: pm.StudentT("y", nu=3, mu=e, sigma=scale(True), observed=T),
        "Student of another scale": lambda e: pm.StudentT(
            "y", nu=2 + pm.Exponential("nu", 1), mu=e, sigma=scale(False), observed=T
        ),
    },
    "Laplace": {
        "Laplace": lambda e: pm.Laplace("y", e, scale(False), observed=T),
        "quantiles": lambda e: pm.AsymmetricLaplace("y", mu=e, b=scale(False), q=0.2, observed=T),
    },
    "Huber": {
        "Huber": lambda e: pm.Potential("y", huber(e, scale(True))),
        "Huber of another scale": lambda e: pm.CustomDist(
            "y", e, scale(False), logp=lambda v, e, s: huber(e, s), observed=T
        ),
    },
    "negative binomial": {
        "negative binomial with exposure": lambda e: pm.NegativeBinomial(
            "y", mu=EXPOSURE * pt.exp(e), alpha=2.5, observed=COUNTS
        ),
        "negative binomial of another dispersion, with exposure": lambda e: pm.NegativeBinomial(
            "y", mu=EXPOSURE * pt.exp(e), alpha=scale(False), observed=COUNTS
        ),
        "negative binomial by n and p": lambda e: pm.NegativeBinomial(
            "y", n=2.5, p=2.5 / (2.5 + pt.exp(e)), observed=COUNTS
        ),
    },
    "gamma": {
        "gamma": lambda e: pm.Gamma("y", alpha=2.5, beta=2.5 / pt.exp(e), observed=EXPOSURE),
        "gamma by mean and sd, of another shape": lambda e: pm.Gamma(
            "y", mu=pt.exp(e), sigma=scale(False) * pt.exp(e), observed=EXPOSURE
        ),
        "exponential": lambda e: pm.Exponential("y", 1 / pt.exp(e), observed=EXPOSURE),
    },
    "affine": {"affine": lambda e: pm.Potential("y", 2.0 * e + 1.0)},
}
MODELS = {name: (make, family) for family, own in FAMILIES.items() for name, make in own.items()}


def made(likelihood, names=("b",)):
    with pm.Model() as model:
        b = pm.Normal("b", shape=D)
        likelihood(X @ b)
    fact = build(model, [model[n] for n in names], threshold=1000, initial_point=None, check=True)
    return fact, certify(TermStructure(fact).linear_predictors, fact.graph.point)


def points(fact, rng, number=6):
    for k in range(number):
        point = {n: v + 0.4 * rng.normal(size=v.shape) for n, v in fact.graph.point.items()}
        q = 0.3 * rng.normal(size=D)
        yield point, q + 10.0 ** (-k) * rng.normal(size=D), q


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.covering(1)
def test_log_ratios_of_models(name):
    likelihood, family = MODELS[name]
    fact, ranges = made(likelihood)
    assert [f.name for f in ranges.families] == [family]
    rng = np.random.default_rng(1)
    worst = []
    for point, q_new, q in points(fact, rng):
        certificates = ranges.at(point)
        exact = fact.log_density_terms({**point, "b": q_new}) - fact.log_density_terms({**point, "b": q})
        low, high = certified_interval(certificates, q_new, q)
        width = certified_range(certificates, q_new, q)
        assert low - 1e-12 <= exact.min()
        assert exact.max() <= high + 1e-12
        assert np.ptp(exact) <= width + 1e-12
        worst.append(width / np.ptp(exact))
    # The rows of this design are not far from what the shapes describe.
    assert worst[-1] < (25.0 if family in ("Poisson", "gamma") else 6.0)


@pytest.mark.slow("compiles a certificate for several terms")
def test_compiled_as_interpreted_for_several_terms():
    def likelihood(eta):
        for name in ("normal of another scale", "probit", "cloglog", "Laplace"):
            with pm.Model(name.replace(" ", "_")):
                MODELS[name][0](eta)

    fact, ranges = made(likelihood)
    assert len(ranges.certificates) == 4
    assert {name for each in ranges.predictors for name in each.others} == {
        "normal_of_another_scale::sigma_log__",
        "Laplace::sigma_log__",
    }
    compiled = numba.njit(lambda c, a, b: certified_range(c, a, b))
    for point, q_new, q in points(fact, np.random.default_rng(2), 3):
        certificates = ranges.at(point)
        width = certified_range(certificates, q_new, q)
        np.testing.assert_allclose(compiled(certificates, q_new, q), width, rtol=1e-10)
        exact = fact.log_density_terms({**point, "b": q_new}) - fact.log_density_terms({**point, "b": q})
        assert np.ptp(exact) <= width
        low, high = certified_interval(certificates, q_new, q)
        single = [certified_interval((c,), q_new, q) for c in certificates]
        np.testing.assert_allclose(
            [low, high], [min(s[0] for s in single), max(s[1] for s in single)], rtol=1e-5
        )


def test_scale_of_another_step_changes_the_parameters_only():
    _, ranges = made(MODELS["Laplace"][0])
    q, q_new = np.zeros(D), np.full(D, 0.1)
    narrow, wide = (ranges.at({"sigma_log__": np.array(np.log(s))}) for s in (2.0, 0.5))
    np.testing.assert_allclose(
        certified_range(wide, q_new, q), 4.0 * certified_range(narrow, q_new, q), rtol=1e-9
    )
    assert wide[0].first is ranges.certificates[0].first


def test_nothing_to_update_without_other_variables():
    _, ranges = made(MODELS["logit"][0])
    assert not any(each.others for each in ranges.predictors)
    assert ranges.at({})[0] is ranges.certificates[0]


@pytest.mark.slow("compiles kernels of two steps")
def test_offsets_of_another_step():
    groups = RNG.integers(0, 4, N)

    def with_groups(name):
        return lambda eta: MODELS[name][0](eta + pm.Normal("u", shape=4)[groups])

    fact, ranges = made(with_groups("logit"))
    assert ranges.families[0].name == "logistic"  # the bound that does without offsets
    for point, q_new, q in points(fact, np.random.default_rng(3)):
        exact = fact.log_density_terms({**point, "b": q_new}) - fact.log_density_terms({**point, "b": q})
        assert np.ptp(exact) <= certified_range(ranges.at(point), q_new, q)
    made(with_groups("Laplace"))
    made(with_groups("negative binomial"))
    for name in ("normal", "Poisson", "probit", "cloglog", "gamma"):
        with pytest.raises(ValueError, match="term 'y' contains variables of other steps"):
            made(with_groups(name))


def test_pickle_and_size():
    _, ranges = made(MODELS["normal of another scale"][0])
    again = pickle.loads(pickle.dumps(ranges.certificates))
    q = np.zeros(D)
    assert certified_range(again, q + 0.1, q) == certified_range(ranges.certificates, q + 0.1, q)
    assert len(pickle.dumps(ranges.certificates)) < 20_000


def test_no_step_has_no_range_and_bad_states_have_an_infinite_one():
    _, ranges = made(MODELS["Poisson"][0])
    q = np.zeros(D)
    assert 0.0 <= certified_range(ranges.certificates, q, q) < 1e-9
    assert certified_range(ranges.certificates, q * np.nan, q) == np.inf
    assert certified_range(ranges.certificates, q + 1e4, q) == np.inf
    with np.errstate(invalid="ignore"):
        assert certified_range(ranges.certificates, q + np.inf, q) == np.inf


def test_unrecognised_at_extreme_values_is_an_infinite_range():
    _, ranges = made(MODELS["Huber of another scale"][0])
    certificates = ranges.at({"sigma_log__": np.array(60.0)})
    assert certified_range(certificates, np.ones(D), np.zeros(D)) == np.inf


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (lambda e: pm.Normal("y", e**2, 1.0, observed=T), "of no form that is known"),
        (lambda e: pm.Poisson("y", pt.softplus(e), observed=COUNTS), "of no form that is known"),
        (
            lambda e: pm.NormalMixture("y", [0.3, 0.7], mu=pt.stack([e, e + 1], axis=1), sigma=1, observed=T),
            "no form|enters the term 'y'",
        ),
        (
            lambda e: pm.Normal("y", e, pt.exp(pm.Normal("c") * T), observed=T),
            "term 'y' do not change in proportion",
        ),
        (
            lambda e: pm.Normal("y", e, 1.0 + pm.Bernoulli("k", 0.5), observed=T),
            "depends on 'k', a discrete variable",
        ),
    ],
)
def test_refusals_name_the_term(likelihood, message, without_c):
    with pytest.raises(ValueError, match=message):
        made(likelihood)


def test_a_rare_row_of_another_form_is_noticed():
    rows = np.c_[np.ones(50_000), np.zeros(50_000)]

    def slope(eta, i, point):
        return np.where(i == 33_334, -(eta**3), -eta)

    with pytest.raises(ValueError, match="Some rows of the term 'y' are not normal"):
        certify([predictor(rows, slope)], {})


def test_a_rare_row_that_sticks_out_is_within():
    rows = np.c_[np.ones(50_000), np.random.default_rng(5).normal(size=50_000), np.zeros(50_000)]
    rows[33_333, 1] = 1e3
    ranges = certify([predictor(rows, lambda eta, i, point: np.sign(-eta))], {})
    assert certified_range(ranges.certificates, np.array([0.0, 1.0]), np.zeros(2)) >= 1e3
