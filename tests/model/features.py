"""Models whose coefficients are short functions of their variables."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import expit

N, GROUPS = 1200, 20


@cache
def data(n=N):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n, 4))
    group = rng.integers(GROUPS, size=n)
    effect = rng.normal(size=GROUPS)
    y = (rng.random(n) < expit(x @ np.array([0.5, 0.2, 0.2, 0.1]) + 0.5 * effect[group])).astype(float)
    return x, group, y


def bernoulli(eta, n=N):
    pm.Bernoulli("y", logit_p=eta, observed=data(n)[2])


def simplex(n=N):
    bernoulli(pm.math.dot(data(n)[0], pm.Dirichlet("w", np.full(4, 2.0))), n)


def simplex_with_scale(n=N):
    a, s = pm.Normal("a"), pm.HalfNormal("s")
    bernoulli(a + s * pm.math.dot(data(n)[0], pm.Dirichlet("w", np.full(4, 2.0))), n)


def non_centred(n=N):
    mu, tau, z = pm.Normal("mu"), pm.HalfNormal("tau"), pm.Normal("z", shape=GROUPS)
    bernoulli((mu + tau * z)[data(n)[1]], n)


def non_centred_in_rows(n=N):
    mu, tau, z = pm.Normal("mu"), pm.HalfNormal("tau"), pm.Normal("z", shape=GROUPS)
    bernoulli(mu + tau * z[data(n)[1]], n)


def scaled(n=N):
    bernoulli(pm.math.dot(data(n)[0], pm.Normal("b", shape=4) * pt.exp(pm.Normal("s", 0, 0.3))), n)


def scaled_in_rows(n=N):
    x, (b, s) = data(n)[0], (pm.Normal("b", shape=2), pm.Normal("s", 0, 0.3))
    bernoulli(pt.exp(s) * (b[0] * x[:, 0] + (b[1] + x[:, 1]) / 2), n)


def positive(n=N):
    bernoulli(pm.math.dot(data(n)[0], pm.HalfNormal("b", shape=4)), n)


def more_features_than_variables(n=N):
    x, s = data(n)[0], pm.Normal("s", 0, 0.3)
    bernoulli(s * x[:, 0] + pt.exp(s) * x[:, 1] + pm.Normal("b") * x[:, 2], n)


def two_terms(n=N):
    x, w = data(n)[0], pm.Dirichlet("w", np.full(4, 2.0))
    pm.Bernoulli("y", logit_p=pm.math.dot(x, w), observed=data(n)[2])
    pm.Poisson("k", pt.exp(w[0] + x[:, 1]), observed=np.ones(n))


def pair(n=N):
    x, w = data(n)[0], pm.Dirichlet("w", np.full(4, 2.0))
    pm.Normal("y", pm.math.dot(x, w), pm.HalfNormal("s"), observed=x @ np.full(4, 0.25) + data(n)[2])


# Definitions, and how many features they have.
FEATURES = {
    simplex: 4,
    simplex_with_scale: 5,
    non_centred: 20,
    non_centred_in_rows: 21,
    scaled: 4,
    scaled_in_rows: 3,
    positive: 4,
    more_features_than_variables: 3,
    two_terms: 5,
    pair: 5,
}


def model_of(define, n=N):
    with pm.Model() as model:
        define(n)
    return model
