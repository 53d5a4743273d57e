"""Small models with data of fixed seeds. Chains start near the mode: they are too short to find it."""

import numpy as np
import pymc as pm

N = 1200


def _data(seed):
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=N)


def logistic():
    rng, _ = _data(1)
    rows, truth = rng.normal(size=(N, 3)), np.array([0.5, -1.0, 0.3])
    wins = rng.random(N) < 1 / (1 + np.exp(-rows @ truth))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=3, initval=truth)
        pm.Bernoulli("wins", logit_p=rows @ beta, observed=wins.astype(int))
    return model


def poisson():
    rng, x = _data(2)
    counts = rng.poisson(np.exp(1 + 0.3 * x))
    with pm.Model() as model:
        level, slope = pm.Normal("level", initval=1.0), pm.Normal("slope", initval=0.3)
        pm.Poisson("counts", pm.math.exp(level + slope * x), observed=counts)
    return model


def line():
    """A free scale, and data that can be replaced."""
    rng, x = _data(3)
    with pm.Model() as model:
        given, outcome = pm.Data("given", x), pm.Data("outcome", 1 + 2 * x + rng.normal(size=N))
        a, b = pm.Normal("a", 0, 10, initval=1.0), pm.Normal("b", 0, 10, initval=2.0)
        sigma = pm.HalfNormal("sigma", 10, initval=1.0)
        pm.Normal("y", a + b * given, sigma, observed=outcome, shape=given.shape[0])
    return model


def unmixing(uniform_stiefel):
    """Two white sources, of which the variable is the unmixing matrix."""
    rng, _ = _data(10)
    rows = rng.laplace(size=(N, 2)) / np.sqrt(2)
    with pm.Model() as model:
        W = uniform_stiefel("W", 2)
        pm.Potential("sources", pm.logp(pm.Logistic.dist(0, 1), rows @ W.T).sum(1))
    return model


def skewed():
    """Terms of a family without known bounds."""
    rng, x = _data(9)
    with pm.Model() as model:
        a, b = pm.Normal("a", initval=1.0), pm.Normal("b", initval=0.5)
        pm.SkewNormal("y", 1.0, mu=a + b * x, sigma=1.0, observed=1 + 0.5 * x + rng.normal(size=N))
    return model


def hierarchy():
    """Group levels, whose scale is in no local term."""
    rng, _ = _data(4)
    group, truth = np.arange(N) % 3, np.array([-0.5, 0.1, 0.6])
    counts = rng.poisson(np.exp(truth[group]))
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1, initval=0.5)
        theta = pm.Normal("theta", 0, tau, shape=3, initval=truth)
        pm.Poisson("counts", pm.math.exp(theta[group]), observed=counts)
    return model


def field():
    """Binary sites, of which each row contains two."""
    rng, x = _data(10)
    left, right = rng.integers(20, size=(2, N))
    with pm.Model() as model:
        site = pm.Bernoulli("site", 0.5, shape=20)
        pm.Potential("alike", 0.1 * pm.math.constant(x) * pm.math.eq(site[left], site[right]))
    return model


def selection():
    """A linear regression of which some coefficients may be zero."""
    rng, x = _data(7)
    X = np.column_stack([x, x + rng.normal(size=N), rng.normal(size=N)])
    with pm.Model() as model:
        gamma = pm.Bernoulli("gamma", 0.5, shape=3)
        beta = pm.Laplace("beta", 0, 1, shape=3)
        pm.Normal("y", X @ (gamma * beta), 1, observed=0.1 * x + rng.normal(size=N))
    return model


def states():
    """A chain of latent states."""
    rng, _ = _data(11)
    with pm.Model() as model:
        h = pm.AR("h", [0.9], sigma=0.5, init_dist=pm.Normal.dist(), shape=60, ar_order=1)
        pm.Poisson("counts", pm.math.exp(h), observed=rng.poisson(1.0, 60))
    return model


def two_terms():
    """Counts and measurements, with a common slope."""
    rng, x = _data(5)
    counts, y = rng.poisson(np.exp(1 + 0.3 * x)), 0.3 * x + rng.normal(size=N)
    with pm.Model() as model:
        level, slope = pm.Normal("level", initval=1.0), pm.Normal("slope", initval=0.3)
        pm.Poisson("counts", pm.math.exp(level + slope * x), observed=counts)
        pm.Normal("y", slope * x, 1.0, observed=y)
    return model


def weights():
    """Coefficients on a simplex: bounds are in features."""
    rng, _ = _data(6)
    rows, truth = rng.normal(size=(N, 3)), np.array([0.2, 0.3, 0.5])
    wins = rng.random(N) < 1 / (1 + np.exp(-3 * rows @ truth))
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.full(3, 2.0), initval=truth)
        pm.Bernoulli("wins", logit_p=3 * rows @ w, observed=wins.astype(int))
    return model


def shares():
    """One conjugate variable of each kind."""
    rng, _ = _data(7)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        rate = pm.Gamma("rate", 2, 1)
        chance = pm.Beta("chance", 1, 1)
        pm.Categorical("kind", w, observed=rng.choice(3, p=[0.2, 0.3, 0.5], size=N))
        pm.Poisson("counts", rate, observed=rng.poisson(2.5, size=N))
        pm.Bernoulli("wins", chance, observed=rng.integers(2, size=N))
    return model


def mixture():
    rng, _ = _data(8)
    centres, z_true = np.array([-2.0, 0.0, 2.0]), rng.integers(3, size=N)
    y = rng.normal(centres[z_true], 1)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        z = pm.Categorical("z", p=w, shape=N, initval=z_true)
        mu = pm.Normal("mu", centres, 1, shape=3, initval=centres)
        pm.Normal("y", mu[z], 1, observed=y)
    return model
