"""Log ratios that numba compiles are differences of the log density, as the interpreter has it."""

import numpy as np
import pytensor
import pytest

from pymc_austerity import factorise
from pymc_austerity.model.compile.target import CompiledTarget

from .catalogue import MODELS

CHOSEN = [
    "logistic",
    "two_observed",
    "categorical",
    "latents_with_hyperparameters",
    "varying_intercepts_many_groups",
    "varying_intercepts_centred",
    "autoregression_2",
    "normal_mixture",
]
BUILD = {entry.name: entry.build for entry in MODELS}


def move(point, names, rng):
    return {n: v + rng.normal(scale=0.05, size=v.shape) if n in names else v for n, v in point.items()}


def ravel(point, names):
    return np.concatenate([np.ravel(point[n]) for n in names])


LONG = pytest.mark.slow("numba compiles this model for long")
TAKE_LONG = ("autoregression_2", "normal_mixture")
LONGER = pytest.mark.full_size("numba compiles a table of categories for minutes")


def marks_of(name):
    if name == "categorical":
        return LONGER
    return LONG if name in TAKE_LONG else []


@pytest.mark.parametrize("name", [pytest.param(n, marks=marks_of(n)) for n in CHOSEN])
@pytest.mark.covering(1)
def test_log_ratios(name):
    model, chosen = BUILD[name]()
    fact = factorise(model, None if chosen is None else [model[n] for n in chosen])
    rng = np.random.default_rng(1)
    old = move(model.initial_point(), list(model.initial_point()), rng)
    new = move(old, fact.var_names, rng)
    q_new, q = ravel(new, fact.var_names), ravel(old, fact.var_names)
    expected = fact.log_density_terms(new) - fact.log_density_terms(old)
    change = fact.global_log_density(new) - fact.global_log_density(old)
    scale = 1e-10 * max(1.0, np.abs(fact.log_density_terms(old)).max())
    with pytensor.config.change_flags(mode="NUMBA"):
        for shuffle in (False, True):
            compiled = CompiledTarget(fact, shuffle=shuffle)
            target, args = compiled.interpreted(), compiled.args(old)
            ratios = target.log_ratios(q_new, q, np.arange(fact.n_local), args)
            if shuffle:
                np.testing.assert_allclose(np.sort(ratios), np.sort(expected), atol=scale)
                assert not np.allclose(ratios, expected, atol=scale)
            else:
                np.testing.assert_allclose(ratios, expected, atol=scale)
            # A few positions only: some terms may have no row among them.
            few = np.array([3, fact.n_local - 1, 0])
            np.testing.assert_allclose(
                np.sort(target.log_ratios(q_new, q, few, args)), np.sort(ratios[few]), atol=scale
            )
            one = target.log_ratios(q_new, q, np.array([5]), args)
            np.testing.assert_allclose(one, ratios[[5]], atol=scale)
            np.testing.assert_allclose(target.global_log_ratio(q_new, q, args), change, atol=1e-9)
            # The terms themselves, stored in the same order as their differences.
            terms = target.log_terms(q, np.arange(fact.n_local), args)
            order = np.sort if shuffle else np.asarray
            np.testing.assert_allclose(order(terms), order(fact.log_density_terms(old)), atol=scale)
            there = target.log_terms(q_new, np.arange(fact.n_local), args)
            np.testing.assert_allclose(there - terms, ratios, atol=scale)
            some = target.log_terms(q, few, args)
            np.testing.assert_allclose(np.sort(some), np.sort(terms[few]), atol=scale)


def test_order_of_storage_is_reproducible():
    fact = factorise(BUILD["logistic"]()[0])
    first, second = (CompiledTarget(fact, shuffle=True).leaf_values for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_rows_keep_their_data_together():
    """A planted fault: shuffling y without X must not go unnoticed."""
    fact = factorise(BUILD["logistic"]()[0])
    compiled = CompiledTarget(fact, shuffle=True)
    rng = np.random.default_rng(3)
    point = fact.graph.point
    q_new, q = (rng.normal(size=len(ravel(point, fact.var_names))) for _ in range(2))
    target, args = compiled.interpreted(), compiled.args(point)
    whole = np.arange(fact.n_local)
    right = target.log_ratios(q_new, q, whole, args).sum()
    broken = [np.roll(a, 1, axis=0) if a.ndim == 1 and a.dtype.kind == "i" else a for a in args]
    assert not np.isclose(target.log_ratios(q_new, q, whole, tuple(broken)).sum(), right)
