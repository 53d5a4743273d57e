"""`stored_data`: data of a model that stay on disk."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pytensor.tensor.variable import TensorVariable

from pymc_austerity.data.row_store import Rows
from pymc_austerity.exceptions import RowsOnDiskError
from pymc_austerity.model.graph.checks import uncast
from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.graph.rows_on_disk import RowsOnDisk, on_disk
from pymc_austerity.validation import is_whole


def stored_data(
    name: str, rows: Rows, *, dims: str | Sequence[str | None] | None = None, head: int = 2000
) -> TensorVariable:
    """`pm.Data` whose rows stay on disk.

    The variable stands for all rows. The model holds the first ones, the head, and what is on disk is read
    by the steps of this package alone.

    Parameters
    ----------
    name : str
        Of the data in the model of the context.
    rows : Rows
        An array of a `RowStore`, of shape (N, ...). Its dtype is kept.
    dims : str or sequence of str or None, optional
        Names of its dimensions, the first of length N, for other variables of the model. What a result has
        of the head has none.
    head : int >= 1, default 2000
        How many rows the model keeps in memory. A store that has fewer is no error.

    Returns
    -------
    TensorVariable
        For expressions of the model, and for ``observed=``.

    Raises
    ------
    TypeError
        If `rows` are no `Rows`, or there is no model.
    ValueError
        If the file has changed, the head has a NaN or infinite number, a dimension has another length, or
        other data of the model that are on disk have another number of rows.
    RowsOnDiskError
        Not here, but by whatever would evaluate the variable: PyMC's steps, `pm.find_MAP`, `pm.fit`,
        `pm.draw`, `pm.sample_posterior_predictive`, `pm.compute_log_likelihood`.

    Notes
    -----
    `MetropolisHastings`, `AusterityMH`, `MHSubLhd`, `MinibatchBarker` and `TunaMH` take models with such
    data, and so do `factorise`, `find_mode` and `recommend`. Other steps refuse them, and so does
    ``elementwise=True``. Rows with effects of groups have to be in the order of the groups, of the innermost
    ones if these are nested (`RowStore.write` with ``sort_by=``). What is computed from the data is computed
    row by row where it is needed. `sample_posterior_predictive` of this package makes predictions for all
    rows, on disk too. ``constant_data`` and ``observed_data`` of a result have the head only; with
    `diagnostics.stamp` the result names files and fingerprints.

    *Guarantee*: the model is that of the same arrays in memory, and so is the distribution that is sampled.
    An expression that looks at several rows at a time, such as ``X - X.mean(axis=0)``, is refused by name. A
    file that has changed is refused where a chain starts, in every process. Every chunk is compared with its
    checksum, and searched for NaN and infinity, when a step is built; some are compared for every chain.

    *When it fails*: numbers that are computed by NumPy from a part of the rows, and put into the model, are
    taken as they are. With rows of many zeros `TunaMH` may keep bytes for each number that is not zero in
    memory; steps that test subsamples keep the numbers of rows. If a file is cut while it is mapped, the
    operating system ends the program (SIGBUS).

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import RowStore, factorise, stored_data
    >>> rng = np.random.default_rng(1)
    >>> source = {"X": rng.normal(size=(5000, 2)), "y": rng.integers(2, size=5000).astype("int8")}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = RowStore.write(source, f"{folder}/clicks.rows")
    ...     with pm.Model() as model:
    ...         X, y = stored_data("X", store["X"]), stored_data("y", store["y"])
    ...         beta = pm.Normal("beta", 0, 1, shape=X.shape[1])
    ...         clicked = pm.Bernoulli("clicked", logit_p=X @ beta, observed=y)
    ...     print(factorise(model))
    Factorisation by beta: 5,000 local terms
      local   clicked         5,000
      global  beta
    """
    if not isinstance(rows, Rows):
        raise TypeError(
            f"rows must be an array of a RowStore, such as store['X'], got {type(rows).__name__}. Arrays in "
            "memory are for pm.Data."
        )
    if not is_whole(head) or head < 1:
        raise ValueError(f"head must be a whole number from 1 on, got {head!r}.")
    model = pm.modelcontext(None)
    full_name = model.name_for(name)
    rows.require_unchanged()
    _require_equal_lengths(model, full_name, rows)
    n_head = min(int(head), len(rows))
    for number in range(-(-n_head // rows.chunk_rows)):
        rows.require_finite(number)
    named = (dims,) if isinstance(dims, str) else dims
    if named is not None:
        _add_dims(model, full_name, rows, tuple(named))
    first = pytensor.shared(np.array(rows[:n_head]), name=f"{full_name}_head")
    result: TensorVariable = RowsOnDisk(full_name, rows)(first)
    # Without the dims: what PyMC writes into a result is the head.
    model.register_data_var(result)
    return result


def _require_equal_lengths(model: pm.Model, name: str, rows: Rows) -> None:
    for var in model.named_vars.values():
        other = getattr(var.owner, "op", None)
        if isinstance(other, RowsOnDisk) and len(other.rows) != len(rows):
            raise ValueError(
                f"{name!r} has {len(rows):,} rows ({rows.path}), and {other.name!r} has "
                f"{len(other.rows):,} ({other.rows.path}). Data on disk of one model must have equally many: "
                "write them into one store."
            )


def _add_dims(model: pm.Model, name: str, rows: Rows, dims: tuple[str | None, ...]) -> None:
    """Add the dimensions with their lengths on disk."""
    if len(dims) != rows.ndim:
        raise ValueError(f"dims={dims!r} must be {rows.ndim} names, one for each axis of {name!r}.")
    for dim, length in zip(dims, rows.shape, strict=True):
        if dim is None:
            continue
        if dim not in model.dim_lengths:
            model.add_coord(dim, length=length)
        there = int(model.dim_lengths[dim].eval())
        if there != length:
            raise ValueError(
                f"The dimension {dim!r} has length {there:,} in the model, and {length:,} in {name!r}."
            )


def refuse_on_disk(model: pm.Model, what: str) -> None:
    """Raise `RowsOnDiskError` if a model has data on disk, which `what` cannot read."""
    for op in _operations(model):
        raise RowsOnDiskError(
            f"{op.name!r} is on disk ({len(op.rows):,} rows, {op.rows.path}), and {what} needs data in "
            "memory. Use TunaMH, MetropolisHastings, AusterityMH, MHSubLhd or MinibatchBarker, or build the "
            f"model with arrays: np.asarray(store[{op.rows.name!r}])."
        )


def refuse_evaluated(model: pm.Model) -> None:
    """Refuse what PyMC would compute from data on disk while it samples: Deterministics, observations."""
    for rv in model.observed_RVs:
        value = model.rvs_to_values[rv]
        found = on_disk([value])
        if found and uncast(value) not in found:
            names = ", ".join(repr(op.name) for op in found.values())
            raise RowsOnDiskError(
                f"The observations of {rv.name!r} are computed from {names}, which is on disk: PyMC would "
                "compute all of them for the result. Write them into the store as an array of their own."
            )
    found = on_disk(model.deterministics)
    reads = depends_on(model.deterministics, found)
    for det in model.deterministics:
        if reads.get(det, False):
            names = ", ".join(repr(op.name) for op in on_disk([det]).values())
            raise RowsOnDiskError(
                f"The Deterministic {det.name!r} is computed from {names}, which is on disk: PyMC would "
                "compute it from all rows at every draw. Make it a plain expression, without "
                "pm.Deterministic."
            )


def files_of(model: pm.Model) -> dict[str, dict[str, Any]]:
    """File, rows and fingerprint of each of the data on disk, by their names in the model."""
    return {
        op.name: {"path": str(op.rows.path), "rows": len(op.rows), "fingerprint": op.rows.fingerprint}
        for op in _operations(model)
    }


def _operations(model: pm.Model) -> list[RowsOnDisk]:
    every = [*model.basic_RVs, *model.potentials, *model.deterministics, *model.rvs_to_values.values()]
    return list(dict.fromkeys(on_disk(every).values()))
