"""Chains on fields against NUTS, at sizes where remainders are large and all effects are uncertain."""

import numpy as np
import pymc as pm
import pytensor
import pytest

from pymc_austerity.mode.fields.field_model import schedule_of
from pymc_austerity.step_methods.metropolis.engine.fields import FieldEngine
from pymc_austerity.testing.compare import error_of_mean
from tests.mode.fields import fields
from tests.mode.fields.fields import MODELS, fitted, turns_of

# What is compared: all numbers, and the first elements of each vector of effects, with their squares.
_FEW = 4
# A quantity of which a sampler has fewer effective draws than this says nothing.
_LIMIT = 4.2


def functionals(draws):
    """Values by name, (draws, ...), as columns with their squares."""
    columns = np.column_stack([x.reshape(len(x), -1)[:, :_FEW] for x in draws.values()])
    return np.column_stack([columns, columns**2])


def by_field(name, n, *, seed=1, planted=lambda arrays: arrays):
    """Draws of a chain on the field: rows are drawn, two depths are moved together, and theta twice."""
    one = fitted(name)
    point, names = one.model.initial_point(), one.field.factorisation.var_names
    turns = []
    for arrays in turns_of(one, reads_all=False):
        schedule = schedule_of(arrays.tree, 2)._replace(n_roots=2)
        turns.append(planted(arrays._replace(schedule=schedule)))
    engine = FieldEngine(one.field.values, tuple(turns), point)
    rng, state, draws = np.random.default_rng(seed), engine.new_state(), []
    q = engine.drawn(rng, point)
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
            compute_convergence_checks=False, idata_kwargs={"include_transformed": True},
        )  # fmt: skip
    names = one.field.factorisation.var_names
    return functionals({name: np.concatenate(trace.posterior[name].to_numpy()) for name in names})


def scores(ours, theirs):
    """Differences of means in their standard errors."""
    errors = [np.hypot(error_of_mean(a), error_of_mean(b)) for a, b in zip(ours.T, theirs.T, strict=True)]
    return (ours.mean(axis=0) - theirs.mean(axis=0)) / np.array(errors)


@pytest.mark.full_size("NUTS takes a minute for each model")
@pytest.mark.parametrize("name", MODELS)
def test_posteriors_are_those_of_nuts(name):
    found = scores(by_field(name, 20_000), by_nuts(name, 3000))
    assert np.abs(found).max() < _LIMIT
    assert np.sqrt(np.mean(found**2)) < 1.6


def by_algebra(n, seed=2):
    """Draws of `intrinsic`: of its numbers by a random walk, and of its effects, normal given these.

    PyMC's density of areas has no factor that depends on its scale alone.
    """
    one, rng = fitted("intrinsic"), np.random.default_rng(seed)
    beta, level, sigma, phi = (one.model[name] for name in ("beta", "level", "sigma", "phi"))
    mean = one.model["y"].owner.inputs[-2]
    mu = pytensor.function([beta, level, sigma, phi], mean, on_unused_input="ignore")
    y, n_areas = one.model["answers"].get_value(), phi.type.shape[0]
    unit, ones = np.eye(4 + n_areas), np.ones(2)
    design = np.column_stack([mu(e[:3], e[3], ones, e[4:]) for e in unit])
    neighbours = fields.grid(5)
    laplacian = np.diag(neighbours.sum(axis=0)) - neighbours
    products, right, squares = design.T @ design, design.T @ y, y @ y

    def given(theta):
        (own, scale, sd), prior = np.exp(theta), np.zeros(products.shape)
        prior[4:, 4:] = laplacian / own**2 + 1.0 / (n_areas * 0.5) ** 2
        prior[np.arange(4), np.arange(4)] = [1.0, 1.0, 1.0, 25.0]
        units = np.append(np.ones(4), np.full(n_areas, scale))
        factor = np.linalg.cholesky(prior + products * np.outer(units, units) / sd**2)
        half = np.linalg.solve(factor, units * right / sd**2)
        height = 0.5 * half @ half - np.log(np.diag(factor)).sum() - len(y) * theta[2]
        height -= 0.5 * squares / sd**2 + 0.5 * (own**2 + scale**2 + sd**2) - theta.sum()
        return height, factor, half

    theta, draws = one.fit.theta.copy(), []
    now = given(theta)
    root = 1.4 * np.linalg.cholesky(one.fit.covariance)
    for k in range(n):
        other = theta + root @ rng.standard_normal(3) * rng.choice([0.3, 1.0])
        new = given(other)
        if np.log(rng.random()) < new[0] - now[0]:
            theta, now = other, new
        if k % 4 == 0:
            effects = np.linalg.solve(now[1].T, now[2] + rng.standard_normal(len(unit)))
            draws.append(np.concatenate([theta, effects]))
    found = np.array(draws)
    places = {
        "beta": slice(3, 6),
        "level": slice(6, 7),
        "sigma_log__": slice(0, 2),
        "noise_log__": slice(2, 3),
    }
    every = {**places, "phi": slice(7, None)}
    return functionals({name: found[:, every[name]] for name in one.field.factorisation.var_names})


def _no_pull(arrays):
    """A planted fault: the prior of an intercept does not see the sum of effects that it takes up."""
    return arrays._replace(prior=arrays.prior._replace(intercept=-1))


@pytest.mark.slow("a reference by linear algebra for each of many draws")
def test_a_sum_near_zero_pulls_on_the_intercept():
    reference = by_algebra(60_000)
    found = scores(by_field("intrinsic", 15_000), reference)
    assert np.abs(found).max() < _LIMIT
    assert np.abs(scores(by_field("intrinsic", 15_000, planted=_no_pull), reference)).max() > 1.5 * _LIMIT
