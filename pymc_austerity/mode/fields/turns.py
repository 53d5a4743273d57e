"""Turns: which effects are moved together, where one tree of all has too much fill.

Large factors that are crossed, and vectors that are looked up twice, fill in. Then effects are moved in
turns, the others held. A turn has whole vectors, as long as they make a good tree. A vector that makes none
is parted: into effects of which no two meet in a row, and what is left of it into pieces that are dense.
"""

from contextlib import suppress

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from pymc_austerity.mode.fields.order import MOST_TIED, WIDE, NoOrderError, Order, find_order, work_of
from pymc_austerity.target import Index, Mask

# Nanoseconds for wide nodes of a factorisation above which turns are looked for: crossed factors make such.
_MUCH_WORK = 1e6
# Effects of which no two meet are a turn if they are so many of those that are left; turns at most.
_SHARE, _MOST = 0.1, 24


def find_turns(
    together: sparse.csr_array,
    prior: sparse.csr_array,
    of_x: sparse.csr_array,
    dense: Mask,
    kinds: Index,
    *,
    moves: bool = True,
) -> list[list[tuple[Mask, Order]]]:
    """What each turn moves, and in which order; one turn of all where that has little fill.

    Where one tree would do, and turns are better, there are both, the better first.

    Parameters
    ----------
    together, prior, dense, kinds
        As `find_order` has them; what is `dense` moves in all turns that have whole vectors.
    of_x : csr_array (elements, n)
        Which effects an element of rows is made of.
    moves : bool, default True
        Whether effects are moved; else there is one tree of all, for their density.

    Raises
    ------
    NoOrderError
        If there would be too many turns, or one tree has too much fill.
    """
    try:
        order = find_order(together, prior, dense, kinds, moves=moves)
    except NoOrderError:
        if not moves:
            raise
        return [_turns(together, prior, of_x, dense, kinds)]
    one_tree = [(np.ones(len(dense), bool), order)]
    if not moves:
        return [one_tree]
    is_dear = work_of(order.tree, WIDE) > _MUCH_WORK
    if is_dear or order.is_wide:  # many rows decide on such nodes
        with suppress(NoOrderError):
            turns = _turns(together, prior, of_x, dense, kinds, in_parts=is_dear)
            return [turns] if is_dear else [turns, one_tree]
    return [one_tree]


def _turns(
    together: sparse.csr_array,
    prior: sparse.csr_array,
    of_x: sparse.csr_array,
    dense: Mask,
    kinds: Index,
    *,
    in_parts: bool = True,
) -> list[tuple[Mask, Order]]:
    """Several turns: as many whole vectors in each as make a good tree; and parts of those that make none."""
    apart = sparse.diags_array((~dense).astype(float))
    tied = apart @ (of_x.T @ of_x + abs(prior)) @ apart
    _, atom = connected_components(tied, directed=False)
    found: list[tuple[Mask, Order]] = []

    def tried(moves: Mask, *, may_be_wide: bool, with_dense: bool = True) -> tuple[Mask, Order] | None:
        moves = moves | (dense & with_dense)
        own = np.flatnonzero(moves)
        try:
            order = find_order(together[:, own], prior[own][:, own], dense[own], kinds[own])
        except NoOrderError:
            return None
        if (order.is_wide and not may_be_wide) or work_of(order.tree, WIDE) > _MUCH_WORK:
            return None
        return moves, order._replace(variables=own[order.variables])

    left = ~dense
    while left.any():
        vectors, sizes = np.unique(kinds[left], return_counts=True)
        own = np.isin(atom, atom[left & (kinds == vectors[np.argmax(sizes)])]) & left
        left &= ~own
        for k, (moves, known) in enumerate(found):
            if (both := tried(moves | own, may_be_wide=known.is_wide)) is not None:
                found[k] = both
                break
        else:
            if (alone := tried(own, may_be_wide=in_parts)) is not None:
                found.append(alone)
                continue
            if not in_parts:
                raise NoOrderError("a vector makes no good tree")
            parts = _parts(together, atom, own)
            for part in parts:  # most rows see the last one
                one = tried(part, may_be_wide=True, with_dense=part is parts[-1])
                if one is None or len(found) == _MOST:
                    raise NoOrderError(
                        "factors that are crossed, or looked up twice, meet in too many pairs of effects, "
                        "also if they are moved in turns"
                    )
                found.append(one)
    if not found:
        raise NoOrderError("every effect is in every row")
    return found


def _parts(together: sparse.csr_array, atom: Index, own: Mask) -> list[Mask]:
    """Effects that do not meet, as often as these are many; and what is left in short pieces."""
    atoms, place = np.unique(atom[own], return_inverse=True)
    to_atoms = sparse.csr_array(
        (np.ones(int(own.sum())), (np.flatnonzero(own), place)), (len(own), len(atoms))
    )
    incidence = sparse.csr_array(together @ to_atoms)
    meets = sparse.csr_array(incidence.T @ incidence)
    meets.setdiag(0)
    meets.eliminate_zeros()
    degrees = np.diff(meets.indptr)
    left, parts = np.argsort(degrees, kind="stable"), []
    while len(left):
        blocked, taken = np.zeros(len(atoms), bool), []
        for v in left:
            if not blocked[v]:
                taken.append(v)
                blocked[meets.indices[meets.indptr[v] : meets.indptr[v + 1]]] = True
        if len(taken) < _SHARE * len(left) or len(left) <= MOST_TIED:
            break
        parts.append(np.array(taken))
        left = left[~np.isin(left, taken)]
    sizes = np.asarray(to_atoms.sum(axis=0)).ravel()
    ends = (np.cumsum(sizes[left]) - 1) // MOST_TIED
    parts += [left[ends == k] for k in np.unique(ends)]
    return [own & np.isin(atom, atoms[part]) for part in parts]
