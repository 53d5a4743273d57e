"""Coordinates in which a posterior is nearly round: exact where it is normal given theta, near else."""

import numpy as np
import pymc as pm
import pytest
from scipy import sparse

from pymc_austerity.mode import whitening
from pymc_austerity.mode.whitening import Whitening
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.recommendation.evidence import options_of
from pymc_austerity.recommendation.nuts import search_whitening
from tests.models import as_model

N = 1500
RNG = np.random.default_rng(55)
X, SECOND = RNG.normal(size=N), RNG.integers(0, 35, size=N)
FIRST = RNG.integers(0, 40, size=N)
Y = 0.5 * X + RNG.normal(size=40)[FIRST] + 0.7 * RNG.normal(size=35)[SECOND] + RNG.normal(size=N)
COUNTS = RNG.poisson(np.exp(0.5 + 0.4 * Y))


@as_model
def centred():
    effect = pm.Normal("effect", pm.Normal("mu"), pm.HalfNormal("tau"), shape=40)
    pm.Normal("outcome", effect[FIRST] + pm.Normal("slope") * X, pm.HalfNormal("sigma"), observed=Y)


@as_model
def not_centred():
    effect = pm.HalfNormal("tau") * pm.Normal("raw", shape=40)
    pm.Normal("outcome", pm.Normal("mu") + effect[FIRST], pm.HalfNormal("sigma"), observed=Y)


@as_model
def crossed():
    effects = [pm.HalfNormal(f"tau{k}") * pm.Normal(f"raw{k}", shape=n) for k, n in enumerate((40, 35))]
    pm.Normal(
        "outcome",
        pm.Normal("mu") + effects[0][FIRST] + effects[1][SECOND],
        pm.HalfNormal("sigma"),
        observed=Y,
    )


@as_model
def walk():
    level = pm.GaussianRandomWalk("level", sigma=pm.HalfNormal("tau"), init_dist=pm.Normal.dist(), shape=40)
    pm.Normal("outcome", level[FIRST] + pm.Normal("slope") * X, pm.HalfNormal("sigma"), observed=Y)


@as_model
def without_sum():
    effect = pm.ZeroSumNormal("effect", pm.HalfNormal("tau"), shape=40)
    pm.Normal("outcome", pm.Normal("mu") + effect[FIRST], pm.HalfNormal("sigma"), observed=Y)


@as_model
def regression():
    pm.Poisson("counts", pm.math.exp(pm.Normal("mu") + pm.Normal("slope") * (X + 3.0)), observed=COUNTS)


@as_model
def counts():
    effects = [pm.HalfNormal(f"tau{k}") * pm.Normal(f"raw{k}", shape=n) for k, n in enumerate((40, 35))]
    rate = pm.Normal("mu") + effects[0][FIRST] + effects[1][SECOND]
    pm.Poisson("counts", pm.math.exp(rate), observed=COUNTS)


# Model, and how far the precision in the coordinates may be from that of N(0, I): of effects given theta, and
# of theta.
KINDS = {
    "centred": (centred, 1e-8, 0.1),
    "not centred": (not_centred, 1e-8, 0.1),
    "crossed": (crossed, 1e-8, 0.1),
    "walk": (walk, 1e-8, 0.1),
    "without sum": (without_sum, 1e-8, 0.1),
    "regression": (regression, 1e-6, 1e-6),
    "counts": (counts, 0.3, 0.4),
}


def found(model):
    options = options_of(model, model.continuous_value_vars)
    white = search_whitening(options, progressbar=False)
    assert isinstance(white, Whitening)
    return white.in_order(tuple(value.name for value in model.value_vars))


def precision(model, white):
    """Minus the second derivatives of the log density by w."""
    point, parts = model.initial_point(), np.split(white.center, np.cumsum(white.sizes)[:-1])
    at = {name: q.reshape(np.shape(point[name])) for name, q in zip(white.names, parts, strict=True)}
    hessian = np.asarray(model.compile_d2logp(negate_output=False, mode=INTERPRETED)(at))
    return -(white.factor.T @ hessian @ white.factor.toarray())


@pytest.fixture(autouse=True)
def _any_stretch(monkeypatch):
    monkeypatch.setattr("pymc_austerity.recommendation.nuts._LONG", 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_precision(kind):
    make, of_effects, of_theta = KINDS[kind]
    model = make()
    white = found(model)
    n_theta = sum(
        size == 1 and name.endswith("log__") for name, size in zip(white.names, white.sizes, strict=True)
    )
    matrix = precision(model, white)
    own = np.arange(len(matrix)) >= n_theta  # columns of theta come first
    apart = np.abs(matrix - np.eye(len(matrix)))
    assert apart[np.ix_(own, own)].max() < of_effects
    assert apart[:, ~own].max(initial=0.0) < of_theta
    assert np.allclose(white.factor @ white.solve(white.center), white.center)
    assert np.allclose(white.factor.T @ white.solve_transposed(white.center), white.center)


def test_planted_fault_turns_that_know_nothing_of_each_other(monkeypatch):
    """Planted fault: crossed effects are whitened by turns alone."""
    monkeypatch.setattr(whitening, "MOST_DENSE", 10)
    monkeypatch.setattr(whitening, "_OF_ROW", 1000)
    model = crossed()
    matrix = precision(model, found(model))[3:, 3:]
    assert np.abs(matrix - np.eye(len(matrix))).max() > 0.1


def test_stretch_of_a_known_shape():
    root = np.linalg.cholesky([[1.0, 0.8], [0.8, 1.0]])
    units = np.diag([1e-3, 50.0])  # which a diagonal scaling takes away
    white = Whitening(("a", "b"), (1, 1), np.zeros(2), sparse.csr_array(units @ root))
    assert np.isclose(white.stretch, 3.0, rtol=1e-3)  # sqrt(1.8 / 0.2)


def test_another_order():
    white = found(crossed())
    other = white.in_order(white.names[::-1])
    assert other.names == white.names[::-1]
    assert np.array_equal(other.center[: other.sizes[0]], white.center[-white.sizes[-1] :])
    assert np.array_equal(
        other.factor.toarray()[: other.sizes[0]], white.factor.toarray()[-white.sizes[-1] :]
    )


def test_many_effects_have_a_sparse_factor():
    groups = np.arange(20_000) % 2000

    @as_model
    def many():
        effect = pm.HalfNormal("tau") * pm.Normal("raw", shape=2000)
        pm.Bernoulli("y", logit_p=pm.Normal("mu") + effect[groups], observed=groups % 3 == 0)

    white = found(many())
    assert white.factor.nnz < 4 * len(white.center)


def test_too_many_effects_have_none(monkeypatch):
    monkeypatch.setattr(whitening, "_MOST", 50)
    model = crossed()
    assert search_whitening(options_of(model, model.continuous_value_vars), progressbar=False) is None


def test_a_model_without_a_mode_has_none():
    with pm.Model() as model:
        shift = pm.Flat("shift")
        pm.Bernoulli("y", logit_p=shift * np.ones(N), observed=np.ones(N, dtype=int))
    assert search_whitening(options_of(model, model.continuous_value_vars), progressbar=False) is None
