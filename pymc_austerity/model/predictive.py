"""`sample_posterior_predictive`: predictions for all rows on disk, written to disk."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.model import modelcontext
from pymc.pytensorf import compile as compiled
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from xarray import DataTree, open_datatree

from pymc_austerity.data.files import named_if_full
from pymc_austerity.data.writing import require_free
from pymc_austerity.extras import imported
from pymc_austerity.model.field.of_model import factorise
from pymc_austerity.model.graph.rows_on_disk import RowsOnDisk, on_disk
from pymc_austerity.progress import stage, watched

# Bytes of a piece of predictions in memory: all draws of some rows.
_PIECE = 64_000_000
_GROUP, _FILE = "posterior_predictive", "zarr.json"


def sample_posterior_predictive(
    idata: Any,
    path: str | Path,
    *,
    var_names: Sequence[str] | None = None,
    model: pm.Model | None = None,
    overwrite: bool = False,
    random_seed: Any = None,
    progressbar: bool = True,
) -> DataTree:
    """`pm.sample_posterior_predictive` for data on disk: predictions are written to disk, in pieces.

    Parameters
    ----------
    idata : DataTree
        What `pm.sample` has returned, with a group ``posterior``. Thin it first: predictions take a number
        for each draw and row, ``idata.sel(draw=slice(None, None, 100))``.
    path : str or Path
        Of the folder that is written, a group of Zarr.
    var_names : sequence of str, optional
        Observed variables. Default: all that read data on disk.
    model : pm.Model, optional
        Default: that of the context.
    overwrite : bool, default False
        Replace predictions that are there.
    random_seed : int, optional
    progressbar : bool, default True

    Returns
    -------
    DataTree
        The group ``posterior_predictive``, opened from `path`: read in pieces where it is used.

    Raises
    ------
    ValueError
        If the model has no data on disk, or a variable is missing in the posterior.
    FactorisationError
        If rows are not computed one by one, each from its own row of the data.
    FileExistsError
        If there is something at `path`.
    OSError
        If the disk is full. Nothing is left then.

    Notes
    -----
    64 MB of predictions are in memory at a time. Each piece is a chunk of Zarr: all draws of some rows.

    *Guarantee*: each number is a draw from the distribution of its row, given the draw of the posterior, as
    that of ``pm.sample_posterior_predictive`` with the arrays in memory. The random numbers are others.

    *When it fails*: a model that `factorise` refuses is refused here.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import RowStore, TunaMH, sample_posterior_predictive, stored_data
    >>> y = np.random.default_rng(1).poisson(3.0, size=5000)
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = RowStore.write({"y": y}, f"{folder.name}/counts.rows")
    >>> with pm.Model() as model:
    ...     rate = pm.Gamma("rate", 2, 1)
    ...     counts = pm.Poisson("counts", rate, observed=stored_data("y", store["y"]))
    ...     idata = pm.sample(100, chains=1, step=TunaMH(progressbar=False), progressbar=False)
    ...     predicted = sample_posterior_predictive(idata, f"{folder.name}/counts.zarr", progressbar=False)
    >>> predicted.posterior_predictive["counts"].sizes["counts_dim_0"]
    5000
    >>> predicted.close()
    >>> folder.cleanup()
    """
    model, path = modelcontext(model), Path(path)
    require_free(path, overwrite, f"{_GROUP}/{_FILE}", "group of predictions")
    asked = _asked(model, var_names)
    given, coords = draws_of(idata, _needed(model, asked), "the predictions")
    with watched("sample_posterior_predictive", progressbar):
        factorise(model)  # refuses what looks at several rows at a time
        drawn = _Predictions(model, asked, given, coords, random_seed)
        n_draws = drawn.n_chains * drawn.n_draws
        n_rows = max(1, _PIECE // (n_draws * drawn.bytes_a_row))
        with _on_disk(path, drawn, n_rows) as written:
            for first in range(0, drawn.n_rows, n_rows):
                last = min(first + n_rows, drawn.n_rows)
                stage("predictions", f", row {last:,} of {drawn.n_rows:,}")
                for name, values in drawn.of_rows(first, last).items():
                    written[name][:, :, first:last] = values
    result: DataTree = open_datatree(path, engine="zarr", consolidated=False)
    return result


def _asked(model: pm.Model, var_names: Sequence[str] | None) -> list[Variable]:
    """Observed variables that read data on disk."""
    found = [rv for rv in model.observed_RVs if on_disk([rv, model.rvs_to_values[rv]])]
    if not found:
        raise ValueError(
            "No observed variable of the model reads data on disk (stored_data). Use "
            "pm.sample_posterior_predictive."
        )
    if var_names is None:
        return found
    names = [var_names] if isinstance(var_names, str) else list(var_names)
    there = {rv.name: rv for rv in found}
    for name in names:
        if name not in there:
            raise ValueError(f"var_names: {name!r} is none of {', '.join(there)}, which read data on disk.")
    return [there[name] for name in names]


def _needed(model: pm.Model, asked: Sequence[Variable]) -> list[Variable]:
    """The free variables that predictions depend on."""
    free = set(model.free_RVs)
    before = list(ancestors(asked, blockers=free))
    for rv in model.observed_RVs:
        if rv in before and not on_disk([rv, model.rvs_to_values[rv]]):
            raise ValueError(
                f"Predictions depend on the observed variable {rv.name!r}, which is in memory: it would be "
                "drawn anew for each piece of the rows. Put its value into the model as a number or array."
            )
    return [var for var in before if var in free]


def draws_of(
    idata: Any, needed: Sequence[Variable], what: str
) -> tuple[dict[Variable, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Draws of the variables that `what` depends on, (chain, draw, ...) each, and their numbers."""
    try:
        posterior = idata["posterior"]
    except (KeyError, TypeError) as error:
        raise ValueError("idata has no group 'posterior': give what pm.sample has returned.") from error
    values = {}
    for var in needed:
        if var.name not in posterior:
            raise ValueError(
                f"The posterior has no {var.name!r}, on which {what} depend. Keep it: "
                "pm.sample(var_names=...)."
            )
        values[var] = np.asarray(posterior[var.name].transpose("chain", "draw", ...).values)
    return values, {dim: np.asarray(posterior[dim].values) for dim in ("chain", "draw")}


class _Predictions:
    """Predictions for some rows after the other."""

    def __init__(
        self,
        model: pm.Model,
        asked: Sequence[Variable],
        given: dict[Variable, NDArray[Any]],
        coords: dict[str, NDArray[Any]],
        seed: Any,
    ) -> None:
        self._given, self.coords = given, coords
        self._names = [rv.name for rv in asked]
        self.n_chains, self.n_draws = (len(values) for values in coords.values())
        values = [model.rvs_to_values[rv] for rv in asked]
        found = on_disk([*asked, *values])
        self._rows = {op: op.rows for op in found.values()}
        self.n_rows = len(next(iter(self._rows.values())))
        self._function, self._pieces = _function(model, asked, found, given, seed)
        # One draw of the first row of each variable, (1, ...), and the names of its axes.
        self.first: dict[str, NDArray[Any]] = {}
        self.dims: dict[str, list[str]] = {}
        for rv, piece in zip(asked, self._call(0, 0, self._of(0, 1)), strict=True):
            dims = model.named_vars_to_dims.get(rv.name) or [None] * piece.ndim
            self.dims[rv.name] = [dim or f"{rv.name}_dim_{k}" for k, dim in enumerate(dims)]
            self.first[rv.name] = piece

    @property
    def bytes_a_row(self) -> int:
        """Bytes that one draw takes for a row."""
        return sum(row.nbytes for row in self.first.values())

    def of_rows(self, first: int, last: int) -> dict[str, NDArray[Any]]:
        """All draws for some rows, (chain, draw, row, ...)."""
        rows, shape = self._of(first, last), (self.n_chains, self.n_draws, last - first)
        result = {name: np.empty(shape + row.shape[1:], row.dtype) for name, row in self.first.items()}
        for chain, draw in np.ndindex(self.n_chains, self.n_draws):
            for values, found in zip(result.values(), self._call(chain, draw, rows), strict=True):
                values[chain, draw] = found
        return result

    def _of(self, first: int, last: int) -> list[NDArray[Any]]:
        return [np.array(self._rows[op][first:last]) for op in self._pieces]

    def _call(self, chain: int, draw: int, rows: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        n = len(rows[0])
        found = self._function(*(drawn[chain, draw] for drawn in self._given.values()), *rows, n)
        for name, values in zip(self._names, found, strict=True):
            if values.shape[:1] != (n,):
                raise ValueError(
                    f"Predictions of {name!r} for {n} rows have shape {values.shape}: the first axis of an "
                    "observed variable must be that of its rows."
                )
        return list(found)


def _function(
    model: pm.Model,
    asked: Sequence[Variable],
    found: Mapping[Variable, RowsOnDisk],
    given: Mapping[Variable, Any],
    seed: Any,
) -> tuple[Any, list[RowsOnDisk]]:
    """Predictions as a function of draws and of pieces of the data, and what the pieces are of."""
    parameters = {var: var.type(name=var.name) for var in given}
    pieces = {op: var.type() for var, op in found.items()}
    length = pt.scalar("length", dtype="int64")
    instead: dict[Variable, Variable] = {**parameters, **{var: pieces[op] for var, op in found.items()}}
    instead |= dict.fromkeys((op.length for op in pieces), length)
    instead |= {
        model.dim_lengths[dims[0]]: length
        for rv in asked
        if (dims := model.named_vars_to_dims.get(rv.name)) and dims[0] is not None
    }
    outputs = clone_replace(list(asked), instead)
    inputs = [*parameters.values(), *pieces.values(), length]
    return compiled(inputs, outputs, random_seed=seed, on_unused_input="ignore"), list(pieces)


@contextmanager
def _on_disk(path: Path, drawn: _Predictions, n_rows: int) -> Iterator[dict[str, Any]]:
    """Arrays of Zarr (chain, draw, row, ...) to write pieces of so many rows to, by name.

    A piece is one chunk of Zarr. After an error, or an interrupt, nothing of them is left.
    """
    zarr = imported("zarr", "Predictions on disk", "store")
    wanted = drawn.n_chains * drawn.n_draws * drawn.n_rows * drawn.bytes_a_row
    with tempfile.TemporaryDirectory(prefix=f"{path.name}.", dir=path.parent) as folder:
        with named_if_full(path, wanted):
            group = zarr.create_group(str(Path(folder, "new"))).create_group(_GROUP)
            for name, values in drawn.coords.items():
                group.create_array(name, data=values, dimension_names=[name])
            yield {
                name: group.create_array(
                    name,
                    shape=(drawn.n_chains, drawn.n_draws, drawn.n_rows, *row.shape[1:]),
                    dtype=row.dtype,
                    chunks=(drawn.n_chains, drawn.n_draws, min(n_rows, drawn.n_rows), *row.shape[1:]),
                    dimension_names=[*drawn.coords, *drawn.dims[name]],
                )
                for name, row in drawn.first.items()
            }
        if os.path.lexists(path):
            path.rename(Path(folder, "replaced"))
        Path(folder, "new").rename(path)
