"""What the log ratios of a move tell about the distribution of their batch means."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr
from scipy import stats
from scipy.special import ndtri

from pymc_austerity.design.acceptance import decision_errors
from pymc_austerity.diagnostics.log_ratios import TOP
from pymc_austerity.target import Array

# Share of the variance in a few rows that is too much, beyond what they have under a normal distribution.
_TOP_SHARE = 0.2
# Rows of which a batch holds so many on average are seen: it misses all of them with probability 0.007.
_SEEN = 5.0
# Stages beyond which errors of acceptance probabilities are not computed, as that takes seconds.
_STAGES = 2000
# Below this tail index the third moment has no limit, and shifts predicted from it are too small.
HEAVY = 3.0


def missed_rows(top: Array, n: int, m: int) -> np.ndarray:
    """Whether the largest rows carry too much and are missed, for each move and each number of rows."""
    k = np.minimum(np.array(TOP), n)
    z = -ndtri(k / (2.0 * n))
    normal = 2.0 * z * stats.norm.pdf(z) + k / n  # what they carry under a normal distribution
    return np.asarray((top > _TOP_SHARE + normal) & (k * m / n < _SEEN))


def tail_index(terms: Array, n: int) -> float:
    """Hill's estimate of the tail index from the largest distances from the mean."""
    k = min(len(terms) - 1, max(n // 100, 10))
    if k < 2 or not np.all(terms[: k + 1] > 0.0):
        return math.nan
    mean = float(np.mean(np.log(terms[:k] / terms[k])))
    return 1.0 / mean if mean > 0.0 else math.inf


def normal_scores(t: Array, m: int) -> Array:
    """Studentised means as the normal numbers of the same probability."""
    return np.asarray(ndtri(np.clip(stats.t.cdf(t, m - 1), 1e-300, 1.0 - 1e-16)))


def shapiro(scores: Array) -> float:
    """P-value of Shapiro and Wilk's test."""
    finite = scores[np.isfinite(scores)]
    if len(finite) < 3 or np.ptp(finite) == 0.0:
        return math.nan
    return float(stats.shapiro(finite[:5000]).pvalue)  # beyond, its p-values are not reliable


def share_near(group: xr.Dataset, n: int, m: int, bound: float) -> Array:
    """Largest share of the decisions, whatever the mean, that can come near to the threshold.

    Near are those u for which log u is within 2 G standard errors of the sum of the log ratios, estimated
    from the first batch: a stretch of 4 G standard errors, which log u meets with a probability of at most
    this.
    """
    noise = n * group["sd"].values * math.sqrt((1.0 / m - 1.0 / n) * n / (n - 1.0))
    return np.asarray(-np.expm1(-4.0 * max(bound, 1.0) * noise))


def acceptance_errors(group: xr.Dataset, n: int, m: int, epsilon: float) -> Array:
    """Error of the acceptance probability of each move if batch means are normal; NaN if not known."""
    mu, sd = group["mu"].values, group["sd"].values
    found = np.full(len(mu), math.nan)
    known = np.isfinite(sd) & ~np.isnan(mu)
    if group.attrs.get("rule", "TTest") == "TTest" and n <= _STAGES * m and np.any(known):
        boundary = float(group.attrs.get("boundary", 0.5))
        found[known] = decision_errors(mu[known], sd[known], n, m, epsilon, boundary).signed
    return found


def quantiles(group: xr.Dataset) -> xr.Dataset:
    """Sorted studentised means beside the quantiles of Student's t; those that are NaN come last."""
    t = group["batch_t"].values
    number = t.shape[1]
    observed = np.sort(t, axis=1)
    theoretical = np.full_like(observed, math.nan)
    for row, known in zip(theoretical, np.isfinite(t).sum(axis=1), strict=True):
        level = (np.arange(1, known + 1) - 0.5) / max(known, 1)
        row[:known] = stats.t.ppf(level, int(group.attrs["batch_size"]) - 1)
    dims = ("pair", "quantile")
    return xr.Dataset(
        {"observed": (dims, observed), "theoretical": (dims, theoretical)},
        coords={"pair": group["pair"].values, "quantile": np.arange(number)},
    )
