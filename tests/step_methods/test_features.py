"""Steps on models whose coefficients are short functions of their variables: few rows, bounds that hold."""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import AusterityMH, MHSubLhd, SubsamplingWarning, TunaMH, recommend
from pymc_austerity.bounds.remainder import RemainderCertificate
from pymc_austerity.control_variates import Taylor
from pymc_austerity.kernels.log_ratio_range import certified_range
from pymc_austerity.mode.mode_fit import feature_factors
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.field.of_model import factorise
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.proposals import Laplace, Surrogate
from pymc_austerity.proposals.surrogate import SurrogateState
from pymc_austerity.step_methods.metropolis.tuna_plan import TunaEngine
from pymc_austerity.testing.steps import check_points, check_state, move
from tests.model.features import (
    data,
    model_of,
    more_features_than_variables,
    non_centred,
    scaled,
    simplex,
    simplex_with_scale,
)

from .conftest import fresh

# Whether a chain has settled after so few draws is not the question here, nor how normal its posterior is.
pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.filterwarnings("ignore:Tuning ended"),
    pytest.mark.filterwarnings("ignore:The posterior is far:pymc_austerity.SubsamplingWarning"),
]
N = 3000


@pytest.fixture(scope="module")
def model():
    return model_of(simplex, N)


@pytest.fixture(scope="module")
def built(model):
    """Not to be moved."""
    with interpreted():
        return TunaMH(model=model, rng=1)


def mean(stats, name):
    return np.mean([s[name] for s in stats])


@pytest.mark.slow("75 interpreted moves of a surrogate")
def test_it_reads_few_rows(model, built):
    assert isinstance(built._engine, TunaEngine)
    assert isinstance(built.proposal_state, SurrogateState)
    assert built.prediction.terms < 1.0
    _, stats = move(fresh(built), model.initial_point(), 75)
    assert 0.0 < mean(stats, "n_used") < 4.0 * built.prediction.terms
    assert mean(stats, "mean_tree_accept") > 0.9
    assert mean(stats, "exhausted") == 0.0


@pytest.mark.slow("moves in features are slow when interpreted")
@pytest.mark.parametrize("check", [check_points, check_state])
def test_it_is_a_step(model, built, check):
    """Whose engine has features beside what other steps keep."""
    check(built, model.initial_point())


def test_a_wrong_whitening_is_noticed(model, monkeypatch, without_c):
    """Constants for other coordinates than those in which distances are measured."""
    # Planted fault: constants for other coordinates.

    def wrong(*args):
        whitening, directions = feature_factors(*args)
        return 1e-3 * whitening, directions

    monkeypatch.setattr("pymc_austerity.mode.mode_fit.feature_factors", wrong)
    with pytest.raises(ValueError, match="not in the span of the whitening"):
        TunaMH(model=model, rng=1)


def test_too_small_constants_are_noticed(model, built):
    """Planted fault: constants of a thousandth."""
    step = fresh(built)
    state = built._engine.rows.state
    small = state._replace(constants=state.constants * 1e-3)
    step._engine.given["rows"] = built._engine.rows._replace(state=small)
    with pytest.raises(ValueError, match="the bound is wrong"):
        move(step, model.initial_point(), 2000)


def test_where_q_is_taken_for_the_features(model, built):
    """Bounds hold for phi(q) only."""
    found = Differentiable(TermStructure(factorise(model)), model.initial_point())
    mode_fit = built.recipe.mode_fit
    assert found.structure.features is not None
    assert len(mode_fit.expansion.center) == 4
    assert found.n_dim == len(mode_fit.at) == 3
    np.testing.assert_allclose(found.features(mode_fit.at), mode_fit.expansion.center)


# Whitening --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "define",
    [simplex, simplex_with_scale, scaled, non_centred, more_features_than_variables],
    ids=lambda define: define.__name__,
)
@pytest.mark.covering(2)
def test_whitening(define):
    """An inverse pair, and draws of moderate length in it."""
    model = model_of(define)
    function = Differentiable(TermStructure(factorise(model)), model.initial_point())
    n_dim = function.n_dim
    unwhiten = 0.1 * np.linalg.cholesky(np.full((n_dim, n_dim), 0.3) + 0.7 * np.eye(n_dim))
    at = function.start
    whitening, directions = feature_factors(function.features, at, at, unwhiten)
    p = len(function.features(at))
    np.testing.assert_allclose(directions @ whitening, np.eye(p), atol=1e-8)
    z = np.random.default_rng(1).normal(size=(500, n_dim))
    w = np.array([whitening @ (function.features(at + unwhiten @ e) - function.features(at)) for e in z])
    length = np.sqrt((w**2).sum(axis=1).mean())
    assert 0.5 * math.sqrt(min(p, n_dim)) < length < 2.0 * math.sqrt(p)
    assert np.mean(np.linalg.norm(w, axis=1) < math.sqrt(p) + 3.0) > 0.97  # the nearest tier


# Other steps ------------------------------------------------------------------------------------------


@pytest.mark.slow("rewrites three models, and draws from each")
def test_a_certificate_of_the_range(model):
    step = MHSubLhd(control_variate=Taylor(), proposal=Surrogate(), model=model, rng=1)
    assert isinstance(step.recipe.mode_fit.certificate, RemainderCertificate)
    assert step._engine._range_bound.function is certified_range
    _, stats = move(fresh(step), model.initial_point(), 50)
    assert mean(stats, "mean_tree_accept") > 0.9


@pytest.mark.slow("rewrites the derivatives of a term without a bound")
def test_no_certificate_for_the_term():
    """The expansion needs none, and reads the rows with the largest remainders."""
    x, _, y = data(N)
    with pm.Model() as model:
        eta = pm.math.dot(x, pm.Dirichlet("w", np.ones(4)))
        pm.Potential("y", pt.log(pt.gammaincc(2.5, pt.exp(eta) * (1 + np.abs(y)))))
    with pytest.raises(ValueError, match="a function of 'w_simplex__' enters the term 'y' through Gamma"):
        TunaMH(model=model)
    step = AusterityMH(control_variate=Taylor(), model=model, rng=1)
    assert step.recipe.mode_fit.certificate is None
    assert "'y'" in step.recipe.mode_fit.no_certificate
    _, stats = move(fresh(step), model.initial_point(), 50)
    assert mean(stats, "n_used") < 500


@pytest.mark.slow("builds and compiles several steps")
@pytest.mark.filterwarnings("ignore:The posterior has:pymc_austerity.SubsamplingWarning")  # rounding decides
def test_refusals_name_the_term_and_the_variable():
    x, _, y = data(N)
    with pm.Model() as model:
        waves = [
            pt.sinh(x[:, k, None] * pm.Normal(f"b{k}", shape=2 + (k == 3))).sum(axis=1) for k in range(4)
        ]
        pm.Bernoulli("y", logit_p=sum(waves) + x @ pm.Dirichlet("w", np.ones(4)), observed=y)
    said = r"the term 'y' is a function of 12 linear predictors.* 'b3' or 'w_simplex__' there may be one"
    with pytest.raises(ValueError, match=said):
        TunaMH(model=model)


def test_it_is_recommended(model):
    step = recommend(model)
    assert isinstance(step, TunaMH)
    assert "function of 1 predictor of each row, by interval arithmetic" in step.recommendation.certificate


@pytest.mark.slow("builds and compiles several steps")
def test_a_scale_besides():
    model = model_of(simplex_with_scale, N)
    step = TunaMH(model=model, rng=1, proposal=Laplace(), switch_above=math.inf)
    _, stats = move(fresh(step, tune=50), model.initial_point(), 100)
    assert mean(stats, "mean_tree_accept") > 0.1


def test_many_rows_are_told(short_pilots):
    """Few rows for each of the groups."""
    model = model_of(non_centred, 1100)
    with pytest.warns(SubsamplingWarning, match="TunaMH would draw"):
        TunaMH(model=model, switch_above=1e-6, compress=False)
