"""The order in which effects are eliminated: groups before what they are nested in, areas by dissection.

Two effects are neighbours if some row has both, or if the prior couples them. Effects with the same
neighbours are a unit. An order is good if the tree that it makes has little fill and is not deep: a move of
a node moves all below. Three rules make one, again and again until nothing is left:

- units whose neighbours are neighbours of each other are eliminated without fill. A round takes as many as
  are not neighbours themselves: all classes, then all schools, then all regions;
- a short factor that meets many units goes to the root, beside the columns that all rows have;
- what is left is cut in two by a level of a breadth-first search, which comes after both parts: nested
  dissection, of depth log n for series and areas. Some effects that nothing parts are nodes on one path.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components, dijkstra

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.fields.tree import Tree, tree_of
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.target import Index, Mask

# Of units that are left, the share that a round must take; neighbours of a unit that are looked at.
_SHARE, _FEW = 0.25, 40
# Effects in a node of the dissection; of a factor that goes to the root, and how much more it meets.
_LEAF, _HUB, _MORE = 16, 128, 4.0
# Effects that are tied to each other, at most, and in a node of these; both where nothing is moved.
MOST_TIED, WIDE, _WIDEST = 256, 32, 2500
# Nanoseconds of a factorisation, at most: for a move, or for a density that is looked at some hundred times;
# of a product, and of what a node or its twins take from ancestors.
_MOST_WORK, _OF_A_DENSITY, _OF_PRODUCT, _OF_TAKEN = 2.5e7, 1e9, 0.1, 0.5
_SEED = 2023


class NoOrderError(NoField):
    """Why no tree has little fill."""


class Order(NamedTuple):
    """Effects in the order of elimination, and the tree that it makes."""

    variables: Index  # (n,): which effect comes first, second, ...
    tree: Tree
    is_wide: bool  # Whether many effects part others, or are parted by nothing


def find_order(
    together: sparse.csr_array, prior: sparse.csr_array, dense: Mask, kinds: Index, *, moves: bool = True
) -> Order:
    """A good order.

    Parameters
    ----------
    together : csr_array (cells, n)
        Which effects occur together in rows; without those that all rows have.
    prior : csr_array (n, n)
        Which effects the prior couples.
    dense : ndarray of bool (n,)
        Effects that all rows have: they are in the root.
    kinds : ndarray of int (n,)
        Effects of one vector have one number.
    moves : bool, default True
        Whether the tree is for moves; else more fill will do.

    Raises
    ------
    NoOrderError
        If all orders that are known have too much fill.
    """
    n = len(dense)
    ones, coupled = (one.astype(bool).astype(np.int64) for one in (together, prior))
    graph = sparse.csr_array(ones.T @ ones + coupled + sparse.eye_array(n, dtype=np.int64))
    graph.data[:] = 1
    unit, n_units = _units(graph, dense)
    incidence = sparse.csr_array((np.ones(n, np.int64), (np.arange(n), unit)), (n, n_units))
    between = sparse.csr_array(incidence.T @ graph @ incidence)
    between.setdiag(0)
    between.eliminate_zeros()
    between.sort_indices()
    sizes = np.bincount(unit, minlength=n_units)
    of_unit = np.zeros(n_units, np.int64)
    of_unit[unit] = kinds
    search = _Search(between, sizes, of_unit, (_HUB, MOST_TIED) if moves else (_WIDEST, _WIDEST))
    search.eliminate(np.unique(unit[~dense]), can_have_hubs=True)
    root = [*search.root, *np.unique(unit[dense])]
    nodes = [*search.nodes, np.array(root, dtype=np.int64)]
    rank = np.empty(n_units, np.int64)
    rank[np.concatenate(nodes)] = np.repeat(np.arange(len(nodes)), [len(one) for one in nodes])
    node = rank[unit]
    variables = np.argsort(node, kind="stable")
    node_sizes = np.bincount(node, minlength=len(nodes))
    pattern = graph[variables][:, variables]
    is_dense = dense[variables]
    if is_dense.any():  # all rows have these: any effect that rows have meets them
        seen = np.zeros(n, bool)
        seen[np.unique(together.indices)] = True
        seen = (seen | dense)[variables]
        pattern = pattern + sparse.csr_array(seen[:, None] * 1) @ sparse.csr_array(is_dense[None] * 1)
    pattern = sparse.csr_array(pattern)
    tree = tree_of(pattern.indptr, pattern.indices, node_sizes)
    # Each node directly after all below it: what is moved together lies together, and so do twins. Of these
    # the one with the first effect comes first: rows that are sorted by group are in the order of the tree.
    first = np.full(len(nodes), n)
    np.minimum.at(first, node, np.arange(n))
    after = _postorder(tree.parent, np.lexsort((-first, tree.depth)))
    by_tree = np.argsort(after[tree.node_of], kind="stable")
    variables, pattern = variables[by_tree], pattern[by_tree][:, by_tree]
    tree = tree_of(pattern.indptr, pattern.indices, node_sizes[np.argsort(after)], alike=True)
    if work_of(tree) > (_MOST_WORK if moves else _OF_A_DENSITY):
        raise NoOrderError("factors that are crossed, or looked up twice, meet in too many pairs of effects")
    return Order(variables, tree, search.is_wide)


@entry
def _postorder(parent: Index, downwards: Index) -> Index:
    """The place of each node in an order in which it comes directly after all that are below it.

    `downwards` are all nodes from the root, the last one, on; of twins the last one comes first there.
    """
    n = parent.shape[0]
    below, place, following = np.ones(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for v in range(n - 1):
        below[parent[v]] += below[v]
    place[n - 1] = n - 1
    following[n - 1] = n - 2  # the last place that is free below
    for v in downwards[1:]:
        place[v] = following[parent[v]]
        following[parent[v]] -= below[v]
        following[v] = place[v] - 1
    return place


def work_of(tree: Tree, narrowest: int = 0) -> float:
    """Nanoseconds of a factorisation, counted: of all nodes, or of those with so many variables."""
    q, r = tree.size.astype(float), np.diff(tree.starts).astype(float)
    works = _OF_PRODUCT * q * (q + r) ** 2 + _OF_TAKEN * np.where(tree.has_twin, 0.0, r * r)
    return float(works[q >= narrowest].sum())


def _units(graph: sparse.csr_array, dense: Mask) -> tuple[Index, int]:
    """Effects with the same neighbours, by a number that few others have."""
    keys = np.random.default_rng(_SEED).integers(-(2**62), 2**62, graph.shape[0])
    with np.errstate(over="ignore"):
        found = graph @ keys
    found[dense] = 0
    _, unit = np.unique(found, return_inverse=True)
    return unit, int(unit.max(initial=-1)) + 1


class _Search:
    """Nodes that have been found, as arrays of units, in the order of elimination."""

    def __init__(self, graph: sparse.csr_array, sizes: Index, kinds: Index, most: tuple[int, int]) -> None:
        self.graph, self.sizes, self.kinds = graph, sizes, kinds
        self.largest_hub, self.most_tied = most
        self.nodes: list[Index] = []
        self.root: list[int] = []
        self.is_wide = False

    def eliminate(self, units: Index, *, can_have_hubs: bool = False) -> None:
        """Put units into nodes."""
        left = self._without_fill(units)
        if can_have_hubs:
            while len(left) and len(hub := self._hub(left)):
                self.root += hub.tolist()
                self.is_wide |= bool(self.sizes[hub].sum() > WIDE)
                left = self._without_fill(np.setdiff1d(left, hub))
        if not len(left):
            return
        graph = self.graph[left][:, left]
        n_parts, part = connected_components(graph, directed=False)
        order = np.argsort(part, kind="stable")
        for some in np.split(order, np.cumsum(np.bincount(part, minlength=n_parts))[:-1]):
            self._dissect(left[some], graph[some][:, some])

    def _without_fill(self, units: Index) -> Index:
        """Eliminate rounds of units whose neighbours are neighbours of each other; what is left."""
        alive = np.zeros(self.graph.shape[0], bool)
        alive[units] = True
        left = units
        while len(left):
            taken = _round(self.graph.indptr, self.graph.indices, left, alive)
            if len(taken) < _SHARE * len(left):
                break
            alive[taken] = False
            self.nodes += list(taken[:, None])
            left = left[alive[left]]
        return left

    def _hub(self, units: Index) -> Index:
        """Units of the short vector that meets most others, if these are many; else none."""
        own = self.graph[units][:, units]
        degrees = np.diff(own.indptr)
        kinds, number = np.unique(self.kinds[units], return_inverse=True)
        best, most = units[:0], 0.0
        for k in range(len(kinds)):
            is_own = number == k
            if is_own.all() or self.sizes[units[is_own]].sum() > self.largest_hub:
                continue
            mean = float(degrees[is_own].mean())
            if mean > _MORE * float(np.median(degrees[~is_own])) / max(is_own.sum(), 1) and mean > most:
                best, most = units[is_own], mean
        return best

    def _dissect(self, units: Index, graph: sparse.csr_array) -> None:
        if self.sizes[units].sum() <= _LEAF:
            self.nodes.append(units)
            return
        level = _levels(graph)
        counts = np.bincount(level)
        below = np.cumsum(counts) - counts
        balance = np.minimum(below, len(units) - below - counts)
        good = np.flatnonzero(balance >= 0.25 * len(units))
        cut = int(good[np.argmin(counts[good] / balance[good])]) if len(good) else int(np.argmax(balance))
        ahead = (graph @ (level == cut + 1).astype(np.int64)) > 0
        is_cut = (level == cut) & ahead
        if not is_cut.any() or is_cut.sum() > 0.5 * len(units):
            sizes = self.sizes[units]
            if sizes.sum() > self.most_tied:
                raise NoOrderError(
                    f"{sizes.sum():,} effects are tied to each other by rows or priors, and no few of them "
                    "part the others"
                )
            place = (np.cumsum(sizes) - 1) // WIDE  # nodes on one path, each decided alone
            self.nodes += [units[place == k] for k in np.unique(place)]
            self.is_wide |= bool(place[-1] > 0)
            return
        both, part = units[~is_cut], graph[~is_cut][:, ~is_cut]
        _, number = connected_components(part, directed=False)
        sizes = np.bincount(number, self.sizes[both])
        small = sizes[number] <= _LEAF
        self.nodes += [both[number == k] for k in np.flatnonzero(sizes <= _LEAF)]
        self.eliminate(both[~small])
        self.nodes.append(units[is_cut])
        self.is_wide |= bool(self.sizes[units[is_cut]].sum() > WIDE)


def _levels(graph: sparse.csr_array) -> Index:
    """Distances from a unit at one end."""
    start = breadth_first_order(graph, 0, directed=False, return_predecessors=False)[-1]
    return dijkstra(graph, directed=False, indices=start, unweighted=True).astype(np.int64)


@entry
def _round(indptr: np.ndarray, indices: np.ndarray, units: Index, alive: Mask) -> Index:
    """Units that are not neighbours, of which each has neighbours that are all neighbours of each other."""
    taken, n_taken = np.empty(units.shape[0], np.int64), 0
    blocked = np.zeros(alive.shape[0], np.bool_)
    own = np.empty(_FEW, np.int64)
    for v in units:
        if blocked[v]:
            continue
        n, is_clique = 0, True
        for p in range(indptr[v], indptr[v + 1]):
            if alive[indices[p]]:
                if n == _FEW:
                    is_clique = False
                    break
                own[n] = indices[p]
                n += 1
        for i in range(n if is_clique else 0):
            u = own[i]
            row = indices[indptr[u] : indptr[u + 1]]
            for j in range(i + 1, n):
                k = np.searchsorted(row, own[j])
                if k == row.shape[0] or row[k] != own[j]:
                    is_clique = False
                    break
            if not is_clique:
                break
        if is_clique:
            taken[n_taken] = v
            n_taken += 1
            for i in range(n):
                blocked[own[i]] = True
    return taken[:n_taken]
