"""Simulation-based calibration of a sampler of grouped models: truths, data and ranks."""

from typing import NamedTuple

import numpy as np

from tests.statistical.hierarchies.models import Grouped, design, responses
from tests.statistical.hierarchies.ranks import p_of_ranks, rank_of

LEVEL = 0.01  # of all quantities together


class Study(NamedTuple):
    """What data are simulated; X and groups stay."""

    family: str
    N: int = 500
    G: int = 30
    p: int = 3
    beta_sd: float = 1.0
    tau_sd: float = 0.1

    @property
    def quantities(self):
        return (*(f"beta{k}" for k in range(self.p)), "log_tau", "u0", "u1", "log_likelihood")


def replicates(study, count, seed):
    """Data simulated from the prior."""
    rng = np.random.default_rng(seed)
    X, g, exposure = design(study.N, study.G, study.p, rng)
    for _ in range(count):
        beta = study.beta_sd * rng.normal(size=study.p)
        tau = study.tau_sd * abs(rng.normal())
        u = tau * rng.normal(size=study.G)
        y = responses(study.family, X @ beta + u[g], exposure, rng)
        yield Grouped(study.family, X, g, exposure, y, study.G, beta, u, tau)


def log_likelihood(data, draws):
    """Of draws (L, p + 1 + G), without what does not depend on them."""
    p = data.X.shape[1]
    eta = draws[:, :p] @ data.X.T + draws[:, p + 1 :][:, data.g]
    normaliser = np.logaddexp(0, eta) if data.family == "logistic" else data.exposure * np.exp(eta)
    return np.sum(data.y * eta - normaliser, axis=1)


def quantities(data, draws):
    p = data.X.shape[1]
    return np.column_stack([draws[:, : p + 3], log_likelihood(data, draws)])


def ranks(data, draws):
    """Ranks of the true values of all quantities among draws (L, p + 1 + G)."""
    truth = np.r_[data.beta, np.log(data.tau), data.u][None]
    return rank_of(quantities(data, truth), quantities(data, draws))


def p_values(study, all_ranks, n_draws):
    """A p-value of each quantity, times how many there are."""
    names = study.quantities
    return {
        name: len(names) * p_of_ranks(r, n_draws)
        for name, r in zip(names, np.transpose(all_ranks), strict=True)
    }
