"""The smallest set of values through which everything passes on its way through a graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from itertools import pairwise
from typing import Any

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
