"""Rows drawn in proportion to c_i M, and tried against bounds of their own before they are evaluated.

The bounds b_i <= c_i M are those of `byte_screen`, which argues that rows drawn in proportion to c_i M, each
kept with probability b_i / (c_i M), are rows drawn in proportion to b_i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.bounds.block_table import BlockTable, draw_all_weighted
from pymc_austerity.bounds.byte_screen import ByteScreen, byte_screen, kept_shares, whitened
from pymc_austerity.bounds.constants_table import InMemory, NewTable
from pymc_austerity.bounds.remainder import distances_of
from pymc_austerity.bounds.row_constants import ExpansionCoordinates
from pymc_austerity.bounds.row_draws import BoundedRows
from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.bounds.row_sampler import RowSampler, multiples, tier_and_expected
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index, LinearPredictor, Singles, Vector


class ScreenedSampler(NamedTuple):
    """Bounds c_i M, how to draw rows by them, and bounds of their own. It has size N.

    Attributes
    ----------
    center, radii, totals, constants, tables, rounding, most
        See `row_sampler.RowSampler`. The order of the expansion is 2.
    screen : ByteScreen
    """

    center: Vector
    radii: Vector
    totals: Vector
    constants: Singles
    tables: tuple[BlockTable, BlockTable, BlockTable]
    screen: ByteScreen
    rounding: float
    most: float


class ScreenedMove(NamedTuple):
    """Numbers of a pair of states that bounds need before any row is read; the same if they change places.

    Attributes
    ----------
    tier : int
        Of the bounds.
    expected : float
        How many rows will be drawn, before they are tried: C M.
    w_new, w : ndarray (d,)
        The whitened states.
    """

    tier: int
    expected: float
    w_new: Vector
    w: Vector


def screened(
    sampler: RowSampler,
    terms: Sequence[RowFunction | LinearPredictor],
    coordinates: ExpansionCoordinates,
    new_table: NewTable = InMemory,
) -> BoundedRows:
    """Rows drawn with a screen; `coordinates` are those of the sampler."""
    state = ScreenedSampler(
        sampler.center,
        sampler.radii,
        sampler.totals,
        sampler.constants,
        sampler.tables,
        byte_screen(terms, coordinates, new_table),
        sampler.rounding,
        sampler.most,
    )
    return BoundedRows(state, screened_move, screened_draw, screened_bounds)


@jitable
def screened_move(sampler: ScreenedSampler, q_new: Vector, q: Vector) -> ScreenedMove:
    """The tier of a pair of states, how many rows are expected, and the whitened states."""
    w_new = whitened(sampler.screen, sampler.center, q_new)
    w = whitened(sampler.screen, sampler.center, q)
    radius, size = distances_of(
        2, np.sum(w * w), np.sum(w * w_new), np.sum(w_new * w_new), np.sum((w_new - w) ** 2)
    )
    tier, expected = tier_and_expected(sampler.radii, sampler.totals, radius, size)
    return ScreenedMove(tier, expected, w_new, w)


@jitable
def screened_draw(rng: np.random.Generator, sampler: ScreenedSampler, move: ScreenedMove, n: int) -> Index:
    """Draw n rows independently, each in proportion to its c_i; of these, those that pass the screen."""
    rows = draw_all_weighted(rng, sampler.tables[move.tier], sampler.constants[move.tier], n)
    n_kept = 0
    for k, share in enumerate(shares_of(sampler, move, rows)):
        if rng.random() < share:
            rows[n_kept] = rows[k]
            n_kept += 1
    return rows[:n_kept]


@jitable
def screened_bounds(sampler: ScreenedSampler, move: ScreenedMove, rows: Index) -> Vector:
    """The b_i of some rows."""
    bounds = multiples(sampler.constants[move.tier], rows, move.expected / sampler.totals[move.tier])
    bounds *= shares_of(sampler, move, rows)
    return bounds


@jitable
def shares_of(sampler: ScreenedSampler, move: ScreenedMove, rows: Index) -> Vector:
    """b_i / (c_i M) of some rows."""
    return kept_shares(sampler.screen, move.w_new, move.w, move.expected / sampler.totals[move.tier], rows)


def mean_share(sampler: Any, move: Any, rows: Index) -> float:
    """The part of the rows that are drawn which is evaluated, from some rows of the data."""
    if not isinstance(sampler, ScreenedSampler) or not 0.0 < move.expected < math.inf:
        return 1.0
    weights = sampler.constants[move.tier, rows].astype(np.float64)
    return float(shares_of(sampler, move, rows) @ weights / weights.sum())
