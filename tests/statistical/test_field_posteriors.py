"""Chains on fields against NUTS, at sizes where remainders are large and all effects are uncertain."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity.step_methods.metropolis.engine.fields import FieldEngine
from pymc_austerity.testing.compare import error_of_mean
from tests.mode.fields.fields import MODELS, arrays_of, fitted

# What is compared: all numbers, and the first elements of each vector of effects, with their squares.
_FEW = 4
# A quantity of which a sampler has fewer effective draws than this says nothing.
_LIMIT = 4.2


def functionals(draws):
    """Values by name, (draws, ...), as columns with their squares."""
    columns = np.column_stack([x.reshape(len(x), -1)[:, :_FEW] for x in draws.values()])
    return np.column_stack([columns, columns**2])


def by_field(name, n, *, seed=1, planted=lambda arrays: arrays):
    """Draws of a chain on the field, of which rows are drawn."""
    one = fitted(name)
    point, names = one.model.initial_point(), one.field.factorisation.var_names
    engine = FieldEngine(one.field.values, planted(arrays_of(one, reads_all=False)), point)
    rng, state, draws = np.random.default_rng(seed), engine.new_state(), []
    q = engine.drawn(rng)
    for k in range(n + n // 10):
        engine.run(1, False, rng, q, point, state)
        if k >= n // 10:
            draws.append(q.copy())
    assert engine.take_violations() == 0.0
    ends = np.cumsum([np.size(point[name]) for name in names])[:-1]
    return functionals(dict(zip(names, np.split(np.array(draws), ends, axis=1), strict=True)))


def by_nuts(name, n):
    """Draws of NUTS, of the same quantities."""
    one = fitted(name)
    with one.model:
        trace = pm.sample(
            n, tune=1500, chains=2, cores=1, random_seed=3, target_accept=0.98, progressbar=False,
            compute_convergence_checks=False, return_inferencedata=False,
        )  # fmt: skip
    names = one.field.factorisation.var_names
    return functionals({name: trace.get_values(name) for name in names})


def scores(ours, theirs):
    """Differences of means in their standard errors."""
    errors = [np.hypot(error_of_mean(a), error_of_mean(b)) for a, b in zip(ours.T, theirs.T, strict=True)]
    return (ours.mean(axis=0) - theirs.mean(axis=0)) / np.array(errors)


def _no_pull(arrays):
    """A planted fault: the prior of an intercept does not see the sum of effects that it takes up."""
    return arrays._replace(prior=arrays.prior._replace(intercept=-1))


@pytest.mark.full_size("NUTS takes a minute for each model")
@pytest.mark.parametrize("name", MODELS)
def test_posteriors_are_those_of_nuts(name):
    found = scores(by_field(name, 20_000), by_nuts(name, 3000))
    assert np.abs(found).max() < _LIMIT
    assert np.sqrt(np.mean(found**2)) < 1.6
