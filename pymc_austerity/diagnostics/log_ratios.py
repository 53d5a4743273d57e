"""The group `log_ratios`: what all N log ratios of a few proposed moves look like."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from pymc_austerity.exceptions import warn
from pymc_austerity.target import Array
from pymc_austerity.validation import is_real, is_whole, require_whole

GROUP = "log_ratios"
# Sizes of the sets of rows whose share of the variance is noted, and how many of the largest terms.
TOP = (1, 10, 100)
_N_TOP = 101


def from_log_ratios(
    log_ratios: Sequence[npt.ArrayLike],
    global_log_ratios: npt.ArrayLike = 0.0,
    *,
    batch_size: int = 500,
    epsilon: float = 0.01,
    n_batches: int = 500,
    random_seed: Any = None,
) -> xr.DataTree:
    """Summarise all log ratios of some proposed moves, for `normality` and the design of the test.

    `probe` does this for a step and a model. Use this function for log ratios from elsewhere.

    Parameters
    ----------
    log_ratios : sequence of array_like of shape (N,)
        l_i(q_new) - l_i(q) of all N terms, of one move after the other.
    global_log_ratios : array_like of shape (n_pairs,), default 0.0
        Of each move: everything else of the log acceptance ratio.
    batch_size : int >= 2, default 500
        Terms in a batch, less than N.
    epsilon : float in [0, 0.5], default 0.01
        Tolerance of the test, noted for `normality`.
    n_batches : int >= 3, default 500
        Batches that are drawn for each move.
    random_seed : int, sequence of int or numpy.random.Generator, optional

    Returns
    -------
    DataTree
        With the group ``log_ratios``: see `probe`.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or moves have different numbers of terms.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_austerity.diagnostics import from_log_ratios
    >>> rng = np.random.default_rng(1)
    >>> tree = from_log_ratios(rng.normal(1e-5, 1e-3, (5, 20_000)), batch_size=500, random_seed=1)
    >>> tree["log_ratios"].sd.values.round(5)
    array([0.00099, 0.00099, 0.001  , 0.001  , 0.00099])
    """
    values = [np.asarray(row, dtype=np.float64) for row in log_ratios]
    if not values or any(row.ndim != 1 or row.shape != values[0].shape for row in values):
        raise ValueError(
            "log_ratios must be one or more vectors of one length, got shapes "
            f"{', '.join(str(row.shape) for row in values) or 'of nothing'}."
        )
    check_batches(batch_size, n_batches, len(values[0]))
    if not is_real(epsilon) or not 0.0 <= epsilon <= 0.5:
        raise ValueError(f"epsilon must be in [0, 0.5], got {epsilon!r}.")
    rng = np.random.default_rng(random_seed)
    rows = [summarise(row, batch_size, n_batches, rng) for row in values]
    base = np.broadcast_to(np.asarray(global_log_ratios, dtype=np.float64), (len(values),))
    attrs = {"n_local": len(values[0]), "batch_size": int(batch_size), "epsilon": float(epsilon)}
    return group_of(rows, base, attrs)


def check_batches(batch_size: Any, n_batches: Any, n_local: int) -> None:
    """Raise `ValueError` naming what is out of its range."""
    if not is_whole(batch_size) or not 2 <= batch_size < n_local:
        raise ValueError(
            f"batch_size must be an integer from 2 to less than the {n_local:,} terms, got {batch_size!r}."
        )
    require_whole(3, n_batches=n_batches)


def summarise(values: Array, batch_size: int, n_batches: int, rng: np.random.Generator) -> dict[str, Any]:
    """Summary of the N log ratios of one move. Those that are not finite are counted, and left out."""
    n_all = len(values)
    finite = np.isfinite(values)
    if not np.all(finite):
        values = values[finite]
    n = len(values)
    result: dict[str, Any] = {
        "n_infinite": n_all - n,
        "top_share": np.full(len(TOP), math.nan),
        "top_terms": np.full(min(_N_TOP, n_all), math.nan),
        "batch_means": np.full(n_batches, math.nan),
        "batch_t": np.full(n_batches, math.nan),
    }
    if n <= batch_size:
        return {**result, "mean": math.nan, "sd": math.nan, "skewness": math.nan}
    mean = float(np.mean(values))
    deviation = values - mean
    squares = deviation * deviation
    total = float(np.sum(squares))
    # What rounding leaves of equal numbers is no variance.
    if np.sqrt(total / n) <= 1e-12 * float(np.max(np.abs(values))):
        total, deviation, squares = 0.0, np.zeros(n), np.zeros(n)
    sd = math.sqrt(total / n)
    largest = np.sort(np.partition(squares, max(n - _N_TOP, 0))[-min(_N_TOP, n) :])[::-1]
    result["top_terms"][: len(largest)] = np.sqrt(largest)
    if total > 0.0:
        result["top_share"] = np.array([float(np.sum(largest[:k])) / total for k in TOP])
    for k in range(n_batches):
        batch = deviation[rng.choice(n, batch_size, replace=False, shuffle=False)]
        difference, s = float(np.mean(batch)), float(np.std(batch, ddof=1))
        error = s * math.sqrt((1.0 - (batch_size - 1.0) / (n - 1.0)) / batch_size)
        result["batch_means"][k] = mean + difference
        if error > 0.0:
            result["batch_t"][k] = difference / error
    skewness = float(np.mean(squares * deviation)) / sd**3 if sd > 0.0 else 0.0
    return {**result, "mean": mean, "sd": sd, "skewness": skewness}


def group_of(rows: Sequence[Mapping[str, Any]], base: npt.ArrayLike, attrs: Mapping[str, Any]) -> xr.DataTree:
    """The group of several moves; `base` is what the sum of the log ratios of each is added to."""
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    base = np.asarray(base, dtype=np.float64)
    if np.any(table["n_infinite"]):
        warn(
            "Some log ratios are not finite; moments are those of the others. A subsample that misses such a "
            "term accepts moves that are impossible."
        )
    dims = {
        "top_share": ("pair", "k"),
        "top_terms": ("pair", "rank"),
        "batch_means": ("pair", "batch"),
        "batch_t": ("pair", "batch"),
    }
    variables = {name: (dims.get(name, ("pair",)), values) for name, values in table.items()}
    variables["global"] = (("pair",), base)
    variables["mu"] = (("pair",), table["mean"] + base / attrs["n_local"])
    coords = {
        "pair": np.arange(len(rows)),
        "k": list(TOP),
        "rank": np.arange(1, table["top_terms"].shape[1] + 1),
        "batch": np.arange(table["batch_t"].shape[1]),
    }
    dataset = xr.Dataset(variables, coords=coords, attrs=dict(attrs))
    return xr.DataTree.from_dict({GROUP: dataset})


def log_ratios_of(idata: Any) -> xr.Dataset:
    """The group `log_ratios`; a `ValueError` if there is none."""
    groups = getattr(idata, "children", {})
    if GROUP not in groups:
        raise ValueError(
            f"There is no group {GROUP} (but {', '.join(groups) or 'no groups'}): give the result of "
            "probe(model, step), or add it to your own by idata.update(probe(model, step))."
        )
    dataset: xr.Dataset = idata[GROUP].to_dataset()
    return dataset
