"""The predictors of an expression, case by case.

The data decide which case of an expression a row is in: an ordered response at the end of its scale has one
cutpoint, one in the middle two. A case needs the smallest cut through what is affine in it. The predictors
of all rows are as many as the largest case has: in every case they are the affine values of its own cut.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Set
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from pymc_austerity.bounds.expressions.node import Expression, constant, node, ordered
from pymc_austerity.bounds.expressions.trees import floats
from pymc_austerity.model.structure.affine_expressions import affine_nodes, leaves, replaced_by

# Room for paths of a node that may not be cut.
_MANY = 1 << 30


def smallest_cut[T: Hashable](
    inputs: Mapping[T, Iterable[T]], sources: Iterable[T], root: T, allowed: Collection[T]
) -> set[T] | None:
    """The fewest nodes through which all paths from `sources` to `root` pass.

    Of several such sets, the one nearest to the root. By Menger's theorem they are as many as the largest
    flow from the sources to the root, where one unit at most passes through a node that may be cut.

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
    # Node k of the graph is an edge from 2 k to 2 k + 1.
    number = {one: 2 * k for k, one in enumerate(inputs)}
    start, end = 2 * len(number), 2 * len(number) + 1
    edges = {(k, k + 1): 1 if one in allowed else _MANY for one, k in number.items()}
    edges |= {(number[arg] + 1, number[one]): _MANY for one, args in inputs.items() for arg in args}
    edges |= {(start, number[source]): _MANY for source in sources}
    edges[number[root] + 1, end] = _MANY
    rooms = sparse.csr_array(
        (np.array(list(edges.values()), np.int32), tuple(np.array(list(edges)).T)), shape=(end + 1, end + 1)
    )
    found = maximum_flow(rooms, start, end)
    if found.flow_value >= _MANY:
        return None
    # What has a way to the end along edges with room; every edge has its opposite.
    ways = (rooms - found.flow).T > 0
    behind = set(breadth_first_order(ways, end, return_predecessors=False).tolist())
    return {one for one, k in number.items() if one in allowed and k + 1 in behind and k not in behind}


_ZERO = constant(0.0)
# Operations on data that are infinite, or not a number, for some.
_NOT_FINITE = ("log", "log1p", "log1mexp", "reciprocal", "power", "exp", "gammaln", "log_ndtr_between")


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
