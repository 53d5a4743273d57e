"""Sparse Cholesky on a fixed tree of dense nodes: factors, solutions, and elements of the inverse.

Variables are numbered in the order of elimination, so that those of a node are consecutive and its parent
comes later. A column of the factor meets variables of its own node and of ancestors. Those of the ancestors
are the same for all columns of a node: `below`. The columns of node v are stored as one dense front, row by
row: size + len(below) rows of `size` numbers, from `fronts[v]` on. A row begins `strides[v]` after the one
before.

Consecutive nodes of one variable with the same `below` are a run. Their fronts are the columns of one matrix
with len(below) + 1 rows, so that a pass over a run reads rows of it, one after the other.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_austerity import compilation
from pymc_austerity.bounds.jets.compiled import entry, of_records
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index, Mask, Matrix, Vector

# A product of pivots is turned into a logarithm beyond these.
_SMALL, _LARGE = 1e-100, 1e100
# Columns whose products are added together: a sum is then read and written less often.
_AT_ONCE = 4
# So much more work may make nodes alike.
_MORE_WORK = 2.0


class Tree(NamedTuple):
    """Nodes in the order of elimination; the root comes last."""

    # first, size (V,): variables of each node
    first: Index
    size: Index
    starts: Index  # (V + 1,): where `below` of each node begins
    below: Index  # Variables of ancestors, ascending
    fronts: Index  # (V + 1,): where the columns of each node begin, and how many numbers there are
    strides: Index  # (V,): from one row of a node's front to the next
    parent: Index  # (V,): -1 for the root
    depth: Index  # (V,): 0 for the root
    node_of: Index  # (n,): of each variable
    # `below` of each node in segments, one for each ancestor that owns the variables (S,), and where those
    # of a node begin (V + 1,)
    segments: Index
    owner: Index
    begin: Index  # (S,): within `below` of the node
    end: Index  # (S,)
    places: Index  # (S,): where in `rows` those of a segment begin
    rows: Index  # Rows of the owner's front, of the variables from `begin` on to the last
    has_twin: Mask  # (V,): whether the next node has the same `below`
    run: Index  # (V,): nodes of a run from each on; 0 for nodes that do not have one variable
    widest: int  # The length of the longest `below`


@jitable
def position(tree: Tree, a: int, b: int) -> int:
    """Where the element of variables a <= b is stored; -1 if the tree has none."""
    v: int = tree.node_of[a]
    size, row = tree.size[v], b - tree.first[v]
    if row >= size:
        start, stop = tree.starts[v], tree.starts[v + 1]
        k = np.searchsorted(tree.below[start:stop], b)
        if k == stop - start or tree.below[start + k] != b:
            return -1
        row = size + k
    place: int = tree.fronts[v] + row * tree.strides[v] + a - tree.first[v]
    return place


def _dot(a: Vector, b: Vector) -> float:
    """The sum of products, added in any order, so that a processor adds several at once."""
    total = 0.0
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


dot = compilation.entry(_dot, fastmath={"reassoc", "contract", "nsz"})


@jitable
def factorise(tree: Tree, front: Vector, least: Vector) -> float:
    """Cholesky's factor in place of a matrix; the sum of the logarithms of its diagonal.

    A column with a pivot of `least` (n,) or less becomes zero. If `least` is below zero there, NaN is
    returned.
    """
    total, product = 0.0, 1.0
    first, size, starts, below, fronts = tree.first, tree.size, tree.starts, tree.below, tree.fronts
    segments, owner, begins, ends = tree.segments, tree.owner, tree.begin, tree.end
    places, rows, has_twin, run, strides = tree.places, tree.rows, tree.has_twin, tree.run, tree.strides
    taken, columns, n = np.zeros((tree.widest, tree.widest)), np.empty((_AT_ONCE, tree.widest)), 0
    v = -1
    while v < first.shape[0] - 1:
        v += 1
        q, start, o, f = size[v], starts[v], fronts[v], first[v]
        r = starts[v + 1] - start
        if run[v] > 1:
            n_run = run[v]
            total += _factorise_run(front[o : o + n_run * (1 + r)], least[f : f + n_run], r, taken)
            if math.isnan(total):
                return math.nan
            v, q = v + n_run - 1, 0
            start = starts[v]
        for j in range(q):
            oj = o + j * q
            pivot = front[oj + j]
            for k in range(j):
                pivot -= front[oj + k] * front[oj + k]
            for k in range(j + 1, q):
                front[oj + k] = 0.0
            limit = least[f + j]
            if limit < 0.0 and not pivot > 0.0:
                return math.nan
            if not pivot > limit:
                for i in range(j, q + r):
                    front[o + i * q + j] = 0.0
                continue
            root = math.sqrt(pivot)
            product *= root
            if not _SMALL < product < _LARGE:
                total += math.log(product)
                product = 1.0
            front[oj + j] = root
            inverse = 1.0 / root
            if q == 1:  # as most are: the column lies together
                for i in range(r):
                    front[o + 1 + i] *= inverse
                    columns[n, i] = front[o + 1 + i]
            else:
                for i in range(j + 1, q + r):
                    oi = o + i * q
                    t = front[oi + j]
                    for k in range(j):
                        t -= front[oi + k] * front[oj + k]
                    front[oi + j] = t * inverse
                for i in range(r):
                    columns[n, i] = front[o + (q + i) * q + j]
            n += 1
            if n == _AT_ONCE:
                _add_products(columns, n, r, taken)
                n = 0
        if has_twin[v]:
            continue
        _add_products(columns, n, r, taken)
        n = 0
        for s in range(segments[v], segments[v + 1]):  # what the node and its twins take from ancestors
            w, begin, end, place = owner[s], begins[s], ends[s], places[s]
            wide, shift = strides[w], fronts[w] - first[w]
            for b in range(begin, r):
                row = shift + rows[place + b - begin] * wide
                for a in range(begin, min(b + 1, end)):
                    front[row + below[start + a]] -= taken[b, a]
                    taken[b, a] = 0.0
    return total + math.log(product)


@jitable
def _factorise_run(front: Vector, least: Vector, r: int, taken: Matrix) -> float:
    """Factorise a run, and add products of its rows to `taken`: see `factorise`."""
    total, product, n = 0.0, 1.0, least.shape[0]
    pivots, inverse, is_bad = front[:n], np.empty(n), False
    for k in range(n):
        is_bad |= (least[k] < 0.0) & (not pivots[k] > 0.0)
    if is_bad:
        return math.nan
    for k in range(n):
        root = math.sqrt(pivots[k]) if pivots[k] > least[k] else 0.0
        pivots[k] = root
        inverse[k] = 1.0 / root if root > 0.0 else 0.0
    for k in range(n):
        if pivots[k] > 0.0:
            product *= pivots[k]
            if not _SMALL < product < _LARGE:
                total += math.log(product)
                product = 1.0
    for b in range(r):
        row = front[(1 + b) * n : (2 + b) * n]
        for k in range(n):
            row[k] *= inverse[k]
        for a in range(b + 1):
            taken[b, a] += dot(row, front[(1 + a) * n : (2 + a) * n])
    return total + math.log(product)


@jitable
def _add_products(columns: Matrix, n: int, r: int, result: Matrix) -> None:
    """Add the lower triangle (r, r) of the sum over n columns c of c c'."""
    if n == _AT_ONCE:
        for b in range(r):
            one, two, three, four = columns[0, b], columns[1, b], columns[2, b], columns[3, b]
            for a in range(b + 1):
                result[b, a] += (
                    one * columns[0, a] + two * columns[1, a] + three * columns[2, a] + four * columns[3, a]
                )
        return
    for k in range(n):
        for b in range(r):
            for a in range(b + 1):
                result[b, a] += columns[k, b] * columns[k, a]


@jitable
def forward(tree: Tree, front: Vector, right: Vector, result: Vector) -> None:
    """Solve L result = right, which is written over. Zero columns give zero."""
    first, size, starts, below, fronts = tree.first, tree.size, tree.starts, tree.below, tree.fronts
    v, run = -1, tree.run
    while v < first.shape[0] - 1:
        v += 1
        q, start, o, f = size[v], starts[v], fronts[v], first[v]
        r = starts[v + 1] - start
        if run[v] > 1:
            n = run[v]
            solved, pivots, own = result[f : f + n], front[o : o + n], right[f : f + n]
            for k in range(n):
                solved[k] = own[k] / pivots[k] if pivots[k] > 0.0 else 0.0
            for i in range(r):
                right[below[start + i]] -= dot(front[o + (1 + i) * n : o + (2 + i) * n], solved)
            v += run[v] - 1
            continue
        for j in range(q):
            t = right[f + j]
            for k in range(j):
                t -= front[o + j * q + k] * result[f + k]
            pivot = front[o + j * q + j]
            result[f + j] = t / pivot if pivot > 0.0 else 0.0
        if q == 1:
            t = result[f]
            for i in range(r):
                right[below[start + i]] -= front[o + 1 + i] * t
            continue
        for i in range(r):
            t, oi = 0.0, o + (q + i) * q
            for k in range(q):
                t += front[oi + k] * result[f + k]
            right[below[start + i]] -= t


@jitable
def backward(tree: Tree, front: Vector, right: Vector, result: Vector) -> None:
    """Solve L' result = right."""
    first, size, starts, below, fronts = tree.first, tree.size, tree.starts, tree.below, tree.fronts
    v, run = first.shape[0], tree.run
    while v > 0:
        v -= 1
        q, start = size[v], starts[v]
        r = starts[v + 1] - start
        if q == 1:  # the last one of a run
            while v > 0 and run[v - 1] == run[v] + 1:
                v -= 1
            n, o, f = run[v], fronts[v], first[v]
            solved, pivots = result[f : f + n], front[o : o + n]
            solved[:] = right[f : f + n]
            for i in range(r):
                row, above = front[o + (1 + i) * n : o + (2 + i) * n], result[below[start + i]]
                for k in range(n):
                    solved[k] -= row[k] * above
            for k in range(n):
                solved[k] /= pivots[k]
            continue
        o, f = fronts[v], first[v]
        for j in range(q - 1, -1, -1):
            t = right[f + j]
            for i in range(j + 1, q):
                t -= front[o + i * q + j] * result[f + i]
            for i in range(r):
                t -= front[o + (q + i) * q + j] * result[below[start + i]]
            result[f + j] = t / front[o + j * q + j]


@jitable
def selected_inverse(tree: Tree, front: Vector, result: Vector) -> None:
    """Elements of (L L')^-1 that are stored, by nodes from the root on (Takahashi's equations)."""
    widest = 0
    for v in range(tree.first.shape[0]):
        widest = max(widest, tree.starts[v + 1] - tree.starts[v] + tree.size[v])
    above, solved = np.zeros((widest, widest)), np.zeros((widest, widest))
    inverse = np.zeros((widest, widest))
    for v in range(tree.first.shape[0] - 1, -1, -1):
        q, start, o, step = tree.size[v], tree.starts[v], tree.fronts[v], tree.strides[v]
        r = tree.starts[v + 1] - start
        for s in range(tree.segments[v], tree.segments[v + 1]):
            w, begin, place = tree.owner[s], tree.begin[s], tree.places[s]
            for b in range(begin, r):
                row = tree.fronts[w] + tree.rows[place + b - begin] * tree.strides[w] - tree.first[w]
                for a in range(begin, min(b + 1, tree.end[s])):
                    above[b, a] = above[a, b] = result[row + tree.below[start + a]]
        for j in range(q):
            for i in range(j):
                inverse[i, j] = 0.0
            inverse[j, j] = 1.0 / front[o + j * step + j]
            for i in range(j + 1, q):
                t = 0.0
                for k in range(j, i):
                    t -= front[o + i * step + k] * inverse[k, j]
                inverse[i, j] = t / front[o + i * step + i]
        for i in range(r):
            for j in range(q):
                t = 0.0
                for k in range(j, q):
                    t += front[o + (q + i) * step + k] * inverse[k, j]
                solved[i, j] = t
        for j in range(q):
            for i in range(r):
                t = 0.0
                for k in range(r):
                    t -= above[i, k] * solved[k, j]
                result[o + (q + i) * step + j] = t
        for j in range(q):
            for i in range(j, q):
                t = 0.0
                for k in range(i, q):
                    t += inverse[k, i] * inverse[k, j]
                for k in range(r):
                    t -= solved[k, i] * result[o + (q + k) * step + j]
                result[o + i * step + j] = t


# Symbolic analysis: which elements of the factor are not zero.


def tree_of(indptr: Index, indices: Index, sizes: Index, *, alike: bool = False) -> Tree:
    """The tree of a symmetric matrix.

    Parameters
    ----------
    indptr, indices : ndarray of int
        Places of its elements that are not zero, by rows, in the order of elimination.
    sizes : ndarray of int (V,)
        Variables of each node. The last node is the root, and may have none.
    alike : bool, default False
        Give nodes that differ little in `below` the same, with zeros: such twins are faster together.
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    first = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    node_of = np.repeat(np.arange(len(sizes)), sizes)
    starts, below, parent = _columns(
        np.asarray(indptr, np.int64), np.asarray(indices, np.int64), first, sizes, node_of
    )
    if alike:
        starts, below = _alike(starts, below, parent, len(node_of))
    has_twin = _have_twins(starts, below)
    run = _runs(sizes, has_twin)
    fronts, strides = _places_of(sizes, starts, run)
    depth = np.zeros(len(sizes), np.int64)
    _write_depths(parent, depth)
    return Tree(
        first, sizes, starts, below, fronts, strides, parent, depth, node_of,
        *_segments(first, sizes, starts, below, node_of),
        has_twin, run, int(np.diff(starts).max()),
    )  # fmt: skip


def _places_of(sizes: Index, starts: Index, run: Index) -> tuple[Index, Index]:
    """Where the columns of each node begin, and from one of its rows to the next."""
    n_nodes, counts = len(sizes), sizes * (sizes + np.diff(starts))
    is_first = np.ones(n_nodes, bool)
    is_first[1:] = (run[1:] == 0) | (run[:-1] != run[1:] + 1)
    heads = np.flatnonzero(is_first)
    of_node = np.cumsum(is_first) - 1
    totals = np.add.reduceat(counts, heads)
    begin = np.cumsum(totals) - totals
    within = np.arange(n_nodes) - heads[of_node]
    fronts = np.append(begin[of_node] + within, totals.sum())
    return fronts, np.where(sizes == 1, run[heads][of_node], sizes)


@jitable
def _sort(numbers: Index) -> None:
    """Sort few numbers that are nearly in ascending order."""
    for k in range(1, numbers.shape[0]):
        one, place = numbers[k], k
        while place > 0 and numbers[place - 1] > one:
            numbers[place] = numbers[place - 1]
            place -= 1
        numbers[place] = one


@entry
def _columns(
    indptr: Index, indices: Index, first: Index, sizes: Index, node_of: Index
) -> tuple[Index, Index, Index]:
    """`starts`, `below` and `parent` of a tree: columns meet what theirs or their children's do."""
    n_nodes, n = sizes.shape[0], node_of.shape[0]
    starts, parent = np.zeros(n_nodes + 1, np.int64), np.full(n_nodes, n_nodes - 1)
    parent[n_nodes - 1] = -1
    child, sibling = np.full(n_nodes, -1), np.full(n_nodes, -1)
    below, seen, some = np.empty(4 * n + 16, np.int64), np.full(n, -1), np.empty(n, np.int64)
    for v in range(n_nodes):
        k, stop = 0, first[v] + sizes[v]
        for a in range(first[v], stop):
            for p in range(indptr[a], indptr[a + 1]):
                b = indices[p]
                if b >= stop and seen[b] != v:
                    seen[b] = v
                    some[k] = b
                    k += 1
        c = child[v]
        while c >= 0:
            for p in range(starts[c], starts[c + 1]):
                b = below[p]
                if b >= stop and seen[b] != v:
                    seen[b] = v
                    some[k] = b
                    k += 1
            c = sibling[c]
        starts[v + 1] = starts[v] + k
        if starts[v + 1] > below.shape[0]:
            longer = np.empty(2 * starts[v + 1], np.int64)
            longer[: starts[v]] = below[: starts[v]]
            below = longer
        below[starts[v] : starts[v + 1]] = some[:k]
        _sort(below[starts[v] : starts[v + 1]])
        if k > 0:
            parent[v] = node_of[below[starts[v]]]
        if parent[v] >= 0:
            sibling[v] = child[parent[v]]
            child[parent[v]] = v
    return starts, below[: starts[n_nodes]].copy(), parent


@entry
def _alike(starts: Index, below: Index, parent: Index, n: int) -> tuple[Index, Index]:
    """`starts` and `below` with those of all children of a node where that adds little work."""
    n_nodes = parent.shape[0]
    child, sibling = np.full(n_nodes, -1), np.full(n_nodes, -1)
    for v in range(n_nodes - 1):
        sibling[v] = child[parent[v]]
        child[parent[v]] = v
    every, begin = np.empty(below.shape[0], np.int64), np.zeros(n_nodes + 1, np.int64)
    seen, is_alike = np.full(n, -1), np.zeros(n_nodes, np.bool_)
    for w in range(n_nodes):
        k, n_children, before, c = begin[w], 0, 0.0, child[w]
        while c >= 0:
            for p in range(starts[c], starts[c + 1]):
                if seen[below[p]] != w:
                    seen[below[p]] = w
                    every[k] = below[p]
                    k += 1
            n_children += 1
            before += float(starts[c + 1] - starts[c]) ** 2
            c = sibling[c]
        is_alike[w] = n_children * float(k - begin[w]) ** 2 <= _MORE_WORK * before
        begin[w + 1] = k
        _sort(every[begin[w] : k])
    new_starts = np.zeros(n_nodes + 1, np.int64)
    for v in range(n_nodes):
        length = starts[v + 1] - starts[v]
        if v < n_nodes - 1 and is_alike[parent[v]]:
            length = begin[parent[v] + 1] - begin[parent[v]]
        new_starts[v + 1] = new_starts[v] + length
    new_below = np.empty(new_starts[n_nodes], np.int64)
    for v in range(n_nodes):
        place = new_starts[v]
        if v < n_nodes - 1 and is_alike[parent[v]]:
            new_below[place : new_starts[v + 1]] = every[begin[parent[v]] : begin[parent[v] + 1]]
        else:
            new_below[place : new_starts[v + 1]] = below[starts[v] : starts[v + 1]]
    return new_starts, new_below


@entry
def _write_depths(parent: Index, depth: Index) -> None:
    for v in range(parent.shape[0] - 1, -1, -1):
        if parent[v] >= 0:
            depth[v] = depth[parent[v]] + 1


@entry
def _have_twins(starts: Index, below: Index) -> Mask:
    """Whether each node has the `below` of the next one: what both take from ancestors is taken at once."""
    n_nodes = starts.shape[0] - 1
    result = np.zeros(n_nodes, np.bool_)
    for v in range(n_nodes - 1):
        r = starts[v + 1] - starts[v]
        result[v] = starts[v + 2] - starts[v + 1] == r
        for k in range(r):
            result[v] = result[v] and below[starts[v] + k] == below[starts[v + 1] + k]
    return result


@entry
def _runs(sizes: Index, has_twin: Mask) -> Index:
    """How many nodes of one variable, from each on, have the same `below`."""
    result = np.zeros(sizes.shape[0], np.int64)
    for v in range(sizes.shape[0] - 1, -1, -1):
        if sizes[v] == 1:
            result[v] = 1 + (result[v + 1] if has_twin[v] else 0)
    return result


@entry
def _segments(
    first: Index, sizes: Index, starts: Index, below: Index, node_of: Index
) -> tuple[Index, Index, Index, Index, Index, Index]:
    n_nodes, n_segments, n_rows = sizes.shape[0], 0, 0
    for v in range(n_nodes):
        last = -1
        for k in range(starts[v], starts[v + 1]):
            if node_of[below[k]] != last:
                last = node_of[below[k]]
                n_segments += 1
                n_rows += starts[v + 1] - k
    segments, rows = np.zeros(n_nodes + 1, np.int64), np.empty(n_rows, np.int64)
    owner, begin = np.empty(n_segments, np.int64), np.empty(n_segments, np.int64)
    end, places = np.empty(n_segments, np.int64), np.empty(n_segments, np.int64)
    s, place = 0, 0
    for v in range(n_nodes):
        start, r, k = starts[v], starts[v + 1] - starts[v], 0
        while k < r:
            w = node_of[below[start + k]]
            e = k
            while e < r and node_of[below[start + e]] == w:
                e += 1
            owner[s], begin[s], end[s], places[s] = w, k, e, place
            for i in range(k, e):
                rows[place + i - k] = below[start + i] - first[w]
            own = below[starts[w] : starts[w + 1]]
            for i in range(e, r):
                rows[place + i - k] = sizes[w] + np.searchsorted(own, below[start + i])
            place += r - k
            s += 1
            k = e
        segments[v + 1] = s
    return segments, owner, begin, end, places, rows


@of_records
def write_positions(tree: Tree, a: Index, b: Index, result: Index) -> None:
    """Where elements of pairs of variables are stored."""
    for k in range(a.shape[0]):
        result[k] = position(tree, min(a[k], b[k]), max(a[k], b[k]))


@jitable
def deciding(tree: Tree, level: int, result: Index) -> None:
    """The ancestor at a depth of each node (V,); -1 for nodes above."""
    depth, parent = tree.depth, tree.parent
    for v in range(depth.shape[0] - 1, -1, -1):
        if depth[v] < level:
            result[v] = -1
        elif depth[v] == level:
            result[v] = v
        else:
            result[v] = result[parent[v]]
