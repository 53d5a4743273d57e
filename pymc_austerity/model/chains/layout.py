"""Which elements of a latent variable are states of which chain, found from what the rows of terms read.

A *site* is a time of a series. A row reads one site, or a site and the one before. A state is one element,
or a few that stand along an axis of the variable. Rows of single elements are tried first: their pairs are
the links of the chains, in whatever order the elements are stored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.target import Index

# Components of a state.
MOST_COMPONENTS = 4


@dataclass(frozen=True, eq=False)
class RowsRead:
    """Elements that the rows of one term read.

    Attributes
    ----------
    name : str
    elements : ndarray of int, shape (n_rows, k)
        -1 for what does not matter.
    """

    name: str
    elements: Index


@dataclass(frozen=True, eq=False)
class ChainLayout:
    """The sites of all series, one series after the other, each in the order of time.

    Attributes
    ----------
    shape : tuple of int
        Of the variable.
    starts : ndarray of int, shape (n_series + 1,)
        The first site of each series, and the number of sites.
    elements : ndarray of int, shape (n_sites, D)
        The elements that are the state of each site.
    """

    shape: tuple[int, ...]
    starts: Index
    elements: Index

    @property
    def n_sites(self) -> int:
        """Number of states."""
        return len(self.elements)

    @property
    def n_components(self) -> int:
        """D, the components of a state."""
        return int(self.elements.shape[1])

    def places(self) -> tuple[Index, Index]:
        """Site and component of each element."""
        site = np.empty(self.elements.size, dtype=np.int64)
        component = np.empty_like(site)
        site[self.elements] = np.arange(self.n_sites)[:, None]
        component[self.elements] = np.arange(self.n_components)
        return site, component

    def is_first(self) -> np.ndarray:
        """Whether each site is the first of its series."""
        first = np.zeros(self.n_sites, dtype=bool)
        first[self.starts[:-1]] = True
        return first

    def label(self, name: str, site: int) -> str:
        """A state as the user writes it."""
        return element(name, self.shape, self.elements[site])


class NoChainError(Exception):
    """Rows do not fit; the message says which row of which term, and what it reads."""


def element(name: str, shape: Sequence[int], elements: Sequence[int] | Index) -> str:
    """Elements as the user writes them: ``h[3, 5]``."""
    places = [np.unravel_index(int(one), tuple(shape)) for one in elements]
    return ", ".join(f"{name}[{', '.join(str(int(i)) for i in place)}]" for place in places)


def find_layout(name: str, shape: tuple[int, ...], rows: Sequence[RowsRead]) -> ChainLayout:
    """The chains that all rows fit into.

    Raises
    ------
    FactorisationError
        If there are none; it says which row of which term is in the way.
    """
    try:
        found = _of_single_elements(name, shape, rows)
    except NoChainError as error:
        fitting = (layout for layout in _along_axes(shape) if _fits(layout, rows))
        vectors = next(fitting, None)
        if vectors is None:
            raise FactorisationError(
                f"The states {name!r} are not a chain: {error}. ParticleGibbs needs terms whose rows contain "
                "one state, or a state and the next."
            ) from None
        found = vectors
    if found.n_components > MOST_COMPONENTS:
        raise FactorisationError(
            f"The states {name!r} have {found.n_components} components each. ParticleGibbs draws states of "
            f"at most {MOST_COMPONENTS}: with more, particles are too far apart."
        )
    if np.diff(found.starts).max() < 2:
        raise FactorisationError(
            f"The variable {name!r} of shape {shape} is not a chain: no row of a term contains two of its "
            "elements, so there are no two times. Use pm.NUTS for it."
        )
    return found


def _of_single_elements(name: str, shape: tuple[int, ...], rows: Sequence[RowsRead]) -> ChainLayout:
    """Chains of single elements: the later of two that a row reads follows upon the earlier."""
    size = math.prod(shape)
    after, before = np.full(size, -1), np.full(size, -1)
    pairs = []
    for term in rows:
        low, high = _extremes(term.elements, size)
        between = (term.elements >= 0) & (term.elements != low[:, None]) & (term.elements != high[:, None])
        bad = np.flatnonzero(between.any(axis=1))
        if len(bad):
            raise NoChainError(_too_many(name, shape, term, int(bad[0])))
        links = np.flatnonzero((low != high) & (high >= 0))
        after[low[links]] = high[links]
        before[high[links]] = low[links]
        pairs.append((term.name, links, low[links], high[links]))
    for name_of_term, links, low, high in pairs:  # when all are known: one that was overwritten does not fit
        bad = np.flatnonzero((after[low] != high) | (before[high] != low))
        if len(bad):
            k = int(bad[0])
            read = element(name, shape, [low[k], high[k]])
            if after[low[k]] != high[k]:
                other = int(low[k]), int(after[low[k]])
            else:
                other = int(before[high[k]]), int(high[k])
            raise NoChainError(
                f"row {links[k]} of the term {name_of_term!r} contains {read}, and "
                f"{_row_with(name, shape, other, pairs)}"
            )
    return ChainLayout(shape, *_in_order(after, before))


def _row_with(name: str, shape: tuple[int, ...], pair: tuple[int, int], pairs: list[Any]) -> str:
    """The row of a term that contains two elements."""
    for name_of_term, links, low, high in pairs:
        found = np.flatnonzero((low == pair[0]) & (high == pair[1]))
        if len(found):
            return f"row {links[found[0]]} of the term {name_of_term!r} contains {element(name, shape, pair)}"
    raise AssertionError("the pair is of some row")


def _extremes(elements: Index, size: int) -> tuple[Index, Index]:
    """The first and last element of each row; (size, -1) if there is none."""
    return np.where(elements < 0, size, elements).min(axis=1), elements.max(axis=1)


def _in_order(after: Index, before: Index) -> tuple[Index, Index]:
    """First sites of series, and the elements of all sites, by following links from their beginnings."""
    beginnings = np.flatnonzero(before < 0)
    current, position = beginnings, np.zeros(len(beginnings), dtype=np.int64)
    series = np.arange(len(beginnings))
    found = [(series, position, current)]
    while True:
        goes_on = after[current] >= 0
        if not goes_on.any():
            break
        series, position, current = series[goes_on], position[goes_on] + 1, after[current[goes_on]]
        found.append((series, position, current))
    every = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    order = np.lexsort((every[1], every[0]))
    lengths = np.bincount(every[0], minlength=len(beginnings))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return starts, every[2][order][:, None]


def _along_axes(shape: tuple[int, ...]) -> Iterator[ChainLayout]:
    """Time along one axis, components of states along others, series along the rest; few components first."""
    axes = range(len(shape))
    choices = [
        (time, state)
        for time in axes
        for n in range(1, len(shape))
        for state in itertools.combinations([a for a in axes if a != time], n)
    ]
    for time, state in sorted(choices, key=lambda c: math.prod(shape[a] for a in c[1])):
        series = [a for a in axes if a != time and a not in state]
        numbers = np.arange(math.prod(shape)).reshape(shape).transpose([*series, time, *state])
        n_series, n_times = math.prod(shape[a] for a in series), shape[time]
        starts = np.arange(n_series + 1) * n_times
        yield ChainLayout(shape, starts, numbers.reshape(n_series * n_times, -1))


def _fits(layout: ChainLayout, rows: Sequence[RowsRead]) -> bool:
    """Does each row read one site, or a site and the one before?"""
    site, _ = layout.places()
    first = layout.is_first()
    for term in rows:
        sites = np.where(term.elements < 0, -1, site[term.elements])
        last = sites.max(axis=1)
        earlier = np.where(sites < 0, last[:, None], sites).min(axis=1)
        if ((last - earlier > 1) | ((last != earlier) & first[last])).any():
            return False
    return True


def _too_many(name: str, shape: tuple[int, ...], term: RowsRead, row: int) -> str:
    read = sorted(set(term.elements[row][term.elements[row] >= 0].tolist()))
    return f"row {row} of the term {term.name!r} contains {element(name, shape, read)}"
