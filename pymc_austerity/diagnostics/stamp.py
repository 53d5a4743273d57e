"""Write into a result which steps made it."""

from __future__ import annotations

import json
from typing import Any

import xarray as xr

from pymc_austerity._version import __version__
from pymc_austerity.diagnostics.samplers import STEPS_ATTRIBUTE, columns, label

VERSION_ATTRIBUTE = "pymc_austerity_version"
# PyMC's traces rename some statistics.
_RENAMED = {
    "mean_tree_accept": "acceptance_rate",
    "model_logp": "lp",
    "depth": "tree_depth",
    "tree_size": "n_steps",
}


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
        there = stats["n_used"].sizes[stats["n_used"].dims[-1]] if stats["n_used"].ndim > 2 else 1
        if there != recorded:
            raise ValueError(
                f"{recorded} of the steps given to stamp record n_used, but {there} in idata: give all steps "
                "that were given to pm.sample, in that order."
            )
        _check_sizes(stats, [record for record in records if "n_used" in record["stats"]])
    idata.attrs[VERSION_ATTRIBUTE] = __version__
    idata.attrs[STEPS_ATTRIBUTE] = json.dumps(records)


def _check_sizes(stats: xr.Dataset, records: list[dict[str, Any]]) -> None:
    """Are the steps of the data that the statistics are of?"""
    if "fraction_used" not in stats:
        return
    sums = [columns(stats, name).sum(("chain", "draw")).values for name in ("n_used", "fraction_used")]
    for record, used, share in zip(records, *sums, strict=True):
        if record.get("elementwise"):
            continue  # shares are of the rows of an element
        if share > 0.0 and "n_local" in record and abs(used / share / record["n_local"] - 1.0) > 1e-6:
            raise ValueError(
                f"{label(record)} has {record['n_local']:,} local terms, but the step of idata at its place "
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
    stats = sorted(_RENAMED.get(name, name) for name in step.stats_dtypes_shapes)
    record = {"step": type(step).__name__, "vars": [str(v.name) for v in step.vars]}
    return {**record, **getattr(step, "configuration", {}), "stats": stats}
