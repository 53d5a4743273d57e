"""TunaMH on coefficients that are functions of the variables, against all data: no error, no wrong bound."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from pymc_austerity import Laplace, MetropolisHastings, Surrogate, TunaMH
from pymc_austerity.control_variates import Taylor
from pymc_austerity.mode.expansion import expand
from tests.model.features import model_of, non_centred, simplex, simplex_with_scale
from tests.statistical.errors import LIMIT, z_of_chains

pytestmark = [
    pytest.mark.slow("the reference is a chain on all rows"),
    pytest.mark.filterwarnings("ignore:Tuning ended"),
    pytest.mark.filterwarnings("ignore::pymc_austerity.SubsamplingWarning"),
]
N = 2000
# Every posterior is compared on these: its variables on the unconstrained scale.
DRAWS, TUNE = 4000, 500


def run(step, model, draws=DRAWS, tune=TUNE, per_draw=1):
    """States of a chain, (draws, D), and means of its statistics."""
    step = deepcopy(step)
    step.setup_chain(np.random.default_rng(3), tune, draws)
    step.tune, point, q, stats = True, model.initial_point(), [], []
    for k in range(tune + draws):
        if k == tune:
            step.stop_tuning()
            step._options = replace(step._options, steps_per_draw=per_draw)
        point, (stat,) = step.step(point)
        if k >= tune:
            q.append(np.concatenate([np.ravel(point[v.name]) for v in step.vars]))
            stats.append(stat)
    return np.array(q), {name: np.mean([s[name] for s in stats]) for name in stats[0]}


def tuna(model, proposal, **options):
    return TunaMH(model=model, proposal=proposal, rng=1, **options)


def exact(model):
    """The exact test on all data, with the same moves."""
    return MetropolisHastings(model=model, control_variate=Taylor(exact_rows=0), proposal=Surrogate(), rng=1)


@pytest.fixture(scope="module")
def weights():
    model = model_of(simplex, N)
    return model, run(exact(model), model)[0]


@pytest.mark.parametrize("proposal", [None, Laplace()], ids=["surrogate", "laplace"])
def test_simplex_weights(weights, proposal):
    model, reference = weights
    step = tuna(model, proposal)
    assert step._engine.n_local == N
    draws, stats = run(step, model, per_draw=1 if proposal is None else 4)
    assert stats["fraction_used"] < 0.05
    assert np.abs(z_of_chains(draws, reference)).max() < LIMIT


def test_a_wrong_polynomial_is_noticed(weights, monkeypatch):
    """Planted fault: the sum of the polynomials is not that of those in the remainders."""
    model, reference = weights

    def wrong(structure, expansion, slopes):
        tilted = expansion.gradient + np.array([10.0, -10.0, 0.0, 0.0])
        return expand(structure, expansion._replace(gradient=tilted), slopes)

    monkeypatch.setattr("pymc_austerity.mode.mode_fit.expand", wrong)
    draws, _ = run(tuna(model, None), model)
    assert np.abs(z_of_chains(draws, reference)).max() > 1.5 * LIMIT


def test_bounds_hold():
    """In 50,000 transitions, and the number of rows is that predicted, or less.

    A bound that does not hold is an error in the other tests, whose models are not tried here again.
    Rows are checked when they are read: from few rows more are, per transition, and of wider posteriors.
    """
    model = model_of(simplex_with_scale, 1000)
    step = tuna(model, None, debug=True, switch_above=np.inf)
    _, stats = run(step, model, draws=500, per_draw=100)
    assert stats["bound_violations"] == 0.0
    assert 0.1 < stats["n_used"] / step.prediction.terms < 2.0


def test_non_centred_hierarchies():
    model = model_of(non_centred, N)
    reference, _ = run(exact(model), model)
    draws, stats = run(tuna(model, None, switch_above=np.inf), model)
    assert stats["fraction_used"] < 0.5
    assert np.abs(z_of_chains(draws, reference)).max() < LIMIT
