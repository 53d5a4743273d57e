"""Binary fields with a row for each triple of sites, as in appendix F of Korattikara et al. (2014)."""

import itertools

import numpy as np
import pymc as pm


def triples(n_sites):
    return np.array(list(itertools.combinations(range(n_sites), 3))).T


def table_of(n_sites, sd, seed):
    """log f of the eight values of each triple."""
    return np.random.default_rng(seed).normal(0.0, sd, (triples(n_sites).shape[1], 8))


def field(n_sites, sd, seed):
    i, j, k = triples(n_sites)
    with pm.Model() as model:
        X = pm.Bernoulli("X", 0.5, shape=n_sites)
        cell = 4 * X[i] + 2 * X[j] + X[k]
        pm.Potential("psi", pm.math.constant(table_of(n_sites, sd, seed))[np.arange(len(i)), cell])
    return model


def all_states(n_sites):
    return np.array(list(itertools.product((0, 1), repeat=n_sites)))


def log_density(states, table):
    i, j, k = triples(states.shape[1])
    return table[np.arange(len(i)), 4 * states[:, i] + 2 * states[:, j] + states[:, k]].sum(axis=1)
