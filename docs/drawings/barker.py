"""What skewed terms do to the minibatch Barker test."""

from typing import Any

import matplotlib.pyplot as plt
import numba
import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit

from pymc_austerity.acceptance import Barker
from pymc_austerity.acceptance.barker import noise_variance, others_for, probability, skewness_error
from pymc_austerity.acceptance.base import nothing_read
from pymc_austerity.kernels.metropolis import merge
from pymc_austerity.kernels.subsample import draw_without_replacement

N, BATCH, S, CALLS = 5000, 150, 0.8, 40_000


@numba.njit
def decisions(calls: int, rng: np.random.Generator, terms: Any, batch: int, schedule: Any) -> Any:
    """Estimate of the log ratio, what s^2 lacks of 1, and g: where reading stops, and after a pilot."""
    n_local, order = len(terms), np.arange(len(terms))
    found = np.empty((2, calls, 3))
    for t in range(calls):
        draw_without_replacement(rng, order, 0, 10 * batch)
        pilot = merge(nothing_read(n_local), terms[order[:batch]])
        sample = pilot
        while noise_variance(sample) >= 1.0:
            sample = merge(sample, terms[order[sample.n : sample.n + batch]])
        others = merge(nothing_read(n_local), terms[order[batch : batch + others_for(schedule, pilot)]])
        for k, read in enumerate((sample, others)):
            found[k, t] = n_local * read.mean, 1.0 - noise_variance(read), skewness_error(read)
    return found


@numba.njit
def accepted(found: Any, log_ratio: float, correct: float, correction: Any) -> float:
    """Mean probability of accepting; `correct` is 1 with the correction for skewness, and 0 without."""
    total = 0.0
    for x, missing, g in found:
        total += min(1.0, max(0.0, probability(correction, x + log_ratio, missing, correct * g)))
    return total / len(found)


def skewed_terms() -> Figure:
    """Errors of acceptance probabilities against the log ratio, for terms of skewness 4."""
    x = np.random.default_rng(0).gamma(0.25, size=N)
    terms = (x - x.mean()) / x.std() * S / (N / np.sqrt(BATCH) * np.sqrt(1 - BATCH / N))
    schedule = Barker(BATCH, pilot=True).bind(N)
    stopping, pilot = decisions(CALLS, np.random.default_rng(1), terms, BATCH, schedule)
    log_ratios = np.linspace(-4, 4, 33)
    figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
    for found, correct, label in (
        (stopping, 0.0, "default"),
        (pilot, 0.0, "pilot=True"),
        (pilot, 1.0, "pilot=True, skew_correction=True"),
    ):
        rates = [accepted(found, d, correct, schedule.correction) for d in log_ratios]
        axes.plot(log_ratios, np.array(rates) - expit(log_ratios), label=label)
    axes.axhline(0, color="k", lw=0.8, zorder=0)
    axes.set(xlabel="log acceptance ratio", ylabel="error of the probability", ylim=(-0.021, 0.008))
    axes.legend(frameon=False, loc="lower right")
    return figure
