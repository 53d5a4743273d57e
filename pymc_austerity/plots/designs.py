"""`plot_test_designs`: what designing the test is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.design import Design, optimal_design
from pymc_austerity.design.acceptance import decision_errors
from pymc_austerity.plots.pairs import Pairs, read_pairs
from pymc_austerity.plots.style import APPROXIMATE, EXACT, LIMIT, panels, tidy


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
    train, test = _split(pairs, test_pairs, N)
    targets = np.sort(np.asarray(list(tolerances), dtype=float))
    if not len(targets):
        raise ValueError("tolerances must be at least one number, got none.")
    shapes = tuple(boundaries)
    ways: dict[str, Callable[[float], Design]] = {
        "average design": lambda t: optimal_design(train, t, N=train.N, boundaries=shapes),
        f"m = {batch_size:,}": lambda t: optimal_design(
            train, t, N=train.N, batch_sizes=(batch_size,), boundaries=shapes
        ),
        "worst-case design": lambda t: optimal_design(None, t, N=train.N, boundaries=shapes),
    }
    axes = panels(ax, 2)
    axes[0].plot(targets, targets, color=EXACT, linestyle="--", linewidth=1.0, label="target")
    looks = zip(("o", "^", "s"), (APPROXIMATE, "#e9a03b", LIMIT), strict=True)
    for (name, design), (marker, unwhiten) in zip(ways.items(), looks, strict=True):
        found = [_judge(design(float(t)), test) for t in targets]
        style = {"color": unwhiten, "marker": marker, "markerfacecolor": "none", "label": name}
        axes[0].plot(targets, [j.error for j in found], **style)
        axes[1].plot(targets, [100.0 * j.data_usage for j in found], **style)
    for panel in axes:
        panel.set_xscale("log")
        panel.set_xlabel("target error in the acceptance probability")
    axes[0].set_yscale("log")
    axes[0].set_ylabel("mean |$\\Delta$| of test moves")
    axes[0].set_title(f"designed on {len(train.mu)} moves, N = {train.N:,}", fontsize=11)
    axes[1].set_ylabel("expected data read (% of N)")
    axes[1].set_ylim(bottom=0.0)
    axes[1].set_title(f"judged on {len(test.mu)} other moves", fontsize=11)
    tidy(axes)
    axes[0].legend(fontsize=9)
    return np.array(axes, dtype=object)


class _Judgement(NamedTuple):
    error: float
    data_usage: float


def _judge(design: Design, moves: Pairs) -> _Judgement:
    errors = decision_errors(*moves, design["batch_size"], design["epsilon"], design["boundary"])
    return _Judgement(float(np.abs(errors.signed).mean()), float(errors.data_usage.mean()))


def _split(pairs: Any, test_pairs: Any, N: int | None) -> tuple[Pairs, Pairs]:
    """Moves to design on, and others to judge on."""
    train = read_pairs(pairs, N)
    if test_pairs is not None:
        test = read_pairs(test_pairs, N)
        if test.N != train.N:
            raise ValueError(f"pairs and test_pairs must have one N, got {train.N} and {test.N}.")
        return train, test
    if len(train.mu) < 2:
        raise ValueError(f"pairs must be at least two moves to hold one out, got {len(train.mu)}.")
    return (
        Pairs(train.mu[::2], train.sigma_l[::2], train.N),
        Pairs(train.mu[1::2], train.sigma_l[1::2], train.N),
    )
