"""What is read of a result: its draws, one scalar at a time; its statistics, step by step; and the stamp.

PyMC gives a statistic that several steps record a third axis, in the order of the steps, and says nowhere
which steps these are. Without a stamp (`stamp`) they are told by counting: the steps that record `exhausted`
are some of those that record any other of our statistics but for those of a test, so one with as many columns
is of the same steps.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_austerity._version import __version__
from pymc_austerity.target import Array
from pymc_austerity.validation import nearest

SAMPLE = ("chain", "draw")


def ess(draws: Array) -> float:
    """Effective sample size (bulk) of draws of shape (chain, draw)."""
    import arviz_stats  # takes half a second

    return float(arviz_stats.ess(draws))


def mcse(draws: Array, method: str = "mean") -> float:
    """Monte Carlo standard error of the mean, or of the standard deviation (`method` "sd")."""
    import arviz_stats  # takes half a second

    return float(arviz_stats.mcse(draws, method=method))


def posterior_of(
    idata: Any, var_names: str | Sequence[str] | None = None, *, what: str = "idata"
) -> xr.Dataset:
    """The draws of some variables of the posterior, or of all; a `ValueError` for what is not in it."""
    if "posterior" not in getattr(idata, "children", {}):
        raise ValueError(f"{what} has no group posterior: give the result of pm.sample.")
    posterior: xr.Dataset = idata["posterior"].to_dataset()
    if var_names is None:
        return posterior
    advice = " Choose among these, or sample the others, too: without var_names=."
    return posterior[chosen(var_names, posterior, f"the posterior of {what}", advice)]


def chosen(
    var_names: str | Sequence[str] | None, known: Mapping[Any, Any], where: str, advice: str = ""
) -> list[str]:
    """Names of variables among those that are `known`, None for all; a `ValueError` for others."""
    if var_names is None:
        return list(known)
    names = [var_names] if isinstance(var_names, str) else list(var_names)
    if unknown := [name for name in names if name not in known]:
        raise ValueError(
            f"{', '.join(map(repr, unknown))} is not in {where}, which has {', '.join(map(repr, known))}."
            f"{nearest(unknown[0], map(str, known))}{advice}"
        )
    return names


def scalars(
    idata: Any, var_names: str | Sequence[str] | None = None, *, what: str = "idata"
) -> dict[str, Array]:
    """Draws of every scalar of the posterior, of shape (chain, draw), by ArviZ's label."""
    found = _labelled(posterior_of(idata, var_names, what=what))
    return {label: np.asarray(own.transpose(*SAMPLE), dtype=np.float64) for label, own in found}


def by_label(table: xr.Dataset) -> pd.Series:
    """Numbers of every scalar, such as `arviz_stats.ess` finds of a posterior, by ArviZ's label."""
    return pd.Series({label: float(own) for label, own in _labelled(table)}, dtype=np.float64)


def _labelled(data: xr.Dataset) -> Iterator[tuple[str, xr.DataArray]]:
    from arviz_base import xarray_sel_iter
    from arviz_base.labels import BaseLabeller

    labeller = BaseLabeller()
    for name, sel, isel in xarray_sel_iter(data, skip_dims=set(SAMPLE)):
        yield labeller.make_label_flat(name, sel, isel), data[name].isel(isel)


# Statistics of steps, and the stamp ---------------------------------------------------------------


# What all steps of the package record, and no others do; and what all steps with a decision rule do.
_TOGETHER = ({"n_used", "fraction_used"}, {"psi", "log_ratio_mean", "log_ratio_se", "n_stages"})

# PyMC's traces rename some statistics.
RENAMED = {
    "mean_tree_accept": "acceptance_rate",
    "model_logp": "lp",
    "depth": "tree_depth",
    "tree_size": "n_steps",
}
_VERSION, _STEPS = "pymc_austerity_version", "pymc_austerity_steps"


def _label(step: dict[str, Any]) -> str:
    """Name of a stamped step in tables, with its variables."""
    return f"{step['step']}({', '.join(step['vars'])})"


class NotRecordedError(ValueError):
    """A result does not hold what is asked of it: no step recorded it."""


def _sample_stats_of(idata: Any, needed: str) -> xr.Dataset:
    """The group `sample_stats`; `NotRecordedError` without the statistic: no subsampled step took part."""
    if not isinstance(idata, xr.DataTree):
        raise ValueError(
            f"idata must be the DataTree that pm.sample returns, one alone, got {type(idata).__name__}."
        )
    groups = idata.children
    if "sample_stats" not in groups:
        raise NotRecordedError(
            f"idata has no group sample_stats (it has {', '.join(groups) or 'no groups'}): give the result "
            "of pm.sample with a step of pymc_austerity."
        )
    stats: xr.Dataset = idata["sample_stats"].to_dataset()
    if missing := [d for d in SAMPLE if d not in stats.dims]:
        raise ValueError(
            f"sample_stats has no dimension {' and '.join(missing)}: keep both, as by isel(chain=[0])."
        )
    if needed not in stats:
        raise NotRecordedError(
            f"sample_stats has no {needed}: no subsampled step took part. Sample with a step of "
            "pymc_austerity that records it, such as pm.sample(step=AusterityMH())."
        )
    return stats


def _columns(stats: xr.Dataset, name: str) -> xr.DataArray:
    """A statistic with the dimensions (chain, draw, sampler), the last of them new if there is one step."""
    found = stats[name]
    others = [d for d in found.dims if d not in SAMPLE]
    if len(others) > 1:
        raise ValueError(f"The statistic {name} has the dimensions {found.dims}; a step records one number.")
    found = found.rename({others[0]: "sampler"}) if others else found.expand_dims("sampler", -1)
    return found.reset_coords(drop=True).drop_vars("sampler", errors="ignore").transpose(*SAMPLE, "sampler")


def aligned(idata: Any, base: str, *names: str) -> xr.Dataset:
    """Statistics of the steps that record `base`, with the dimensions (chain, draw, sampler).

    One that a step does not record, or that cannot be told to be of these steps, is NaN. The attribute
    `steps` has what the stamp says of each of them, in the order they move in (two of one class may move the
    same variables, and have one name), or nothing. If no step records `base`, that is a `NotRecordedError`.
    """
    stats, steps = _sample_stats_of(idata, base), json.loads(idata.attrs.get(_STEPS, "[]"))
    width = _columns(stats, base).sizes["sampler"]
    ours = [k for k, step in enumerate(steps) if base in step["stats"]]
    if steps and len(ours) != width:
        raise NotRecordedError(
            f"The stamp of idata has {len(ours)} steps that record {base}, and sample_stats {width}: stamp "
            "it with the steps that were given to pm.sample."
        )

    def columns_of(name: str) -> list[int]:
        """Where the statistic of each of these steps is; -1 if it is not, or that cannot be told."""
        if name in stats:
            n_columns = _columns(stats, name).sizes["sampler"]
            recorded = [k for k, step in enumerate(steps) if name in step["stats"]]
            if steps and len(recorded) == n_columns:
                return [recorded.index(k) if k in recorded else -1 for k in ours]
            deciding = _columns(stats, "exhausted").sizes["sampler"] if "exhausted" in stats else 0
            is_together = any({name, base} <= group for group in _TOGETHER)
            if n_columns == width and (width == deciding or is_together):
                return list(range(width))
        return [-1] * width

    result = {}
    for name in dict.fromkeys((base, *names)):
        places = columns_of(name)
        found = _columns(stats, name if name in stats else base).astype(float)
        result[name] = found.isel(sampler=places).where(xr.DataArray(places, dims="sampler") >= 0)
    unnamed = [f"step {k}" for k in range(width)] if width > 1 else ["step"]
    return xr.Dataset(
        result,
        coords={"sampler": [_label(steps[k]) for k in ours] or unnamed},
        attrs={"steps": [steps[k] for k in ours] or [{}] * width},
    )


def stamp(idata: Any, *steps: Any) -> None:
    """Write the configuration of the steps, and the version of the package, into ``idata.attrs``.

    Parameters
    ----------
    idata : DataTree
        Result of `pymc.sample`; it is changed in place.
    *steps : step methods
        All that were given to `pymc.sample`, in that order; a compound step, or a list, counts as its steps.
        Of PyMC's own steps the class and the variables are noted. Those that `pymc.sample` chose itself come
        after the given ones, and may be left out.

    Raises
    ------
    TypeError
        If one of `steps` is not a step method.
    ValueError
        If no step is given, they are not as many as recorded ``n_used``, or one has another number of local
        terms than the statistics at its place.

    Notes
    -----
    PyMC has no way for a step to write into the result, so this is a call of its own. It writes
    ``pymc_austerity_version`` and ``pymc_austerity_steps``, a JSON text, which survive
    ``idata.to_netcdf``. The diagnostics read from it the number of transitions for each draw, which
    statistics belong to which step, and what to call it.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_austerity import AusterityMH, RandomWalk
    >>> from pymc_austerity.diagnostics import stamp
    >>> with pm.Model():
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, observed=[0.1] * 2000)
    ...     step = AusterityMH([mu], epsilon=0.05, proposal=RandomWalk(0.05))
    ...     idata = pm.sample(10, tune=0, chains=1, step=step, progressbar=False, quiet=True,
    ...                       compute_convergence_checks=False)
    >>> stamp(idata, step)
    >>> idata.attrs["pymc_austerity_steps"][:42]
    '[{"step": "AusterityMH", "vars": ["mu"], "'
    """
    single = _flat(steps)
    if not single:
        raise ValueError("stamp needs the steps that were given to pm.sample: stamp(idata, step).")
    records = [_record(step) for step in single]
    recorded = sum("n_used" in record["stats"] for record in records)
    stats = idata["sample_stats"].to_dataset() if "sample_stats" in idata.children else xr.Dataset()
    if "n_used" in stats:
        if (there := _columns(stats, "n_used").sizes["sampler"]) != recorded:
            raise ValueError(
                f"{recorded} of the steps given to stamp record n_used, but {there} in idata: give all steps "
                "that were given to pm.sample, in that order."
            )
        _check_sizes(stats, [record for record in records if "n_used" in record["stats"]])
    idata.attrs[_VERSION] = __version__
    idata.attrs[_STEPS] = json.dumps(records)


def _check_sizes(stats: xr.Dataset, records: list[dict[str, Any]]) -> None:
    """Are the steps of the data that the statistics are of?"""
    if "fraction_used" not in stats:
        return
    sums = [_columns(stats, name).sum(SAMPLE).values for name in ("n_used", "fraction_used")]
    for record, used, share in zip(records, *sums, strict=True):
        if record.get("elementwise"):
            continue  # shares are of the rows of an element
        if share > 0.0 and "n_local" in record and abs(used / share / record["n_local"] - 1.0) > 1e-6:
            raise ValueError(
                f"{_label(record)} has {record['n_local']:,} local terms, but the step of idata at its place "
                f"{used / share:,.0f}: give the steps that made idata, in the order of pm.sample."
            )


def _flat(steps: Any) -> list[Any]:
    """Single steps, in the order in which they move."""
    result = []
    for step in steps:
        parts = step if isinstance(step, list | tuple) else getattr(step, "methods", None)
        result += [step] if parts is None else _flat(parts)
    return result


def _record(step: Any) -> dict[str, Any]:
    """Record of one step, as it is written into a result."""
    if isinstance(step, type) or not hasattr(step, "vars") or not hasattr(step, "stats_dtypes_shapes"):
        raise TypeError(f"stamp takes step methods, such as AusterityMH([beta]), got {step!r}.")
    stats = sorted(RENAMED.get(name, name) for name in step.stats_dtypes_shapes)
    record = {"step": type(step).__name__, "vars": [str(v.name) for v in step.vars]}
    return {**record, **getattr(step, "configuration", {}), "stats": stats}
