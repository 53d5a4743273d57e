"""`plot_risk`: error of estimates against the data that was touched for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_austerity.diagnostics.data_usage import n_local
from pymc_austerity.diagnostics.effective_cost import transitions_per_draw
from pymc_austerity.diagnostics.samplers import NotRecordedError, aligned
from pymc_austerity.diagnostics.scalars import SAMPLE
from pymc_austerity.plots.optional import optional
from pymc_austerity.plots.style import EXACT, colours, looks, panels, shown, tidy
from pymc_austerity.target import Array
from pymc_austerity.validation import is_whole

_HOW_TO_READ = (
    "A risk of 1 is an error of one posterior sd, 0.01 of a tenth of one.\n"
    "Lower is better for as much data; a line that levels off has reached its bias."
)


def plot_risk(
    runs: Mapping[str, Any],
    truth: Any,
    *,
    var_names: str | Sequence[str] | None = None,
    steps_per_draw: Mapping[str, int | Sequence[int]] | None = None,
    n_points: int = 40,
    ax: Any = None,
) -> Any:
    """Risk of the estimates of posterior means against the data that was touched, a line for each run.

    Parameters
    ----------
    runs : mapping of str to DataTree
        What `pymc.sample` returned, by the name for the legend. Each has the statistics `n_used` and
        `fraction_used`, or `n_steps` of `pymc.NUTS`.
    truth : DataTree or mapping of str to (mean, sd)
        A long exact run; or for each variable its posterior mean and standard deviation, arrays of its shape.
    var_names : str or sequence of str, default None
        Which variables; None for all of `truth`.
    steps_per_draw : mapping of str to int or sequence of int, default None
        Transitions for each draw, for runs without a stamp (`diagnostics.stamp`), as in
        `diagnostics.effective_cost`.
    n_points : int >= 2, default 40
        Points of each line, evenly spaced in the logarithm of the number of draws.
    ax : matplotlib Axes, default None
        Where to draw; None for a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        If the libraries of the extra `plots` are not installed.
    ValueError
        If there is no run, a run does not say what it read, or variables do not match.

    Notes
    -----
    Figure 2 of Korattikara et al. (2014), with passes over the data in place of seconds. The risk after T
    draws is the squared error of their mean, in posterior variances, averaged over chains and scalars. It
    falls like 1 / T until the squared bias of the approximation is all that is left. The x-axis counts terms
    that subsampled steps evaluated, in their N, for each chain; a leapfrog step of `pymc.NUTS` counts as one
    pass where it is alone. Tuning is not counted.

    *When it fails*: a long run as `truth` has a Monte Carlo error of its own: the dotted line, below which
    differences mean nothing; and a run that is itself the truth looks better than it is. With few chains the
    lines are noisy.

    Examples
    --------
    >>> import numpy as np
    >>> import arviz as az
    >>> from pymc_austerity.plots import plot_risk
    >>> rng, runs = np.random.default_rng(1), {}
    >>> for name, share in [("exact", 1.0), ("austerity", 0.1)]:
    ...     stats = {"n_used": np.full((4, 1000), 1000 * share), "fraction_used": np.full((4, 1000), share)}
    ...     draws = {"a": rng.normal(size=(4, 1000))}
    ...     runs[name] = az.from_dict({"posterior": draws, "sample_stats": stats})
    >>> ax = plot_risk(runs, {"a": (0.0, 1.0)})
    >>> [line.get_label() for line in ax.lines]
    ['exact', 'austerity']
    """
    if not isinstance(runs, Mapping) or not runs:
        raise ValueError(f"runs must map names to results of pm.sample, got {type(runs).__name__}.")
    if not is_whole(n_points) or n_points < 2:
        raise ValueError(f"n_points must be an integer of at least 2, got {n_points!r}.")
    target = _read_truth(truth, var_names)
    curves = {
        name: risk_curve(idata, target.moments, n_points, (steps_per_draw or {}).get(name), name)
        for name, idata in runs.items()
    }
    (axes,) = panels(ax, 1)
    n = len(curves)
    styles = zip(colours(n), looks(("-", "--", "-."), n), strict=True)
    for (name, curve), (unwhiten, style) in zip(curves.items(), styles, strict=True):
        axes.plot(
            curve.passes,
            curve.risk,
            color=unwhiten,
            linestyle=style,
            label=shown(name),
            marker="o" if len(curve.risk) == 1 else None,
        )
    if target.floor is not None:
        axes.axhline(target.floor, color=EXACT, linestyle=":", label="Monte Carlo error of the truth")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("data read by a chain so far, in passes over all N rows")
    axes.set_ylabel("risk: squared error of a posterior mean\nin posterior variances")
    axes.set_title(_HOW_TO_READ, fontsize=9, loc="left")
    tidy([axes])
    axes.legend(fontsize=9)
    return axes


class Curve(NamedTuple):
    """Risk after some numbers of draws.

    Attributes
    ----------
    passes, risk : ndarray, shape (n,)
    """

    passes: Array
    risk: Array


class _Truth(NamedTuple):
    moments: dict[str, tuple[Array, Array]]
    floor: float | None


def risk_curve(
    idata: Any,
    moments: Mapping[str, tuple[Array, Array]],
    n_points: int,
    steps_per_draw: int | Sequence[int] | None = None,
    name: str = "run",
) -> Curve:
    """Squared errors of running means, in posterior variances, and passes over the data until then."""
    cost = np.cumsum(_passes(idata, steps_per_draw, name), axis=1).mean(axis=0)
    n_draws = len(cost)
    at = np.unique(np.round(np.geomspace(1, n_draws, min(n_points, n_draws))).astype(int)) - 1
    posterior = idata["posterior"].to_dataset()
    errors = []
    for variable, (mean, sd) in moments.items():
        if variable not in posterior:
            raise ValueError(
                f"{variable!r} is not in the posterior of the run {name!r}, which has "
                f"{', '.join(map(repr, posterior.data_vars))}."
            )
        draws = posterior[variable].transpose(*SAMPLE, ...).values.astype(float)
        if draws.shape[2:] != mean.shape:
            raise ValueError(
                f"{variable!r} has the shape {draws.shape[2:]} in the run {name!r}, and {mean.shape} in "
                "truth."
            )
        running = np.cumsum(draws, axis=1)[:, at] / (at + 1.0).reshape(-1, *[1] * mean.ndim)
        squares = ((running - mean) / sd) ** 2
        errors.append(np.moveaxis(squares, 1, 0).reshape(len(at), -1))
    return Curve(cost[at], np.concatenate(errors, axis=1).mean(axis=1))


def _passes(idata: Any, steps_per_draw: int | Sequence[int] | None, name: str) -> Array:
    """Passes over the data of each draw, of shape (chain, draw)."""
    stats = idata["sample_stats"] if "sample_stats" in getattr(idata, "children", {}) else {}
    if "n_used" not in stats and "n_steps" in stats:
        leapfrog: Array = stats["n_steps"].transpose(*SAMPLE).values.astype(float)
        return leapfrog
    try:
        found = aligned(idata, "n_used", "fraction_used", "accepted", "acceptance_rate", "exhausted")
        terms = found["n_used"] * transitions_per_draw(idata, found, steps_per_draw)
    except NotRecordedError as error:
        raise ValueError(f"The run {name!r} does not say what it read. {error}") from error
    shares = (terms / n_local(idata, found)).fillna(0.0).sum("sampler").transpose(*SAMPLE)
    return np.asarray(shares.values, dtype=float)


def _read_truth(truth: Any, var_names: str | Sequence[str] | None) -> _Truth:
    """Means and standard deviations; and for draws the risk that their own error amounts to."""
    wanted = [var_names] if isinstance(var_names, str) else var_names
    is_run = "posterior" in getattr(truth, "children", {})
    if not is_run and not (isinstance(truth, Mapping) and truth and not isinstance(truth, xr.DataTree)):
        raise ValueError(
            "truth must be a DataTree with a posterior, or map variables to (mean, sd), got "
            f"{type(truth).__name__}."
        )
    known = truth["posterior"].to_dataset() if is_run else truth
    names = list(known) if wanted is None else list(wanted)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"{', '.join(map(repr, unknown))} is not in truth, which has {', '.join(map(repr, known))}."
        )
    if not is_run:
        moments = {
            n: (np.asarray(known[n][0], dtype=float), np.asarray(known[n][1], dtype=float)) for n in names
        }
        return _Truth(_positive(moments), None)
    mcse, moments, floors = optional("arviz_stats").mcse, {}, []
    for n in names:
        draws = known[n].transpose(*SAMPLE, ...).astype(float)
        moments[n] = draws.mean(SAMPLE).values, draws.std(SAMPLE).values
        floors.append(np.ravel((mcse(draws, sample_dims=list(SAMPLE)) / draws.std(SAMPLE)).values) ** 2)
    return _Truth(_positive(moments), float(np.concatenate(floors).mean()))


def _positive(moments: dict[str, tuple[Array, Array]]) -> dict[str, tuple[Array, Array]]:
    for name, (mean, sd) in moments.items():
        if mean.shape != sd.shape or not np.isfinite(mean).all() or not (np.isfinite(sd) & (sd > 0.0)).all():
            raise ValueError(
                f"The truth of {name!r} must be finite means and positive standard deviations of one shape; "
                "leave out constants with var_names=."
            )
    return moments
