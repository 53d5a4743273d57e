"""Sufficient statistics from the graph alone: all the data, some rows, and likelihoods that have none."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import FactorisationError
from pymc_austerity.model.conjugacy.families import Dirichlet, GammaPrior
from pymc_austerity.model.conjugacy.recognise import LikelihoodGradient, Place, analyse
from tests.models import as_model

N, K, V = 1200, 4, 7
_rng = np.random.default_rng(5)
Z = _rng.choice(K, N, p=[0.5, 0.3, 0.15, 0.05])
X = _rng.gamma(2.0, 1.0, N)
Y = _rng.normal(size=N)
WORD = _rng.integers(0, V, N)
TABLE = _rng.multinomial(30, np.ones(K) / K, size=50)
COUNT = np.bincount(Z, minlength=K)


def dirichlet(alpha, **kwargs):
    return pm.Dirichlet("w", alpha, **kwargs)


def gamma():
    return pm.Gamma("w", 2.0, 3.0)


def beta(**kwargs):
    return pm.Beta("w", 1.0, 2.0, **kwargs)


def poisson_and_a_short_term():
    w = gamma()
    pm.Poisson("y", w * X, observed=Z)
    pm.Exponential("x", w, observed=X[:5])


SQUARES = ((Y - 0.3) ** 2).sum() / 2
ONES = np.bincount(Z, WORD % 6)
# A likelihood of w, the form, and its statistics.
MODELS = {
    "categorical": (
        lambda: pm.Categorical("z", dirichlet(np.full(K, 0.1)), observed=Z),
        ("counts", COUNT, 0.0),
    ),
    "multinomial": (
        lambda: pm.Multinomial("z", 30, dirichlet(np.ones(K)), observed=TABLE),
        ("counts", TABLE.sum(axis=0), 0.0),
    ),
    "topics": (
        lambda: pm.Categorical("word", dirichlet(np.full(V, 0.1), shape=(K, V))[Z], observed=WORD),
        ("counts", np.bincount(Z * V + WORD, minlength=K * V).reshape(K, V), 0.0),
    ),
    # The initial value of every z is the same category; two thirds of the prior's terms.
    "latent_allocations": (
        lambda: pm.Categorical("z", dirichlet(np.ones(K)), shape=N, initval=Z),
        ("counts", COUNT, 0.0),
    ),
    "written_by_hand": (
        lambda: pm.Potential("z", pt.log(2.0 * dirichlet(np.ones(K))[Z] ** 3)),
        ("counts", 3 * COUNT, 0.0),
    ),
    # log(1 - w_0) is log w_1 on the simplex only.
    "two_of_a_kind": (
        lambda: pm.Bernoulli("z", dirichlet(np.ones(2))[0], observed=Z == 0),
        ("affine", [COUNT[0], N - COUNT[0]], 0.0),
    ),
    "poisson": (lambda: pm.Poisson("y", gamma() * X, observed=Z), ("rate", Z.sum(), X.sum())),
    "poisson_and_a_short_term": (poisson_and_a_short_term, ("rate", Z.sum() + 5, X.sum() + X[:5].sum())),
    "exponential_rates": (
        lambda: pm.Exponential("x", pm.Exponential("w", 2.0, shape=K)[Z], observed=X),
        ("rate", COUNT, np.bincount(Z, X)),
    ),
    "gamma_rate": (
        lambda: pm.Gamma("x", 1.5, pm.ChiSquared("w", 3.0), observed=X),
        ("rate", 1.5 * N, X.sum()),
    ),
    "precision": (lambda: pm.Normal("y", 0.3, tau=gamma(), observed=Y), ("rate", N / 2, SQUARES)),
    "variance": (
        lambda: pm.Normal("y", 0.3, pt.sqrt(pm.InverseGamma("w", 2.0, 3.0)), observed=Y),
        ("rate", N / 2, SQUARES),
    ),
    "bernoulli": (
        lambda: pm.Bernoulli("z", pm.Beta("w", 0.5, 0.5), observed=Z == 0),
        ("affine", [COUNT[0], N - COUNT[0]], 0.0),
    ),
    "binomials": (
        lambda: pm.Binomial("y", 5, beta(shape=K)[Z], observed=WORD % 6),
        ("affine", np.stack([ONES, 5 * COUNT - ONES], axis=1), 0.0),
    ),
    "geometric": (lambda: pm.Geometric("z", beta(), observed=Z + 1), ("affine", [N, Z.sum()], 0.0)),
    "negative_binomial": (
        lambda: pm.NegativeBinomial("z", p=beta(), n=3.0, observed=Z),
        ("affine", [3 * N, Z.sum()], 0.0),
    ),
    # The terms of free variables count like any others.
    "prior_of_others": (
        lambda: pm.Gamma("phi", 2.0, pm.Gamma("w", 1.0, 1.0), shape=3, initval=[1.0, 2.0, 3.0]),
        ("rate", 6.0, 6.0),
    ),
    "nothing": (lambda: dirichlet(np.ones(3)), ("counts", 0.0, 0.0)),
}


def conjugacy_of(model, name="w", **kwargs):
    point = model.initial_point()
    prior = GammaPrior(model, model.rvs_to_values[model[name]], point)
    options = {"threshold": None, "subsampled": True, "check": True, **kwargs}
    gradient = LikelihoodGradient(model, prior, point, **options)
    return analyse(model, prior, gradient, None, point), point


def as_table(x, shape):
    return np.full(shape, x) if np.ndim(x) == 0 else np.reshape(x, shape)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.covering(2)
def test_statistics(name):
    """Statistics of all the data equal the textbook's, and so do sums over a partition of the rows."""
    define, (form, s, t) = MODELS[name]
    model = as_model(define)()
    conjugacy, point = conjugacy_of(model)
    gradient = conjugacy.gradient
    assert conjugacy.form == form
    place = Place(conjugacy.references, gradient.args(point))
    full = conjugacy.full(place)
    np.testing.assert_allclose(full.s, as_table(s, full.s.shape), rtol=1e-9)
    np.testing.assert_allclose(full.t, as_table(t, full.t.shape), rtol=1e-9)
    total = conjugacy.short(place)
    rng = np.random.default_rng(2)
    for k, size in enumerate(gradient.sizes):
        order = rng.permutation(size)
        groups = conjugacy.groups(k, place, order, np.array([3, 4, size - 7]))
        assert groups.totals.s.shape == (3, *full.s.shape)
        total = total.plus(type(total)(groups.totals.s.sum(axis=0), groups.totals.t.sum(axis=0)))
    np.testing.assert_allclose(total.s, full.s, rtol=1e-8)
    np.testing.assert_allclose(total.t, full.t, rtol=1e-8)


@pytest.mark.slow("builds and compiles several steps")
def test_what_depends_on_other_variables():
    with pm.Model() as model:
        w = pm.Gamma("w", 2.0, 3.0)
        v = pm.Beta("v", 1.0, 1.0)
        mu = pm.Normal("mu")
        z = pm.Bernoulli("z", v, shape=N)
        pm.Normal("y", mu + z, tau=w, observed=Y)
        pm.Poisson("counts", pm.Gamma("rate", 1.0, 1.0) * X, observed=Z)
    w, v, rate = (conjugacy_of(model, name)[0] for name in ("w", "v", "rate"))
    assert w.totals is None
    assert w.gradient.other_names == ["mu", "z"]
    assert v.totals is None
    assert rate.totals is not None
    with pm.Model() as model:  # the number of events does not depend on beta, the exposure does
        beta = pm.Normal("beta")
        pm.Poisson("y", pm.Gamma("w", 1.0, 1.0) * pt.exp(beta * Y), observed=Z)
    conjugacy = conjugacy_of(model)[0]
    assert conjugacy.form == "rate"
    assert conjugacy.totals is None


NOT_CONJUGATE = {
    "mixture": lambda: (
        pm.Dirichlet("w", np.ones(2)),
        pm.NormalMixture("y", pm.modelcontext(None)["w"], [0.0, 1.0], 1.0, observed=Y),
    ),
    "inside another function": lambda: pm.Normal("y", pm.Gamma("w", 1.0, 1.0), 1.0, observed=Y),
    "sum of rates": lambda: pm.Poisson("y", 1.0 + pm.Gamma("w", 1.0, 1.0), observed=Z),
    "two parts of a simplex": lambda: pm.Bernoulli("y", pm.Dirichlet("w", np.ones(3))[0], observed=Z == 0),
    "logit": lambda: pm.Bernoulli("y", 0.9 * pm.Beta("w", 1.0, 1.0), observed=Z == 0),
    "almost": lambda: pm.Potential(
        "y", pt.log(pm.Gamma("w", 1.0, 1.0)) * X - 1e-3 * pm.modelcontext(None)["w"] ** 2
    ),
    "product": lambda: pm.Poisson("y", pm.Gamma("w", 1.0, 1.0, shape=2).prod() * X, observed=Z),
}


@pytest.mark.parametrize("name", NOT_CONJUGATE)
@pytest.mark.covering(1)
def test_not_conjugate(name):
    """A form that holds for one term does not hide another for which it does not."""
    model = as_model(NOT_CONJUGATE[name])()
    conjugacy = conjugacy_of(model)[0]
    assert conjugacy.form == "frozen"
    assert conjugacy.nonlinear == ("y",)


def test_one_of_several_terms_is_named():
    with pm.Model() as model:
        w = pm.Gamma("w", 1.0, 1.0)
        pm.Poisson("fine", w, observed=Z)
        pm.Normal("other", w, 1.0, observed=Y[:10])
    assert conjugacy_of(model)[0].nonlinear == ("other",)


def test_responsibilities_of_a_component_of_weight_zero():
    """Drift of a mixture: alpha plus responsibilities, also where w is no floating-point number."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.full(3, 0.1))
        pm.NormalMixture("y", w, [-1.0, 0.0, 1.0], 1.0, observed=Y)
    conjugacy, point = conjugacy_of(model)
    assert conjugacy.shift == N
    for log_w in (np.log([0.2, 0.3, 0.5]), np.array([-1e4, np.log(0.4), np.log(0.6)])):
        place = Place((log_w[None],), conjugacy.gradient.args(point))
        found = conjugacy.full(place).s[0] + N * np.exp(log_w)
        log_terms = log_w - 0.5 * (Y[:, None] - np.array([-1.0, 0.0, 1.0])) ** 2
        terms = np.exp(log_terms - log_terms.max(axis=1, keepdims=True))
        expected = (terms / terms.sum(axis=1, keepdims=True)).sum(axis=0)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-7)


def drift_and_slopes():
    """Drift of a frozen simplex, and slopes of PyMC's log likelihood along it, from differences.

    A potential is zero on the simplex and has derivatives outside of it.
    """
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.array([1.0, 1.0, 2.0]))
        pm.Bernoulli("y", w[0], observed=Z == 0)
        pm.Potential("zero", 300.0 * (w.sum() - 1.0) * w[0])
    conjugacy, point = conjugacy_of(model)
    log_w = np.log([0.2, 0.3, 0.5])
    found = conjugacy.full(Place((log_w[None],), conjugacy.gradient.args(point))).s[0]
    logp = model.compile_logp([model["y"], model["zero"]])
    slopes = []
    for j in range(3):
        ends = [log_w + e * np.eye(3)[j] for e in (-1e-5, 1e-5)]
        low, high = (logp({"w_simplex__": conjugacy.prior.family.value(end[None])}) for end in ends)
        slopes.append((high - low) / 2e-5)
    return found, np.array(slopes)


def test_frozen_drift_is_the_slope_along_the_simplex():
    found, slopes = drift_and_slopes()
    np.testing.assert_allclose(found, slopes, rtol=1e-6, atol=1e-5)


def test_a_drift_that_is_not_centred_is_noticed(monkeypatch):
    """Planted fault: w_j g_j without the sum of w_k g_k, which is not constant here."""
    monkeypatch.setattr(Dirichlet, "tangent", lambda self, derivatives, weights: derivatives)
    found, slopes = drift_and_slopes()
    assert np.max(np.abs(found - slopes)) > 1.0


def test_rows_that_are_coupled():
    with pm.Model() as model:
        w = pm.Gamma("w", 1.0, 1.0)
        mu = pm.Normal("mu", 0.0, 1.0, shape=N)
        pm.Normal("y", pt.cumsum(mu * w), 1.0, observed=Y)
    with pytest.raises(FactorisationError, match="'y'"):
        conjugacy_of(model)
    assert conjugacy_of(model, subsampled=False)[0].form == "frozen"


def test_a_derivative_that_is_not_finite():
    with pm.Model() as model:
        w = pm.Gamma("w", 1.0, 1.0)
        pm.Potential("y", pt.sqrt(w - 2.0) * X)
    with pytest.raises(ValueError, match="derivative of the term 'y' by 'w' is not finite"):
        conjugacy_of(model)
