"""The graph of the rows of a term, taken apart into scalar expressions.

The graph is executed on expressions: a tensor that moves with the block is an array of them, in which the
row axis has length one. Where the graph is no longer affine in the block, every number that enters from the
affine part is a predictor; what does not move is data (`row_data`).

*Where the operations of a graph are defined, if their stable form is defined in more places.* exp(log(x)) is
x, but not for negative x, where the density of the model is not a number. The domain of a logarithm, root or
power is kept as long as the nodes are there that have it. Where one of them has vanished, the rows become
minus infinity outside of the domain, as where a check of parameters fails.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors, toposort, walk
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import ExtractDiag, ScalarFromTensor, Split, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.type import TensorType

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.conditions import truth
from pymc_austerity.bounds.expressions.guards import guards_of_all, without_guards
from pymc_austerity.bounds.expressions.node import Expression, constant, ordered, predictor
from pymc_austerity.bounds.expressions.trees import over_cases, paths
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.checks import is_elemwise
from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.structure import selection_rules  # noqa: F401 - registers rules
from pymc_austerity.model.structure.affine import Kind, kinds
from pymc_austerity.model.structure.affine_expressions import leaves
from pymc_austerity.model.structure.case_ranges import in_cases
from pymc_austerity.model.structure.operations import JOINING, MOVING, RESHAPING, SELECTING, WRITING
from pymc_austerity.model.structure.predictors import block_and_others, entering
from pymc_austerity.model.structure.prepared_rows import prepared_rows
from pymc_austerity.model.structure.row_data import MOST_NUMBERS, RowData, TooMany
from pymc_austerity.model.structure.scalar_rules import NoForm
from pymc_austerity.model.structure.tensor_rules import (
    READ_FIRST,
    abstract_shape,
    elementwise,
    keeps_rows_apart,
    tensor_rule,
)

Kinds = dict[Variable, Kind]

# What only moves numbers to other places, or puts some together.
_PLACING = (DimShuffle, SpecifyShape, TensorFromScalar, ScalarFromTensor, ExtractDiag, *JOINING, Split)


def read_by(node: Apply) -> list[Variable]:
    """Inputs of which an operation reads the numbers, and not only the length."""
    inputs = node.inputs[:1] if isinstance(node.op, READ_FIRST) else node.inputs
    return [var for var in inputs if isinstance(var.type, TensorType | ScalarType)]


def affine_sources(rows: Variable, kind: Kinds) -> list[Variable]:
    """Affine values of which everything else is made.

    These are what something that is not affine is made of, followed downwards as long as numbers are only
    moved to other places; and where several of these have parts in common, the parts.
    """
    found: dict[Variable, None] = {}
    for node in toposort([rows]):
        if any(kind.get(out) is Kind.NONLINEAR for out in node.outputs):
            found.update((var, None) for var in read_by(node) if kind.get(var) is Kind.AFFINE)
    if kind.get(rows) is Kind.AFFINE:
        found[rows] = None
    sources = _behind(list(found), kind)
    while shared := _shared(sources, kind):
        parts = [part for var in sources for part in (_parts(var, kind) if var in shared else [var])]
        sources = _behind(parts, kind)
    return sources


def _behind(variables: list[Variable], kind: Kinds) -> list[Variable]:
    """Where the numbers of affine values come from, without sums of several."""
    found: dict[Variable, None] = {}
    stack = variables[::-1]
    while stack:
        var = stack.pop()
        parts = _parts(var, kind)
        if parts and (len(parts) == 1 or _is_placing(var.owner)) and not isinstance(var.owner.op, Sum):
            stack += parts[::-1]
        else:
            found[var] = None
    return list(found)


def _parts(var: Variable, kind: Kinds) -> list[Variable]:
    """The affine values of which `var` is made in a simple way; none where there is no such way."""
    node = var.owner
    if node is None or not (isinstance(node.op, Elemwise) or _is_placing(node) or _is_short_sum(node)):
        return []
    return [one for one in node.inputs if kind.get(one) is Kind.AFFINE]


def _is_placing(node: Apply) -> bool:
    """Does an operation move numbers to places that are the same for all rows?"""
    if isinstance(node.op, (*SELECTING, *WRITING)):
        is_set = isinstance(node.op, WRITING)
        return all(isinstance(var, Constant) for var in node.inputs[1 + is_set :])
    if isinstance(node.op, RESHAPING):
        return keeps_rows_apart(node)
    return isinstance(node.op, _PLACING)


def _is_short_sum(node: Apply) -> bool:
    return isinstance(node.op, Sum) and None not in node.inputs[0].type.shape


def _shared(sources: list[Variable], kind: Kinds) -> set[Variable]:
    """Sources that are made of parts of which some are in other sources as well."""
    below = {var: _below(var, kind) for var in sources}
    return {
        var
        for var in sources
        if any(below[var] & (below[other] | {other}) for other in sources if other is not var)
    }


def _below(var: Variable, kind: Kinds) -> set[Variable]:
    return set(walk(_parts(var, kind), lambda one: _parts(one, kind)))


def _is_whole(exponent: Expression) -> bool:
    return exponent.op == "constant" and float(exponent.value).is_integer()  # type: ignore[arg-type]


_ZERO, _ONE, _NEVER = constant(0.0), constant(1.0), constant(-np.inf)
# What has to be positive, from the arguments of an operation; None for nothing.
_POSITIVE: dict[type, Callable[..., Expression | None]] = {
    ps.Log: lambda x: x,
    ps.Log2: lambda x: x,
    ps.Log10: lambda x: x,
    ps.Sqrt: lambda x: x,
    ps.Log1p: lambda x: forms.add(_ONE, x),
    ps.Pow: lambda x, exponent: None if _is_whole(exponent) else x,
}
# Nodes that are defined for some arguments only.
_WITH_DOMAIN = ("log", "log1p", "log1mexp", "power", "gammaln", "digamma", "rising", "log_ndtr_between")


class Domain(NamedTuple):
    """Condition that an operation sets on its argument."""

    positive: Expression  # Has to be above zero
    kept_by: frozenset[Expression]  # Nodes that are not defined elsewhere
    of: Variable  # What it computes, and the place of the number there
    place: tuple[int, ...]


def domains_of(node: Apply, args: Sequence[np.ndarray], results: np.ndarray) -> list[Domain]:
    """Conditions that a node sets on its first argument, for all elements that move and may be negative."""
    if not isinstance(node.op, Elemwise) or type(node.op.scalar_op) not in _POSITIVE:
        return []
    inside, found = _POSITIVE[type(node.op.scalar_op)], []
    wide = [np.broadcast_to(one, results.shape) for one in args]
    for place in np.ndindex(results.shape):
        positive = inside(*(one[place] for one in wide))
        if positive is not None and positive.moves and not positive.range.is_positive:
            found.append(Domain(positive, _with_domain(results[place]), node.outputs[0], place))  # type: ignore[arg-type]
    return found


def within(
    root: Expression, domains: Iterable[Domain], in_rows: Callable[[Domain], Domain | None]
) -> Expression:
    """The expression; minus infinity outside of the domains that it has lost, in the rows that use them."""
    nodes = [_with_domain(case) for _, case in paths(root)]
    lost = [one for one in domains if not one.kept_by or not all(one.kept_by <= own for own in nodes)]
    for positive in dict.fromkeys(one.positive for one in map(in_rows, lost) if one is not None):
        root = forms.select(_is_inside(positive), root, _NEVER)
    return root


@over_cases
def _is_inside(x: Expression) -> Expression:
    """Whether it is not negative. Cases in which it does not move are what they are."""
    return forms.greater_equal(x, _ZERO) if x.moves else _ONE


def _with_domain(expression: Expression) -> frozenset[Expression]:
    return frozenset(one for one in ordered(expression) if one.op in _WITH_DOMAIN and one.moves)


# Numbers that enter from the affine part of a graph, at most; and those among which they may be.
MOST_SCALARS = 64
_MOST_CANDIDATES = 2000
# Numbers a row in any other value, at most: an expression for each is made.
_MOST_NUMBERS = 256


class Obstacle(Exception):  # noqa: N818 - it is caught, and said
    """Why the rows of a term are not a function of few predictors, in the words of the model."""


class AffineScalar(NamedTuple):
    """One number of each row that is affine in the block."""

    variable: Variable
    element: tuple[int | slice, ...]  # Its place there; all of the row axis


class ScalarGraph(NamedTuple):
    """The rows of a term as an expression."""

    rows: Variable  # The graph that was taken apart
    expression: Expression  # Predictor k is the k-th of `scalars`; data are the columns of `data`
    # Affine in the predictors. A row may be minus infinity where one of them is below zero, and is if they
    # are strict.
    guards: tuple[Expression, ...]
    are_strict: bool
    scalars: tuple[AffineScalar, ...]
    data: RowData


def scalar_graph(fact: Factorisation, term: LocalTerm) -> ScalarGraph:
    """Take the rows of a term apart.

    Raises
    ------
    Obstacle
    """
    block, others = block_and_others(fact)
    rows = prepared_rows(fact, term)
    own = set(ancestors([rows]))
    for name, var in block.items():
        if var in own and var.type.dtype != "float64":
            raise Obstacle(f"{name!r}, which enters the term {term.name!r}, is discrete")
    kind = kinds([rows], block.values(), others.values())
    said = partial(entering, term.name, block)
    sources = affine_sources(rows, kind)
    nodes = _moving_nodes(rows, sources)
    moved = depends_on([rows], others.values())
    made = {*sources, *(out for node in nodes for out in node.outputs)}
    fixed = list(dict.fromkeys(var for node in nodes for var in read_by(node) if var not in made))
    if rows not in made:
        fixed.append(rows)
    try:
        data = RowData(fact, term, fixed, [var for var in fixed if moved.get(var, False)])
    except TooMany:
        raise Obstacle(f"a row of the term {term.name!r} reads more than {MOST_NUMBERS} numbers") from None
    scalars: list[AffineScalar] = []
    found = {var: _predictors(var, scalars, said) for var in sources}
    found.update((var, data.elements(var)) for var in fixed)
    domains = _execute(nodes, found, said)
    required = partial(_require, nodes=nodes, found=found)
    guarded = in_cases(within(found[rows].item(), domains, required), data, term.size)
    bare, guards = without_guards(guarded)
    used = [scalars[k] for k in leaves(bare, "predictor")]
    if len(used) > MOST_SCALARS:
        raise _too_many(said(one.variable for one in used))
    are_strict = guards_of_all(guarded) == set(guards)
    return ScalarGraph(rows, forms.finished(bare), guards, are_strict, tuple(scalars), data)


# Says what some values are made of, in the words of the model; see `entering`.
_Said = Callable[[Iterable[Variable]], str]


def _too_many(entering: str) -> Obstacle:
    """A table in each row."""
    return Obstacle(f"{entering} through more than {MOST_SCALARS} numbers a row")


def _moving_nodes(rows: Variable, sources: Iterable[Variable]) -> list[Apply]:
    """Nodes that depend on the sources, in order."""
    sources = set(sources)
    moving = depends_on([rows], sources)
    return [
        node
        for node in toposort([rows], blockers=sources)
        if any(moving.get(out, False) for out in node.outputs)
    ]


def _predictors(var: Variable, scalars: list[AffineScalar], said: _Said) -> np.ndarray:
    """A predictor for every number of a row in `var`."""
    try:
        shape = abstract_shape(var)
    except NoForm:
        raise Obstacle(f"{said([var])} in a table whose shape is unknown") from None
    if len(scalars) + int(np.prod(shape)) > _MOST_CANDIDATES:
        raise _too_many(said([var]))
    result = np.empty(shape, dtype=object)
    for place in np.ndindex(shape):
        result[place] = predictor(len(scalars))
        element = [slice(None) if k is None else p for k, p in zip(var.type.shape, place, strict=True)]
        scalars.append(AffineScalar(var, tuple(element)))
    return result


def _execute(nodes: list[Apply], found: dict[Variable, np.ndarray], said: _Said) -> list[Domain]:
    """Compute all nodes, adding their results to `found`; and what they ask of their arguments."""
    domains = []
    for node in nodes:
        args = [found.get(var, np.empty(0, dtype=object)) for var in node.inputs]
        try:
            result = tensor_rule(node.op, node, args)
        except NoForm as operation:
            how = f"through {operation}, whose derivatives have no known bounds"
            raise Obstacle(f"{said(node.inputs)} {how}") from None
        results = result if isinstance(result, list) else [result]
        if any(one.size > _MOST_NUMBERS for one in results):
            raise _too_many(said(node.inputs))
        found.update(zip(node.outputs, results, strict=True))
        domains += domains_of(node, args, results[0])
    return domains


def _require(domain: Domain, nodes: list[Apply], found: dict[Variable, np.ndarray]) -> Domain | None:
    """The domain in the rows that use the number; None if these are within it."""
    everywhere, where = (_uses(domain, nodes, found, moving=one) for one in (False, True))
    if _implies(where, domain.positive):
        return None
    return domain._replace(positive=forms.select(everywhere, domain.positive, _ONE))


def _implies(condition: Expression, positive: Expression) -> bool:
    """Whether a number is above zero where a condition holds, as far as one can see."""
    if condition.op == "and":
        return any(_implies(one, positive) for one in condition.args)
    return condition.op in ("positive", "nonnegative") and condition.args[0] is positive


def _uses(
    domain: Domain, nodes: list[Apply], found: dict[Variable, np.ndarray], *, moving: bool
) -> Expression:
    """Whether a row, which the last of the nodes makes, uses a number, as far as the data decide that.

    With `moving` also as far as variables decide it. Numbers that are made of it are marked by ones.
    """
    marks = {domain.of: np.full(found[domain.of].shape, _ZERO, dtype=object)}
    marks[domain.of][domain.place] = _ONE

    def of(var: Variable) -> np.ndarray:
        return marks.get(var, np.full(found[var].shape if var in found else (), _ZERO, dtype=object))

    for node in nodes:
        if marks.keys().isdisjoint(node.inputs) or not marks.keys().isdisjoint(node.outputs):
            continue
        if isinstance(node.op, (*MOVING, *JOINING, *WRITING, Split)):
            n = 2 if isinstance(node.op, WRITING) else 1
            n = len(node.inputs) if isinstance(node.op, JOINING) else n
            given = [
                of(var) if k < n else found.get(var, np.empty(0, dtype=object))
                for k, var in enumerate(node.inputs)
            ]
            result = tensor_rule(node.op, node, given)
            results = result if isinstance(result, list) else [result]
        elif is_elemwise(node.outputs[0], ps.Switch):
            case, *own = (found[node.inputs[0]], *map(of, node.inputs))
            results = [elementwise(partial(_chosen, moving), case, *own)]
        elif isinstance(node.op, Elemwise):
            results = [elementwise(_any, *map(of, node.inputs))]
        else:
            every = _any(*(one for var in node.inputs for one in of(var).ravel()))
            results = [np.full(found[out].shape, every, dtype=object) for out in node.outputs]
        marks.update(zip(node.outputs, results, strict=True))
    (used,) = (of(out) for out in nodes[-1].outputs)
    return _any(*used.ravel())


def _any(*marks: Expression) -> Expression:
    return reduce(forms.either, map(truth, marks))


def _chosen(moving: bool, case: Expression, of_case: Expression, a: Expression, b: Expression) -> Expression:
    """The mark of what is chosen of two numbers."""
    case, a, b = truth(case), truth(a), truth(b)
    if case.moves and not moving:
        return _any(of_case, a, b)
    return _any(of_case, forms.both(case, a), forms.both(forms.negated(case), b))
