"""Equal rows as one row with a weight: the same log density, from fewer rows.

What a row has of the data are the largest parts of its graph that depend on its number and on no variable.
Two rows are equal if all bytes of these are. A row whose number enters otherwise, as where it looks up an
element of a latent vector of its own, has its number among its data, and equals no other.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity import work
from pymc_austerity.model.factorisation import CHUNK, Factorisation, LocalTerm, some_rows
from pymc_austerity.model.graph.leaves import Leaf, frontier
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on, rebuild
from pymc_austerity.target import Index, Vector

# Rows are joined if they are so many times fewer then, and so many different ones are kept in memory at most.
_TIMES_FEWER, _MOST = 4, 2**20
# Rows that are looked at first.
_LOOKED_AT, _SEED = CHUNK, 2030
# Operations that take the bytes of a row, and look for equal ones.
_OF_ROW = 300.0


def with_equal_rows_joined(fact: Factorisation) -> Factorisation:
    """A factorisation that has one row for each kind of equal rows, times the number of these.

    Its log density is the same. Kinds are in the order in which they appear first. Terms in which they are
    not several times fewer than rows stay as they are. It takes a look at some rows, and a pass over all if
    some of them are equal.
    """
    found = [_joined(fact, term) for term in fact.locals]
    new = {leaf: value for _, leaves in found for leaf, value in leaves.items()}
    if not new:
        return fact
    terms = tuple(term for term, _ in found)
    used = set(ancestors([*(term.rows for term in terms), *(graph for _, graph in fact.globals)]))
    old = zip(fact.leaves, fact.leaf_values, strict=True)
    kept = [(leaf, value) for leaf, value in old if leaf.placeholder in used]
    kept += [(Leaf(leaf, leaf), value) for leaf, value in new.items()]
    leaves, values = zip(*kept, strict=True)
    return replace(fact, locals=terms, leaves=leaves, leaf_values=list(values))


def said_of_joined(plain: Factorisation, joined: Factorisation) -> list[str]:
    """What became of the rows of each term that was joined, in words."""
    return [
        f"{before.size:,} rows of {before.name!r} are {after.size:,} different ones: each of these is read "
        f"once, with a weight ({before.size / after.size:,.0f} times fewer rows)."
        for before, after in zip(plain.locals, joined.locals, strict=True)
        if after is not before
    ]


def _joined(fact: Factorisation, term: LocalTerm) -> tuple[LocalTerm, dict[Variable, np.ndarray]]:
    """A term with its equal rows joined, and the leaves that this takes; the term itself without any."""
    of_row = depends_on([term.rows], [term.index])
    parts = [var for var in frontier([term.rows], list(fact.graph.values.values())) if of_row.get(var, False)]
    axes = [[axis for axis, length in enumerate(var.type.shape) if length is None] for var in parts]
    if not parts or term.index in parts or any(len(own) != 1 for own in axes):
        return term, {}
    function = fact.compile(parts, [term.index], mode=INTERPRETED)
    point = fact.point_values(fact.graph.point)

    def data(positions: Index) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            found = function(*point, positions, *fact.leaf_values)
        return [
            np.ascontiguousarray(np.moveaxis(one, axis, 0)) for one, (axis,) in zip(found, axes, strict=True)
        ]

    kinds = _kinds(data, term.size)
    if kinds is None:
        return term, {}
    first, counts = kinds
    weight = pt.vector("weight", shape=(len(first),))
    leaves, instead = {weight: counts}, {}
    for k, (part, value, (axis,)) in enumerate(zip(parts, data(first), axes, strict=True)):
        leaf = pt.tensor(f"kinds{k}", dtype=value.dtype, shape=value.shape)
        leaves[leaf], instead[part] = value, pt.moveaxis(leaf[term.index], 0, axis)
    (rows,) = rebuild([term.rows], instead)
    joined = replace(term, size=len(first), rows=weight[term.index] * rows, first=first)
    return joined, leaves


def _kinds(data: Callable[[Index], list[np.ndarray]], n_rows: int) -> tuple[Index, Vector] | None:
    """Where each kind of rows appears first, and how often it does; None if kinds are not few."""
    most = min(n_rows // _TIMES_FEWER, _MOST)
    if n_rows > _LOOKED_AT:
        some = np.random.default_rng(_SEED).choice(n_rows, _LOOKED_AT, replace=False)
        if _estimated(Counter(_bytes(data(np.sort(some))))) > most:
            return None
        work.spend(_OF_ROW * n_rows, "The search for equal rows")
    counts: Counter[bytes] = Counter()
    first: list[int] = []
    for positions in some_rows(n_rows):
        keys = _bytes(data(positions))
        fresh = [key for key in dict.fromkeys(keys) if key not in counts]
        if fresh:
            place = dict(zip(reversed(keys), positions[::-1].tolist(), strict=True))
            first += [place[key] for key in fresh]
        counts.update(keys)
        if len(counts) > most:
            return None
    if len(counts) < 2:
        return None
    return np.array(first), np.fromiter(counts.values(), np.float64, len(counts))


def _estimated(counts: Counter[bytes]) -> float:
    """How many kinds there are at least, from how often some rows have each (Chao, 1984)."""
    times = Counter(counts.values())
    if times[1] and not times[2]:
        return np.inf
    return len(counts) + 0.5 * times[1] ** 2 / max(times[2], 1)


def _bytes(data: list[np.ndarray]) -> list[bytes]:
    """The bytes of each row, in all arrays."""
    n = len(data[0])
    both = np.concatenate([one.reshape(n, -1).view(np.uint8) for one in data], axis=1)
    rows: list[bytes] = both.view(f"V{both.shape[1]}").ravel().tolist()
    return rows
