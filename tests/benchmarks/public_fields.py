"""Hierarchies as people publish them, at any number of rows: for `tests.benchmarks.fields`."""

import numpy as np
import pymc as pm
from scipy.special import expit

_SEED = 20


def tennis(n):
    """Who wins, by the skills of two players: 7,556 for 195,000 matches, of which the best play most."""
    rng, players = np.random.default_rng(_SEED), max(n * 7556 // 195_000, 20)
    activity = (1.0 + np.arange(players)) ** -0.8
    one, two = rng.choice(players, size=(2, 2 * n), p=activity / activity.sum())
    one, two = one[one != two][:n], two[one != two][:n]
    skill = rng.normal(size=players)
    first = rng.random(n) < expit(skill[one] - skill[two])
    winner, loser = np.where(first, one, two), np.where(first, two, one)
    with pm.Model() as model:
        skill = pm.HalfNormal("spread") * pm.Normal("z", shape=players)
        pm.Bernoulli("won", logit_p=skill[winner] - skill[loser], observed=np.ones(n, int))
    return model


def _slopes(rng, x, groups, sds):
    """What groups with a level and slopes add to rows."""
    own = rng.normal(size=(int(groups.max()) + 1, len(sds))) * sds
    return (own[groups] * x).sum(axis=1)


def crossed_slopes(n, family="normal"):
    """Subjects and items, each with a level and two correlated slopes, not centred."""
    rng = np.random.default_rng(_SEED)
    x = np.c_[np.ones(n), rng.normal(size=(n, 2))]
    which = {"subject": rng.integers(n // 50, size=n), "item": rng.integers(n // 250, size=n)}
    eta = x @ [0.3, 0.5, -0.5] + sum(_slopes(rng, x, g, [0.5, 0.3, 0.2]) for g in which.values())
    with pm.Model() as model:
        mean = x @ pm.Normal("beta", shape=3)
        for name, g in which.items():
            sds = pm.Exponential.dist(1.0, shape=3)
            chol, _, _ = pm.LKJCholeskyCov(f"chol_{name}", n=3, eta=2.0, sd_dist=sds)
            u = (chol @ pm.Normal(f"z_{name}", shape=(3, int(g.max()) + 1))).T
            mean += (u[g] * x).sum(-1)
        if family == "normal":
            pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=eta + rng.normal(size=n))
        else:
            pm.Bernoulli("y", logit_p=mean, observed=rng.random(n) < expit(eta))
    return model


def stores_and_products(n):
    """Sales of products in stores, negative binomial with a fixed dispersion."""
    rng = np.random.default_rng(_SEED)
    store, product = rng.integers(n // 200, size=n), rng.integers(n // 100, size=n)
    eta = 1.0 + 0.4 * rng.normal(size=n // 200)[store] + 0.6 * rng.normal(size=n // 100)[product]
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("sd_store"), shape=n // 200)
        v = pm.Normal("v", 0.0, pm.HalfNormal("sd_product"), shape=n // 100)
        mu = pm.math.exp(pm.Normal("a") + u[store] + v[product])
        sales = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(eta)))
        pm.NegativeBinomial("sales", mu=mu, alpha=2.0, observed=sales)
    return model


def survey(n):
    """Answers by seven kinds of groups, as multilevel regression and poststratification has them."""
    rng = np.random.default_rng(_SEED)
    sizes = {"state": 51, "region": 5, "age": 6, "education": 5, "race": 4}
    sizes |= {"age_education": 30, "race_state": 204}
    which = {name: rng.integers(size, size=n) for name, size in sizes.items()}
    which["age_education"] = which["age"] * 5 + which["education"]
    which["race_state"] = which["race"] * 51 + which["state"]
    eta = -0.3 + sum(0.3 * rng.normal(size=sizes[name])[g] for name, g in which.items())
    with pm.Model() as model:
        mean = pm.Normal("level") + pm.Normal("female") * (women := rng.integers(2, size=n))
        for name, g in which.items():
            mean += (pm.HalfNormal(f"sd_{name}") * pm.Normal(f"z_{name}", shape=sizes[name]))[g]
        pm.Bernoulli("y", logit_p=mean, observed=rng.random(n) < expit(eta + 0.2 * women))
    return model


def radon(n):
    """Radon in houses by counties: levels and slopes of the floor, correlated, by uranium."""
    rng, counties = np.random.default_rng(_SEED), max(n // 40, 10)
    county, floor = rng.integers(counties, size=n), rng.integers(2, size=n).astype(float)
    uranium, x = rng.normal(size=counties), np.c_[np.ones(n), floor]
    mean = 1.0 + 0.7 * uranium[county] - 0.6 * floor + _slopes(rng, x, county, [0.3, 0.2])
    y = mean + 0.7 * rng.normal(size=n)
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0, shape=2))
        v = pm.Normal("z", shape=(counties, 2)) @ chol.T
        level = pm.Normal("a") + pm.Normal("of_uranium") * uranium + v[:, 0]
        mean = level[county] + (pm.Normal("of_floor") + v[:, 1])[county] * floor
        pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=y)
    return model


def many_slopes(n):
    """A level and 20 slopes of groups, independent, not centred."""
    rng, groups, k = np.random.default_rng(_SEED), max(n // 1000, 10), 21
    x, g = np.c_[np.ones(n), rng.normal(size=(n, k - 1))], rng.integers(groups, size=n)
    sds = np.linspace(0.1, 0.4, k)
    eta = _slopes(rng, x, g, sds)
    with pm.Model() as model:
        u = pm.Normal("z", shape=(groups, k)) * pm.HalfNormal("sds", shape=k)
        mean = x @ pm.Normal("beta", shape=k) + (u[g] * x).sum(axis=1)
        pm.Bernoulli("y", logit_p=mean, observed=rng.random(n) < expit(eta))
    return model


ALL = (tennis, crossed_slopes, stores_and_products, survey, radon, many_slopes)
