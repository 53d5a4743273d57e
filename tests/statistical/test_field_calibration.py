"""Simulation-based calibration of chains on fields: ranks of what the prior drew are uniform.

See Talts et al. (2018).
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_austerity import factorise
from pymc_austerity.mode.fields.field_model import field_model
from pymc_austerity.step_methods.metropolis.engine.fields import FieldEngine
from tests.mode.fields.fields import MODELS

# Data sets, draws with which a quantity is compared, sweeps between two of these, and effects of a vector.
_REPLICATES, _DRAWS, _EVERY, _EFFECTS = 120, 19, 12, 2
_BINS = 5
# Priors of areas, of which numba draws nothing; of cut points, whose order draws do not keep; two answers.
_WITHOUT_DRAWS = {"areas", "bym2", "intrinsic", "ordered", "football"}


def _drawn_by_the_prior(model, n, seed):
    """Values of the variables, as the model samples them, and answers, for n data sets."""
    with model:
        found = pm.sample_prior_predictive(n, random_seed=seed)
    values = {}
    for rv, value in model.rvs_to_values.items():
        if rv not in model.free_RVs:
            continue
        draws, transform = found.prior[rv.name].to_numpy()[0], model.rvs_to_transforms[rv]
        if transform is not None:
            x = pt.tensor("x", shape=draws.shape[1:])
            forward = pytensor.function([x], transform.forward(x, *rv.owner.inputs))
            draws = np.array([forward(one) for one in draws])
        values[value.name] = draws
    return values, found.prior_predictive["y"].to_numpy()[0]


def _watched(point):
    """All numbers, and some effects of each vector."""
    return np.concatenate([np.ravel(x)[: None if np.size(x) < 10 else _EFFECTS] for x in point.values()])


def ranks(name, *, n=_REPLICATES, seed=1, planted=lambda arrays: arrays):
    """Ranks (n, quantities) of what the prior drew among draws of its posterior."""
    model = MODELS[name]()
    values, answers = _drawn_by_the_prior(model, n, seed)
    rng, engine, found, point = np.random.default_rng(seed), None, [], model.initial_point()
    for k in range(n):
        model.set_data("answers", answers[k])
        fact = factorise(model)
        field = field_model(model, fact)
        turns = tuple(planted(one) for one in field.arrays(field.fit(), reads_all=False, debug=True))
        engine = FieldEngine(field.values, turns, point) if engine is None else engine
        engine.values, engine.turns, state = field.values, turns, engine.new_state()
        names = field.factorisation.var_names
        sizes = np.cumsum([np.size(point[name]) for name in names])[:-1]
        q = np.concatenate([np.ravel(values[name][k]) for name in names])  # a draw of the posterior
        truth = _watched(dict(zip(names, np.split(q, sizes), strict=True)))
        below = np.zeros(len(truth))
        for _ in range(_DRAWS):
            engine.run(_EVERY, False, rng, q, point, state)
            below += _watched(dict(zip(names, np.split(q, sizes), strict=True))) < truth
        found.append(below)
        assert engine.take_violations() == 0.0
    return np.array(found)


def least_probability(found):
    """The smallest p-value of uniform ranks, times the number of quantities."""
    n, n_quantities = found.shape
    p = []
    for column in found.T:
        counts = np.bincount((column * _BINS // (_DRAWS + 1)).astype(int), minlength=_BINS)
        p.append(stats.chisquare(counts, np.full(_BINS, n / _BINS)).pvalue)
    return min(p) * n_quantities


@pytest.mark.full_size("a hundred fields are fitted for each model")
@pytest.mark.parametrize("name", sorted(set(MODELS) - _WITHOUT_DRAWS))
def test_ranks_are_uniform(name):
    assert least_probability(ranks(name)) > 1e-3
