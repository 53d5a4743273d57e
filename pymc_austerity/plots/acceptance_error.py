"""`plot_acceptance_error`: how far subsampling moves the probability of acceptance."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_austerity.design import error
from pymc_austerity.design.acceptance import decision_errors
from pymc_austerity.plots.pairs import read_pairs
from pymc_austerity.plots.style import APPROXIMATE, EXACT, LIMIT, panels, tidy


def plot_acceptance_error(
    pairs: Any,
    *,
    batch_size: int,
    epsilon: float,
    boundary: float = 0.5,
    N: int | None = None,
    ax: Any = None,
) -> Any:
    r"""Error in the acceptance probability of proposed moves against their exact one.

    Parameters
    ----------
    pairs : DataTree or object
        A DataTree with the group `log_ratios`, as `probe` makes it; or anything with arrays `mu` (log
        acceptance ratio for each term) and `sigma_l` (standard deviation of the terms, divisor N), of shape
        (n_pairs,).
    batch_size : int >= 2
        Terms in the first batch, m.
    epsilon : float in (0, 0.5]
        Tolerance of the test.
    boundary : float in [0.5, 1], default 0.5
        Shape of the boundary, 0.5 for Pocock's.
    N : int, default None
        The number of local terms; None if `pairs` knows it.
    ax : sequence of 2 matplotlib Axes, default None
        Where to draw; None for a new figure.

    Returns
    -------
    ndarray of 2 matplotlib Axes
        Of the errors, and of the probabilities.

    Raises
    ------
    ImportError
        If the libraries of the extra `plots` are not installed.
    ValueError
        If a parameter is out of its range, or N is not known.

    Notes
    -----
    Figures 11 and 12 of Korattikara et al. (2014). Circles are Delta = P_a,eps - P_a (equation 24), crosses
    the expected probability of a wrong decision over u, E_u\|E\|, in which nothing cancels. Dashed lines are
    the bound on both, the error in the worst case, where the mean equals the threshold.

    *When it fails*: the theory supposes normal batch means; see `plot_batch_mean_qq`.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> from pymc_austerity.plots import plot_acceptance_error
    >>> pairs = SimpleNamespace(mu=np.linspace(-3, 1, 9) / 10_000, sigma_l=np.full(9, 0.01))
    >>> axes = plot_acceptance_error(pairs, batch_size=500, epsilon=0.05, N=10_000)
    >>> axes[1].get_ylabel()
    'subsampled acceptance probability'
    """
    moves = read_pairs(pairs, N)
    errors = decision_errors(*moves, batch_size, epsilon, boundary)
    delta, wrong = errors.signed, errors.absolute
    worst = float(error(0.0, batch_size / moves.N, epsilon, boundary=boundary))
    exact = moves.acceptance
    axes = panels(ax, 2)
    left, right = axes
    left.axhline(0.0, color=EXACT, linewidth=0.8)
    left.plot(exact, delta, "o", color=APPROXIMATE, markerfacecolor="none", label="$\\Delta$, error in $P_a$")
    left.plot(exact, wrong, "x", color=LIMIT, label="$E_u|\\mathcal{E}|$, wrong decisions")
    for sign in (1.0, -1.0):
        left.axhline(sign * worst, color=EXACT, linestyle="--", label="worst case" if sign > 0.0 else None)
    left.set_ylim(-1.7 * worst, 1.7 * worst) if worst > 0.0 else None
    left.set_ylabel("error in the acceptance probability")
    left.set_title(f"m = {batch_size:,} of N = {moves.N:,}, $\\epsilon$ = {epsilon:g}", fontsize=11)
    left.legend(fontsize=9, loc="upper left", ncols=3, columnspacing=1.0, handletextpad=0.4)
    right.plot([0.0, 1.0], [0.0, 1.0], color=EXACT, linestyle="--", linewidth=1.0, label="no error")
    right.plot(exact, exact + delta, "o", color=APPROXIMATE, markerfacecolor="none", label="proposed moves")
    right.set_ylim(-0.03, 1.03)
    right.set_ylabel("subsampled acceptance probability")
    right.set_title(f"mean of |$\\Delta$| = {np.abs(delta).mean():.2g}", fontsize=11)
    right.legend(fontsize=9, loc="upper left")
    for panel in axes:
        panel.set_xlabel("exact acceptance probability, $P_a$")
        panel.set_xlim(-0.03, 1.03)
    tidy(axes)
    return np.array(axes, dtype=object)
