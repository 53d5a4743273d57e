"""Bounds on each Taylor remainder, made ready for drawing rows in proportion to them.

`bounds.remainder` has the derivation: |R_i(q') - R_i(q)| <= c_i M(q, q'). Here the c_i of all rows are kept,
at three radii, and an alias table for each draws rows with probability c_i / C, C = sum of the c_i:

- the *local* tier, for pairs of states that are both where all but one in 10^4 draws of the fitted
  distribution are;
- the *wider* tier, twice as far;
- the *global* tier, everywhere. If the derivatives of some row are not bounded everywhere, the tier reaches
  eight times as far as the first, and nothing is known beyond.

A pair belongs to the first tier that contains both of its states, whichever of the two the chain is in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.bounds.alias import AliasTable, alias_table
from pymc_austerity.bounds.enclosure import Matrix
from pymc_austerity.bounds.remainder import distances
from pymc_austerity.bounds.row_constants import (
    INFLATION,
    BoundedTerm,
    Curvature,
    ExpansionCoordinates,
    bounded_term,
)
from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.target import LinearPredictor, Vector

# In units of sqrt(d) + 3; the last two are for the third tier.
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
    constants : ndarray (3, N)
        c_i of each tier.
    tables : tuple of AliasTable
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
    constants: Matrix
    tables: tuple[AliasTable, AliasTable, AliasTable]
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
    radii = coordinates.typical_radius * _RADII
    constants = np.empty((len(radii), sum(each.term.n_rows for each in terms)))
    start = 0
    for each in terms:
        for positions, c in each.constants():
            constants[:, start + positions] = c
        start += each.term.n_rows
    last = 3 if np.isfinite(constants[3].sum()) else 2
    radii, constants = radii[[0, 1, last]], constants[[0, 1, last]]
    constants *= INFLATION
    local, wider, everywhere = (_table(c) for c in constants)
    return RowSampler(
        order=coordinates.order,
        center=np.ascontiguousarray(coordinates.center, dtype=np.float64),
        whitening=np.ascontiguousarray(coordinates.whitening, dtype=np.float64),
        radii=radii,
        totals=constants.sum(axis=1),
        constants=constants,
        tables=(local, wider, everywhere),
        rounding=rounding,
        most=most,
    )


def _table(constants: Vector) -> AliasTable:
    """A table for these weights; an empty one if none is ever drawn."""
    total = constants.sum()
    if 0.0 < total < math.inf:
        return alias_table(constants)
    return AliasTable(np.empty(0), np.empty(0, dtype=np.int32))


@register_jitable
def tier_and_expected(sampler: RowSampler, q_new: Vector, q: Vector) -> tuple[int, float]:
    """The tier of a pair of states, and its C M; the same if the states change places."""
    radius, size = distances(sampler, q_new, q)
    if not radius <= sampler.radii[2]:
        return 2, math.inf
    tier = 2
    if radius <= sampler.radii[1]:
        tier = 0 if radius <= sampler.radii[0] else 1
    return tier, sampler.totals[tier] * size if size > 0.0 else 0.0
