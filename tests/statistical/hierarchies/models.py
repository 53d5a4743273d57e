"""Simulated data with groups, and one model in four spellings."""

from typing import NamedTuple

import numpy as np
import pymc as pm
from scipy.special import expit

from tests.statistical.hierarchies.reference import DEGREES, posterior_of

SPELLINGS = ("centred", "non_centred", "centred_at_mu", "non_centred_at_mu")
BETA = np.array([-0.8, 0.5, 0.3, -0.4, 0.2, -0.2, 0.1, 0.0])


class Grouped(NamedTuple):
    """Rows in random order, and what they were simulated from."""

    family: str
    X: np.ndarray
    g: np.ndarray
    exposure: np.ndarray
    y: np.ndarray
    n_groups: int
    beta: np.ndarray
    u: np.ndarray
    tau: float
    prior: str = "normal"  # of the effects

    @property
    def names(self):
        """Of the columns that `matrix_of` returns."""
        p = self.X.shape[1]
        return [*(f"beta{k}" for k in range(p)), "log_tau", *(f"u{k}" for k in range(self.n_groups))]


def design(N, G, p, rng):
    """An intercept, a binary column, normal ones; sizes of groups in proportion to gamma(2) weights."""
    X = rng.normal(size=(N, p))
    X[:, 0] = 1.0
    if p > 2:
        X[:, 2] = rng.random(N) < 0.3
    weights = rng.gamma(2.0, size=G)
    exposure = rng.gamma(2.0, 0.5, size=N)
    return X, rng.choice(G, size=N, p=weights / weights.sum()), exposure


def responses(family, eta, exposure, rng):
    if family == "logistic":
        return (rng.random(len(eta)) < expit(eta)).astype(np.int64)
    return rng.poisson(exposure * np.exp(eta))


def simulate(family, N, G, p=8, tau=0.5, seed=1, prior="normal"):
    rng = np.random.default_rng(seed)
    X, g, exposure = design(N, G, p, rng)
    effects = {
        "normal": rng.normal,
        "student": lambda size: rng.standard_t(DEGREES, size),
        "laplace": rng.laplace,
    }
    beta, u = BETA[:p], tau * effects[prior](size=G)
    y = responses(family, X @ beta + u[g], exposure, rng)
    return Grouped(family, X, g, exposure, y, G, beta, u, tau, prior)


def _predictor(data, spelling, beta_sd, tau_sd):
    """The linear predictor, made from `pm.Data`; the centre of the effects is the intercept or `mu`."""
    X, g = pm.Data("X", data.X), pm.Data("g", data.g)
    tau = pm.HalfNormal("tau", tau_sd)
    at_mu = spelling.endswith("at_mu")
    mu = pm.Normal("mu", 0, beta_sd) if at_mu else 0.0
    n_beta = data.X.shape[1] - at_mu
    shared = X[:, at_mu:] @ pm.Normal("beta", 0, beta_sd, shape=n_beta) if n_beta else 0.0
    if spelling.startswith("centred"):
        return shared + _effects(data, "u", mu, tau)[g]
    z = _effects(data, "z", 0.0, 1.0)
    return shared + (mu + tau * z if at_mu else tau * z)[g]


def _effects(data, name, location, scale):
    if data.prior == "student":
        return pm.StudentT(name, DEGREES, mu=location, sigma=scale, shape=data.n_groups)
    kind = pm.Laplace if data.prior == "laplace" else pm.Normal
    return kind(name, location, scale, shape=data.n_groups)


def model_of(data, spelling="centred", *, beta_sd=2.0, tau_sd=1.0):
    """A model whose effects are written in one of four ways."""
    with pm.Model() as model:
        eta = _predictor(data, spelling, beta_sd, tau_sd)
        y = pm.Data("y_seen", data.y)
        if data.family == "logistic":
            pm.Bernoulli("y", logit_p=eta, observed=y)
        else:
            exposure = pm.Data("exposure", data.exposure)
            pm.Poisson("y", exposure * pm.math.exp(eta), observed=y)
    return model


def data_of(data):
    """What `pm.set_data` takes."""
    out = {"X": data.X, "g": data.g, "y_seen": data.y}
    return {**out, "exposure": data.exposure} if data.family == "poisson" else out


def matrix_of(posterior, spelling):
    """Draws (chains, draws, p + 1 + G) of beta, log tau and effects about 0, the same for every spelling."""
    values = {name: np.asarray(posterior[name]) for name in posterior.data_vars}
    tau = values["tau"][..., None]
    at_mu = spelling.endswith("at_mu")
    u = values["u"] if spelling.startswith("centred") else tau * values["z"]
    parts = [values["beta"]] if "beta" in values else []
    if at_mu:
        parts.insert(0, values["mu"][..., None])
        u = u - values["mu"][..., None] if spelling.startswith("centred") else u
    return np.concatenate([*parts, np.log(tau), u], axis=-1)


def reference_of(data, *, beta_sd=2.0, tau_sd=1.0):
    """The same posterior for the reference."""
    exposure = data.exposure if data.family == "poisson" else None
    return posterior_of(
        data.family, data.X, data.y, data.g, data.n_groups, exposure, beta_sd, tau_sd, data.prior
    )
