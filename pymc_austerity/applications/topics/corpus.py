"""Documents as sequences of tokens, for models of topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.target import Index


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


def corpus_of(indptr: Any, indices: Any, counts: Any, n_words: int) -> Corpus:
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
    result: Index = array.astype(np.int64)
    if np.any(result != array):
        raise ValueError(f"{name} must hold whole numbers, got {array[result != array].ravel()[0]}.")
    return result


def from_documents(documents: Iterable[Index]) -> Corpus:
    """Put documents, each an array of words, one after the other."""
    documents = list(documents)
    starts = np.cumsum([0, *(len(words) for words in documents)])
    return Corpus(starts, np.concatenate([*documents, np.empty(0, np.int64)]).astype(np.int64))


def subcorpus(corpus: Corpus, documents: Any) -> Corpus:
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
