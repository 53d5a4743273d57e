"""Latent Dirichlet allocation by stochastic gradients: section 5.1 of Baker et al. (2018).

Topics phi_k ~ Dirichlet(beta) over V words, shares of topics theta_d ~ Dirichlet(alpha) in document d; a
token of document d has topic k with probability theta_dk, and then is word w with probability phi_kw. With
the theta_d integrated out, documents are independent given phi, and the topics z of the tokens of one have

    P(z_i = k | other z of the document) proportional to (n_dk + alpha) phi_kw,

where n_dk counts its tokens with topic k, without token i. With a batch of n of the L documents

    s_kw = (L / n) sum over the batch of E[n_dkw | phi],    a_hat_kw = beta + s_kw

(`shape_estimates`), a_hat is without bias for beta + E[n_kw | phi], which drives a Cox-Ingersoll-Ross process
for each k and w; phi_kw is its share in the sum over all words. `scir_update` draws from the transition of
the process with a_hat held fixed. The exact reference is collapsed Gibbs sampling (`collapsed_sweep`).

Tables are V x K, because a token needs one word for all topics. The functions are Python that numba compiles:
wrap in `numba.njit` those that you call. `lda_kos.py` has chains, held-out documents and rivals.

Guarantee
---------
`topic_counts` and `completion` average over Gibbs samplers: without bias once these are at equilibrium. Over
a step a_hat is held fixed, although it depends on phi, and it varies with the batch: errors of O(h).

This a_hat, that of the paper, leaves a small error as h goes to zero. With theta_kw the state of a process,
s_k the sum of s_kw over words, theta_kw times the derivative of the log likelihood is s_kw - phi_kw s_k: a
drift of beta + s_kw - theta_kw lacks the second part, which changes the distribution of phi unless s_k is
constant. Where topics have many tokens this is little: both drifts have the same fixed points, and what
differs is a relative O(1 / s_k). `centred_shapes` is without this error.

When it fails
-------------
A word that occurs in one document has an a_hat of beta in most iterations, and L / n more in one of L / n: to
average over all documents, a step must be well below n / L. Topics are probabilities and not logarithms: a
word that is zero in all of them in floating-point numbers (beta far below 0.01) goes to the last topic. And
like all samplers of topics it stays near one of many modes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from pymc_austerity.kernels.cox_ingersoll_ross import cir_transitions
from pymc_austerity.kernels.subsample import draw_without_replacement

Index = npt.NDArray[np.int64]
Table = npt.NDArray[np.float64]


# Documents as sequences of tokens ---------------------------------------------------------------------


class Corpus(NamedTuple):
    """Documents as sequences of tokens.

    Parameters
    ----------
    starts : ndarray of int64, shape (L + 1,)
        Tokens of document d are those from ``starts[d]`` to before ``starts[d + 1]``.
    words : ndarray of int64, shape (number of tokens,)
        Which word each token is.
    """

    starts: Index
    words: Index


def corpus_of(indptr: npt.ArrayLike, indices: npt.ArrayLike, counts: npt.ArrayLike, n_words: int) -> Corpus:
    """Write out a table of counts, documents x words in sparse rows.

    Parameters
    ----------
    indptr : array_like of int, shape (L + 1,)
    indices : array_like of int, shape (number of pairs,)
        The words, from 0.
    counts : array_like of int, shape (number of pairs,)
    n_words : int
        V.

    Returns
    -------
    Corpus

    Raises
    ------
    ValueError
        If the arrays do not fit each other, or a word is not one of `n_words`.
    """
    indptr, indices, counts = (
        whole_numbers(x, name) for x, name in ((indptr, "indptr"), (indices, "indices"), (counts, "counts"))
    )
    if len(indptr) < 2 or indptr[0] != 0 or indptr[-1] != len(indices) or np.any(np.diff(indptr) < 0):
        raise ValueError(
            f"indptr must rise from 0 to {len(indices)}, the number of pairs in indices, got "
            f"{len(indptr)} numbers from {indptr[:1]} to {indptr[-1:]}."
        )
    if len(counts) != len(indices) or np.any(counts < 0):
        raise ValueError(
            f"counts must be {len(indices)} numbers, one for each pair in indices, none of them negative; "
            f"got {len(counts)}, the least {counts.min(initial=0)}."
        )
    if np.any((indices < 0) | (indices >= n_words)):
        raise ValueError(
            f"indices must be words from 0 to n_words - 1 = {n_words - 1}, got {indices.min()} to "
            f"{indices.max()}. Subtract 1 if they are counted from 1."
        )
    ends = np.concatenate([[0], np.cumsum(counts)])
    return Corpus(ends[indptr], np.repeat(indices, counts))


def whole_numbers(values: npt.ArrayLike, name: str) -> Index:
    """The values as integers, refusing fractions."""
    array = np.asarray(values)
    result = array.astype(np.int64)
    if np.any(result != array):
        raise ValueError(f"{name} must hold whole numbers, got {array[result != array].ravel()[0]}.")
    return result


def from_documents(documents: Iterable[Index]) -> Corpus:
    """Put documents, each an array of words, one after the other."""
    documents = list(documents)
    starts = np.cumsum([0, *(len(words) for words in documents)])
    return Corpus(starts, np.concatenate([*documents, np.empty(0, np.int64)]).astype(np.int64))


def subcorpus(corpus: Corpus, documents: Iterable[int]) -> Corpus:
    """Some of the documents, in this order."""
    return from_documents(corpus.words[corpus.starts[d] : corpus.starts[d + 1]] for d in documents)


def halves(rng: np.random.Generator, corpus: Corpus) -> tuple[Corpus, Corpus]:
    """Split the tokens of each document at random, into a half that is seen and one that is put aside.

    Of an odd number the larger part is seen.
    """
    seen, aside = [], []
    for d in range(len(corpus.starts) - 1):
        words = rng.permutation(corpus.words[corpus.starts[d] : corpus.starts[d + 1]])
        seen.append(words[len(words) // 2 :])
        aside.append(words[: len(words) // 2])
    return from_documents(seen), from_documents(aside)


# One document ----------------------------------------------------------------------------------------------


@register_jitable
def first_above(cumulative: Table, value: float) -> int:
    """The first place where `cumulative` is above `value`, or the last place."""
    k = 0
    while k < cumulative.shape[0] - 1 and cumulative[k] <= value:
        k += 1
    return k


@register_jitable
def start_document(
    rng: np.random.Generator, words: Index, phi: Table, z: Index, n_k: Table, work: Table
) -> None:
    """Draw topics of the tokens given their words only."""
    n_k[:] = 0.0
    for i in range(words.shape[0]):
        total = 0.0
        for k in range(n_k.shape[0]):
            total += phi[words[i], k]
            work[k] = total
        z[i] = first_above(work, rng.random() * total)
        n_k[z[i]] += 1.0


@register_jitable
def sweep_document(
    rng: np.random.Generator, words: Index, phi: Table, alpha: float, z: Index, n_k: Table, work: Table
) -> None:
    """Draw the topic of each token given those of the others, in place."""
    for i in range(words.shape[0]):
        n_k[z[i]] -= 1.0
        total = 0.0
        for k in range(n_k.shape[0]):
            total += (n_k[k] + alpha) * phi[words[i], k]
            work[k] = total
        z[i] = first_above(work, rng.random() * total)
        n_k[z[i]] += 1.0


# Many documents --------------------------------------------------------------------------------------------


@register_jitable
def topic_counts(
    rng: np.random.Generator,
    corpus: Corpus,
    documents: Index,
    phi: Table,
    alpha: float,
    burn_in: int,
    n_sweeps: int,
) -> Table:
    """Sum over documents of E[n_dkw | phi], by Gibbs sampling.

    Parameters
    ----------
    rng : numpy.random.Generator
    corpus : Corpus
    documents : ndarray of int
        Whose counts to add up.
    phi : ndarray of shape (V, K)
    alpha : float
    burn_in : int
        Sweeps over a document before its topics are counted.
    n_sweeps : int
        Sweeps after that; the mean is over these.

    Returns
    -------
    ndarray of shape (V, K)
    """
    n_topics = phi.shape[1]
    counts = np.zeros(phi.shape)
    n_k, work = np.empty(n_topics), np.empty(n_topics)
    for d in documents:
        words = corpus.words[corpus.starts[d] : corpus.starts[d + 1]]
        z = np.empty(words.shape[0], np.int64)
        start_document(rng, words, phi, z, n_k, work)
        for sweep in range(burn_in + n_sweeps):
            sweep_document(rng, words, phi, alpha, z, n_k, work)
            if sweep >= burn_in:
                for i in range(words.shape[0]):
                    counts[words[i], z[i]] += 1.0 / n_sweeps
    return counts


@register_jitable
def completion(
    rng: np.random.Generator,
    seen: Corpus,
    aside: Corpus,
    phi: Table,
    alpha: float,
    burn_in: int,
    n_sweeps: int,
) -> Table:
    """Probability of each token put aside, given phi and the tokens of its document that were seen.

    It is sum_k E[theta_dk | seen, phi] phi_kw, with E[theta_dk | z] = (n_dk + alpha) / (n_d + K alpha) and
    the mean over z by Gibbs sampling (document completion, Wallach et al. 2009, token by token).

    Parameters
    ----------
    rng : numpy.random.Generator
    seen, aside : Corpus
        Two parts of the same documents (`halves`).
    phi : ndarray of shape (V, K)
    alpha : float
    burn_in, n_sweeps : int
        As in `topic_counts`.

    Returns
    -------
    ndarray of shape (number of tokens of `aside`,)
    """
    n_topics = phi.shape[1]
    result = np.zeros(aside.words.shape[0])
    n_k, work, share = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
    for d in range(seen.starts.shape[0] - 1):
        words = seen.words[seen.starts[d] : seen.starts[d + 1]]
        z = np.empty(words.shape[0], np.int64)
        start_document(rng, words, phi, z, n_k, work)
        share[:] = 0.0
        for sweep in range(burn_in + n_sweeps):
            sweep_document(rng, words, phi, alpha, z, n_k, work)
            if sweep >= burn_in:
                for k in range(n_topics):
                    share[k] += (n_k[k] + alpha) / (words.shape[0] + n_topics * alpha) / n_sweeps
        for i in range(aside.starts[d], aside.starts[d + 1]):
            for k in range(n_topics):
                result[i] += share[k] * phi[aside.words[i], k]
    return result


# Topics ----------------------------------------------------------------------------------------------------


@register_jitable
def shape_estimates(
    rng: np.random.Generator,
    corpus: Corpus,
    population: Index,
    batch_size: int,
    phi: Table,
    alpha: float,
    beta: float,
    burn_in: int,
    n_sweeps: int,
) -> Table:
    """a_hat of a batch of documents, drawn without replacement.

    Parameters
    ----------
    rng : numpy.random.Generator
    corpus : Corpus
    population : ndarray of int, shape (L,)
        The numbers of the documents, in any order; reordered in place.
    batch_size : int
        n, from 1 to L.
    phi : ndarray of shape (V, K)
    alpha, beta : float
    burn_in, n_sweeps : int
        As in `topic_counts`.

    Returns
    -------
    ndarray of shape (V, K)
    """
    draw_without_replacement(rng, population, 0, batch_size)
    shapes = topic_counts(rng, corpus, population[:batch_size], phi, alpha, burn_in, n_sweeps)
    scale = population.shape[0] / batch_size
    for w in range(shapes.shape[0]):
        for k in range(shapes.shape[1]):
            shapes[w, k] = beta + scale * shapes[w, k]
    return shapes


@register_jitable
def centred_shapes(shapes: Table, phi: Table, beta: float) -> Table:
    """a_hat for which the distribution of phi is the posterior in the limit of small steps.

    It is beta + s_kw - phi_kw s_k + M phi_kw with M = sum_k s_k, the scaled number of tokens of the batch.
    M phi keeps it positive without changing the distribution of phi. Relaxation takes about K times as many
    steps.

    Parameters
    ----------
    shapes : ndarray of shape (V, K)
        beta + s_kw, of `shape_estimates`.
    phi : ndarray of shape (V, K)
    beta : float

    Returns
    -------
    ndarray of shape (V, K)
        Each column has the sum V beta + M.
    """
    of_topics = (shapes - beta).sum(axis=0)
    return shapes + (of_topics.sum() - of_topics) * phi


@register_jitable
def topics(log_theta: Table) -> Table:
    """phi, the shares of words in topics: exp(log_theta), each column scaled to sum to one."""
    phi = np.empty(log_theta.shape)
    for k in range(log_theta.shape[1]):
        largest = log_theta[:, k].max()
        phi[:, k] = np.exp(log_theta[:, k] - largest)
        phi[:, k] /= phi[:, k].sum()
    return phi


@register_jitable
def scir_update(rng: np.random.Generator, log_theta: Table, shapes: Table, step_size: float) -> None:
    """Move all K V processes over one step of the exact transition, in place.

    Parameters
    ----------
    rng : numpy.random.Generator
    log_theta : ndarray of shape (V, K)
        Logarithms, because most of theta is far below one when beta is small.
    shapes : ndarray of shape (V, K)
        a_hat.
    step_size : float
        h.

    Notes
    -----
    Words that are not in the batch move too, towards beta. With the same a several steps are one long step,
    but it cannot be put off until a batch has the word: phi needs the sums over all words at each step.
    """
    for w in range(log_theta.shape[0]):
        log_theta[w] = cir_transitions(rng, log_theta[w], shapes[w], step_size)


# Collapsed Gibbs sampling -----------------------------------------------------------------------------


# With the topics phi integrated out too, the topic of a token of word w in document d has, given the others,
#
#     P(z_i = k | other z) proportional to (n_dk + alpha) (n_kw + beta) / (n_k + V beta),
#
# the counts without token i (Griffiths & Steyvers 2004). The distribution of the topics given the words is
# invariant. A sweep reads all tokens, and many sweeps are needed to leave one of the modes.


class Allocation(NamedTuple):
    """The topics of all tokens, and what they add up to.

    Parameters
    ----------
    z : ndarray of int64, shape (number of tokens,)
    of_documents : ndarray of shape (L, K)
        n_dk, tokens of document d that have topic k.
    of_words : ndarray of shape (V, K)
        n_kw, tokens of word w that have topic k.
    of_topics : ndarray of shape (K,)
        n_k.
    """

    z: Index
    of_documents: Table
    of_words: Table
    of_topics: Table


def allocation_of(corpus: Corpus, z: Index, n_words: int, n_topics: int) -> Allocation:
    """Count the given topics of the tokens."""
    document = np.repeat(np.arange(len(corpus.starts) - 1), np.diff(corpus.starts))
    of_documents = np.zeros((len(corpus.starts) - 1, n_topics))
    of_words = np.zeros((n_words, n_topics))
    np.add.at(of_documents, (document, z), 1.0)
    np.add.at(of_words, (corpus.words, z), 1.0)
    return Allocation(np.array(z, dtype=np.int64), of_documents, of_words, of_words.sum(axis=0))


@register_jitable
def collapsed_sweep(
    rng: np.random.Generator, corpus: Corpus, allocation: Allocation, alpha: float, beta: float
) -> None:
    """Draw the topic of each token given those of the others, in place.

    Parameters
    ----------
    rng : numpy.random.Generator
    corpus : Corpus
    allocation : Allocation
    alpha, beta : float
        Of the Dirichlet priors of topics in documents, and of words in topics.
    """
    z, of_documents, of_words, of_topics = allocation
    n_words, n_topics = of_words.shape
    work = np.empty(n_topics)
    for d in range(corpus.starts.shape[0] - 1):
        for i in range(corpus.starts[d], corpus.starts[d + 1]):
            w = corpus.words[i]
            of_documents[d, z[i]] -= 1.0
            of_words[w, z[i]] -= 1.0
            of_topics[z[i]] -= 1.0
            total = 0.0
            for k in range(n_topics):
                share = (of_words[w, k] + beta) / (of_topics[k] + n_words * beta)
                total += (of_documents[d, k] + alpha) * share
                work[k] = total
            z[i] = first_above(work, rng.random() * total)
            of_documents[d, z[i]] += 1.0
            of_words[w, z[i]] += 1.0
            of_topics[z[i]] += 1.0


def drawn_topics(rng: np.random.Generator, allocation: Allocation, beta: float) -> Table:
    """Draw phi given the topics of all tokens: Dirichlet(beta + n_kw); shape (V, K)."""
    theta = rng.standard_gamma(allocation.of_words + beta)
    return theta / theta.sum(axis=0)
