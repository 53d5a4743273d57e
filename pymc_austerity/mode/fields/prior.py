"""C(theta), R(theta) and b(theta) as a kernel has them, in the order of its tree."""

import numpy as np

from pymc_austerity.bounds.jets.compiled import entry, of_records
from pymc_austerity.kernels.fields.records import Elements, HeavyTails, Matched, Prior, Runs, Sums
from pymc_austerity.kernels.fields.tree import Tree, write_positions
from pymc_austerity.mode.fields.maps import Entries, Given, Maps
from pymc_austerity.target import Index, Mask, Vector


def places_of(tree: Tree, a: Index, b: Index) -> Index:
    """Where a tree has the elements of pairs of variables; -1 for none."""
    result = np.empty(len(a), np.int64)
    write_positions(tree, a, b, result)
    return result


def ranks(numbers: Index) -> Index:
    """How often each of some sorted numbers has come before."""
    return np.arange(len(numbers)) - np.searchsorted(numbers, numbers)


def prior_of(
    maps: Maps,
    entries: Entries,
    place: Index,
    given: Given,
    tree: Tree,
    elements: tuple[Index, Index],
    left: tuple[int, Entries] | None,
) -> Prior:
    """The prior of what a turn moves.

    Parameters
    ----------
    maps : Maps
    entries : Entries
        C, by elements of x, then coordinates in the order of the tree.
    place : ndarray of int
        Where the tree has each coordinate of the maps; -1 for those that are held.
    given : Given
        Elements of x that are numbers.
    tree : Tree
    elements : tuple of ndarray of int (n_H,)
        The two elements of x of each element of H.
    left : tuple, optional
        The coordinate of an intercept that shifts of effects are left to, and how much of it these are.
    """
    first, second = elements
    rank = ranks(entries.rows)
    n_x = int(max(first.max(initial=-1), second.max(initial=-1))) + 1
    starts = np.searchsorted(entries.rows, np.arange(n_x + 1))
    lengths = np.diff(starts)
    counts = lengths[first] * lengths[second]
    which = np.repeat(np.arange(len(first)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    width = lengths[second][which]
    one = starts[first][which] + within // np.maximum(width, 1)
    other = starts[second][which] + within % np.maximum(width, 1)
    is_own = first[which] == second[which]
    kept = ~is_own | (one <= other)
    which, one, other, is_own = which[kept], one[kept], other[kept], is_own[kept]
    a, b = entries.columns[one], entries.columns[other]
    at = places_of(tree, a, b)
    assert at.min(initial=0) >= 0, "an element of the precision has no place in the tree"
    twice = np.where(~is_own & (a == b), 2, 1).astype(np.int8)
    same = is_own & (one != other) & (a == b)  # two entries at one place
    twice[same] = 2
    coupled = maps.precision.placed(place, place)
    precision = Elements(*coupled._replace(rows=places_of(tree, coupled.rows, coupled.columns)))
    is_given = np.zeros(n_x + 1, bool)
    is_given[given.elements] = True
    nothing = np.zeros(0, np.int64)
    intercept, pulls = -1, Elements(nothing, nothing, np.zeros(0), np.zeros((0, 0), np.int64))
    if left is not None and np.any(precision.columns[precision.coefficients != 0.0] == place[left[0]]):
        intercept, pulls = int(place[left[0]]), Elements(*left[1]._replace(columns=place[left[1].columns]))
    tails, matched = _tails(maps, place), _matched(maps, place, tree)
    by_rank, number = np.argsort(rank, kind="stable"), np.empty(len(rank), np.int64)
    number[by_rank] = np.arange(len(rank))
    kind = np.cumsum(np.append(0, np.diff(first) <= 0)[: len(first)])  # first elements ascend within one
    order = np.lexsort((which, rank[other], rank[one], kind[which]))
    products = np.stack([at, which, number[one], number[other]], axis=1)
    return Prior(
        Elements(*entries.taken(by_rank)), precision, _in_runs(products[order], twice[order]),
        *given, np.flatnonzero(is_given[first] | is_given[second]), pulls, intercept, tails, matched,
    )  # fmt: skip


def _in_runs(products: Index, twice: np.ndarray) -> Runs:
    """Products of C' H C, which each count `twice`, as runs."""
    is_first, steps = np.ones(len(products), bool), np.zeros_like(products)
    _find_runs(products, twice, is_first, steps)
    first = np.flatnonzero(is_first)
    lengths = np.diff(np.append(first, len(products))).astype(np.int32)
    return Runs(products[first].astype(np.int32), steps[first].astype(np.int32), lengths, twice[first])


@entry
def _find_runs(products: Index, twice: np.ndarray, is_first: Mask, steps: Index) -> None:
    """Write which products begin a run, and the steps of each run there."""
    begin = 0
    for k in range(1, products.shape[0]):
        is_next = bool(twice[k] == twice[begin])
        for j in range(products.shape[1]):
            step = products[k, j] - products[k - 1, j]
            if k == begin + 1:
                steps[begin, j] = step
            is_next = is_next and steps[begin, j] == step
        if is_next:
            is_first[k] = False
        else:
            begin = k


def _tails(maps: Maps, place: Index) -> HeavyTails:
    """Heavy-tailed effects that a turn moves."""
    parts = [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))]
    for one in maps.coordinates:
        if one.tails is not None:
            own = place[one.first : one.first + one.size]
            own = own[own >= 0]
            degrees, number = one.tails
            parts.append((own, np.full(len(own), degrees), np.full(len(own), number)))
    return HeavyTails(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _matched(maps: Maps, place: Index, tree: Tree) -> Matched:
    """Effects that are normal only nearly."""
    own = [(one, one.matched) for one in maps.coordinates if one.matched is not None]
    nothing = np.zeros(0, np.int64)
    found = np.concatenate([nothing, *(place[one.first : one.first + one.size] for one, _ in own)])
    places = places_of(tree, found, found)
    kinds = np.concatenate([nothing, *(np.full(one.size, each.kind) for one, each in own)])
    constants = np.concatenate([np.zeros((4, 0)), *(each.constants for _, each in own)], axis=1)
    numbers = np.concatenate([np.zeros((4, 0), np.int64), *(each.numbers for _, each in own)], axis=1)
    return Matched(found, places, kinds, constants, numbers)


@of_records
def write_covariances(prior: Prior, sums: Sums, elements: Vector, inverse: Vector, result: Vector) -> None:
    """C P^-1 C' at the elements of H."""
    result[:] = 0.0
    first, steps = prior.runs.first, prior.runs.steps
    for k in range(first.shape[0]):
        for j in range(prior.runs.lengths[k]):
            at, h = first[k, 0] + j * steps[k, 0], first[k, 1] + j * steps[k, 1]
            one, other = first[k, 2] + j * steps[k, 2], first[k, 3] + j * steps[k, 3]
            value = elements[one] * elements[other] * inverse[at]
            result[h] += 2.0 * value if sums.first[h] == sums.second[h] and one != other else value
