"""Bounds on each Taylor remainder, made ready for drawing rows in proportion to them.

`bounds.remainder` has the derivation: |R_i(q') - R_i(q)| <= c_i M(q, q'). Here the c_i of all rows are kept,
at three radii, in single precision and rounded up, and a table for each draws rows with probability c_i / C,
C = sum of the c_i:

- the *local* tier, for pairs of states that are both where all but one in 10^4 draws of the fitted
  distribution are;
- the *wider* tier, twice as far;
- the *global* tier, everywhere. If the derivatives of some row are not bounded everywhere, the tier reaches
  eight times as far as the first, and nothing is known beyond.

A pair belongs to the first tier that contains both of its states, whichever of the two the chain is in.

Where rows have few entries that are not zero, the bounds are those of `group_tables`, which are much smaller
and not the product of a part of the row and one of the move. In many dimensions rows that were drawn are
tried against bounds of their own before they are evaluated, see `byte_screen`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.bounds.block_table import (
    BlockTable,
    Weights,
    block_table,
    draw_weighted,
    rounded_up,
)
from pymc_austerity.bounds.byte_screen import NO_SCREEN, ByteScreen, byte_screen, kept_shares, whitened
from pymc_austerity.bounds.enclosure import Matrix
from pymc_austerity.bounds.group_draws import bounds_by_groups, draw_by_groups, move_by_groups
from pymc_austerity.bounds.group_tables import NO_GROUPS, GroupTables, group_tables
from pymc_austerity.bounds.remainder import distances, distances_of
from pymc_austerity.bounds.row_constants import (
    INFLATION,
    BoundedTerm,
    Curvature,
    ExpansionCoordinates,
    bounded_term,
)
from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.bounds.sparsity import CoordinateGroups
from pymc_austerity.target import Index, LinearPredictor, Vector

# In units of sqrt(d) + 3. Where bounds for the last are infinite, the third tier has the one before.
_RADII = np.array([1.0, 2.0, 8.0, math.inf])


class RowSampler(NamedTuple):
    """Bounds on the remainders of all rows, and how to draw rows by them. It has size N.

    Attributes
    ----------
    order : int
        Of the expansion, 1 or 2.
    center : ndarray (D,)
    whitening : ndarray (d, D)
        W, with w = W (q - center).
    radii : ndarray (3,)
        How far each tier reaches in |w|.
    totals : ndarray (3,)
        C of each tier; may be infinite.
    constants : ndarray of float32 (3, N)
        c_i of each tier; k_i if there are groups.
    tables : tuple of BlockTable
        To draw rows in proportion to the c_i.
    groups : GroupTables
        Empty if there are none.
    screen : ByteScreen
        Empty if there is none.
    rounding : float
        What rounding may add to a remainder, which is a difference of larger numbers.
    most : float
        Pairs with C M above this are decided on all rows.
    """

    order: int
    center: Vector
    whitening: Matrix
    radii: Vector
    totals: Vector
    constants: Weights
    tables: tuple[BlockTable, BlockTable, BlockTable]
    groups: GroupTables
    screen: ByteScreen
    rounding: float
    most: float


def bounded_terms(
    terms: Sequence[RowFunction | LinearPredictor],
    coordinates: ExpansionCoordinates,
    curvature: Mapping[str, Curvature],
) -> list[BoundedTerm]:
    """The terms with bounds of their derivatives, at the radii of a `RowSampler`.

    Parameters
    ----------
    terms : sequence of RowFunction or LinearPredictor
        The latter where `curvature` is given.
    coordinates : ExpansionCoordinates
    curvature : dict of str to callable
        Bounds of the user, by the names of terms: ``(low, high, positions) -> ndarray``, upper bounds of
        |f_i^(order + 1)| from low_i to high_i for some rows of the term.

    Raises
    ------
    UnboundedError
        If nothing is known of the remainders of a term; the message names it.
    """
    radii = coordinates.typical_radius * _RADII
    return [bounded_term(term, coordinates, radii, curvature.get(term.name)) for term in terms]


def row_sampler_of(
    terms: Sequence[BoundedTerm], coordinates: ExpansionCoordinates, rounding: float, most: float
) -> RowSampler:
    """Make it, in one pass over the rows of some terms.

    Parameters
    ----------
    terms : sequence of BoundedTerm
        From `bounded_terms`.
    coordinates : ExpansionCoordinates
    rounding, most : float
        See `RowSampler`.
    """
    constants, last = _constants(terms)
    tables = tuple(block_table(each) for each in constants)
    return RowSampler(
        order=coordinates.order,
        center=np.ascontiguousarray(coordinates.center, dtype=np.float64),
        whitening=np.ascontiguousarray(coordinates.whitening, dtype=np.float64),
        radii=coordinates.typical_radius * _RADII[[0, 1, last]],
        totals=np.array([table.total for table in tables]),
        constants=constants,
        tables=(tables[0], tables[1], tables[2]),
        groups=NO_GROUPS,
        screen=NO_SCREEN,
        rounding=rounding,
        most=most,
    )


def _constants(terms: Sequence[BoundedTerm]) -> tuple[Weights, int]:
    """The c_i of all rows for three tiers, rounded up, and which radius the third one has."""
    n_rows = sum(each.term.n_rows for each in terms)
    constants, nearer = np.empty((3, n_rows), np.float32), np.empty(n_rows, np.float32)
    start = 0
    for each in terms:
        for positions, c in each.constants():
            rows = start + positions
            constants[0, rows], constants[1, rows], nearer[rows], constants[2, rows] = rounded_up(
                c * INFLATION
            )
        start += each.term.n_rows
    if np.all(np.isfinite(constants[2])):
        return constants, 3
    constants[2] = nearer
    return constants, 2


def grouped(
    sampler: RowSampler, terms: Sequence[RowFunction | LinearPredictor], groups: CoordinateGroups
) -> RowSampler:
    """The same with bounds by groups; `sampler` has the coordinates of the groups."""
    tables, factors = group_tables(terms, groups, sampler.constants)
    return sampler._replace(constants=factors, groups=tables)


def screened(
    sampler: RowSampler, terms: Sequence[RowFunction | LinearPredictor], coordinates: ExpansionCoordinates
) -> RowSampler:
    """The same with a screen; `coordinates` are those of the sampler."""
    return sampler._replace(screen=byte_screen(terms, coordinates))


class Move(NamedTuple):
    """What is known of a pair of states before any row is read; the same if they change places.

    Attributes
    ----------
    tier : int
        Of the bounds.
    expected : float
        How many rows will be drawn: the sum of the bounds of all rows, before they are screened.
    sizes : ndarray (G,)
        h_g of the groups, if there are any.
    w_new, w : ndarray (d,)
        Whitened states, if there is a screen.
    """

    tier: int
    expected: float
    sizes: Vector
    w_new: Vector
    w: Vector


@register_jitable
def bounded_move(sampler: RowSampler, q_new: Vector, q: Vector) -> Move:
    """Bounds for a pair of states."""
    none = w = w_new = sampler.groups.typical[:0]
    if sampler.groups.columns.shape[0] > 0:
        tier, expected, sizes = move_by_groups(sampler.groups, sampler.center, sampler.radii, q_new, q)
        return Move(tier, expected, sizes, none, none)
    if sampler.screen.bytes.shape[0] > 0:
        w_new, w = (
            whitened(sampler.screen, sampler.center, q_new),
            whitened(sampler.screen, sampler.center, q),
        )
        radius, size = distances_of(
            2, np.sum(w * w), np.sum(w * w_new), np.sum(w_new * w_new), np.sum((w_new - w) ** 2)
        )
    else:
        radius, size = distances(sampler, q_new, q)
    if not radius <= sampler.radii[2]:
        return Move(2, math.inf, none, w_new, w)
    tier = 2
    if radius <= sampler.radii[1]:
        tier = 0 if radius <= sampler.radii[0] else 1
    return Move(tier, sampler.totals[tier] * size if size > 0.0 else 0.0, none, w_new, w)


def tier_and_expected(sampler: RowSampler, q_new: Vector, q: Vector) -> tuple[int, float]:
    """The tier of a pair of states, and how many rows are expected."""
    move = bounded_move(sampler, q_new, q)
    return move.tier, move.expected


@register_jitable
def draw_rows(rng: np.random.Generator, sampler: RowSampler, move: Move, n: int) -> Index:
    """Draw n rows independently, each in proportion to its bound; of these, those that pass the screen."""
    if sampler.groups.columns.shape[0] > 0:
        factors = sampler.constants[move.tier]
        return draw_by_groups(rng, sampler.groups, factors, move.tier, move.sizes, n)
    rows = np.empty(n, dtype=np.int64)
    for k in range(n):
        rows[k] = draw_weighted(rng, sampler.tables[move.tier], sampler.constants[move.tier])
    if sampler.screen.bytes.shape[0] == 0:
        return rows
    n_kept = 0
    for k, share in enumerate(_shares(sampler, move, rows)):
        if rng.random() < share:
            rows[n_kept] = rows[k]
            n_kept += 1
    return rows[:n_kept]


@register_jitable
def bounds_of_rows(sampler: RowSampler, move: Move, rows: Index) -> Vector:
    """The bounds of some rows for a pair of states."""
    if sampler.groups.columns.shape[0] > 0:
        return bounds_by_groups(sampler.groups, sampler.constants[move.tier], move.sizes, rows)
    size = move.expected / sampler.totals[move.tier]
    bounds = np.empty(rows.shape[0])
    for k in range(rows.shape[0]):
        bounds[k] = np.float64(sampler.constants[move.tier, rows[k]]) * size
    if sampler.screen.bytes.shape[0] > 0:
        bounds *= _shares(sampler, move, rows)
    return bounds


@register_jitable
def _shares(sampler: RowSampler, move: Move, rows: Index) -> Vector:
    """By how much the screen makes bounds smaller."""
    return kept_shares(sampler.screen, move.w_new, move.w, move.expected / sampler.totals[move.tier], rows)


def mean_share(sampler: RowSampler, move: Move, rows: Index) -> float:
    """The part of the rows that are drawn which passes the screen, from some rows of the data."""
    if sampler.screen.bytes.shape[0] == 0 or not 0.0 < move.expected < math.inf:
        return 1.0
    weights = sampler.constants[move.tier, rows].astype(np.float64)
    return float(_shares(sampler, move, rows) @ weights / weights.sum())
