"""Simulation-based calibration of TunaMH where groups have two effects: slopes, and crossed factors."""

from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import expit

from pymc_austerity import TunaMH
from pymc_austerity.mode.fields import order
from tests.statistical.hierarchies.calibration import LEVEL
from tests.statistical.hierarchies.models import design
from tests.statistical.hierarchies.ranks import p_of_ranks, rank_of

N, G, H, P = 500, 30, 30, 3
BETA_SD, TAU_SD, ETA = 1.0, 0.5, 2.0
DRAWS, SWEEPS, SEED = 31, 20, 5
WHAT = {"slopes": "field of 63 effects", "crossed": "field of 63 effects"}


class Truth(NamedTuple):
    """What data are simulated from: effects u (G,), and v (G,) of slopes or (H,) of the other factor."""

    beta: np.ndarray
    taus: np.ndarray
    rho: float
    u: np.ndarray
    v: np.ndarray


class Rows(NamedTuple):
    """Covariates, groups and levels of the other factor, which stay, and responses."""

    X: np.ndarray
    g: np.ndarray
    h: np.ndarray
    y: np.ndarray

    def log_likelihood(self, kind, beta, u, v):
        """Of draws, a row of each array."""
        second = v[:, self.g] * self.X[:, 1] if kind == "slopes" else v[:, self.h]
        eta = beta @ self.X.T + u[:, self.g] + second
        return np.sum(self.y * eta - np.logaddexp(0.0, eta), axis=1)


def replicates(kind, count):
    """Truths from the prior, and rows given them."""
    rng = np.random.default_rng(SEED)
    X, g, _ = design(N, G, P, rng)
    h = rng.integers(H, size=N)
    for _ in range(count):
        beta, taus = BETA_SD * rng.normal(size=P), TAU_SD * abs(rng.normal(size=2))
        rho = 2.0 * rng.beta(ETA, ETA) - 1.0 if kind == "slopes" else 0.0  # LKJ in two dimensions
        first, second = rng.normal(size=G), rng.normal(size=G if kind == "slopes" else H)
        if kind == "slopes":
            second = rho * first + np.sqrt(1.0 - rho**2) * second
        u, v = taus[0] * first, taus[1] * second
        eta = X @ beta + u[g] + (v[g] * X[:, 1] if kind == "slopes" else v[h])
        y = (rng.random(N) < expit(eta)).astype(np.int64)
        yield Truth(beta, taus, rho, u, v), Rows(X, g, h, y)


def model_of(kind, rows, tau_sd):
    """The model that data are simulated from, if `tau_sd` is that of the simulation."""
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, BETA_SD, shape=P)
        if kind == "slopes":
            chol, corr, scales = pm.LKJCholeskyCov(
                "chol", n=2, eta=ETA, sd_dist=pm.HalfNormal.dist(tau_sd, shape=2), compute_corr=True
            )
            effects = pm.MvNormal("effects", np.zeros(2), chol=chol, shape=(G, 2))
            taus, rho, u, v = scales, corr[0, 1], effects[:, 0], effects[:, 1]
            second = v[rows.g] * rows.X[:, 1]
        else:
            one, other = pm.HalfNormal("tau", tau_sd), pm.HalfNormal("tau_v", tau_sd)
            u, v = pm.Normal("first", 0.0, one, shape=G), pm.Normal("second", 0.0, other, shape=H)
            taus, rho, second = pm.math.stack([one, other]), pt.constant(0.0), v[rows.h]
        for name, value in {"taus": taus, "rho": rho, "u": u, "v": v}.items():
            pm.Deterministic(name, value)
        y = pm.Data("y_seen", rows.y)
        pm.Bernoulli("y", logit_p=rows.X @ beta + u[rows.g] + second, observed=y)
    return model


def quantities(kind, rows, found):
    """(draws, quantities) of arrays with a row for each draw."""
    likelihood = rows.log_likelihood(kind, found["beta"], found["u"], found["v"])
    parts = [found["beta"], np.log(found["taus"]), found["u"][:, :2], found["v"][:, :2], likelihood[:, None]]
    return np.concatenate([*parts, *([found["rho"][:, None]] if kind == "slopes" else [])], axis=1)


NAMES = [*(f"beta{k}" for k in range(P)), "log_tau_u", "log_tau_v", "u0", "u1", "v0", "v1", "log_likelihood"]


def p_values(kind, count, tau_sd=TAU_SD, sweeps=SWEEPS):
    """A p-value of each quantity, times how many there are; one step is given other data each time."""
    step, all_ranks = None, []
    for k, (truth, rows) in enumerate(replicates(kind, count)):
        if step is None:
            model = model_of(kind, rows, tau_sd)
            step = TunaMH(model=model, threshold=100, switch_above=np.inf, steps_per_draw=sweeps)
            assert WHAT[kind] in str(step.prediction)
        with model:
            pm.set_data({"y_seen": rows.y})
            idata = pm.sample(
                DRAWS, tune=20, chains=1, cores=1, step=step, random_seed=k, progressbar=False,
                quiet=True, compute_convergence_checks=False, compile_kwargs={"mode": "FAST_COMPILE"},
            )  # fmt: skip
        draws = {name: np.asarray(idata["posterior"][name])[0] for name in ("beta", "taus", "rho", "u", "v")}
        true = {name: np.asarray(value)[None] for name, value in truth._asdict().items()}
        all_ranks.append(rank_of(quantities(kind, rows, true), quantities(kind, rows, draws)))
    names = [*NAMES, "rho"][: len(all_ranks[0])]
    columns = np.transpose(all_ranks)
    return {name: len(names) * p_of_ranks(r, DRAWS) for name, r in zip(names, columns, strict=True)}


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    """Factors of 30 levels are large, and are moved in turns."""
    monkeypatch.setattr(order, "WIDE", 10)


@pytest.mark.full_size("500 posteriors")
@pytest.mark.filterwarnings("ignore:Moves of what:pymc_austerity.SubsamplingWarning")
@pytest.mark.parametrize("kind", ["slopes", "crossed"])
def test_ranks_are_uniform(kind):
    found = p_values(kind, 500)
    print(found)
    assert min(found.values()) > LEVEL


@pytest.mark.full_size("150 posteriors")
@pytest.mark.filterwarnings("ignore:Moves of what:pymc_austerity.SubsamplingWarning")
@pytest.mark.parametrize("kind", ["slopes", "crossed"])
def test_another_prior_of_scales_is_noticed(kind):
    """The planted fault: the model's prior is narrower than the one that the data are from.

    A wider one would do little: thirty groups say more about a scale than a prior that is nearly flat.
    """
    found = p_values(kind, 150, tau_sd=TAU_SD / 3.0)
    print(found)
    assert found["log_tau_v"] < LEVEL
