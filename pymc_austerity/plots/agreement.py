"""Plots beside an exact posterior: its marginals, and the risk of estimates against the data touched."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from xarray import DataTree

from pymc_austerity.diagnostics.agreement import agreement
from pymc_austerity.diagnostics.data_usage import terms_read
from pymc_austerity.diagnostics.result import SAMPLE, NotRecordedError, by_label, chosen, posterior_of
from pymc_austerity.plots.style import (
    APPROXIMATE,
    EXACT,
    Panels,
    Visuals,
    colours,
    looks,
    optional,
    panel_plot,
    panels,
    shown,
)
from pymc_austerity.target import Array
from pymc_austerity.validation import require_whole

# Mean and standard deviation of each variable.
Moments = dict[str, tuple[Array, Array]]

_VISUALS = ("density", "title", "ylabel", "legend")
_HOW_TO_READ = (
    "A risk of 1 is an error of one posterior sd, 0.01 of a tenth of one.\n"
    "Lower is better for as much data; a line that levels off has reached its bias."
)


@panel_plot(_VISUALS)
def plot_agreement(
    approximate: Any,
    exact: Any,
    *,
    var_names: str | Sequence[str] | None = None,
    names: tuple[str, str] = ("approximate", "exact"),
    visuals: Visuals = None,
    plot_collection: Any = None,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> Any:
    """Marginal densities of two posteriors, one over the other: one panel for each scalar.

    Parameters
    ----------
    approximate, exact : DataTree
        What `pymc.sample` returned, with and without subsampling.
    var_names : str or sequence of str, default None
        Which variables; None for all that both have.
    names : tuple of 2 str, default ("approximate", "exact")
        What the legend calls them.
    panel_parameters

    Returns
    -------
    PlotCollection

    Raises
    ------
    ImportError
        If the libraries of the extra `plots` are not installed.
    ValueError
        If `names` are not two different strings, or the posteriors have no variable in common.

    Notes
    -----
    Titles say how far the mean of the first is from that of the second, in standard deviations of the second,
    and the ratio of the standard deviations, each with its Monte Carlo standard error
    (`diagnostics.agreement`). Densities are kernel estimates (`arviz_stats.kde`); of whole numbers, the share
    of each. A constant has no curve.

    Examples
    --------
    >>> import numpy as np
    >>> import arviz as az
    >>> from pymc_austerity.plots import plot_agreement
    >>> rng = np.random.default_rng(1)
    >>> a, b = (az.from_dict({"posterior": {"x": s * rng.normal(size=(2, 500))}}) for s in (1.2, 1.0))
    >>> pc = plot_agreement(a, b)
    >>> pc.get_target("x", {}).get_title().splitlines()[0]
    'x'
    """
    if len(names) != 2 or names[0] == names[1]:
        raise ValueError(f"names must be two different strings, got {names!r}.")
    panels = Panels(_VISUALS, visuals, plot_collection, backend, pc_kwargs)
    a = posterior_of(approximate, var_names, what="approximate")
    b = posterior_of(exact, var_names, what="exact")
    wanted = [str(name) for name in b if name in a]
    # Scalars are those of equal names, wherever they stand.
    b, a = xr.align(b[wanted], a[wanted], join="inner", exclude=SAMPLE)
    panel = b.isel(dict.fromkeys(SAMPLE, 0), drop=True, missing_dims="ignore").fillna(0.0)
    n_panels = sum(one.size for one in panel.values())
    from arviz_base import rcParams

    most = rcParams["plot.max_subplots"]
    if most is not None and n_panels > most:  # before minutes are spent on them
        raise ValueError(
            f"That would be {n_panels:,} panels, one for each scalar, but rcParams['plot.max_subplots'] is "
            f"{most}. Choose variables with var_names=."
        )
    table = agreement(approximate, exact, var_names=var_names)
    densities = xr.Dataset({name: _densities([a[name], b[name]], names) for name in wanted})
    panels.lay_out(
        densities,
        ["__variable__", *map(str, panel.dims)],
        n_panels,
        col_wrap=4,
        panel=(3.2, 2.9),
        aes={"color": ["model"]},
        color=[APPROXIMATE, EXACT],
    )
    panels.draw("density", optional("arviz_plots").visuals.line_xy, width=1.8)
    titles = xr.Dataset()
    for name, one in panel.items():
        told = [f"{label}\n{_compared(table.loc[label])}" for label in by_label(panel[[name]]).index]
        titles[name] = one.copy(data=np.array(told, dtype=object).reshape(one.shape))
    panels.draw_words(panel, titles, 10, ylabel="density")
    panels.draw_legend("model", title="posterior")
    return panels.collection


def _densities(samples: Sequence[xr.DataArray], names: Sequence[str]) -> xr.DataArray:
    """Curves of both posteriors, with dims (model, plot_axis, ..., {name}_point)."""
    whole = all(s.dtype.kind in "iub" for s in samples)
    curves = [_shares(s, samples) if whole else _kernel_estimate(s) for s in samples]
    point = f"{samples[0].name}_point"
    curves = [c.rename({"point": point}).transpose("plot_axis", ..., point) for c in curves]
    return xr.concat(curves, dim="model", join="override", coords="minimal", compat="override").assign_coords(
        model=list(names)
    )


def _kernel_estimate(samples: xr.DataArray) -> xr.DataArray:
    import arviz_stats  # takes half a second

    with warnings.catch_warnings():
        # Constants, such as the diagonal of a correlation matrix, have no density: their titles say it.
        warnings.filterwarnings("ignore", message="Your data appears to have a single value")
        curve: xr.DataArray = arviz_stats.kde(samples.astype(float), dim=list(SAMPLE))
    moves = samples.max(SAMPLE) - samples.min(SAMPLE) > 0.0
    return curve.rename({"kde_dim": "point"}).reset_coords(drop=True).where(moves)


def _shares(samples: xr.DataArray, both: Sequence[xr.DataArray]) -> xr.DataArray:
    """Share of each whole number from the smallest to the largest in either posterior."""
    low, high = (int(f([f(s.values) for s in both])) for f in (np.min, np.max))
    values = np.arange(low, high + 1)
    support = xr.DataArray(values.astype(float), dims="point")
    share = (samples == xr.DataArray(values, dims="point")).mean(SAMPLE)
    return xr.concat([support.broadcast_like(share), share], dim="plot_axis").assign_coords(
        plot_axis=["x", "y"]
    )


def _compared(row: Any) -> str:
    if not np.isfinite(row["shift"]):
        return "cannot be compared"
    return (
        f"shift {row['shift']:+.2f} ± {row['shift_error']:.2f} sd\n"
        f"sd ratio {row['sd_ratio']:.2f} ± {row['sd_ratio_error']:.2f}"
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
    if not isinstance(runs, Mapping) or isinstance(runs, DataTree) or not runs:
        raise ValueError(
            f'runs must map names to results of pm.sample, {{"TunaMH": idata}}, got {type(runs).__name__}.'
        )
    require_whole(2, n_points=n_points)
    moments, floor = _read_truth(truth, var_names)
    curves = {
        name: risk_curve(idata, moments, n_points, (steps_per_draw or {}).get(name), name)
        for name, idata in runs.items()
    }
    (axes,) = panels(ax, 1)
    n = len(curves)
    styles = zip(colours(n), looks(("-", "--", "-."), n), strict=True)
    for (name, (passes, risk)), (colour, style) in zip(curves.items(), styles, strict=True):
        marker = "o" if len(risk) == 1 else None  # a line through one point cannot be seen
        axes.plot(passes, risk, color=colour, linestyle=style, label=shown(name), marker=marker)
    if floor is not None:
        axes.axhline(floor, color=EXACT, linestyle=":", label="Monte Carlo error of the truth")
    axes.set(xscale="log", yscale="log", xlabel="data read by a chain so far, in passes over all N rows")
    axes.set_ylabel("risk: squared error of a posterior mean\nin posterior variances")
    axes.set_title(_HOW_TO_READ, fontsize=9, loc="left")
    axes.legend(fontsize=9)
    return axes


def risk_curve(
    idata: Any,
    moments: Moments,
    n_points: int,
    steps_per_draw: int | Sequence[int] | None = None,
    name: str = "run",
) -> tuple[Array, Array]:
    """Passes over the data until some numbers of draws, and the risk then, (n,) each."""
    cost = np.cumsum(_passes(idata, steps_per_draw, name), axis=1).mean(axis=0)
    n_draws = len(cost)
    at = np.unique(np.round(np.geomspace(1, n_draws, min(n_points, n_draws))).astype(int)) - 1
    posterior = posterior_of(idata, list(moments), what=f"the run {name!r}")
    errors = []
    for variable, (mean, sd) in moments.items():
        draws = posterior[variable].transpose(*SAMPLE, ...).values.astype(float)
        if draws.shape[2:] != mean.shape:
            raise ValueError(
                f"{variable!r} has the shape {draws.shape[2:]} in the run {name!r}, and {mean.shape} in "
                "truth."
            )
        running = np.cumsum(draws, axis=1)[:, at] / (at + 1.0).reshape(-1, *[1] * mean.ndim)
        squares = ((running - mean) / sd) ** 2
        errors.append(np.moveaxis(squares, 1, 0).reshape(len(at), -1))
    return cost[at], np.concatenate(errors, axis=1).mean(axis=1)


def _passes(idata: Any, steps_per_draw: int | Sequence[int] | None, name: str) -> Array:
    """Passes over the data of each draw, of shape (chain, draw)."""
    stats = idata["sample_stats"] if "sample_stats" in getattr(idata, "children", {}) else {}
    if "n_used" not in stats and "n_steps" in stats:
        leapfrog: Array = stats["n_steps"].transpose(*SAMPLE).values.astype(float)
        return leapfrog
    try:
        terms, n = terms_read(idata, steps_per_draw)
    except NotRecordedError as error:
        raise ValueError(f"The run {name!r} does not say what it read. {error}") from error
    shares = (terms / n).fillna(0.0).sum("sampler").transpose(*SAMPLE)
    return np.asarray(shares.values, dtype=float)


def _read_truth(truth: Any, var_names: str | Sequence[str] | None) -> tuple[Moments, float | None]:
    """Means and standard deviations; and for draws the risk that their own error amounts to."""
    import arviz_stats  # takes half a second

    floor = None
    if "posterior" in getattr(truth, "children", {}):
        draws = posterior_of(truth, var_names, what="truth").astype(float)
        sds = draws.std(SAMPLE)
        moments = {str(name): (draws[name].mean(SAMPLE).values, sds[name].values) for name in draws}
        errors = [np.ravel(risk.values) for risk in ((arviz_stats.mcse(draws) / sds) ** 2).values()]
        floor = float(np.concatenate(errors).mean())
    elif isinstance(truth, Mapping) and truth and not isinstance(truth, xr.DataTree):
        names = chosen(var_names, truth, "truth")
        moments = {n: (np.asarray(truth[n][0], float), np.asarray(truth[n][1], float)) for n in names}
    else:
        raise ValueError(
            "truth must be a DataTree with a posterior, or map variables to (mean, sd), got "
            f"{type(truth).__name__}."
        )
    for name, (mean, sd) in moments.items():
        if mean.shape != sd.shape or not np.isfinite(mean).all() or not (np.isfinite(sd) & (sd > 0.0)).all():
            raise ValueError(
                f"The truth of {name!r} must be finite means and positive standard deviations of one shape; "
                "leave out constants with var_names=."
            )
    return moments, floor
