"""Chains of `TunaMH` on a grouped model, and what their tests share."""

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from pymc_austerity import TunaMH
from tests.sampling import sampled
from tests.statistical.hierarchies.joint import p_of_means, p_of_variances, z_of_sds
from tests.statistical.hierarchies.models import Grouped, matrix_of, model_of

LEVEL = 0.001


class Run(NamedTuple):
    """Draws (chains, draws, p + 1 + G) in the coordinates of `matrix_of`, and the sample statistics."""

    draws: np.ndarray
    statistics: dict[str, np.ndarray]

    def mean(self, name):
        return float(np.mean(self.statistics[name]))

    def __str__(self):
        return ", ".join(f"{name} {np.mean(value):.4g}" for name, value in sorted(self.statistics.items()))


STATISTICS = (
    "n_used", "shared_n_used", "effects_n_used", "acceptance_rate", "effects_acceptance", "exhausted",
)  # fmt: skip


def run(
    data: Grouped,
    draws: int,
    *,
    spelling: str = "centred",
    seed: int = 3,
    step: Any = TunaMH,
    tau_sd: float = 1.0,
    **options: Any,
) -> Run:
    """Two chains; `step` makes the step of a model."""
    model = model_of(data, spelling, tau_sd=tau_sd)
    with model:
        idata = sampled(draws, step(model=model, **options), tune=500, chains=2, random_seed=seed)
    stats = idata["sample_stats"]
    found = {name: np.asarray(stats[name]) for name in STATISTICS if name in stats}
    return Run(matrix_of(idata["posterior"], spelling), found)


class Agreement(NamedTuple):
    """Of two samples: p-values of equal means, of equal variances; the worst log ratio of sds, in errors.

    The last is the worst of `n` coordinates: of 300 right ones one is above 4 in 2 % of all comparisons.
    """

    means: float
    variances: float
    worst_sd: float
    n: int

    def __bool__(self):
        limit = stats.norm.isf(LEVEL / (2 * self.n))
        return bool(self.means > LEVEL and self.variances > LEVEL and self.worst_sd < limit)


def agreement(ours, theirs, data):
    """Are two samples (chains, draws, p + 1 + G) of one posterior?"""
    return agreement_of(ours, theirs, data.X.shape[1] + 1)


def agreement_of(ours, theirs, n_theta):
    """The same for samples whose first coordinates, so many, are shared."""
    both = ours, theirs, n_theta
    worst = np.abs(z_of_sds(ours, theirs)).max()
    return Agreement(float(p_of_means(*both)), float(p_of_variances(*both)), float(worst), ours.shape[-1])


def reweighted(draws, log_weights):
    """Draws in their order, each as often as its weight says."""
    weights = np.exp(log_weights - log_weights.max())
    share = np.cumsum(weights) / weights.sum()
    return draws[:, np.searchsorted(share, (np.arange(len(share)) + 0.5) / len(share))]
