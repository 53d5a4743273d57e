"""The predictors of an expression, case by case.

The data decide which case of an expression a row is in: an ordered response at the end of its scale has one
cutpoint, one in the middle two. A case needs the smallest cut through what is affine in it. The predictors
of all rows are as many as the largest case has: in every case they are the affine values of its own cut.
"""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Set
from itertools import pairwise
from typing import Any, NamedTuple

from pymc_austerity.bounds.expressions.node import Expression, constant, node, ordered
from pymc_austerity.bounds.expressions.trees import floats
from pymc_austerity.model.structure.affine_expressions import affine_nodes, leaves, replaced_by

# The smallest set of values through which everything passes on its way through a graph.

_MANY = 1 << 30
_START, _END = "start", "end"


def smallest_cut[T: Hashable](
    inputs: Mapping[T, Iterable[T]], sources: Iterable[T], root: T, allowed: Collection[T]
) -> set[T] | None:
    """The fewest nodes through which all paths from `sources` to `root` pass.

    Of several such sets, the one nearest to the root.

    Parameters
    ----------
    inputs : dict of node to nodes
        The graph, without loops: what each node is made of.
    sources : iterable of nodes
    root : node
    allowed : collection of nodes
        Those that may be in the cut; ends of paths among them.

    Returns
    -------
    set of nodes, or None
        None if some path has no node that is allowed.
    """
    rest = _capacities(inputs, sources, root, allowed)
    while path := _path(rest):
        edges = list(pairwise(path))
        room = min(rest[a][b] for a, b in edges)
        if room >= _MANY:
            return None
        for a, b in edges:
            rest[a][b] -= room
            rest[b][a] = rest[b].get(a, 0) + room
    behind = _before_the_end(rest)
    return {node for node in allowed if (node, "out") in behind and (node, "in") not in behind}


def _capacities(
    inputs: Mapping[Any, Iterable[Any]], sources: Iterable[Any], root: Any, allowed: Collection[Any]
) -> dict[Any, dict[Any, int]]:
    """Every node as an edge, of one path at most if it may be cut (Menger)."""
    edges: list[tuple[Any, Any, int]] = [
        ((node, "in"), (node, "out"), 1 if node in allowed else _MANY) for node in inputs
    ]
    edges += [((arg, "out"), (node, "in"), _MANY) for node, args in inputs.items() for arg in args]
    edges += [(_START, (source, "in"), _MANY) for source in sources]
    edges.append(((root, "out"), _END, _MANY))
    rest: dict[Any, dict[Any, int]] = {_START: {}, _END: {}}
    for a, b, room in edges:
        rest.setdefault(a, {})[b] = room
        rest.setdefault(b, {}).setdefault(a, 0)
    return rest


def _path(rest: dict[Any, dict[Any, int]]) -> list[Any] | None:
    """A shortest path along edges with room (Edmonds and Karp); None if there is none."""
    before: dict[Any, Any] = {_START: None}
    queue = deque([_START])
    while queue and _END not in before:
        node = queue.popleft()
        for other, room in rest[node].items():
            if room > 0 and other not in before:
                before[other] = node
                queue.append(other)
    if _END not in before:
        return None
    path = [_END]
    while path[-1] != _START:
        path.append(before[path[-1]])
    return path[::-1]


def _before_the_end(rest: dict[Any, dict[Any, int]]) -> set[Any]:
    """Whatever has a way to the end along edges with room."""
    found, queue = {_END}, deque([_END])
    while queue:
        node = queue.popleft()
        for other in rest[node]:  # every edge has its opposite
            if other not in found and rest[other].get(node, 0) > 0:
                found.add(other)
                queue.append(other)
    return found


_ZERO = constant(0.0)
# Operations on data that are infinite, or not a number, for some.
_NOT_FINITE = ("log", "log1p", "log1mexp", "reciprocal", "power", "exp", "gammaln")


class CasePredictors(NamedTuple):
    """An expression as a function of few affine values."""

    expression: Expression  # Its predictors are numbered as in `values`
    values: list[Expression]  # Affine in the predictors of the given expression


def case_predictors(root: Expression, moved: Set[int]) -> CasePredictors:
    """Find the fewest predictors through which an expression can be computed, in each of its cases.

    Columns of data that other steps move, `moved`, are no coefficients.
    """
    affine = {
        one
        for one, parts in affine_nodes(root).items()
        if all(moved.isdisjoint(leaves(factor, "data")) for factor in parts.coefficients.values())
    }
    places: dict[Expression, dict[Expression, int]] = {}
    for leaf in _leaves(root):
        places[leaf] = _placed(_cut(leaf, affine), list(places.values()))
    # Rows that do not move have one, which is zero.
    n = max((place + 1 for own in places.values() for place in own.values()), default=1)
    values = [_tree(root, {leaf: _at(own, k) for leaf, own in places.items()}.get) for k in range(n)]
    return CasePredictors(_tree(root, lambda leaf: replaced_by(leaf, places[leaf])), values)


def _leaves(root: Expression) -> list[Expression]:
    """The different expressions of the cases."""
    if not floats(root):
        return [root]
    return list(dict.fromkeys(leaf for branch in root.args[1:] for leaf in _leaves(branch)))


def _cut(leaf: Expression, affine: Set[Expression]) -> list[Expression]:
    """The fewest affine parts through which predictors enter, in an order of the graph."""
    if not leaf.moves:
        return []
    nodes = list(ordered(leaf))
    inputs = {one: [arg for arg in one.args if arg.moves] for one in nodes if one.moves}
    found = smallest_cut(inputs, [one for one in nodes if one.op == "predictor"], leaf, affine)
    assert found is not None  # all predictors may be cut
    return [one for one in nodes if one in found]


def _placed(cut: list[Expression], before: list[dict[Expression, int]]) -> dict[Expression, int]:
    """Places for the parts of a cut: those that they have in other cases, if these are free."""
    result: dict[Expression, int] = {}
    for one in cut:
        known = [own[one] for own in before if one in own and own[one] < len(cut)]
        free = next((place for place in known if place not in result.values()), None)
        if free is not None:
            result[one] = free
    for one in cut:
        if one not in result:
            result[one] = next(k for k in range(len(cut)) if k not in result.values())
    return result


def _at(places: dict[Expression, int], place: int) -> Expression | None:
    return next((one for one, own in places.items() if own == place), None)


def _tree(root: Expression, value: Callable[[Expression], Expression | None]) -> Expression:
    """The tree of cases with other values; any finite value where a case has none."""
    found = _branch(root, value, {})
    return _ZERO if found is None else found


def _branch(
    root: Expression,
    value: Callable[[Expression], Expression | None],
    known: dict[Expression, Expression | None],
) -> Expression | None:
    if root not in known:
        if not floats(root):
            known[root] = value(root)
        else:
            yes, no = (_branch(branch, value, known) for branch in root.args[1:])
            if (yes is None) is not (no is None) and _may_be_infinite(no if yes is None else yes):
                yes, no = (_ZERO if one is None else one for one in (yes, no))
            if yes is None or no is None or yes is no:
                known[root] = no if yes is None else yes
            else:
                known[root] = node("select", (root.args[0], yes, no), range=root.range)
    return known[root]


def _may_be_infinite(value: Expression | None) -> bool:
    """Is it made of data by an operation that is not finite for all numbers?"""
    nodes = () if value is None else ordered(value)
    return any(one.op in _NOT_FINITE and not one.moves for one in nodes)
