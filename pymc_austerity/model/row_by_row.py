"""Are the rows of a model with data on disk computed one by one, each from its own row of the data?

Two ways to find out. On the graph nothing but single rows may be read from disk. And the model is built
again, in memory, with a head of rows from everywhere: PyMC's log density of it, its rows and those of the
whole model have to agree.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from pymc_austerity.exceptions import FactorisationError, SelfCheckError
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.graph.checks import array_of
from pymc_austerity.model.graph.leaves import Leaf
from pymc_austerity.model.graph.log_density import LogDensityGraph
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on
from pymc_austerity.model.graph.rows_on_disk import rows_of, with_arrays
from pymc_austerity.model.refusal import operation_name
from pymc_austerity.model.self_check import jittered

# Rows of the model that is built in memory, at least.
_HEAD_ROWS = 2000
_SEED = 2018
_REMEDY = (
    "Give what is computed from all rows as numbers, such as means and standard deviations "
    "(RowStore.write(standardise=) uses them, and stores what they are), or write the column that is wanted "
    "into the store."
)


@contextmanager
def lengths_explained(raw: Mapping[str, Variable]) -> Iterator[None]:
    """Within it, an error names arrays in memory that stand beside data on disk, as one may be too short."""
    try:
        yield
    except FactorisationError:
        raise
    except ValueError as error:
        for name, term in raw.items():
            data = list(ancestors([term]))
            stored = {var: rows for var in data if (rows := rows_of(var)) is not None}
            if not stored:
                continue
            told = ", ".join(f"{var.name!r} ({len(rows):,} rows)" for var, rows in stored.items())
            beside = [
                f"{repr(var.name) if var.name else 'one'} of shape {value.shape}"
                for var in data
                if var not in stored and (value := array_of(var)) is not None and value.size > 1
            ]
            arrays = f" beside arrays in memory: {'; '.join(beside)}" if beside else ""
            raise FactorisationError(
                f"The term {name!r} cannot be computed from single rows: {error}. It reads {told} on "
                f"disk{arrays}. All that has a number for each row must be in the same store, and in the "
                "model by stored_data; variables cannot have an element for each row.",
                name,
            ) from error
        raise


def require_single_rows(
    graph: LogDensityGraph, names: Sequence[str], outputs: Sequence[Variable], leaves: Sequence[Leaf]
) -> None:
    """Refuse what would read more of a file than single rows, naming the term, the data and the operation.

    `outputs` are rows of local terms, and global terms, which belong to the model terms `names`; `leaves` are
    their parts without parameters.
    """
    reads = depends_on([leaf.source for leaf in leaves], graph.on_disk)
    for leaf in leaves:
        if leaf.source in graph.on_disk or not reads.get(leaf.source, False):
            continue
        whole = next(
            (name for name, out in zip(names, outputs, strict=True) if leaf.source in set(ancestors([out]))),
            "",
        )
        raise _refusal(graph, whole, leaf.source, f"the operation {_coupling(graph, leaf.source)} takes")


def _coupling(graph: LogDensityGraph, source: Variable) -> str:
    """Name of the operation that couples rows: the first that is not computed element by element."""
    reads = depends_on([source], graph.on_disk)
    nodes = [node for node in toposort([source]) if any(reads.get(i, False) for i in node.inputs)]
    coupling = [node for node in nodes if not isinstance(node.op, Elemwise | DimShuffle)]
    return operation_name(coupling[0].outputs[0] if coupling else source)


def require_local(graph: LogDensityGraph, globals_: Sequence[tuple[str, Variable]]) -> None:
    """Refuse a term that reads rows on disk, and is no sum over rows."""
    reads = depends_on([out for _, out in globals_], graph.on_disk)
    for name, out in globals_:
        if reads.get(out, False):
            raise _refusal(graph, name, out, "it is no sum over rows of at least `threshold`, and takes")


def _refusal(graph: LogDensityGraph, name: str, var: Variable, reason: str) -> FactorisationError:
    used = set(ancestors([var]))
    data = " and ".join(repr(typed.name) for typed in graph.on_disk if typed in used)
    return FactorisationError(
        f"The term {name!r} looks at more than one row of {data} at a time, whose rows are on disk: "
        f"{reason} all of them. {_REMEDY}",
        name,
    )


def heads(graph: LogDensityGraph, threshold: int) -> tuple[dict[SharedVariable, np.ndarray], np.ndarray]:
    """Rows of the data on disk from everywhere, in random order, and which these are.

    They are as many as local terms have at least.
    """
    shared = [one for one in graph.data.values() if rows_of(one) is not None]
    n_rows = len(shared[0].get_value(borrow=True))
    size = min(n_rows, max(_HEAD_ROWS, threshold))
    chosen = np.random.default_rng(_SEED).choice(n_rows, size, replace=False)
    return {one: np.asarray(one.get_value(borrow=True)[chosen]) for one in shared}, chosen


def with_heads(
    model: pm.Model, raw: Mapping[str, Variable], arrays: Mapping[SharedVariable, np.ndarray]
) -> dict[str, Variable]:
    """The terms of the model with some rows instead of all. Dimensions of that length are as short."""
    sizes = {len(mapped.get_value(borrow=True)): len(array) for mapped, array in arrays.items()}
    lengths = {
        length: sizes[number] for length in model.dim_lengths.values() if (number := _number(length)) in sizes
    }
    return dict(zip(raw, with_arrays(list(raw.values()), arrays, lengths), strict=True))


def _number(length: Variable) -> int | None:
    """The length of a dimension. It is a constant in frozen models; others follow from data."""
    if isinstance(length, SharedVariable):
        return int(length.get_value())
    return int(length.data) if isinstance(length, Constant) else None


@np.errstate(all="ignore")
def require_same_rows(whole: Factorisation, head: Factorisation, chosen: np.ndarray) -> None:
    """Compare rows of the `whole` model with those of the model that has only the `chosen` rows of the data.

    `FactorisationError` is raised if a row of a term depends on other rows of the data, or on its own number;
    `SelfCheckError` if the terms are others.
    """
    if [term.name for term in whole.locals] != [term.name for term in head.locals]:
        raise SelfCheckError(
            f"With rows on disk the local terms are {whole.local_terms}, with some of them in memory "
            f"{head.local_terms}. This is a defect of pymc_austerity: please report the model."
        )
    values = jittered(whole.graph)
    on_disk = [leaf.placeholder for leaf in whole.leaves if leaf.source in whole.graph.on_disk]
    for term, short in zip(whole.locals, head.locals, strict=True):
        theirs = np.arange(short.size)
        reads = depends_on([term.rows], on_disk).get(term.rows, False)
        ours = chosen if reads and short.size == len(chosen) else theirs
        right = not reads or short.size == len(chosen)
        if right:
            found = whole.compile(term.rows, [term.index], mode=INTERPRETED)(
                *values, ours, *whole.leaf_values
            )
            wanted = head.compile(short.rows, [short.index], mode=INTERPRETED)(
                *values, theirs, *head.leaf_values
            )
            right = bool(np.allclose(found, wanted, rtol=1e-8, atol=1e-9, equal_nan=True))
        if not right:
            raise FactorisationError(
                f"Rows of the term {term.name!r} depend on other rows of data on disk, or on the order of "
                f"these: they differ where other rows surround them. {_REMEDY}",
                term.name,
            )
