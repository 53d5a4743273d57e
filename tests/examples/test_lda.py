"""Kernels of latent Dirichlet allocation against enumerations; planted faults are noticed."""

import itertools
import math
from functools import cache

import lda
import lda_kos
import numba
import numpy as np
import pytest
from lda import Corpus, corpus_of, from_documents, halves, subcorpus
from scipy.special import gammaln

from tests.statistical.errors import LIMIT, error_of_mean

K, V, ALPHA, BETA = 3, 4, 0.4, 0.3
DOCUMENTS = [np.array([0, 1, 1, 3]), np.array([2, 3, 0])]
CORPUS = from_documents(DOCUMENTS)
PHI = np.random.default_rng(4).dirichlet(np.ones(V), size=K).T


@cache
def both(name):
    """A kernel function as it is, and compiled."""
    function = getattr(lda, name, None) or getattr(lda_kos, name)
    return function, numba.njit(function)


def compiled(name):
    return both(name)[1]


# Enumerations ----------------------------------------------------------------------------------------------


def topics_of_document(words, alpha=ALPHA, phi=PHI):
    """All allocations of the tokens of a document (rows), and their probabilities given phi."""
    states = np.array(list(itertools.product(range(phi.shape[1]), repeat=len(words))))
    n_k = (states[:, :, None] == np.arange(phi.shape[1])).sum(axis=1)
    log_p = gammaln(n_k + alpha).sum(axis=1) + np.log(phi[words, states]).sum(axis=1)
    p = np.exp(log_p - log_p.max())
    return states, n_k, p / p.sum()


def expected_counts(documents, **kwargs):
    result = np.zeros((V, K))
    for words in documents:
        states, _, p = topics_of_document(words, **kwargs)
        for i, w in enumerate(words):
            result[w] += [p[states[:, i] == k].sum() for k in range(K)]
    return result


def expected_completion(seen, words, **kwargs):
    alpha = kwargs.get("alpha", ALPHA)
    _, n_k, p = topics_of_document(seen, **kwargs)
    return PHI[words] @ (p @ (n_k + alpha)) / (len(seen) + K * alpha)


def collapsed_law(corpus, n_words, n_topics, alpha, beta):
    """All allocations of all tokens, and their probabilities."""
    states = np.array(list(itertools.product(range(n_topics), repeat=len(corpus.words))))
    log_p = np.empty(len(states))
    for s, z in enumerate(states):
        _, n_dk, n_wk, n_k = lda.allocation_of(corpus, z, n_words, n_topics)
        log_p[s] = gammaln(n_dk + alpha).sum() + gammaln(n_wk + beta).sum()
        log_p[s] -= gammaln(n_k + n_words * beta).sum()
    p = np.exp(log_p - log_p.max())
    return states, p / p.sum()


def z_scores(draws, expected):
    """Of the means of independent draws, (n, ...)."""
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    return (draws.mean(axis=0) - expected) / np.where(error > 0, error, 1e-12)


# Given phi -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counts():
    rng, kernel = np.random.default_rng(1), compiled("topic_counts")
    return np.array([kernel(rng, CORPUS, np.arange(2), PHI, ALPHA, 20, 10) for _ in range(6000)])


def test_topic_counts(counts):
    z = z_scores(counts, expected_counts(DOCUMENTS))
    assert np.abs(z).max() < LIMIT, z
    np.testing.assert_allclose(counts.sum(axis=2), np.bincount(CORPUS.words)[None].repeat(6000, 0))


def test_other_laws_of_topics_are_noticed(counts):
    """Planted fault: another prior; a token that counts itself."""
    own_token_counted = np.zeros((V, K))  # topics drawn given the words only
    for w in CORPUS.words:
        own_token_counted[w] += PHI[w] / PHI[w].sum()
    for wrong in (expected_counts(DOCUMENTS, alpha=1.3 * ALPHA), own_token_counted):
        assert np.abs(z_scores(counts, wrong)).max() > 2 * LIMIT


def test_counts_of_some_documents():
    kernel = compiled("topic_counts")
    found = kernel(np.random.default_rng(1), CORPUS, np.array([1]), PHI, ALPHA, 0, 5)
    np.testing.assert_allclose(found.sum(axis=1), np.bincount(DOCUMENTS[1], minlength=V))


def test_burn_in_is_not_counted():
    """The first draw is given the words only, so without burn-in the mean is another."""
    rng, kernel = np.random.default_rng(3), compiled("topic_counts")
    phi = np.full((V, K), 1 / V)  # symmetric in topics: their counts are even, but together they are not
    first, later = (
        np.array(
            [(kernel(rng, CORPUS, np.arange(1), phi, 0.01, b, 1).sum(axis=0) ** 2).sum() for _ in range(2000)]
        )
        for b in (0, 200)
    )
    _, n_k, p = topics_of_document(DOCUMENTS[0], 0.01, phi)
    expected = p @ (n_k**2).sum(axis=1)
    assert abs(z_scores(later, expected)) < LIMIT
    assert abs(z_scores(first, expected)) > 2 * LIMIT


@pytest.fixture(scope="module")
def completions():
    rng, kernel = np.random.default_rng(2), compiled("completion")
    aside = from_documents([np.array([0, 2]), np.array([1])])
    return np.array([kernel(rng, CORPUS, aside, PHI, ALPHA, 20, 10) for _ in range(6000)])


def test_completion(completions):
    """Planted fault: the documents change places."""
    expected = [
        *expected_completion(DOCUMENTS[0], [0, 2]),
        *expected_completion(DOCUMENTS[1], [1]),
    ]
    z = z_scores(completions, expected)
    assert np.abs(z).max() < LIMIT, z
    wrong = [  # the documents changed places
        *expected_completion(DOCUMENTS[1], [0, 2]),
        *expected_completion(DOCUMENTS[0], [1]),
    ]
    assert np.abs(z_scores(completions, wrong)).max() > 2 * LIMIT


def test_completion_is_a_probability():
    """Over all words it adds up to one; a document of which nothing was seen has the prior's mean."""
    everything = np.arange(V)
    seen, aside = from_documents([DOCUMENTS[0], DOCUMENTS[0][:0]]), from_documents([everything, everything])
    found = compiled("completion")(np.random.default_rng(1), seen, aside, PHI, ALPHA, 3, 7)
    np.testing.assert_allclose(found.reshape(2, V).sum(axis=1), 1)
    np.testing.assert_allclose(found[V:], PHI.mean(axis=1))


# Batches ---------------------------------------------------------------------------------------------------

MORE = [np.array(w) for w in ([0, 0, 1], [2], [0, 1, 1, 1], [3, 3], [0], [2, 0])]
ONE_TOPIC = np.full((V, 1), 1 / V)


def shapes_of_batches(n, count=4000, name="shape_estimates"):
    corpus, rng = from_documents(MORE), np.random.default_rng(5)
    population = np.arange(len(MORE))
    kernel = compiled(name)
    return np.array(
        [kernel(rng, corpus, population, n, ONE_TOPIC, ALPHA, BETA, 0, 1)[:, 0] for _ in range(count)]
    )


def test_shapes_are_without_bias():
    """With one topic there is nothing to sample: what varies is the batch."""
    total = np.bincount(np.concatenate(MORE), minlength=V)
    np.testing.assert_allclose(shapes_of_batches(len(MORE), 2), np.array([BETA + total] * 2))
    per_document = np.array([np.bincount(words, minlength=V) for words in MORE])
    for n in (1, 2, 5):
        draws = shapes_of_batches(n)
        assert np.abs(z_scores(draws, BETA + total)).max() < LIMIT
        # without replacement
        variance = len(MORE) * (len(MORE) - n) / n * per_document.var(axis=0, ddof=1)
        squares = (draws - BETA - total) ** 2
        assert np.abs(z_scores(squares, variance)).max() < LIMIT
        without_scale = BETA + (draws - BETA) * n / len(MORE)
        assert np.abs(z_scores(without_scale, BETA + total)).max() > 2 * LIMIT


@numba.njit
def chain_of_shares(rng, corpus, population, state, scale, shape_estimates, scir_update):
    """States of the processes, when a_hat is `scale` times what it should be, apart from beta."""
    draws = np.empty((30_000, state.shape[0]))
    for m in range(draws.shape[0]):
        shapes = shape_estimates(rng, corpus, population, 2, ONE_TOPIC, ALPHA, BETA, 0, 1)
        scir_update(rng, state, BETA + scale * (shapes - BETA), 0.4)
        draws[m] = np.exp(state[:, 0])
    return draws[100:]


def chain_with_one_topic(scale):
    kernels = compiled("shape_estimates"), compiled("scir_update")
    rng, population = np.random.default_rng(8), np.arange(len(MORE))
    return chain_of_shares(rng, from_documents(MORE), population, np.zeros((V, 1)), scale, *kernels)


def errors_of_chain(draws):
    """Distances of means and variances from theory, in standard errors, for n = 2 and h = 0.4."""
    total = np.bincount(np.concatenate(MORE), minlength=V)
    per_document = np.array([np.bincount(words, minlength=V) for words in MORE])
    noise = len(MORE) * (len(MORE) - 2) / 2 * per_document.var(axis=0, ddof=1)
    mean, variance = BETA + total, BETA + total + math.tanh(0.2) * noise
    z = []
    for x, expected in ((draws, mean), ((draws - mean) ** 2, variance)):
        z.append([(x[:, w].mean() - expected[w]) / error_of_mean(x[:, w]) for w in range(V)])
    return np.abs(z)


def test_chain_of_one_topic():
    """The mean of theta is that of the posterior, its variance that of Corollary 4.2."""
    found = chain_with_one_topic(1.0)
    assert errors_of_chain(found).max() < LIMIT


def test_chain_without_scale_is_noticed():
    """As if the counts of a batch were those of the corpus."""
    # Planted fault: counts of a batch are not scaled to the corpus.
    found = chain_with_one_topic(2 / 6)
    assert errors_of_chain(found)[0].max() > 2 * LIMIT


def test_centred_shapes():
    """beta + phi_kw (g_kw - sum_v phi_kv g_kv) + M phi_kw, with g = d log likelihood / d phi."""
    shapes = BETA + 3.5 * np.random.default_rng(3).poisson(1.0, (V, K))
    gradient = (shapes - BETA) / PHI
    total = (shapes - BETA).sum()
    expected = BETA + PHI * (gradient - (PHI * gradient).sum(axis=0)) + total * PHI
    found = compiled("centred_shapes")(shapes, PHI, BETA)
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(found.sum(axis=0), V * BETA + total)
    nothing_of_a_topic = BETA + np.array([[0, 1.0, 0]]).repeat(V, 0)
    assert np.all(compiled("centred_shapes")(nothing_of_a_topic, PHI, BETA) >= BETA)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("h", [0.01, 0.5])
def test_sgrld_step(h, centred):
    """Patterson & Teh: theta + h [beta - theta + (L / n) sum (n_dkw - phi_kw n_dk)] + noise, reflected."""
    rng = np.random.default_rng(3)
    theta, counts = rng.gamma(0.5, 1, (V, K)), 3.5 * rng.poisson(1.0, (V, K))
    phi = theta / theta.sum(axis=0)
    noise = np.random.default_rng(7).standard_normal((V, K))
    drift = BETA - theta + counts - centred * phi * counts.sum(axis=0)
    expected = np.abs(theta + h * drift + np.sqrt(2 * h * theta) * noise)
    lda_kos.sgrld_update(np.random.default_rng(7), theta, BETA + counts, BETA, centred, h)
    np.testing.assert_allclose(theta, expected, rtol=1e-12)


def test_topics_of_processes_far_below_the_smallest_number():
    log_theta = np.array([[-3000.0, 0.0], [-3000.0, -1e5], [-2999.0, 1.0], [-1e7, 800.0]])
    phi = lda.topics(log_theta)
    np.testing.assert_allclose(phi.sum(axis=0), 1)
    np.testing.assert_allclose(phi[:, 0], np.array([1, 1, np.e, 0]) / (2 + np.e))
    np.testing.assert_allclose(phi[:, 1], [0, 0, 0, 1], atol=1e-300)


# Collapsed Gibbs -------------------------------------------------------------------------------------------

SMALL = from_documents([np.array([0, 1, 1]), np.array([2, 0])])


@numba.njit
def visited_states(rng, corpus, allocation, alpha, beta, length):
    """Numbers of the states in the order of `itertools.product`."""
    found = np.empty(length, np.int64)
    for m in range(length):
        lda.collapsed_sweep(rng, corpus, allocation, alpha, beta)
        number = 0
        for topic in allocation.z:
            number = number * allocation.of_topics.shape[0] + topic
        found[m] = number
    return found


@pytest.fixture(scope="module")
def visits():
    start = lda.allocation_of(SMALL, np.zeros(5, np.int64), 3, 2)
    return visited_states(np.random.default_rng(6), SMALL, start, ALPHA, BETA, 100_000)


def z_of_states(visits, law):
    return np.array([(np.mean(visits == s) - p) / error_of_mean(visits == s) for s, p in enumerate(law)])


def test_collapsed_sampler(visits):
    _, law = collapsed_law(SMALL, 3, 2, ALPHA, BETA)
    z = z_of_states(visits, law)
    assert np.abs(z).max() < LIMIT, z


@pytest.mark.parametrize(
    ("n_words", "alpha", "beta"), [(1, ALPHA, BETA), (3, 1.3 * ALPHA, BETA), (3, ALPHA, 1.3 * BETA)]
)
def test_collapsed_sampler_of_another_law_is_noticed(visits, n_words, alpha, beta):
    """The first is a denominator of n_k + beta, with the V forgotten."""
    # Planted fault: the law of other numbers of words, or of other priors.
    states = np.array(list(itertools.product(range(2), repeat=5)))
    log_p = []
    for z in states:
        _, n_dk, n_wk, n_k = lda.allocation_of(SMALL, z, 3, 2)
        log_p.append(
            gammaln(n_dk + alpha).sum() + gammaln(n_wk + beta).sum() - gammaln(n_k + n_words * beta).sum()
        )
    law = np.exp(log_p)
    assert np.abs(z_of_states(visits, law / law.sum())).max() > 2 * LIMIT


def test_counts_stay_those_of_the_topics():
    rng = np.random.default_rng(1)
    allocation = lda.allocation_of(CORPUS, rng.integers(K, size=7), V, K)
    for _ in range(20):
        compiled("collapsed_sweep")(rng, CORPUS, allocation, ALPHA, BETA)
    for found, expected in zip(allocation, lda.allocation_of(CORPUS, allocation.z, V, K), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_topics_are_drawn_given_counts():
    allocation = lda.allocation_of(CORPUS, np.array([0, 1, 2, 0, 0, 1, 1]), V, K)
    rng = np.random.default_rng(2)
    draws = np.array([lda.drawn_topics(rng, allocation, BETA) for _ in range(6000)])
    a = allocation.of_words + BETA
    assert np.abs(z_scores(draws, a / a.sum(axis=0))).max() < LIMIT


# Interpreted and compiled ----------------------------------------------------------------------------------


def run_everything(rng, functions):
    topic_shapes, completion, scir, sgrld, topics, sweep = functions
    log_theta, theta, phi = np.zeros((V, K)), np.full((V, K), 0.3), PHI.copy()
    allocation = lda.allocation_of(CORPUS, np.zeros(7, np.int64), V, K)
    population = np.arange(2)
    results = []
    for _ in range(5):
        shapes = topic_shapes(rng, CORPUS, population, 1, phi, ALPHA, BETA, 2, 3)
        scir(rng, log_theta, shapes, 0.3)
        sgrld(rng, theta, shapes, BETA, True, 0.3)
        phi = topics(log_theta)
        sweep(rng, CORPUS, allocation, ALPHA, BETA)
        probabilities = completion(rng, CORPUS, CORPUS, phi, ALPHA, 2, 3)
        results += [shapes, log_theta.copy(), theta.copy(), phi, probabilities, allocation.z.copy()]
    return results


def test_interpreted_and_compiled_draws_are_the_same():
    names = ["shape_estimates", "completion", "scir_update", "sgrld_update", "topics", "collapsed_sweep"]
    pairs = [both(name) for name in names]
    first, second = (run_everything(np.random.default_rng(9), [pair[i] for pair in pairs]) for i in (0, 1))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


# Corpora ---------------------------------------------------------------------------------------------------


def test_corpus_from_counts():
    corpus = corpus_of([0, 2, 2, 3], [1, 3, 0], [2, 1, 3], V)
    np.testing.assert_array_equal(corpus.starts, [0, 3, 3, 6])
    np.testing.assert_array_equal(corpus.words, [1, 1, 3, 0, 0, 0])
    some = subcorpus(corpus, [2, 1])
    np.testing.assert_array_equal(some.starts, [0, 3, 3])
    np.testing.assert_array_equal(some.words, [0, 0, 0])
    assert subcorpus(corpus, []).words.shape == (0,)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([0, 2], [1, 4], [1, 1]), "from 0 to n_words - 1 = 3, got 1 to 4. Subtract 1"),
        (([0, 2], [-1, 2], [1, 1]), "got -1 to 2"),
        (([0, 1], [1, 2], [1, 1]), "indptr must rise from 0 to 2"),
        (([0, 2, 1, 2], [1, 2], [1, 1]), "indptr must rise"),
        (([0, 2], [1, 2], [1]), "counts must be 2 numbers"),
        (([0, 2], [1, 2], [1, -1]), "the least -1"),
    ],
    ids=["too large", "negative", "short", "falling", "lengths", "counts"],
)
def test_counts_that_are_none(arrays, message):
    with pytest.raises(ValueError, match=message):
        corpus_of(*arrays, V)


def test_halves_of_documents():
    corpus = Corpus(np.array([0, 5, 5, 6, 10]), np.arange(10))
    seen, aside = halves(np.random.default_rng(1), corpus)
    np.testing.assert_array_equal(np.diff(seen.starts), [3, 0, 1, 2])
    np.testing.assert_array_equal(np.diff(aside.starts), [2, 0, 0, 2])
    for d in range(4):
        both_parts = [*subcorpus(seen, [d]).words, *subcorpus(aside, [d]).words]
        assert sorted(both_parts) == list(subcorpus(corpus, [d]).words)


def test_fractions_of_words_are_refused():
    with pytest.raises(ValueError, match=r"counts must hold whole numbers, got 0\.7"):
        corpus_of([0, 2], [0, 1], [0.7, 2.0], 2)
