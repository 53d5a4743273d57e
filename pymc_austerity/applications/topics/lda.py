"""Latent Dirichlet allocation by stochastic gradients: section 5.1 of Baker et al. (2018).

Topics phi_k ~ Dirichlet(beta) over V words, shares of topics theta_d ~ Dirichlet(alpha) in document d; a
token of document d has topic k with probability theta_dk, and then is word w with probability phi_kw. With
the theta_d integrated out, documents are independent given phi, and the topics z of the tokens of one have

    P(z_i = k | other z of the document) proportional to (n_dk + alpha) phi_kw,

where n_dk counts its tokens with topic k, without token i. With a batch of n of the L documents

    s_kw = (L / n) sum over the batch of E[n_dkw | phi],    a_hat_kw = beta + s_kw

(`shape_estimates`), a_hat is without bias for beta + E[n_kw | phi], which drives a Cox-Ingersoll-Ross process
(`cir`) for each k and w; phi_kw is its share in the sum over all words. SCIR draws from the transition of the
process with a_hat held fixed; SGRLD (Patterson & Teh 2013) discretises it (`sgrld`).

Tables are V x K, because a token needs one word for all topics.

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

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.applications.topics.corpus import Corpus
from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.cox_ingersoll_ross import cir_transitions
from pymc_austerity.kernels.langevin import sgrld_transition
from pymc_austerity.kernels.subsample import draw_without_replacement
from pymc_austerity.target import Index

Table = NDArray[np.float64]


# One document ----------------------------------------------------------------------------------------------


@jitable
def first_above(cumulative: NDArray[np.float64], value: float) -> int:
    """The first place where `cumulative` is above `value`, or the last place."""
    k = 0
    while k < cumulative.shape[0] - 1 and cumulative[k] <= value:
        k += 1
    return k


@jitable
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


@jitable
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


@jitable
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


@jitable
def completion(
    rng: np.random.Generator,
    seen: Corpus,
    aside: Corpus,
    phi: Table,
    alpha: float,
    burn_in: int,
    n_sweeps: int,
) -> NDArray[np.float64]:
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


@jitable
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


@jitable
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


@jitable
def topics(log_theta: Table) -> Table:
    """phi, the shares of words in topics: exp(log_theta), each column scaled to sum to one."""
    phi = np.empty(log_theta.shape)
    for k in range(log_theta.shape[1]):
        largest = log_theta[:, k].max()
        phi[:, k] = np.exp(log_theta[:, k] - largest)
        phi[:, k] /= phi[:, k].sum()
    return phi


@jitable
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


@jitable
def sgrld_update(
    rng: np.random.Generator, theta: Table, shapes: Table, beta: float, centred: bool, step_size: float
) -> None:
    """Move all K V processes over one step of the discretisation, in place.

    Parameters
    ----------
    rng : numpy.random.Generator
    theta : ndarray of shape (V, K)
    shapes : ndarray of shape (V, K)
        a_hat.
    beta : float
    centred : bool
        The drift is beta - theta + (L / n) sum of E[n_dkw - phi_kw n_dk], as in Patterson & Teh, whose
        limit for small steps is the posterior; the sum of theta over words is drawn to V beta. Otherwise
        it is a_hat - theta, that of SCIR; the sum is drawn to V beta and the tokens of the topic.
    step_size : float
        h.
    """
    total, pull = theta.sum(axis=0), np.zeros(theta.shape[1])
    if centred:
        pull = (shapes - beta).sum(axis=0)
    for w in range(theta.shape[0]):
        for k in range(theta.shape[1]):
            drift = shapes[w, k] - theta[w, k] - pull[k] * theta[w, k] / total[k]
            theta[w, k] = sgrld_transition(rng, theta[w, k], drift, step_size)
