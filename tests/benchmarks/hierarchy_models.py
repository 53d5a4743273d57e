"""Simulated hierarchies for `tests.benchmarks.hierarchies`: data, and models with them."""

from typing import NamedTuple

import numpy as np
import pymc as pm

EFFECTS = ("intercepts", "slopes", "nested", "crossed")
LIKELIHOODS = ("logistic", "poisson", "normal")
_COLUMNS = 8


class Hierarchy(NamedTuple):
    """What to simulate; `second` counts outer groups, or levels of a crossed factor."""

    likelihood: str
    effects: str
    rows: int
    groups: int
    second: int


def simulated(of: Hierarchy) -> dict[str, np.ndarray]:
    """Rows with an intercept, a binary and six normal covariates; groups of very different sizes.

    With slopes each group has one of the first normal covariate, correlated with its intercept.
    """
    rng = np.random.default_rng(3)
    sizes = rng.gamma(2.0, size=of.groups)
    group = rng.choice(of.groups, of.rows, p=sizes / sizes.sum())
    x = rng.normal(size=(of.rows, _COLUMNS))
    x[:, 0], x[:, 1] = 1.0, rng.random(of.rows) < 0.3
    beta = rng.normal(0.0, 0.3, _COLUMNS)
    beta[0] = -0.7
    effects = rng.normal(0.0, 0.5, of.groups)
    eta = x @ beta + effects[group]
    if of.effects == "slopes":
        eta += (0.3 * effects + rng.normal(0.0, 0.3, of.groups))[group] * x[:, 2]
    second = np.zeros(0, dtype=np.int64)
    if of.effects in ("nested", "crossed"):
        nested = of.effects == "nested"
        second = rng.integers(0, of.second, of.groups if nested else of.rows)
        eta += rng.normal(0.0, 0.4, of.second)[second[group] if nested else second]
    exposure = rng.gamma(2.0, 0.5, of.rows)
    y = rng.poisson(exposure * np.exp(eta))
    if of.likelihood == "logistic":
        y = (rng.random(of.rows) < 1.0 / (1.0 + np.exp(-eta))).astype(np.int64)
    elif of.likelihood == "normal":
        y = rng.normal(eta, 1.0)
    return {"x": x, "group": group, "second": second, "exposure": exposure, "y": y}


def model_of(of: Hierarchy, data: dict[str, np.ndarray]) -> pm.Model:
    """The model, centred; slopes have an LKJ prior with the intercepts."""
    group, second = data["group"], data["second"]
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=_COLUMNS)
        eta = data["x"] @ beta
        if of.effects == "slopes":
            of_scales = pm.HalfNormal.dist(1, shape=2)
            chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=of_scales)
            u = pm.MvNormal("u", np.zeros(2), chol=chol, shape=(of.groups, 2))
            eta = eta + u[group, 0] + u[group, 1] * data["x"][:, 2]
        else:
            location = 0.0
            if len(second):
                v = pm.Normal("v", 0, pm.HalfNormal("tau_v", 1), shape=of.second)
                if of.effects == "nested":
                    location = v[second]
                else:
                    eta = eta + v[second]
            u = pm.Normal("u", location, pm.HalfNormal("tau", 1), shape=of.groups)
            eta = eta + u[group]
        if of.likelihood == "logistic":
            pm.Bernoulli("y", logit_p=eta, observed=data["y"])
        elif of.likelihood == "poisson":
            pm.Poisson("y", data["exposure"] * pm.math.exp(eta), observed=data["y"])
        else:
            pm.Normal("y", eta, pm.HalfNormal("sigma", 1), observed=data["y"])
    return model
