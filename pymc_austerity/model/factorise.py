"""`build`: find the factorisation of a PyMC model on its graph; `factorise` is its public form.

Are the rows of a model with data on disk computed one by one, each from its own row of the data? There are
two ways to find out. On the graph nothing but single rows may be read from disk. And the model is built
again, in memory, with a head of rows from everywhere: PyMC's log density of it, its rows and those of the
whole model have to agree.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.multivariate import CARRV, ICARRV
from pymc.initial_point import PointType
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.type import RandomType

from pymc_austerity.exceptions import FactorisationError, SelfCheckError
from pymc_austerity.model.bambi import is_of_bambi, pymc_model
from pymc_austerity.model.checks import require_sound_rows
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.checks import array_of
from pymc_austerity.model.graph.leaves import Leaf, extract_leaves, leaf_values, with_infinite_apart
from pymc_austerity.model.graph.log_density import LogDensityGraph, raw_terms, typed_log_density
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on
from pymc_austerity.model.graph.rows_on_disk import rows_of, with_arrays
from pymc_austerity.model.graph.terms import Piece, long_axes, split
from pymc_austerity.model.lift.indexing import select_early
from pymc_austerity.model.lift.lifter import Lifter
from pymc_austerity.model.lift.rows import check_cost, lift_cells, lift_piece
from pymc_austerity.model.refusal import Coupled, operation_name
from pymc_austerity.model.self_check import REPORT, check_against_model, jittered, same
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.validation import is_whole, nearest

# Rows of the model that is built in memory, at least.
_HEAD_ROWS = 2000
_SEED = 2018
_REMEDY = (
    "Give what is computed from all rows as numbers, such as means and standard deviations "
    "(RowStore.write(standardise=) uses them, and stores what they are), or write the column that is wanted "
    "into the store."
)


def build(
    model: pm.Model | None,
    vars: Variable | str | Sequence[Variable | str] | None,
    *,
    threshold: int,
    initial_point: PointType | None,
    check: bool,
    temperature: float = 1.0,
    limit_cost: bool = True,
) -> Factorisation:
    """Do what `factorise` does; a model that was checked before need not be checked again.

    `temperature` divides the likelihood: the observed variables and, as in PyMC's own tempering, potentials.
    `limit_cost` refuses rows that take a vector as long as the threshold.
    """
    if not is_whole(threshold) or threshold < 3:
        raise ValueError(f"threshold must be an integer of at least 3, got {threshold!r}.")
    model = model_of(model)
    value_vars = None if vars is None else value_variables(model, vars)
    point = default_point(model) if initial_point is None else initial_point
    raw = terms_of_all_rows(model, value_vars)
    if temperature != 1.0:
        likelihood = {rv.name for rv in (*model.observed_RVs, *model.potentials)}
        raw = {n: term * (1.0 / temperature) if n in likelihood else term for n, term in raw.items()}

    # A prior of areas is a sum over pairs of neighbours, about as long as its variable.
    nodes = {rv.name: rv.owner for rv in model.free_RVs if rv.name in raw}
    of_areas = {n for n, one in nodes.items() if isinstance(one.op, CARRV | ICARRV)}

    def of_terms(terms: dict[str, Variable]) -> tuple[Factorisation, list[Piece]]:
        with lengths_explained(raw):
            graph = typed_log_density(model, terms, point)
        return taken_apart(graph, value_vars, int(threshold), limit_cost, of_areas)

    result, pieces = of_terms(raw)
    if check and result.graph.on_disk:
        require_sound_rows(result.graph)
        arrays, chosen = heads(result.graph, result.threshold)
        head, pieces = of_terms(with_heads(model, raw, arrays))
        check_against_model(head, model, pieces)
        require_same_rows(result, head, chosen)
    elif check:
        check_against_model(result, model, pieces)
    return result


def taken_apart(
    graph: LogDensityGraph,
    value_vars: list[Variable] | None,
    threshold: int,
    limit_cost: bool,
    of_areas: Collection[str] = (),
) -> tuple[Factorisation, list[Piece]]:
    """The factorisation of a graph, and the pieces of which it is made.

    Terms `of_areas` are not subsampled, and may take a vector as long as the threshold.
    """
    names = list(graph.values) if value_vars is None else [v.name for v in value_vars]
    block = [graph.values[name] for name in names]
    parameters = list(graph.values.values())
    lifter = Lifter(graph.terms.values(), parameters, block, threshold, graph.evaluate, on_disk=graph.on_disk)
    parts = [(name, p) for name, term in graph.terms.items() for p in split(term, threshold)]
    in_block = depends_on([p for _, p in parts], block)
    pieces = [
        Piece(
            name,
            p,
            () if name in of_areas else long_axes(p, threshold),
            kept=value_vars is None or in_block.get(p, False),
        )
        for name, p in parts
    ]
    lifted_pieces = [
        _lifted_table(graph, p, block)
        if p.is_local and max(p.lengths) < threshold  # long in cells alone
        else lift_piece(lifter, p)
        if p.is_local
        else (p, None)
        for p in pieces
    ]
    pieces = [p for p, _ in lifted_pieces]
    locals_ = [term for _, term in lifted_pieces if term is not None]
    globals_ = [(p.name, p.graph) for p in pieces if p.kept and not p.is_local]
    require_local(graph, globals_)
    outputs = [t.rows for t in locals_] + [g for _, g in globals_]
    outputs = select_early(lifter, outputs)
    changing = [*parameters, *(t.index for t in locals_)]
    leaves, lifted = extract_leaves(outputs, changing, threshold)
    require_single_rows(graph, [t.name for t in locals_] + [n for n, _ in globals_], outputs, leaves)
    values = leaf_values(graph, leaves)
    of_leaves = dict(zip((leaf.placeholder for leaf in leaves), values, strict=True))
    on_disk = {leaf.placeholder for leaf in leaves if leaf.source in graph.on_disk}  # these are finite
    lifted = with_infinite_apart(lifted, {k: v for k, v in of_leaves.items() if k not in on_disk})
    locals_ = [LocalTerm(t.name, t.size, t.index, rows) for t, rows in zip(locals_, lifted, strict=False)]
    globals_ = [(n, g) for (n, _), g in zip(globals_, lifted[len(locals_) :], strict=True)]
    example = {**dict(zip(parameters, graph.point.values(), strict=True)), **of_leaves}
    for term in locals_ if limit_cost else ():
        check_cost(
            term.name, term.rows, example, parameters, block, threshold, size=term.size, index=term.index
        )
    for name, global_term in globals_ if limit_cost else ():
        if name in of_areas:
            continue
        check_cost(name, global_term, example, parameters, block, threshold)
    result = Factorisation(
        graph=graph,
        var_names=tuple(names),
        locals=tuple(locals_),
        globals=tuple(globals_),
        leaves=tuple(leaves),
        threshold=threshold,
        leaf_values=values,
    )
    return result, pieces


def _lifted_table(
    graph: LogDensityGraph, piece: Piece, block: list[Variable]
) -> tuple[Piece, LocalTerm | None]:
    """The cells of a table whose sides are short; if these cannot be had one by one, it is not local."""
    side = max(piece.lengths)
    lifter = Lifter([piece.graph], graph.values.values(), block, side, graph.evaluate)
    example = {
        **dict(zip(graph.values.values(), graph.point.values(), strict=True)),
        **dict(zip(graph.data, graph.data_values(), strict=True)),
    }
    try:
        term = lift_cells(lifter, piece)
        parameters = list(graph.values.values())
        check_cost(term.name, term.rows, example, parameters, block, side, size=term.size, index=term.index)
    except (Coupled, FactorisationError):
        return replace(piece, axes=()), None
    return piece, term


def model_of(model: Any) -> pm.Model:
    """The given model, which Bambi may have made, or that of the context."""
    if is_of_bambi(model):
        return pymc_model(model)
    if model is not None and not hasattr(model, "value_vars"):  # frozen models are models too
        raise TypeError(
            f"model must be a pm.Model, got {type(model).__name__}. It comes before variables or steps."
        )
    return pm.modelcontext(model)


def value_variables(model: pm.Model, vars: Any) -> list[Variable]:
    """Value variables of random or value variables, or of names; by default all."""
    if vars is None:
        return list(model.value_vars)
    chosen = list(vars) if isinstance(vars, list | tuple) else [vars]
    if not chosen:
        raise ValueError("vars is empty: name the variables, or leave vars out for all.")
    by_name = {**{value.name: value for value in model.value_vars}, **model.named_vars}
    result = []
    for var in chosen:
        if not isinstance(var, str | Variable):
            raise ValueError(f"vars must be a variable, its name, or a list of these, got {var!r}.")
        named = by_name.get(var, var) if isinstance(var, str) else var
        value = model.rvs_to_values.get(named, named)
        if value not in model.value_vars:
            raise ValueError(_not_free(model, var))
        if value in result:
            raise ValueError(f"The variable {value.name!r} was given twice.")
        result.append(value)
    return result


def _not_free(model: pm.Model, var: Variable | str) -> str:
    """Why a variable, or a name, is none of the free variables of a model."""
    name = var if isinstance(var, str) else str(var.name or var)
    free = [rv.name for rv in model.free_RVs]
    named = model.named_vars.get(name)
    kinds = {
        "it is observed": model.observed_RVs,
        "it is a potential": model.potentials,
        "it is Deterministic": model.deterministics,
        "it is data": model.data_vars,
    }
    if named is None or not (isinstance(var, str) or var is named):
        there = (
            "there is none of that name"
            if isinstance(var, str)
            else "it is of another model, or an expression"
        )
    else:
        there = next((kind for kind, members in kinds.items() if named in members), "it is something else")
    meant = nearest(name, free) if isinstance(var, str) else ""
    return (
        f"{name!r} is not a free variable of the model: {there}. "
        f"Its free variables: {', '.join(free)}.{meant}"
    )


def terms_of_all_rows(model: pm.Model, value_vars: Sequence[Variable] | None) -> dict[str, Variable]:
    """The terms of a model that contain some variables; `FactorisationError` names what cannot be subsampled.

    `total_size` and `pm.Minibatch` are a subsampling scheme of their own: N would be wrong.
    """
    for value in model.value_vars:
        if np.dtype(value.type.dtype).kind == "f" and value.type.dtype != "float64":
            raise FactorisationError(
                f"The variable {value.name!r} is {value.type.dtype}. Differences between log densities of "
                "many terms need float64: build the model with pytensor.config.floatX = 'float64'."
            )
    raw = raw_terms(model, value_vars)
    for name, term in raw.items():
        node = model[name].owner
        if node is not None and isinstance(node.op, MinibatchRandomVariable):
            raise FactorisationError(
                f"The term {name!r} was given total_size, which rescales its log density as if its "
                "rows were a sample of more. Give it all the data, without total_size and without "
                "pm.Minibatch; the step draws the subsamples."
            )
        if any(isinstance(i.type, RandomType) for i in graph_inputs([term])):
            raise FactorisationError(
                f"The term {name!r} contains a random draw, so that its value changes at every call "
                "(pm.Minibatch makes one, and so does pm.Simulator). Give it all the data without "
                "pm.Minibatch; the step draws the subsamples."
            )
    return raw


# Rows on disk ----------------------------------------------------------------------------------------------


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
    for source in (leaf.source for leaf in leaves):
        if source in graph.on_disk or not reads.get(source, False):
            continue
        named = zip(names, outputs, strict=True)
        whole = next((name for name, out in named if source in set(ancestors([out]))), "")
        # The first operation that is not computed element by element couples the rows.
        nodes = [node for node in toposort([source]) if any(reads.get(i, False) for i in node.inputs)]
        coupling = [node for node in nodes if not isinstance(node.op, Elemwise | DimShuffle)]
        operation = operation_name(coupling[0].outputs[0] if coupling else source)
        raise _refusal(graph, whole, source, f"the operation {operation} takes")


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
            f"{head.local_terms}. {REPORT}"
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
            right = same(found, wanted)
        if not right:
            raise FactorisationError(
                f"Rows of the term {term.name!r} depend on other rows of data on disk, or on the order of "
                f"these: they differ where other rows surround them. {_REMEDY}",
                term.name,
            )
