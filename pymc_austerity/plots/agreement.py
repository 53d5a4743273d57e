"""`plot_agreement`: marginals of an approximate posterior over those of an exact one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from pymc_austerity.diagnostics import agreement
from pymc_austerity.diagnostics.scalars import SAMPLE, scalars
from pymc_austerity.plots.optional import optional
from pymc_austerity.plots.panel import Visuals, check_visuals, panel_plot, panels_of
from pymc_austerity.plots.style import APPROXIMATE, EXACT

_VISUALS = ("density", "title", "ylabel", "legend")
_POINT = "_point"


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
    check_visuals(visuals, _VISUALS)
    azp = optional("arviz_plots")
    _refuse_many(exact, var_names)
    table = agreement(approximate, exact, var_names=var_names)
    samples = [idata["posterior"].to_dataset() for idata in (approximate, exact)]
    wanted = _names(samples, var_names)
    densities = xr.Dataset({name: _densities([s[name] for s in samples], names) for name in wanted})
    n_panels = sum(int(np.prod(_shape(samples[1][name]))) for name in wanted)
    pc_kwargs.setdefault("aes", {"color": ["model"]})
    pc_kwargs.setdefault("color", [APPROXIMATE, EXACT])
    dims = [d for d in densities.dims if d not in ("model", "plot_axis") and not str(d).endswith(_POINT)]
    panels = panels_of(
        densities,
        ["__variable__", *map(str, dims)],
        visuals=visuals,
        plot_collection=plot_collection,
        backend=backend,
        pc_kwargs=pc_kwargs,
        n_panels=n_panels,
        col_wrap=4,
        panel=(3.2, 2.9),
    )
    panels.draw("density", azp.visuals.line_xy, width=1.8)
    panel = densities.isel(model=0, plot_axis=0, drop=True)
    panel = panel.isel({d: 0 for d in panel.dims if str(d).endswith(_POINT)}, drop=True).fillna(0.0)
    whole = {"ignore_aes": "all", "data": panel}
    panels.draw_title(_titles(panel, table), size=10, **whole)
    panels.draw("ylabel", azp.visuals.labelled_y, text="density", **whole)
    panels.draw_legend("model", title="posterior")
    return panels.collection


def _refuse_many(exact: Any, var_names: str | Sequence[str] | None) -> None:
    """Refuse more panels than ArviZ allows, before minutes are spent on them."""
    most = optional("arviz_base").rcParams["plot.max_subplots"]
    number = len(scalars(exact, var_names, what="exact"))
    if most is not None and number > most:
        raise ValueError(
            f"That would be {number:,} panels, one for each scalar, but rcParams['plot.max_subplots'] is "
            f"{most}. Choose variables with var_names=."
        )


def _names(samples: Sequence[xr.Dataset], var_names: str | Sequence[str] | None) -> list[str]:
    """The variables that are drawn, in the order of the second posterior."""
    if isinstance(var_names, str):
        return [var_names]
    if var_names is not None:
        return list(var_names)
    shared = [str(name) for name in samples[1].data_vars if name in samples[0].data_vars]
    if not shared:
        raise ValueError(
            f"The posteriors have no variable in common: {', '.join(map(str, samples[0].data_vars))} and "
            f"{', '.join(map(str, samples[1].data_vars))}."
        )
    return shared


def _shape(samples: xr.DataArray) -> tuple[int, ...]:
    return tuple(n for d, n in samples.sizes.items() if d not in SAMPLE)


def _densities(samples: Sequence[xr.DataArray], names: Sequence[str]) -> xr.DataArray:
    """Curves of both posteriors, with dims (model, plot_axis, ..., {name}_point)."""
    whole = all(s.dtype.kind in "iub" for s in samples)
    curves = [_shares(s, samples) if whole else _kernel_estimate(s) for s in samples]
    point = f"{samples[0].name}{_POINT}"
    curves = [c.rename({"point": point}).transpose("plot_axis", ..., point) for c in curves]
    return xr.concat(curves, dim="model", join="override", coords="minimal", compat="override").assign_coords(
        model=list(names)
    )


def _kernel_estimate(samples: xr.DataArray) -> xr.DataArray:
    with warnings.catch_warnings():
        # Constants, such as the diagonal of a correlation matrix, have no density: their titles say it.
        warnings.filterwarnings("ignore", message="Your data appears to have a single value")
        curve: xr.DataArray = optional("arviz_stats").kde(samples.astype(float), dim=list(SAMPLE))
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


def _titles(panel: xr.Dataset, table: Any) -> xr.Dataset:
    """Title of each panel: the name of the scalar, and its row of `agreement`."""
    azb, labeller = optional("arviz_base"), optional("arviz_base.labels").BaseLabeller()
    texts = {name: np.empty(da.shape, dtype=object) for name, da in panel.items()}
    for name, sel, isel in azb.xarray_sel_iter(panel, skip_dims=set()):
        label = labeller.make_label_flat(name, sel, isel)
        row = table.loc[label]
        texts[name][tuple(isel[d] for d in panel[name].dims)] = f"{label}\n{_compared(row)}"
    return xr.Dataset({name: panel[name].copy(data=text) for name, text in texts.items()})


def _compared(row: Any) -> str:
    if not np.isfinite(row["shift"]):
        return "cannot be compared"
    return (
        f"shift {row['shift']:+.2f} ± {row['shift_error']:.2f} sd\n"
        f"sd ratio {row['sd_ratio']:.2f} ± {row['sd_ratio_error']:.2f}"
    )
