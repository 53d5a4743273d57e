"""`plot_bound_schematic`: how a decision is made with a concentration bound."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.acceptance.base import Sample
from pymc_austerity.acceptance.concentration import (
    Concentration,
    empirical_bernstein,
    empirical_bernstein_serfling,
    hoeffding_serfling,
)
from pymc_austerity.plots.style import APPROXIMATE, EXACT, LIMIT, panels, tidy
from pymc_austerity.validation import is_real

# Looks at fewer terms than the last over this are out of the picture.
_LATE = 16

_RADIUS = {
    "hoeffding-serfling": hoeffding_serfling,
    "empirical-bernstein": empirical_bernstein,
    "empirical-bernstein-serfling": empirical_bernstein_serfling,
}


def plot_bound_schematic(
    log_ratios: npt.ArrayLike | None = None,
    psi: float = 0.0,
    *,
    rule: Concentration | None = None,
    seed: int = 0,
    ax: Any = None,
) -> Any:
    """Running mean of the log ratios l_i, the bound that shrinks around it, and where the decision falls.

    Parameters
    ----------
    log_ratios : array-like of shape (N,), default None
        The population, N >= 2; None for 10,000 normal numbers of mean 0.1 and standard deviation 0.5.
    psi : float, default 0.0
        Threshold with which their mean is compared.
    rule : Concentration, default None
        The stopping rule; None for ``Concentration()``.
    seed : int, default 0
        Of the order in which terms are drawn, and of the population if none is given.
    ax : matplotlib Axes, default None
        Where to draw; None for a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        If the libraries of the extra `plots` are not installed.
    TypeError
        If `rule` is not a `Concentration`.
    ValueError
        If `log_ratios` or `psi` is not finite, or there are fewer than two terms.

    Notes
    -----
    Figure 2 of Bardenet et al. (2014), drawn by the rule itself. The bars are the confidence intervals
    mean +- c_t at the looks; between looks nothing is decided. The range that the rule must know is that of
    `log_ratios`, so a real run, which has only a bound on it, reads more.

    Examples
    --------
    >>> from pymc_austerity.plots import plot_bound_schematic
    >>> ax = plot_bound_schematic()
    >>> ax.get_title()
    'accepted after 4,096 of 10,000 terms'
    """
    rule = Concentration() if rule is None else rule
    if not isinstance(rule, Concentration):
        raise TypeError(f"rule must be a Concentration, got {rule!r}.")
    if not is_real(psi) or not math.isfinite(psi):
        raise ValueError(f"psi must be a finite number, got {psi!r}.")
    rng = np.random.default_rng(seed)
    values = rng.normal(0.1, 0.5, size=10_000) if log_ratios is None else np.asarray(log_ratios, dtype=float)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise ValueError(
            f"log_ratios must be at least two finite numbers, got an array of shape {values.shape} with "
            f"{int(np.sum(~np.isfinite(values)))} that are not finite."
        )
    run = decide(rng.permutation(values), psi, rule)
    (axes,) = panels(ax, 1)
    n, t = len(values), np.arange(1, run.ends[-1] + 1)
    ends, radii = np.array(run.ends), np.array(run.radii)
    at = run.means[ends - 1]
    axes.fill_between(ends, at - radii, at + radii, color=APPROXIMATE, alpha=0.12, linewidth=0)
    axes.axhline(psi, color=LIMIT, linestyle="--", label="threshold $\\psi$")
    axes.axhline(values.mean(), color=EXACT, linestyle=":", label="mean of all $N$ terms")
    axes.plot(t, run.means[: len(t)], color=APPROXIMATE, linewidth=1.2, label="mean of the first $t$ terms")
    axes.errorbar(
        ends, at, radii, fmt="o", color=APPROXIMATE, markersize=3.5, capsize=3, label="bound $\\pm c_t$"
    )
    axes.axvline(ends[-1], color=EXACT, linewidth=1.0)
    # Early bounds are far wider than what they close in on.
    late = radii[ends >= ends[-1] / _LATE]
    high = 1.1 * max(late[0], abs(psi - values.mean()), 1e-300)
    axes.set_ylim(min(psi, values.mean()) - high, max(psi, values.mean()) + high)
    axes.set_xscale("log")
    axes.set_xlim(max(0.8, ends[-1] / (2.5 * _LATE)), 1.25 * n)
    axes.set_xlabel("terms read, $t$")
    axes.set_ylabel("log ratio of a term")
    done = "accepted" if run.accepted else "rejected"
    axes.set_title(f"{done} after {ends[-1]:,} of {n:,} terms")
    tidy([axes])
    axes.legend(loc="upper right", framealpha=0.95, fontsize=9)
    return axes


class Decision(NamedTuple):
    """One decision, look by look."""

    means: npt.NDArray[np.float64]  # (N,): of the first 1, 2, ... terms.
    ends: Sequence[int]  # terms read at each look, up to that which decided
    radii: Sequence[float]  # half the width of the interval at each look; 0 once all is read
    accepted: bool


def decide(values: npt.NDArray[np.float64], psi: float, rule: Concentration) -> Decision:
    """Let the rule read `values` in their order."""
    n, width = len(values), float(np.ptp(values))
    schedule, functions = rule.bind(n), rule.functions
    means = np.cumsum(values) / np.arange(1, n + 1)
    ends: list[int] = []
    radii: list[float] = []
    for stage, end in enumerate(map(int, schedule.ends)):
        read = values[:end]
        m2 = float(np.sum((read - read.mean()) ** 2))
        # The rule does not ask for the sums of powers.
        low, high = float(read.min()), float(read.max())
        sample = Sample(end, n, float(read.mean()), m2, low, high, 0.0, math.nan, math.nan, math.nan)
        ends.append(end)
        share = float(schedule.bounds[stage])
        radii.append(
            0.0 if end == n else float(_RADIUS[rule.bound](end, n, math.sqrt(m2 / end), width, share))
        )
        if functions.decide(schedule, stage, sample, psi, width):
            accepted = bool(functions.accept(schedule, sample, psi, np.random.default_rng(0)))
            return Decision(means, ends, radii, accepted)
    raise AssertionError("a rule stops at N")
