"""Linear predictors of a local term, found on its graph.

Local terms of generalised linear models, and of much else, are l_i(q) = f_i(eta_i) with
eta_i = x_i . q + o_i. Bounds on all l_i at once (`pymc_austerity.bounds`) need the x_i and the slopes of f_i,
which `predictor_values` evaluates. Terms of several predictors are taken apart further by `row_functions`.

The graph of a term is affine in q near its inputs (`affine`) and nonlinear near its output. A linear
predictor is a value in the affine part that holds one number for each row, or one for all, and through which
everything passes: with it replaced by an input, nothing depends on q any more. Of several such values
(``X @ b``, and ``y - X @ b``) the one nearest to the output is taken.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import Elemwise

from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import depends_on, merged
from pymc_austerity.model.structure.affine import Kind, kinds
from pymc_austerity.model.structure.operations import core_of


class TermForm(NamedTuple):
    """How the rows of a local term depend on the block."""

    factorisation: Factorisation
    term: LocalTerm  # One of its local terms
    rows: Variable  # The rows of the term as a graph in which the predictor occurs
    predictor: Variable | None  # The one linear predictor, in the graph of `rows`
    obstacle: str = ""  # Why there is none

    @property
    def has_one(self) -> bool:
        """Whether the term is a function of a single linear predictor."""
        return self.predictor is not None


def find_predictor(factorisation: Factorisation, term: LocalTerm) -> TermForm:
    """The form of a term with its one linear predictor, or with the reason why there is none."""
    block, others = block_and_others(factorisation)
    for name, var in block.items():
        if var.type.dtype != "float64":
            obstacle = f"{name!r}, which enters the term {term.name!r}, is discrete"
            return TermForm(factorisation, term, term.rows, None, obstacle)
    (rows,) = merged([term.rows])
    kind = kinds([rows], block.values(), others.values())
    if rows not in kind:  # nothing moves, so that the rows are a predictor themselves
        return TermForm(factorisation, term, rows, rows)
    cuts = _cuts(rows, block.values(), kind)
    eta = next((var for var in cuts if is_one_per_row(var)), None)
    if eta is None:
        return TermForm(factorisation, term, rows, None, _obstacle(term.name, rows, block, kind))
    return TermForm(factorisation, term, rows, eta)


def block_and_others(factorisation: Factorisation) -> tuple[dict[str, Variable], dict[str, Variable]]:
    """Value variables of the step, and those of other steps."""
    values = factorisation.graph.values
    block = {name: values[name] for name in factorisation.var_names}
    return block, {name: var for name, var in values.items() if name not in block}


def others_in(factorisation: Factorisation, graphs: Sequence[Variable]) -> tuple[str, ...]:
    """Names of the variables of other steps on which some values depend."""
    _, others = block_and_others(factorisation)
    moved = {name: depends_on(graphs, [var]) for name, var in others.items()}
    return tuple(name for name, found in moved.items() if any(found.get(graph, False) for graph in graphs))


def one_per_row(eta: Variable, index: Variable) -> Variable:
    """The linear predictor as a vector with one number for each row."""
    return eta.flatten() if None in eta.type.shape else pt.alloc(eta.flatten()[0], index.shape[0])


def _cuts(rows: Variable, block: Iterable[Variable], kind: dict[Variable, Kind]) -> list[Variable]:
    """Affine values through which all paths from the block to `rows` pass, nearest to `rows` first."""
    nodes, block = list(toposort([rows])), set(block)
    candidates = [out for node in nodes for out in node.outputs if kind.get(out) is Kind.AFFINE]
    candidates = [var for var in block if var in kind] + candidates
    return [var for var in reversed(candidates) if _separates(var, nodes, block, rows)]


def _separates(var: Variable, nodes: list[Apply], block: set[Variable], rows: Variable) -> bool:
    """Do all paths from the block to `rows`, by sorted nodes, pass through `var`?"""
    found = block.difference([var])
    for node in nodes:
        if not found.isdisjoint(node.inputs):
            found.update(out for out in node.outputs if out is not var)
    return rows not in found


def is_one_per_row(var: Variable) -> bool:
    """Does `var` hold one number for each row, or one for all? Only the number of rows is unknown."""
    return sum(k is None for k in var.type.shape) <= 1 and all(k in (None, 1) for k in var.type.shape)


def entering(term: str, block: Mapping[str, Variable], values: Iterable[Variable]) -> str:
    """The variables of the block that move some values of a term, and the verb, in words."""
    above = set(ancestors(list(values)))
    names = [repr(name) for name, var in block.items() if var in above]
    return f"{' and '.join(names)} {'enters' if len(names) == 1 else 'enter'} the term {term!r}"


def _obstacle(term: str, rows: Variable, block: Mapping[str, Variable], kind: dict[Variable, Kind]) -> str:
    """Name a variable and the first nonlinear operation that it meets, if others are predictors."""
    first: dict[Variable, Apply] = {}  # values at the border, and where they cross it
    for node in toposort([rows]):
        if any(kind.get(out) is Kind.NONLINEAR for out in node.outputs):
            for var in node.inputs:
                if kind.get(var) is Kind.AFFINE:
                    first.setdefault(var, node)
    wide = [var for var in first if not is_one_per_row(var)]
    # Where a predictor per row and something else enter, the something else is in the way.
    odd = wide or [var for var in first if None not in var.type.shape] or list(first)
    var = min(odd, key=lambda one: len(set(block.values()) & set(ancestors([one]))))
    op = core_of(first[var].op)
    operation = type(op.scalar_op if isinstance(op, Elemwise) else op).__name__
    return f"{entering(term, block, [var])} through {operation}, beside or instead of a linear predictor"
