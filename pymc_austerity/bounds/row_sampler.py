"""Bounds on each Taylor remainder, made ready for drawing rows in proportion to them.

`bounds.remainder` has the derivation: |R_i(q') - R_i(q)| <= c_i M(q, q'). Here the c_i of all rows are kept,
at three radii, in single precision and rounded up (`constants_table`), in memory or on disk, and a table for
each draws rows with probability c_i / C, C = sum of the c_i that are kept:

- the *local* tier, for pairs of states that are both where all but one in 10^4 draws of the fitted
  distribution are;
- the *wider* tier, twice as far;
- the *global* tier, everywhere. If the derivatives of some row are not bounded everywhere, the tier reaches
  eight times as far as the first, and nothing is known beyond.

A pair belongs to the first tier that contains both of its states, whichever of the two the chain is in.

Where rows have few entries that are not zero, the bounds are those of `group_draws`, which are much smaller
and not the product of a part of the row and one of the move. In many dimensions rows that were drawn are
tried against bounds of their own before they are evaluated, see `screened_draws`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pymc_austerity.bounds.block_table import (
    BLOCK,
    LONG_BLOCK,
    BlockTable,
    block_table,
    draw_all_weighted,
)
from pymc_austerity.bounds.constants_table import ConstantsTable, InMemory, write_constants
from pymc_austerity.bounds.remainder import distances
from pymc_austerity.bounds.row_constants import (
    BoundedTerm,
    Curvature,
    ExpansionCoordinates,
    bounded_term,
)
from pymc_austerity.bounds.row_draws import BoundedRows
from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index, LinearPredictor, Matrix, Singles, Vector

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
        c_i of each tier. Read only, and perhaps mapped from a file.
    tables : tuple of BlockTable
        To draw rows in proportion to the c_i.
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
    constants: Singles
    tables: tuple[BlockTable, BlockTable, BlockTable]
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
    terms: Sequence[BoundedTerm],
    coordinates: ExpansionCoordinates,
    rounding: float,
    most: float,
    on_disk: ConstantsTable | None = None,
) -> RowSampler:
    """Make it, in one pass over the rows of some terms.

    Parameters
    ----------
    terms : sequence of BoundedTerm
        From `bounded_terms`.
    coordinates : ExpansionCoordinates
    rounding, most : float
        See `RowSampler`.
    on_disk : ConstantsTable, optional
        An empty table (3, N) for the c_i. By default they are kept in memory.
    """
    shape = 3, sum(each.term.n_rows for each in terms)
    table = InMemory(shape, np.float32) if on_disk is None else on_disk
    last = write_constants(terms, table)
    constants = table.values.view()
    constants.flags.writeable = False
    tables = tuple(block_table(each, BLOCK if on_disk is None else LONG_BLOCK) for each in constants)
    return RowSampler(
        order=coordinates.order,
        center=np.ascontiguousarray(coordinates.center, dtype=np.float64),
        whitening=np.ascontiguousarray(coordinates.whitening, dtype=np.float64),
        radii=coordinates.typical_radius * _RADII[[0, 1, last]],
        totals=np.array([table.total for table in tables]),
        constants=constants,
        tables=(tables[0], tables[1], tables[2]),
        rounding=rounding,
        most=most,
    )


class Move(NamedTuple):
    """Numbers of a pair of states that bounds need before any row is read; the same if they change places.

    Attributes
    ----------
    tier : int
        Of the bounds.
    expected : float
        How many rows will be drawn: C M.
    """

    tier: int
    expected: float


@jitable
def tier_and_expected(radii: Vector, totals: Vector, radius: float, size: float) -> tuple[int, float]:
    """The tier of a pair of states and its C M, from the larger of |w| and |w'|, and M."""
    if not radius <= radii[2]:
        return 2, math.inf
    tier = 2
    if radius <= radii[1]:
        tier = 0 if radius <= radii[0] else 1
    return tier, totals[tier] * size if size > 0.0 else 0.0


@jitable
def plain_move(sampler: RowSampler, q_new: Vector, q: Vector) -> Move:
    """The tier of a pair of states, and how many rows are expected."""
    radius, size = distances(sampler, q_new, q)
    tier, expected = tier_and_expected(sampler.radii, sampler.totals, radius, size)
    return Move(tier, expected)


@jitable
def plain_draw(rng: np.random.Generator, sampler: RowSampler, move: Move, n: int) -> Index:
    """Draw n rows independently, each in proportion to its c_i."""
    return draw_all_weighted(rng, sampler.tables[move.tier], sampler.constants[move.tier], n)


@jitable
def plain_bounds(sampler: RowSampler, move: Move, rows: Index) -> Vector:
    """The c_i M of some rows."""
    return multiples(sampler.constants[move.tier], rows, move.expected / sampler.totals[move.tier])


@jitable
def multiples(constants: Singles, rows: Index, size: float) -> Vector:
    """`size` times the constants of some rows, in double precision."""
    return np.float64(size) * constants[rows]  # Python calls it for thousands of rows, too


def plain_draws(sampler: RowSampler) -> BoundedRows:
    """Rows drawn in proportion to c_i M."""
    return BoundedRows(sampler, plain_move, plain_draw, plain_bounds)
