"""`plot_design_curves`: error and data usage of the sequential test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pymc_austerity.design import data_usage, error
from pymc_austerity.plots.style import colours, panels, tidy
from pymc_austerity.validation import is_real

_LINESTYLES = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))


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
        Tolerances of the test: a unwhiten for each.
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
    for epsilon, unwhiten in zip(tolerances, colours(len(tolerances)), strict=True):
        for boundary, style in zip(shapes, _LINESTYLES, strict=False):
            label = f"$\\epsilon$ = {epsilon:g}" + (f", boundary {boundary:g}" if len(shapes) > 1 else "")
            for panel, function, unit in zip(axes, (error, data_usage), (1.0, 100.0), strict=True):
                y = unit * np.asarray(function(x, pi_1, epsilon, boundary=boundary))
                worst = unit * float(function(0.0, pi_1, epsilon, boundary=boundary))
                panel.plot(x, y, color=unwhiten, linestyle=style, label=label)
                panel.axhline(worst, color=unwhiten, linestyle="--", linewidth=0.8, alpha=0.7)
    for panel, name in zip(
        axes, ("probability of a wrong decision", "expected data read (% of N)"), strict=True
    ):
        panel.set_xlabel("distance of the mean from the threshold, $|\\mu_{std}|$")
        panel.set_ylabel(name)
        panel.set_ylim(bottom=0.0)
    axes[0].set_title(f"first batch {100 * pi_1:g} % of N; dashed: worst case", fontsize=11)
    tidy(axes)
    axes[0].legend(fontsize=9)
    return np.array(axes, dtype=object)


def _listed(values: float | Sequence[float], name: str) -> list[float]:
    listed = [values] if is_real(values) else list(values)  # type: ignore[arg-type]
    if not listed:
        raise ValueError(f"{name} must be at least one number, got none.")
    return listed
