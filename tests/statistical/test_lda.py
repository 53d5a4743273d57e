"""Latent Dirichlet allocation: the posterior of topics against enumeration, and the KOS blog entries."""

import os
import runpy
from functools import cache
from pathlib import Path

import lda
import numba
import numpy as np
import pytest
from lda import from_documents

from tests.examples.test_lda import collapsed_law
from tests.statistical.errors import LIMIT, error_of_mean

V, K, ALPHA, BETA = 3, 2, 0.4, 0.5
CORPUS = from_documents([np.array([0, 1, 1]), np.array([2, 0, 0]), np.array([1])])


def moments(phi):
    """Of topics in either order: E[sum_k phi_kw], E[sum_k phi_kw^2] and E[phi_1w phi_2w]."""
    return np.concatenate([phi.sum(axis=-1), (phi**2).sum(axis=-1), phi.prod(axis=-1)], axis=-1)


def exact_moments(alpha=ALPHA):
    states, law = collapsed_law(CORPUS, V, K, alpha, BETA)
    total = np.zeros(3 * V)
    for z, p in zip(states, law, strict=True):
        a = np.full((V, K), BETA)
        np.add.at(a, (CORPUS.words, z), 1.0)
        mean, size = a / a.sum(axis=0), a.sum(axis=0)
        square = mean * (a + 1) / (size + 1)
        total += p * np.concatenate([mean.sum(axis=1), square.sum(axis=1), mean.prod(axis=1)])
    return total


@numba.njit
def scir_draws(rng, corpus, centred, step_size):
    population = np.arange(corpus.starts.shape[0] - 1)
    state = np.zeros((V, K))
    phi = lda.topics(state)
    draws = np.empty((100_000, V, K))
    for m in range(-200, draws.shape[0]):
        for _ in range(12):
            shapes = lda.shape_estimates(rng, corpus, population, len(population), phi, ALPHA, BETA, 3, 4)
            if centred:
                shapes = lda.centred_shapes(shapes, phi, BETA)
            lda.scir_update(rng, state, shapes, step_size)
            phi = lda.topics(state)
        draws[max(m, 0)] = phi
    return draws


@cache
def draws_of(centred, step_size):
    return moments(scir_draws(np.random.default_rng(5), CORPUS, centred, step_size))


def z_scores(draws, expected):
    return np.abs([(x.mean() - e) / error_of_mean(x) for x, e in zip(draws.T, expected, strict=True)])


@pytest.mark.slow("a long chain of topics, against enumeration")
def test_law_of_topics_in_the_limit_of_small_steps():
    """Topics of few tokens: 7 in all."""
    draws = draws_of(True, 0.05)
    z = z_scores(draws, exact_moments())
    assert z.max() < LIMIT, z
    assert z_scores(draws, exact_moments(6.0)).max() > 2 * LIMIT


@pytest.mark.slow("a long chain of topics, against enumeration")
def test_shapes_of_the_paper_have_another_limit():
    """The sums of theta over words drift with the tokens of the topic, and this is not accounted for."""
    z = z_scores(draws_of(False, 0.05), exact_moments())
    assert z.max() > 2 * LIMIT, z


@pytest.mark.slow("long chains: the error is small in units of what the chain knows")
def test_long_steps_are_noticed():
    """The drift is held fixed for too long."""
    z = z_scores(draws_of(True, 3.0), exact_moments())
    assert z.max() > 2 * LIMIT, z


@pytest.mark.full_size("the experiment of the paper, on its data")
@pytest.mark.skipif("PYMC_AUSTERITY_DATA" not in os.environ, reason="needs lda_corpus.npz")
def test_scir_ends_below_sgrld():
    """On the KOS blog entries, 50 topics, batches of 50 documents, each at the best step of its grid."""
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "lda_kos.py"))
    data = example["split"](*example["kos"]())
    prior, settings = (example["ALPHA"], example["BETA"]), example["FULL"]
    grid = example["search"](data, prior, settings)
    _, table = example["compare"](data, prior, settings, grid)
    scir = table.loc["SCIR"]
    for name in example["METHODS"]:
        seeds = [f"seed {seed}" for seed in settings["seeds"]]
        if name != "SCIR":
            assert scir[seeds].max() < table.loc[name, seeds].min(), table
