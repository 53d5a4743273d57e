"""Rows drawn in proportion to c_i M, and tried against bounds of their own before they are evaluated.

These bounds are tighter in many dimensions. They come from one byte for each coordinate of a row.

c_i M takes all of w for aligned with a row, which in d dimensions is too much by sqrt(d), and its third power
too much by far. With u_i = v_i / |v_i| and K_i = c_i / |v_i|^3 a bound that looks at the row is

    |R_i(q') - R_i(q)| <= K_i (|t_i|^3 + |t'_i|^3) / 6 = c_i (|u_i . w|^3 + |u_i . w'|^3) / 6.

A row that was drawn in proportion to c_i M is kept with probability b_i / (c_i M), for

    b_i = c_i min(M, SLACK (a_i^3 + a'_i^3) / 6),    a_i >= |u_i . w|,    a'_i >= |u_i . w'|.

This thins a Poisson process of rates c_i M to one of rates b_i, which are bounds too, and the same for the
move back. Only rows that are kept are evaluated.

*In bytes.* u_i is s_i k_i but for an error of length e_i, with integers k_ij from -127 to 127; w is sigma m
but for an error of length e, with integers m_j that are small enough for the product with k_i to fit in 32
bits. So

    |u_i . w| <= s_i sigma |k_i . m| + e_i |w| + (1 + e_i) e,

as |s_i k_i| <= 1 + e_i. The product of integers is exact.

*Why slack.* Given a move, the decision has a noise of variance 2 sum of [R_i(q') - R_i(q)]^2 / b_i. Bounds
near |R_i(q') - R_i(q)| would make it large, and moves would be rejected for nothing.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity import work
from pymc_austerity.bounds.block_table import draw_all_weighted, rounded_up
from pymc_austerity.bounds.remainder import (
    InMemory,
    NewTable,
    RowDraws,
    RowSampler,
    distances_of,
    multiples,
    tier_and_expected,
)
from pymc_austerity.bounds.row_constants import INFLATION, ExpansionCoordinates
from pymc_austerity.bounds.row_function import RowFunction, chunks
from pymc_austerity.compilation import entry, jitable
from pymc_austerity.target import Index, Matrix, Singles, Vector

# How much larger bounds are than they might be.
SLACK = 20.0
# Rows that are fetched from memory together, and bytes of a cache line.
_FETCHED, _LINE = 64, 64
_LARGEST_BYTE, _LARGEST_PRODUCT = 127, 2**31 - 1
# Operations for a byte, but for the product of matrices.
_OF_NUMBER = 10.0


class ByteScreen(NamedTuple):
    """Directions of all rows in one byte a coordinate."""

    whitening: Matrix  # (D, d): W': a row for each coordinate of q
    bytes: npt.NDArray[np.int8]  # (N, d): k_i
    numbers: Singles  # (N, 2): s_i and e_i, rounded up


class Probe(NamedTuple):
    """A whitened displacement w as integers, with their unit."""

    integers: npt.NDArray[np.int16]  # (d,): m
    step: float  # sigma
    # length, error: |w| and e
    length: float
    error: float


def byte_screen(
    terms: Sequence[RowFunction],
    coordinates: ExpansionCoordinates,
    new_table: NewTable = InMemory,
) -> ByteScreen:
    """Screen for all rows of some terms with one predictor, one term after the other."""
    n_rows, d = sum(term.n_rows for term in terms), len(coordinates.whitening)
    work.spend(n_rows * d * (work.OF_FLOP * coordinates.directions.shape[0] + _OF_NUMBER), "Bounds")
    written = new_table((1, n_rows * d), np.int8), new_table((1, n_rows * 2), np.float32)
    start = 0
    for term in terms:
        for positions in chunks(term, term.n_rows):
            x = term.rows(positions).reshape(len(positions), -1)[:, :-1]
            v = x @ coordinates.directions
            length = np.linalg.norm(v, axis=1, keepdims=True)
            u = v / np.where(length > 0.0, length, 1.0)
            scales = rounded_up(np.abs(u).max(axis=1, initial=0.0) / _LARGEST_BYTE)
            steps = np.where(scales > 0.0, scales, 1.0).astype(np.float64)[:, None]
            integers = np.rint(u / steps)
            errors = rounded_up(np.linalg.norm(u - steps * integers, axis=1) * INFLATION)
            first = start + int(positions[0])
            written[0].write(0, first * d, integers.astype(np.int8).ravel())
            written[1].write(0, first * 2, np.column_stack([scales, errors]).ravel())
        start += term.n_rows
    by_row = (table.values.reshape(n_rows, -1) for table in written)
    return ByteScreen(np.ascontiguousarray(coordinates.whitening.T), *by_row)


@entry
def whitened(screen: ByteScreen, center: Vector, q: Vector) -> Vector:
    """The w of a state, coordinate by coordinate of q."""
    w = np.zeros(screen.whitening.shape[1])
    for j in range(q.shape[0]):
        away = q[j] - center[j]
        for a in range(w.shape[0]):
            w[a] += screen.whitening[j, a] * away
    return w


@entry
def probe_of(w: Vector) -> Probe:
    """Write a whitened displacement w as integers."""
    d = w.shape[0]
    largest = min(32767, _LARGEST_PRODUCT // (_LARGEST_BYTE * d))
    integers, step = np.zeros(d, np.int16), np.max(np.abs(w)) / largest
    length = error = 0.0
    for j in range(d):
        nearest = np.rint(w[j] / step) if step > 0.0 else 0.0
        integers[j] = np.int16(nearest)
        length += w[j] * w[j]
        error += (w[j] - step * nearest) ** 2
    return Probe(integers, step, np.sqrt(length) * INFLATION, np.sqrt(error) * INFLATION)


@partial(entry, inline="always")  # all these arrays as arguments would take an eighth of the time
def products(screen: ByteScreen, new: Probe, old: Probe, row: int) -> tuple[float, float]:
    """Bounds of |u_i . w'| and |u_i . w| for a row."""
    integers = screen.bytes[row]
    at_new, at_old = np.int32(0), np.int32(0)
    for j in range(integers.shape[0]):  # in 32 bits
        at_new = np.int32(at_new + np.int32(integers[j]) * np.int32(new.integers[j]))
        at_old = np.int32(at_old + np.int32(integers[j]) * np.int32(old.integers[j]))
    scale, error = np.float64(screen.numbers[row, 0]), np.float64(screen.numbers[row, 1])
    a_new = scale * new.step * abs(np.float64(at_new)) + error * new.length + (1.0 + error) * new.error
    a_old = scale * old.step * abs(np.float64(at_old)) + error * old.length + (1.0 + error) * old.error
    return a_new, a_old


@entry
def kept_shares(screen: ByteScreen, w_new: Vector, w: Vector, size: float, rows: Index) -> Vector:
    """b_i / (c_i M) of some rows, for a pair of states with M = `size`."""
    new, old = probe_of(w_new), probe_of(w)
    shares, fetched = np.empty(rows.shape[0]), np.empty(_FETCHED)
    for start in range(0, rows.shape[0], _FETCHED):
        stop = min(start + _FETCHED, rows.shape[0])
        for k in range(start, stop):  # one byte of each cache line, so that memory works ahead
            touched = np.int32(screen.bytes[rows[k], screen.bytes.shape[1] - 1])
            for j in range(0, screen.bytes.shape[1], _LINE):
                touched = np.int32(touched + screen.bytes[rows[k], j])
            fetched[k - start] = touched + screen.numbers[rows[k], 0]
        for k in range(start, stop):
            a_new, a_old = products(screen, new, old, rows[k])
            bound = SLACK * INFLATION * (a_new * a_new * a_new + a_old * a_old * a_old) / 6.0
            shares[k] = min(1.0, bound / size)
    return shares


class ScreenedMove(NamedTuple):
    """Numbers of a pair of states that bounds need before any row is read; the same if they change places."""

    tier: int  # Of the bounds
    expected: float  # How many rows will be drawn, before they are tried: C M
    # w_new, w (d,): the whitened states
    w_new: Vector
    w: Vector


def screened(
    sampler: RowSampler,
    terms: Sequence[RowFunction],
    coordinates: ExpansionCoordinates,
    new_table: NewTable = InMemory,
) -> RowDraws:
    """Rows drawn with a screen; `coordinates` are those of the sampler, of an expansion of order 2."""
    state = sampler._replace(screen=byte_screen(terms, coordinates, new_table))
    return RowDraws(state, screened_move, screened_draw, screened_bounds)


@jitable
def screened_move(sampler: RowSampler, q_new: Vector, q: Vector) -> ScreenedMove:
    """The tier of a pair of states, how many rows are expected, and the whitened states."""
    w_new = whitened(sampler.screen, sampler.center, q_new)
    w = whitened(sampler.screen, sampler.center, q)
    radius, size = distances_of(
        2, np.sum(w * w), np.sum(w * w_new), np.sum(w_new * w_new), np.sum((w_new - w) ** 2)
    )
    tier, expected = tier_and_expected(sampler.radii, sampler.totals, radius, size)
    return ScreenedMove(tier, expected, w_new, w)


@jitable
def screened_draw(rng: np.random.Generator, sampler: RowSampler, move: ScreenedMove, n: int) -> Index:
    """Draw n rows independently, each in proportion to its c_i; of these, those that pass the screen."""
    rows = draw_all_weighted(rng, sampler.tables[move.tier], sampler.constants[move.tier], n)
    n_kept = 0
    for k, share in enumerate(shares_of(sampler, move, rows)):
        if rng.random() < share:
            rows[n_kept] = rows[k]
            n_kept += 1
    return rows[:n_kept]


@jitable
def screened_bounds(sampler: RowSampler, move: ScreenedMove, rows: Index) -> Vector:
    """The b_i of some rows."""
    bounds = multiples(sampler.constants[move.tier], rows, move.expected / sampler.totals[move.tier])
    bounds *= shares_of(sampler, move, rows)
    return bounds


@jitable
def shares_of(sampler: RowSampler, move: ScreenedMove, rows: Index) -> Vector:
    """b_i / (c_i M) of some rows."""
    return kept_shares(sampler.screen, move.w_new, move.w, move.expected / sampler.totals[move.tier], rows)


def mean_share(sampler: Any, move: Any, rows: Index) -> float:
    """The part of the rows that are drawn which is evaluated, from some rows of the data."""
    if not isinstance(sampler.screen, ByteScreen) or not 0.0 < move.expected < math.inf:
        return 1.0
    weights = sampler.constants[move.tier, rows].astype(np.float64)
    return float(shares_of(sampler, move, rows) @ weights / weights.sum())
