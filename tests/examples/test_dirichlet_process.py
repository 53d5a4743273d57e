"""The slice sampler against sums over all partitions of four units; planted faults are noticed.

For units x_1 .. x_4 with two categories each the posterior of the partition is, up to a constant,

    p(partition | x) = E[alpha^k Gamma(alpha) / Gamma(alpha + 4)] prod over blocks of Gamma(size) p(block),

where p(block) is Dirichlet-multinomial and alpha has its prior. The mean of alpha and the predictive
distribution follow.
"""

import doctest
import itertools
import math
from functools import cache

import dirichlet_process
import numba
import numpy as np
import pytest
from dirichlet_process import (
    DirichletProcessMixture,
    Units,
    cir_step,
    compiled,
    compiled_sweeps,
    log_predictive,
    start,
)
from dp_mixture_msweb import sgrld_step
from numba.extending import register_jitable
from scipy import stats
from scipy.special import gammaln

D, A = 3, 0.7
ALPHA_PRIOR = 2.0, 1.5
PRIOR = np.full(D, A)
STARTS, CATEGORIES = np.array([0, 2, 4, 6, 8]), np.array([0, 0, 0, 1, 2, 2, 1, 0])
UNITS = Units(STARTS, CATEGORIES)
N = len(STARTS) - 1
# All pairs of categories, as new units
NEW = Units(np.arange(0, 2 * D**2 + 1, 2), np.array(list(itertools.product(range(D), repeat=2))).ravel())
LIMIT = 4.5  # standard errors, for some thirty numbers


# What is exact ------------------------------------------------------------------------------------------


def restricted_growth(n):
    """All partitions of n units as labels in order of appearance."""
    partitions = [(0,)]
    for _ in range(n - 1):
        partitions = [(*p, label) for p in partitions for label in range(max(p) + 2)]
    return partitions


PARTITIONS = restricted_growth(N)


def log_block(categories):
    """Dirichlet-multinomial probability of a sequence of categories."""
    counts = np.bincount(np.asarray(categories, int), minlength=D)
    return gammaln(D * A) - gammaln(D * A + counts.sum()) + np.sum(gammaln(A + counts) - gammaln(A))


def categories_of(units):
    return [c for i in units for c in CATEGORIES[STARTS[i] : STARTS[i + 1]]]


@cache
def exact():
    """Probability of each partition, mean of alpha, predictive probability of each new unit."""
    alpha = np.linspace(0, 30, 60_001)[1:]
    density = stats.gamma(ALPHA_PRIOR[0], scale=1 / ALPHA_PRIOR[1]).pdf(alpha)
    weight, mean_alpha, predictive = [], [], []
    for p in PARTITIONS:
        blocks = [[i for i in range(N) if p[i] == label] for label in range(max(p) + 1)]
        on_alpha = density * np.exp(len(blocks) * np.log(alpha) + gammaln(alpha) - gammaln(alpha + N))
        likelihood = math.exp(sum(gammaln(len(b)) + log_block(categories_of(b)) for b in blocks))
        weight.append(likelihood * on_alpha.sum())
        mean_alpha.append(likelihood * (alpha * on_alpha).sum())
        new = []
        for pair in NEW.categories.reshape(-1, 2):
            joined = sum(
                len(b) * np.exp(log_block([*categories_of(b), *pair]) - log_block(categories_of(b)))
                for b in blocks
            )
            urn = (joined + alpha * np.exp(log_block(pair))) / (N + alpha)
            new.append(likelihood * (urn * on_alpha).sum())
        predictive.append(new)
    total = np.sum(weight)
    return np.concatenate([weight / total, [np.sum(mean_alpha) / total], np.sum(predictive, axis=0) / total])


# What the sampler says ----------------------------------------------------------------------------------


def make_averages(sweeps, predictive):
    """A loop of sweeps; the same numbers as `exact`, as means of each of several stretches of the chain."""

    def averages(n_stretches, length, rng, state, units, new, prior, batch_size, step_size, code_of):
        n_partitions = code_of.max() + 1
        out = np.zeros((n_stretches, n_partitions + 1 + new.starts.shape[0] - 1))
        for s in range(n_stretches):
            for _ in range(length):
                state = sweeps(1, rng, state, units, prior, ALPHA_PRIOR, batch_size, step_size, step_size)
                out[s, code_of[partition_code(state.z)]] += 1 / length
                out[s, n_partitions] += state.alpha[0] / length
                out[s, n_partitions + 1 :] += np.exp(predictive(state, new, prior)) / length
        return out, state

    return averages


@register_jitable
def partition_code(z):
    """Which pairs of units are together, as bits."""
    code, bit = 0, 1
    for i in range(z.shape[0]):
        for j in range(i):
            if z[i] == z[j]:
                code += bit
            bit *= 2
    return code


CODE_OF = np.zeros(2 ** (N * (N - 1) // 2), dtype=np.int64)
for _number, _partition in enumerate(PARTITIONS):
    CODE_OF[partition_code(np.array(_partition))] = _number


@cache
def compiled_averages(step):
    return numba.njit(make_averages(compiled_sweeps(step), compiled(log_predictive)))


def interpreted_averages():
    """Exact transitions, a hundred times slower, around whatever functions `dirichlet_process` has by now."""

    def sweeps(n, rng, state, *rest):
        return dirichlet_process.slice_sweep(rng, state, *rest, cir_step)

    return make_averages(sweeps, log_predictive)


def sample(averages, *, batch_size=N, step_size=np.inf, n_stretches=100, length=2000, seed=1):
    rng = np.random.default_rng(seed)
    state = start(rng, UNITS, PRIOR, 1.0, 2)
    arguments = UNITS, NEW, PRIOR, batch_size, step_size, CODE_OF
    _, state = averages(1, 200, rng, state, *arguments)
    return averages(n_stretches, length, rng, state, *arguments)[0]


def errors_off(found):
    """Differences from what is exact in standard errors, which come from differences between stretches."""
    error = found.std(axis=0, ddof=1) / math.sqrt(len(found))
    return (found.mean(axis=0) - exact()) / np.maximum(error, 1e-9)


def test_enumeration_sums_to_one():
    probabilities, predictive = exact()[: len(PARTITIONS)], exact()[len(PARTITIONS) + 1 :]
    assert len(PARTITIONS) == 15
    np.testing.assert_allclose([probabilities.sum(), predictive.sum()], 1, rtol=1e-6)


@pytest.mark.parametrize("step_size", [np.inf, 0.05])
@pytest.mark.slow("compiles the slice sampler for 20 core-seconds; an interpreted chain is compared below")
def test_all_units_exact_posterior(step_size):
    """A fresh draw, or an exact transition of any size, of all gamma variables."""
    z = errors_off(sample(compiled_averages(cir_step), step_size=step_size, length=1500))
    assert np.max(np.abs(z)) < LIMIT


@pytest.mark.slow("compiles the slice sampler around minibatches")
def test_minibatches_come_near_for_small_steps():
    """Two of four units: noisy counts, at large steps a visibly other law, at small ones a similar one."""
    distance = {}
    for h in (1.0, 0.05):
        found = sample(compiled_averages(cir_step), batch_size=2, step_size=h, length=1000)
        distance[h] = 0.5 * np.abs(found.mean(axis=0) - exact())[: len(PARTITIONS)].sum()
    assert distance[0.05] < 0.04
    assert distance[1.0] > 3 * distance[0.05]


@pytest.mark.slow("compiles the slice sampler around another step")
def test_sgrld_is_biased():
    found = sample(compiled_averages(sgrld_step), step_size=0.1, length=1000)
    assert np.max(np.abs(errors_off(found))) > 4 * LIMIT


# Planted faults


right_components = dirichlet_process.draw_components


@register_jitable
def no_new_components(rng, state, prior, top, log_rest, log_u):
    state.n_drawn[0] = top
    return state


@register_jitable
def one_component_short(rng, state, prior, top, log_rest, log_u):
    """Stops as soon as the rest is shorter than sixteen times u*."""
    return right_components(rng, state, prior, top, log_rest, log_u + math.log(16.0))


@register_jitable
def one_component_rarely_short(rng, state, prior, top, log_rest, log_u):
    """The same with four times u*, which shows in long chains only."""
    return right_components(rng, state, prior, top, log_rest, log_u + math.log(4.0))


@register_jitable
def counts_from_here(counts):
    return np.cumsum(counts[::-1])[::-1].copy()


@register_jitable
def allocate_by_weight(rng, state, units, batch, log_u):
    """Forgets that u has taken the weights out of the conditional distribution."""
    for k in range(batch.shape[0]):
        log_p = np.empty(state.n_drawn[0])
        for j in range(log_p.shape[0]):
            log_p[j] = state.log_w[j] + dirichlet_process.log_likelihood(state, units, batch[k], j)
            if state.log_w[j] <= log_u[k]:
                log_p[j] = -np.inf
        p = np.cumsum(np.exp(log_p - log_p.max()))
        j = np.searchsorted(p, rng.random() * p[-1])
        dirichlet_process.move(state, units, batch[k], j)


BUGS = {
    "no new components": ("draw_components", no_new_components),
    "k* too small": ("draw_components", one_component_short),
    "sticks count their own units": ("counts_behind", counts_from_here),
    "weights counted twice": ("allocate", allocate_by_weight),
}


def test_an_interpreted_chain_has_the_exact_posterior():
    assert np.max(np.abs(errors_off(sample(interpreted_averages(), n_stretches=50, length=60)))) < LIMIT


@pytest.mark.parametrize("bug", BUGS)
def test_planted_fault_is_noticed(bug, monkeypatch):
    monkeypatch.setattr(dirichlet_process, *BUGS[bug])
    found = sample(interpreted_averages(), n_stretches=50, length=60)
    assert np.max(np.abs(errors_off(found))) > 2 * LIMIT


@pytest.mark.slow("compiles the slice sampler anew around the wrong function")
def test_a_small_planted_fault_is_noticed(monkeypatch):
    monkeypatch.setattr(dirichlet_process, "draw_components", one_component_rarely_short)
    fresh = numba.njit(dirichlet_process.slice_sweep)

    @numba.njit
    def sweeps(n, rng, state, units, prior, alpha_prior, batch_size, step_size, stick_step_size):
        return fresh(rng, state, units, prior, alpha_prior, batch_size, step_size, stick_step_size, cir_step)

    found = sample(numba.njit(make_averages(sweeps, compiled(log_predictive))), length=1500)
    assert np.max(np.abs(errors_off(found))) > 2 * LIMIT


# Bookkeeping --------------------------------------------------------------------------------------------


def data(n_units=60, n_categories=8, seed=3):
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 5, n_units))])
    return starts, rng.integers(0, n_categories, starts[-1]), n_categories


@pytest.mark.slow("compiles the samplers of an application")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 7, "step_size": 0.1, "stick_step_size": 0.2},
        {"batch_size": 7, "step_size": 0.01, "step": sgrld_step},
        {"a": 1e-3, "alpha_prior": (20.0, 1.0), "n_start": 1},
    ],
    ids=["exact", "scir", "sgrld", "many"],
)
def test_state_is_consistent(options):
    mixture = DirichletProcessMixture(*data(), rng=4, **options)
    for _ in range(50):
        mixture.sweep(2)
        state = mixture.state
        n_drawn = state.n_drawn[0]
        np.testing.assert_array_equal(state.members, np.bincount(state.z, minlength=len(state.members)))
        sizes = np.bincount(state.z, weights=np.diff(data()[0]), minlength=len(state.members))
        np.testing.assert_array_equal(state.sizes, sizes)
        assert state.z.max() < n_drawn <= len(state.members)
        assert sorted(state.order) == list(range(60))
        v = np.exp(state.log_sticks[:n_drawn, 0] - np.logaddexp.reduce(state.log_sticks[:n_drawn], axis=1))
        w = v * np.concatenate([[1], np.cumprod(1 - v)[:-1]])
        np.testing.assert_allclose(np.exp(state.log_w[:n_drawn]), w, rtol=1e-6, atol=1e-12)
        total = np.logaddexp.reduce(state.log_theta[:n_drawn], axis=1)
        np.testing.assert_allclose(state.log_total[:n_drawn], total, rtol=1e-9, atol=1e-9)
        assert np.all(np.isfinite(mixture.log_predictive(*data()[:2])))


def test_components_are_added_until_the_rest_is_short():
    """k* is the smallest k with w_1 + .. + w_k > 1 - u*, or as many as are occupied."""
    rng = np.random.default_rng(5)
    for log_u in (-0.5, -3.0, -12.0):
        state = start(rng, UNITS, PRIOR, 3.0, 2)
        log_rest = dirichlet_process.break_sticks(state.log_sticks, state.log_w, 2)
        state = dirichlet_process.draw_components(rng, state, PRIOR, 2, log_rest, log_u)
        k = state.n_drawn[0]
        sums = np.cumsum(np.exp(state.log_w[:k]))
        assert np.all(sums[2 : k - 1] <= 1 - math.exp(log_u))
        assert sums[k - 1] > 1 - math.exp(log_u)
        assert k == 2 or sums[1] <= 1 - math.exp(log_u)


def test_scaled_counts():
    starts, categories, n_categories = data()
    z = np.random.default_rng(6).integers(0, 4, 60)
    units = Units(starts, categories)
    n_units, n_categories_of = dirichlet_process.scaled_counts(units, z, np.arange(60), 4, n_categories)
    np.testing.assert_array_equal(n_units, np.bincount(z))
    table = np.zeros((4, n_categories))
    np.add.at(table, (np.repeat(z, np.diff(starts)), categories), 1)
    np.testing.assert_array_equal(n_categories_of, table)
    batch = np.array([3, 17, 40])
    n_units, n_categories_of = dirichlet_process.scaled_counts(units, z, batch, 4, n_categories)
    np.testing.assert_allclose(n_units, 20 * np.bincount(z[batch], minlength=4))
    assert n_categories_of.sum() == pytest.approx(20 * np.diff(starts)[batch].sum())


def test_counts_behind():
    np.testing.assert_array_equal(dirichlet_process.counts_behind(np.array([5.0, 0.0, 2.0])), [2, 2, 0])


def test_predictive_probabilities_sum_to_one():
    mixture = DirichletProcessMixture(STARTS, CATEGORIES, D, rng=7)
    mixture.sweep(3)
    assert np.exp(mixture.log_predictive(NEW.starts, NEW.categories)).sum() == pytest.approx(1)


@pytest.mark.parametrize("step", [cir_step, sgrld_step])
def test_interpreted_and_compiled_draws_are_the_same(step):
    starts, categories, n_categories = data()
    units, prior = Units(starts, categories), np.full(n_categories, 0.5)
    mixture = DirichletProcessMixture(
        starts, categories, n_categories, rng=8, batch_size=20, step_size=0.1, step=step, n_start=3
    )
    rng = np.random.default_rng(8)
    state = start(rng, units, prior, 1.0, 3)
    for _ in range(5):
        mixture.sweep()
        state = dirichlet_process.slice_sweep(rng, state, units, prior, (1.0, 1.0), 20, 0.1, 0.1, step)
        np.testing.assert_array_equal(mixture.state.z, state.z)
        np.testing.assert_allclose(mixture.state.log_theta, state.log_theta, rtol=1e-9)
        assert mixture.alpha == pytest.approx(state.alpha[0])


def test_one_seed_one_chain():
    chains = [DirichletProcessMixture(*data(), batch_size=9, step_size=0.1, rng=9) for _ in range(2)]
    for chain in chains:
        chain.sweep(20)
    for one, other in zip(chains[0].state, chains[1].state, strict=True):
        np.testing.assert_array_equal(one, other)
    assert chains[0].n_occupied == np.count_nonzero(chains[0].state.members)


# Bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 5}, "batch_size must be from 1 to the 4 units, an integer, got 5"),
        ({"batch_size": 0}, "batch_size must be from 1"),
        ({"batch_size": 2.5}, "an integer, got 2.5"),
        ({"a": 0.0}, "a must be positive, got 0.0"),
        ({"alpha_prior": (1.0, -1.0)}, "rate in alpha_prior must be positive, got -1.0"),
        ({"step_size": 0.0}, "step_size must be positive"),
        ({"step_size": np.nan}, "step_size must be positive, got nan"),
        ({"stick_step_size": -1.0}, "stick_step_size must be positive"),
        ({"n_start": 0}, "n_start must be positive"),
        ({"step": sgrld_step}, "Only cir_step takes a step_size of inf"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        DirichletProcessMixture(STARTS, CATEGORIES, D, **options)


@pytest.mark.parametrize(
    ("starts", "categories", "message"),
    [
        ([0, 2], [0, 3], "n_categories - 1 = 2, got 3"),
        ([0, 2], [0, -1], "got -1"),
        ([0, 1], [0, 1], "starts must rise from 0 to the 2 categories"),
        ([0, 2, 1, 2], [0, 1], "starts must rise"),
        ([0], [], "at least one unit"),
        ([0, 2], [0, 0.5], "whole numbers"),
    ],
)
def test_bad_units(starts, categories, message):
    with pytest.raises(ValueError, match=message):
        DirichletProcessMixture(starts, categories, D)


def test_the_example_in_the_docstring():
    assert doctest.testmod(dirichlet_process) == (0, 6)
