"""The reference sampler against quadrature, where there are two groups."""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit

from tests.statistical.errors import LIMIT, z_of_mean, z_of_sd
from tests.statistical.hierarchies.reference import posterior_of, sample

G, SEED = 2, 3
BETA_SD, TAU_SD = 1.5, 0.8


def problem(family):
    """Twelve rows, two coefficients, two groups: few enough that tau is skewed and effects are not normal."""
    rng = np.random.default_rng(SEED)
    X, g = np.c_[np.ones(12), rng.normal(size=12)], np.r_[np.zeros(4, int), np.ones(8, int)]
    rng.shuffle(g)
    exposure, eta = rng.gamma(2.0, 0.5, size=12), X @ [-0.3, 0.8] + np.r_[0.7, -0.7][g]
    y = rng.random(12) < expit(eta) if family == "logistic" else rng.poisson(exposure * np.exp(eta))
    return X, g, exposure, y.astype(float)


def log_rows(family, y, exposure, eta):
    return y * eta - np.logaddexp(0, eta) if family == "logistic" else y * eta - exposure * np.exp(eta)


def exact_moments(family, X, g, exposure, y):
    """Means and sds of beta, log tau and both effects, on a grid; effects are independent given theta."""
    beta = np.linspace(-6, 6, 70)
    log_tau = np.linspace(-7, 1.6, 70)
    node, weight = hermegauss(40)
    b0, b1, lt = np.meshgrid(beta, beta, log_tau, indexing="ij")
    u = np.exp(lt)[..., None] * node  # from the prior
    log_p = -0.5 * (b0**2 + b1**2) / BETA_SD**2 - 0.5 * (np.exp(lt) / TAU_SD) ** 2 + lt
    moments = {}
    for h in range(G):
        log_fit = np.zeros_like(u)
        for i in np.flatnonzero(g == h):
            log_fit += log_rows(family, y[i], exposure[i], (b0 + X[i, 1] * b1)[..., None] + u)
        top = log_fit.max(axis=-1, keepdims=True)
        mass = np.exp(log_fit - top) * weight
        total = mass.sum(axis=-1)
        moments[h] = [(mass * u**k).sum(axis=-1) / total for k in (1, 2)]
        log_p += np.log(total) + top[..., 0]
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    pairs = [(x, x**2) for x in (b0, b1, lt)] + [tuple(moments[h]) for h in range(G)]
    means = np.array([(p * first).sum() for first, _ in pairs])
    return means, np.sqrt([(p * second).sum() - m**2 for (_, second), m in zip(pairs, means, strict=True)])


def worst(draws, means, sds):
    z = [z_of_mean(x, m) for x, m in zip(draws.T, means, strict=True)]
    z += [z_of_sd(x, s, m) for x, s, m in zip(draws.T, sds, means, strict=True)]
    return np.abs(z).max()


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_reference_finds_what_quadrature_finds(family):
    X, g, exposure, y = problem(family)
    means, sds = exact_moments(family, X, g, exposure, y)
    model = posterior_of(family, X, y, g, G, exposure, BETA_SD, TAU_SD)
    assert worst(sample(model, 20_000, 4, thin=5), means, sds) < LIMIT
    # A planted fault: the Jacobian of log tau counts twice.
    assert worst(sample(model, 20_000, 4, thin=5, jacobian=2.0), means, sds) > 2 * LIMIT
