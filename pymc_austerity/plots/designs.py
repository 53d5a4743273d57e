"""Theory of decision rules: what designs of the sequential test cost and err, and how a bound decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pymc_austerity.acceptance.base import nothing_read
from pymc_austerity.acceptance.concentration import (
    Concentration,
    empirical_bernstein,
    empirical_bernstein_serfling,
    hoeffding_serfling,
)
from pymc_austerity.design import data_usage, error, optimal_design
from pymc_austerity.design.acceptance import decision_errors
from pymc_austerity.design.optimal import Moves, moves_of
from pymc_austerity.kernels.metropolis import merge
from pymc_austerity.plots.style import APPROXIMATE, EXACT, LIMIT, colours, panels
from pymc_austerity.target import Array
from pymc_austerity.validation import is_real, renamed

_LINESTYLES = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

# Looks at fewer terms than the last over this are out of the picture.
_LATE = 16

_RADIUS = {
    "hoeffding-serfling": hoeffding_serfling,
    "empirical-bernstein": empirical_bernstein,
    "empirical-bernstein-serfling": empirical_bernstein_serfling,
}


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
    moves, n_local = moves_of(pairs, N)
    errors = decision_errors(*moves, n_local, batch_size, epsilon, boundary)
    delta, wrong = errors.signed, errors.absolute
    worst = float(error(0.0, batch_size / n_local, epsilon, boundary=boundary))
    exact = np.exp(np.minimum(n_local * moves.mu, 0.0))  # probabilities of acceptance
    axes = panels(ax, 2)
    left, right = axes
    left.axhline(0.0, color=EXACT, linewidth=0.8)
    left.plot(exact, delta, "o", color=APPROXIMATE, markerfacecolor="none", label="$\\Delta$, error in $P_a$")
    left.plot(exact, wrong, "x", color=LIMIT, label="$E_u|\\mathcal{E}|$, wrong decisions")
    for sign in (1.0, -1.0):
        left.axhline(sign * worst, color=EXACT, linestyle="--", label="worst case" if sign > 0.0 else None)
    left.set_ylim(-1.7 * worst, 1.7 * worst) if worst > 0.0 else None
    left.set_ylabel("error in the acceptance probability")
    left.set_title(f"m = {batch_size:,} of N = {n_local:,}, $\\epsilon$ = {epsilon:g}", fontsize=11)
    left.legend(fontsize=9, loc="upper left", ncols=3, columnspacing=1.0, handletextpad=0.4)
    right.plot([0.0, 1.0], [0.0, 1.0], color=EXACT, linestyle="--", linewidth=1.0, label="no error")
    right.plot(exact, exact + delta, "o", color=APPROXIMATE, markerfacecolor="none", label="proposed moves")
    right.set(ylim=(-0.03, 1.03), ylabel="subsampled acceptance probability")
    right.set_title(f"mean of |$\\Delta$| = {np.abs(delta).mean():.2g}", fontsize=11)
    right.legend(fontsize=9, loc="upper left")
    for panel in axes:
        panel.set(xlabel="exact acceptance probability, $P_a$", xlim=(-0.03, 1.03))
    return axes


def plot_design_curves(
    pi_1: float,
    epsilons: float | Sequence[float] = (0.01, 0.05, 0.1),
    *,
    boundaries: float | Sequence[float] = 0.5,
    mu_std: npt.ArrayLike | None = None,
    ax: Any = None,
) -> Any:
    r"""Error and data usage of the sequential t-test against the distance of the mean from the threshold.

    Parameters
    ----------
    pi_1 : float in (0, 1]
        Share of the data in the first batch, m / N.
    epsilons : float or sequence of float in (0, 0.5], default (0.01, 0.05, 0.1)
        Tolerances of the test: a colour for each.
    boundaries : float or sequence of float in [0.5, 1], default 0.5
        Shapes of the boundary, 0.5 for Pocock's: a line style for each.
    mu_std : array-like of float, default None
        Standardised distances \|mean - psi\| sqrt(N - 1) / sigma_l; None for 121 values from 0 to 6.
    ax : sequence of 2 matplotlib Axes, default None
        Where to draw; None for a new figure.

    Returns
    -------
    ndarray of 2 matplotlib Axes
        Of the error, and of the data usage.

    Raises
    ------
    ImportError
        If the libraries of the extra `plots` are not installed.
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    Figures 1 and 10 of Korattikara et al. (2014), from `design.error` and `design.data_usage`. Dashed lines
    are the worst case, a mean that equals the threshold.

    Examples
    --------
    >>> from pymc_austerity.plots import plot_design_curves
    >>> axes = plot_design_curves(0.05, [0.01, 0.2])
    >>> [ax.get_ylabel() for ax in axes]
    ['probability of a wrong decision', 'expected data read (% of N)']
    """
    x = np.linspace(0.0, 6.0, 121) if mu_std is None else np.asarray(mu_std, dtype=float)
    if x.ndim != 1 or len(x) < 2 or not np.isfinite(x).all():
        raise ValueError(f"mu_std must be at least two finite numbers, got shape {x.shape}.")
    tolerances, shapes = _listed(epsilons, "epsilons"), _listed(boundaries, "boundaries")
    if len(shapes) > len(_LINESTYLES):
        raise ValueError(f"boundaries must be at most {len(_LINESTYLES)}, got {len(shapes)}.")
    axes = panels(ax, 2)
    for epsilon, colour in zip(tolerances, colours(len(tolerances)), strict=True):
        for boundary, style in zip(shapes, _LINESTYLES, strict=False):
            label = f"$\\epsilon$ = {epsilon:g}" + (f", boundary {boundary:g}" if len(shapes) > 1 else "")
            for panel, function, unit in zip(axes, (error, data_usage), (1.0, 100.0), strict=True):
                y = unit * np.asarray(function(x, pi_1, epsilon, boundary=boundary))
                worst = unit * float(function(0.0, pi_1, epsilon, boundary=boundary))
                panel.plot(x, y, color=colour, linestyle=style, label=label)
                panel.axhline(worst, color=colour, linestyle="--", linewidth=0.8, alpha=0.7)
    axes[0].set_ylabel("probability of a wrong decision")
    axes[1].set_ylabel("expected data read (% of N)")
    for panel in axes:
        panel.set(xlabel="distance of the mean from the threshold, $|\\mu_{std}|$", ylim=(0.0, None))
    axes[0].set_title(f"first batch {100 * pi_1:g} % of N; dashed: worst case", fontsize=11)
    axes[0].legend(fontsize=9)
    return axes


def _listed(values: float | Sequence[float], name: str) -> list[float]:
    listed = [values] if is_real(values) else list(values)  # type: ignore[arg-type]
    if not listed:
        raise ValueError(f"{name} must be at least one number, got none.")
    return listed


def plot_test_designs(
    pairs: Any,
    tolerances: Sequence[float] = (0.005, 0.01, 0.02, 0.05, 0.1),
    *,
    test_pairs: Any = None,
    batch_size: int = 600,
    boundaries: Sequence[float] = (0.5,),
    N: int | None = None,
    ax: Any = None,
) -> Any:
    r"""Error and data usage on new moves of tests that were designed for some tolerances, in three ways.

    Parameters
    ----------
    pairs : DataTree or object
        Proposed moves of a trial run: a DataTree with the group `log_ratios`, as `probe` makes it, or
        anything with arrays `mu` and `sigma_l` of shape (n_pairs,).
    tolerances : sequence of float, default (0.005, 0.01, 0.02, 0.05, 0.1)
        Targets for the error in the acceptance probability.
    test_pairs : DataTree or object, default None
        Other moves, on which the designs are judged; None to design on every second of `pairs`, from the
        first, and judge on the others.
    batch_size : int >= 2, default 600
        First batch of the design in which only epsilon is chosen.
    boundaries : sequence of float in [0.5, 1], default (0.5,)
        Shapes of the boundary to choose from.
    N : int, default None
        The number of local terms; None if `pairs` knows it.
    ax : sequence of 2 matplotlib Axes, default None
        Where to draw; None for a new figure.

    Returns
    -------
    ndarray of 2 matplotlib Axes
        Of the error, and of the data usage.

    Raises
    ------
    ImportError
        If the libraries of the extra `plots` are not installed.
    ValueError
        If there are too few pairs, N is not known, or no design of the grid reaches a tolerance.

    Notes
    -----
    Figure 6 of Korattikara et al. (2014). The average design (equation 7) bounds the mean of \|Delta\| over
    the moves of the trial run, the worst-case design (equation 8) the error of a test whose mean equals the
    threshold. Errors and data usage are averages over the test moves, by `design.acceptance_error` and
    `design.expected_data_usage`.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> from pymc_austerity.plots import plot_test_designs
    >>> rng = np.random.default_rng(1)
    >>> pairs = SimpleNamespace(mu=rng.normal(-1.0, 1.0, 20) / 10_000, sigma_l=np.full(20, 0.02))
    >>> axes = plot_test_designs(pairs, [0.02, 0.1], N=10_000)
    >>> [line.get_label() for line in axes[1].lines]
    ['average design', 'm = 600', 'worst-case design']
    """
    train, n_local = moves_of(pairs, N)
    if test_pairs is not None:
        test, other = moves_of(test_pairs, N)
        if other != n_local:
            raise ValueError(f"pairs and test_pairs must have one N, got {n_local} and {other}.")
    elif len(train.mu) < 2:
        raise ValueError(f"pairs must be at least two moves to hold one out, got {len(train.mu)}.")
    else:
        train, test = (Moves(train.mu[k::2], train.sigma_l[k::2]) for k in (0, 1))
    targets = np.sort(np.asarray(list(tolerances), dtype=float))
    if not len(targets):
        raise ValueError("tolerances must be at least one number, got none.")
    ways: list[tuple[str, str, str, Moves | None, dict[str, Any]]] = [
        ("average design", "o", APPROXIMATE, train, {}),
        (f"m = {batch_size:,}", "^", "#e9a03b", train, {"batch_sizes": (batch_size,)}),
        ("worst-case design", "s", LIMIT, None, {}),
    ]
    axes = panels(ax, 2)
    axes[0].plot(targets, targets, color=EXACT, linestyle="--", linewidth=1.0, label="target")
    for name, marker, colour, moves, options in ways:
        options |= {"N": n_local, "boundaries": tuple(boundaries)}
        designs = [optimal_design(moves, float(t), **options) for t in targets]
        found = [decision_errors(*test, n_local, **d) for d in designs]
        style = {"color": colour, "marker": marker, "markerfacecolor": "none", "label": name}
        axes[0].plot(targets, [float(np.abs(errors.signed).mean()) for errors in found], **style)
        axes[1].plot(targets, [100.0 * float(errors.data_usage.mean()) for errors in found], **style)
    for panel in axes:
        panel.set(xscale="log", xlabel="target error in the acceptance probability")
    axes[0].set(yscale="log", ylabel="mean |$\\Delta$| of test moves")
    axes[0].set_title(f"designed on {len(train.mu)} moves, N = {n_local:,}", fontsize=11)
    axes[1].set(ylabel="expected data read (% of N)", ylim=(0.0, None))
    axes[1].set_title(f"judged on {len(test.mu)} other moves", fontsize=11)
    axes[0].legend(fontsize=9)
    return axes


@renamed(seed="random_seed")
def plot_bound_schematic(
    log_ratios: npt.ArrayLike | None = None,
    psi: float = 0.0,
    *,
    rule: Concentration | None = None,
    random_seed: int = 0,
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
    random_seed : int, default 0
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
    rng = np.random.default_rng(random_seed)
    values = rng.normal(0.1, 0.5, size=10_000) if log_ratios is None else np.asarray(log_ratios, dtype=float)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise ValueError(
            f"log_ratios must be at least two finite numbers, got an array of shape {values.shape} with "
            f"{int(np.sum(~np.isfinite(values)))} that are not finite."
        )
    means, ends, radii, accepted = decide(rng.permutation(values), psi, rule)
    (axes,) = panels(ax, 1)
    n, t = len(values), np.arange(1, ends[-1] + 1)
    at = means[ends - 1]
    axes.fill_between(ends, at - radii, at + radii, color=APPROXIMATE, alpha=0.12, linewidth=0)
    axes.axhline(psi, color=LIMIT, linestyle="--", label="threshold $\\psi$")
    axes.axhline(values.mean(), color=EXACT, linestyle=":", label="mean of all $N$ terms")
    axes.plot(t, means[: len(t)], color=APPROXIMATE, linewidth=1.2, label="mean of the first $t$ terms")
    axes.errorbar(
        ends, at, radii, fmt="o", color=APPROXIMATE, markersize=3.5, capsize=3, label="bound $\\pm c_t$"
    )
    axes.axvline(ends[-1], color=EXACT, linewidth=1.0)
    # Early bounds are far wider than what they close in on.
    late = radii[ends >= ends[-1] / _LATE]
    high = 1.1 * max(late[0], abs(psi - values.mean()), 1e-300)
    axes.set_ylim(min(psi, values.mean()) - high, max(psi, values.mean()) + high)
    axes.set(xscale="log", xlim=(max(0.8, ends[-1] / (2.5 * _LATE)), 1.25 * n))
    axes.set(xlabel="terms read, $t$", ylabel="log ratio of a term")
    done = "accepted" if accepted else "rejected"
    axes.set_title(f"{done} after {ends[-1]:,} of {n:,} terms")
    axes.legend(loc="upper right", framealpha=0.95, fontsize=9)
    return axes


def decide(
    values: Array, psi: float, rule: Concentration
) -> tuple[Array, npt.NDArray[np.int64], Array, bool]:
    """Let the rule read `values` in their order, up to the look that decides.

    The means of the first 1, 2, ... terms (N,); terms read at each look, and half the width of its interval,
    0 once all is read; and whether the move was accepted.
    """
    n, width = len(values), float(np.ptp(values))
    schedule, functions = rule.bind(n), rule.functions
    sample, radii = nothing_read(n), []
    for stage, end in enumerate(schedule.ends):
        sample = merge(sample, values[sample.n : end])
        known = math.sqrt(sample.m2 / end), width, float(schedule.bounds[stage])
        radii.append(0.0 if end == n else _RADIUS[rule.bound](int(end), n, *known))
        if functions.decide(schedule, stage, sample, psi, width):
            break
    accepted = bool(functions.accept(schedule, sample, psi, np.random.default_rng(0)))
    means = np.cumsum(values) / np.arange(1, n + 1)
    return means, schedule.ends[: len(radii)], np.array(radii), accepted
