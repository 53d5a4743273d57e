"""Ranks of simulation-based calibration: are they uniform?

Parameters are drawn from the prior, data given them, and L draws from the posterior. If the sampler is right
and the draws are independent, the rank of the true value among them is uniform on 0..L: for every quantity
that is computed from parameters and data (Talts et al. 2018).
"""

from functools import cache

import numpy as np
from scipy import stats

SIMULATIONS = 20_000


def _tails(counts, n, n_draws):
    """Smallest two-sided tail of an empirical distribution function, for rows of counts of ranks."""
    table = _tail_table(n, n_draws)
    below = np.cumsum(counts, axis=-1)[..., :-1]
    return table[np.arange(n_draws), below].min(axis=-1)


@cache
def _tail_table(n, n_draws):
    """(n_draws, n + 1): how improbable it is that so many of n ranks are 0..k."""
    share = np.arange(1, n_draws + 1)[:, None] / (n_draws + 1)
    count = np.arange(n + 1)
    return 2.0 * np.minimum(stats.binom.cdf(count, n, share), stats.binom.sf(count - 1, n, share))


@cache
def _under_uniformity(n, n_draws):
    rng = np.random.default_rng(0)
    law = np.full(n_draws + 1, 1.0 / (n_draws + 1))
    return np.sort(_tails(rng.multinomial(n, law, size=SIMULATIONS), n, n_draws))


def p_of_ranks(ranks, n_draws):
    """p-value of ranks being uniform on 0..n_draws: a band around their distribution function.

    The band is as sharp in the tails as in the middle (Sailynoja, Burkner & Vehtari 2022).
    """
    counts = np.bincount(ranks, minlength=n_draws + 1)
    null = _under_uniformity(len(ranks), n_draws)
    smaller = np.searchsorted(null, _tails(counts, len(ranks), n_draws) * (1 + 1e-9), side="right")
    return (1 + smaller) / (1 + SIMULATIONS)


def rank_of(truth, draws):
    """How many draws are below the true values; draws (L, quantities)."""
    return np.sum(draws < truth, axis=0)
