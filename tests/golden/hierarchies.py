"""Models of groups, of any size: data of fixed seeds, and what each is a case of.

Variables are called by the same names in all of them, so that one list tells what is compared: `THETA`, the
variables that all groups share, and `EFFECTS`, those that have an element for each group.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_austerity as pa

THETA = ("beta", "mu", "tau", "tau_b", "tau_v", "v", "chol", "nu", "alpha", "sigma")
EFFECTS = ("u", "b", "w")
LEVELS = 6  # of a second factor


class Size(NamedTuple):
    """Numbers of rows and of groups."""

    rows: int
    groups: int


class Rows(NamedTuple):
    """What all models are made of: two covariates, the group of each row, and a part of the predictor."""

    rng: np.random.Generator
    x: np.ndarray
    group: np.ndarray
    eta: np.ndarray

    def wins(self, more: np.ndarray | float = 0.0) -> np.ndarray:
        """Zeros and ones, by a logistic model."""
        eta = self.eta + more
        return (self.rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta))).astype(int)


def rows_of(size: Size, seed: int) -> Rows:
    """Groups from the smallest to the largest, with normal effects."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size.rows, 2))
    shares = np.sort(rng.gamma(2.0, size=size.groups))
    group = rng.choice(size.groups, size.rows, p=shares / shares.sum())
    effects = rng.normal(0.3, 0.6, size.groups)
    return Rows(rng, x, group, x @ [0.5, -0.3] + effects[group])


def _shared() -> tuple[pt.TensorVariable, pt.TensorVariable, pt.TensorVariable]:
    """Slopes that all groups share, the mean of the effects, and their scale."""
    return pm.Normal("beta", 0, 2, shape=2), pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 1)


def plain(size: Size) -> pm.Model:
    """A logistic model whose outcomes can be replaced."""
    rows = rows_of(size, 21)
    with pm.Model() as model:
        beta, mu, tau = _shared()
        u = pm.Normal("u", mu, tau, shape=size.groups)
        outcome = pm.Data("outcome", rows.wins())
        pm.Bernoulli("y", logit_p=rows.x @ beta + u[rows.group], observed=outcome)
    return model


def slopes(size: Size) -> pm.Model:
    """Independent random slopes, not centred."""
    rows = rows_of(size, 22)
    slope = rows.rng.normal(0.0, 0.4, size.groups)[rows.group]
    with pm.Model() as model:
        beta, mu, tau = _shared()
        z, z_b = pm.Normal("z", shape=size.groups), pm.Normal("z_b", shape=size.groups)
        u = pm.Deterministic("u", mu + tau * z)
        b = pm.Deterministic("b", pm.HalfNormal("tau_b", 1) * z_b)
        eta = rows.x @ beta + u[rows.group] + b[rows.group] * rows.x[:, 0]
        pm.Bernoulli("y", logit_p=eta, observed=rows.wins(slope * rows.x[:, 0]))
    return model


def correlated(size: Size) -> pm.Model:
    """Random slopes that are correlated with the intercepts, with an LKJ prior."""
    rows = rows_of(size, 23)
    slope = rows.rng.normal(0.0, 0.4, size.groups)[rows.group]
    with pm.Model() as model:
        beta, mu = pm.Normal("beta", 0, 2, shape=2), pm.Normal("mu", 0, 2)
        scales = pm.HalfNormal.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=scales)
        u = pm.MvNormal("u", np.zeros(2), chol=chol, shape=(size.groups, 2))
        eta = mu + rows.x @ beta + u[rows.group, 0] + u[rows.group, 1] * rows.x[:, 0]
        pm.Bernoulli("y", logit_p=eta, observed=rows.wins(slope * rows.x[:, 0]))
    return model


def nested(size: Size) -> pm.Model:
    """Groups within a fourth as many outer groups, of which one has no rows."""
    rows = rows_of(size, 24)
    n_outer = size.groups // 4
    outer = rows.rng.integers(n_outer - 1, size=size.groups)
    effects = rows.rng.normal(0.0, 0.5, n_outer)[outer]
    with pm.Model() as model:
        beta, mu, tau = _shared()
        v = pm.Normal("v", mu, pm.HalfNormal("tau_v", 1), shape=n_outer)
        u = pm.Normal("u", v[outer], tau, shape=size.groups)
        wins = rows.wins(effects[rows.group])
        pm.Bernoulli("y", logit_p=rows.x @ beta + u[rows.group], observed=wins)
    return model


def crossed(size: Size) -> pm.Model:
    """Two crossed factors, the second with a sixth less groups."""
    rows = rows_of(size, 25)
    n_other = size.groups - size.groups // 6
    other = rows.rng.integers(n_other, size=size.rows)
    effects = rows.rng.normal(0.0, 0.5, n_other)[other]
    with pm.Model() as model:
        beta, mu, tau = _shared()
        u = pm.Normal("u", mu, tau, shape=size.groups)
        w = pm.Normal("w", 0.0, pm.HalfNormal("tau_v", 1), shape=n_other)
        pm.Bernoulli("y", logit_p=rows.x @ beta + u[rows.group] + w[other], observed=rows.wins(effects))
    return model


def second_factor(size: Size) -> pm.Model:
    """A second factor of few levels, with a scale of its own."""
    rows = rows_of(size, 26)
    level = rows.rng.integers(LEVELS, size=size.rows)
    effects = rows.rng.normal(0.0, 0.5, LEVELS)[level]
    with pm.Model() as model:
        beta, mu, tau = _shared()
        u = pm.Normal("u", mu, tau, shape=size.groups)
        v = pm.Normal("v", 0.0, pm.HalfNormal("tau_v", 1), shape=LEVELS)
        pm.Bernoulli("y", logit_p=rows.x @ beta + u[rows.group] + v[level], observed=rows.wins(effects))
    return model


def student(size: Size) -> pm.Model:
    """Effects of Student's t distribution, whose degrees of freedom are sampled."""
    rows = rows_of(size, 27)
    with pm.Model() as model:
        beta, mu, tau = _shared()
        nu = pm.Gamma("nu", 8, 2)
        u = pm.StudentT("u", nu, mu=mu, sigma=tau, shape=size.groups)
        pm.Bernoulli("y", logit_p=rows.x @ beta + u[rows.group], observed=rows.wins())
    return model


def dispersion(size: Size) -> pm.Model:
    """Counts of a negative binomial distribution with a free dispersion."""
    rows = rows_of(size, 28)
    means = np.exp(rows.eta) * rows.rng.gamma(3.0, 1 / 3.0, size.rows)
    with pm.Model() as model:
        beta, mu, tau = _shared()
        u = pm.Normal("u", mu, tau, shape=size.groups)
        alpha = pm.Exponential("alpha", 0.3)
        rate = pm.math.exp(rows.x @ beta + u[rows.group])
        pm.NegativeBinomial("y", mu=rate, alpha=alpha, observed=rows.rng.poisson(means))
    return model


def normal(size: Size) -> pm.Model:
    """Normal residuals with a free scale: no row is read."""
    rows = rows_of(size, 29)
    with pm.Model() as model:
        beta, mu, tau = _shared()
        u = pm.Normal("u", mu, tau, shape=size.groups)
        sigma = pm.HalfNormal("sigma", 2)
        outcome = rows.eta + rows.rng.normal(0.0, 1.2, size.rows)
        pm.Normal("y", rows.x @ beta + u[rows.group], sigma, observed=outcome)
    return model


@contextmanager
def stored(size: Size) -> Iterator[pm.Model]:
    """Counts that are on disk, in the order of their groups, as long as the context lasts."""
    rows = rows_of(size, 30)
    source = {
        "x": rows.x.astype("float32"),
        "group": rows.group.astype("int16"),
        "y": rows.rng.poisson(np.exp(rows.eta)).astype("int16"),
    }
    with TemporaryDirectory() as folder:
        store = pa.RowStore.write(source, f"{folder}/rows", sort_by="group")
        with pm.Model() as model:
            x, group, y = (pa.stored_data(f"stored_{name}", store[name]) for name in ("x", "group", "y"))
            beta, mu, tau = _shared()
            u = pm.Normal("u", mu, tau, shape=size.groups)
            pm.Poisson("y", pm.math.exp(x @ beta + u[group]), observed=y)
            yield model


MODELS: dict[str, Callable[[Size], pm.Model]] = {
    "plain": plain,
    "slopes": slopes,
    "correlated": correlated,
    "nested": nested,
    "crossed": crossed,
    "second_factor": second_factor,
    "student": student,
    "dispersion": dispersion,
    "normal": normal,
}
