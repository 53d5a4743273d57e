"""Collapsed Gibbs sampling of latent Dirichlet allocation (Griffiths & Steyvers 2004).

With topics phi and the shares of topics in documents integrated out, the topic of a token of word w in
document d has, given those of all other tokens,

    P(z_i = k | other z) proportional to (n_dk + alpha) (n_kw + beta) / (n_k + V beta),

the counts without token i. Every sweep reads all tokens: the exact reference of `lda`.

Guarantee
---------
The distribution of the topics given the words is invariant.

When it fails
-------------
Where there are many tokens, a sweep takes long, and many are needed to leave one of the modes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.applications.topics.corpus import Corpus
from pymc_austerity.applications.topics.lda import Table, first_above
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index


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
    of_topics: NDArray[np.float64]


def allocation_of(corpus: Corpus, z: Index, n_words: int, n_topics: int) -> Allocation:
    """Count the given topics of the tokens."""
    document = np.repeat(np.arange(len(corpus.starts) - 1), np.diff(corpus.starts))
    of_documents = np.zeros((len(corpus.starts) - 1, n_topics))
    of_words = np.zeros((n_words, n_topics))
    np.add.at(of_documents, (document, z), 1.0)
    np.add.at(of_words, (corpus.words, z), 1.0)
    return Allocation(np.array(z, dtype=np.int64), of_documents, of_words, of_words.sum(axis=0))


@jitable
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
    phi: Table = theta / theta.sum(axis=0)
    return phi
