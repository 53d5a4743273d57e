"""Certified bounds on the remainders of Taylor expansions of all local terms.

About a center m, of order k, with t = x_i . (q - m) and eta_i = x_i . m + o_i,

    R_i(q) = f_i(eta_i + t) - sum over j <= k of f_i^(j)(eta_i) t^j / j!.

Of order zero these are the terms themselves, but for a constant, and their differences the log ratios.

*One row, one predictor.* R_i' = f_i' minus its own expansion of order k - 1, so |R_i'| <= K_i |t|^k / k! with
K_i = max |f_i^(k + 1)| over all that eta may reach. Between two states, with s and t at either end,
|R_i(q') - R_i(q)| <= K_i |integral of |u|^k / k! from s to t|.

*All rows at once.* Let w = W (q - m) and v_i = x_i V, with x_i V W = x_i, so that t = v_i . w. With W that
whitens the posterior, w has a length near sqrt(d) in d dimensions. As |v_i . w| <= |v_i||w|,

    |R_i(q') - R_i(q)| <= c_i M,    c_i = K_i |v_i|^(k + 1),

where M, the same for all rows, is the smaller of

- (|w|^(k + 1) + |w'|^(k + 1)) / (k + 1)!, the integral being at most that from 0 to s and from 0 to t;
- |w' - w| rms^k / k!, the integral along the segment from w to w', on which the mean of |w|^2 is
  rms^2 = (|w|^2 + w . w' + |w'|^2) / 3, and that of |w| at most rms.

*Several predictors.* For t = V_i w in p dimensions c_i bounds the derivatives of order k + 1 of f_i by w
along unit vectors, for all |w| <= r. These are symmetric forms, whose largest value is at equal arguments
(Banach), so that all of the above holds; see `jets.derivative_norms`.

*In features.* Where eta_i = x_i . phi(q) + o_i is linear in short features phi of q only, all of the above
holds word for word with phi(q) in place of q, and any W and V with V W = I in p dimensions.

*How far.* c_i is for |w| and |w'| <= r: K_i is taken over eta_i +- |v_i| r. It is kept for some radii r.

The few rows with the largest c_i are left out, to be evaluated exactly. With c the largest of the others,
their log ratios less the expansions of these are within +-c M, a range of 2 c M.

*Rows drawn in proportion to their bounds.* The c_i of all rows are kept, at three radii, in single precision
and rounded up, in memory or on disk, and a table for each draws rows with probability c_i / C, C = sum of the
c_i that are kept:

- the *local* tier, for pairs of states that are both where all but one in 10^4 draws of the fitted
  distribution are;
- the *wider* tier, twice as far;
- the *global* tier, everywhere. If the derivatives of some row are not bounded everywhere, the tier reaches
  eight times as far as the first, and nothing is known beyond.

A pair belongs to the first tier that contains both of its states, whichever of the two the chain is in.

Where rows have few entries that are not zero, the bounds are those of `group_draws`, which are much smaller
and not the product of a part of the row and one of the move. In many dimensions rows that were drawn are
tried against bounds of their own before they are evaluated, see `screened_draws`.

The c_i are written in one pass. What was written is read again and compared with the numbers in double
precision, in every row: a bound that is too low would make decisions wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.block_table import BLOCK, LONG_BLOCK, block_table, draw_all_weighted, rounded_up
from pymc_austerity.bounds.row_constants import (
    INFLATION,
    BoundedTerm,
    Curvature,
    ExpansionCoordinates,
    bounded_term,
)
from pymc_austerity.bounds.row_function import RowFunction, have_one_predictor
from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.target import Index, Matrix, Singles, Vector

# Radii, in units of the typical one; rows are ranked by their constants at that. Log ratios are bounded where
# a chain comes from, too.
_RADII = np.array([0.5, 1.0, 1.5, 2.0, 4.0, math.inf])
_RADII_OF_TERMS = np.array([0.5, 1.0, 1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, math.inf])
_TYPICAL = 1
# Beyond this |w|^2 nothing is known, as powers may overflow.
_FAR = 1e100
# In units of sqrt(d) + 3. Where bounds for the last are infinite, the third tier has the one before.
_TIERS = np.array([1.0, 2.0, 8.0, math.inf])
# Constants that are looked at together, for the largest of all.
_CHUNK = 100_000


class RemainderCertificate(NamedTuple):
    """All that is needed to bound remainders; a few arrays, none as long as the data."""

    order: int  # k, 0 to 2
    center: Vector  # (D,): m
    whitening: Matrix  # (d, D): W
    radii: Vector  # (R,): increasing; the last is infinite
    # (R,): the largest c_i of all rows but the exact ones, for |w| up to each radius; may be infinite
    constants: Vector
    rounding: float = 0.0  # What rounding may add to a remainder, which is a difference of larger numbers
    # (R, D): the largest slopes along the coordinates of q. No rows, but for order 0 and one predictor a row
    slopes: Matrix = np.empty((0, 0))


def certify_remainders(
    terms: Sequence[RowFunction],
    coordinates: ExpansionCoordinates,
    n_exact: int,
) -> tuple[RemainderCertificate, Index]:
    """Make the certificate of some terms, in one pass over their rows, and say which rows it leaves out.

    These are `n_exact` rows, or all, with the largest c_i at a typical radius: sorted positions in the
    population of all terms one after the other. Raises UnboundedError if nothing is known of the remainders
    of a term; the message names it.
    """
    radii = coordinates.typical_radius * (_RADII if coordinates.order else _RADII_OF_TERMS)
    largest = np.zeros(len(radii))
    is_sloped = coordinates.order == 0 and have_one_predictor(terms)
    slopes = np.zeros((len(radii) if is_sloped else 0, len(coordinates.center)))
    exact, of_exact = np.empty(0, dtype=np.int64), np.empty((len(radii), 0))
    start = 0
    for term in terms:
        for positions, c in bounded_term(term, coordinates, radii).constants():
            if is_sloped:
                _raise_slopes(slopes, c, term.rows(positions)[:, 0, :-1], coordinates)
            # The exact rows so far and these compete; what becomes of the losers is certified.
            competing = np.concatenate([exact, start + positions])
            c = np.concatenate([of_exact, c], axis=1)
            ranking = np.argsort(-c[_TYPICAL], kind="stable")
            winners, losers = ranking[:n_exact], ranking[n_exact:]
            exact, of_exact = competing[winners], c[:, winners]
            largest = np.maximum(largest, c[:, losers].max(axis=1, initial=0.0))
        start += term.n_rows
    center = np.ascontiguousarray(coordinates.center, dtype=np.float64)
    whitening = np.ascontiguousarray(coordinates.whitening, dtype=np.float64)
    return RemainderCertificate(coordinates.order, center, whitening, radii, largest, slopes=slopes), np.sort(
        exact
    )


def _raise_slopes(slopes: Matrix, c: Matrix, x: Matrix, coordinates: ExpansionCoordinates) -> None:
    """Raise the largest slopes along coordinates to those of some rows, which are c_i |x_ij| / |v_i|."""
    length = np.linalg.norm(x @ coordinates.directions, axis=1)
    share = np.abs(x) / np.where(length > 0.0, length, 1.0)[:, None] * INFLATION
    for own, largest in zip(c, slopes, strict=True):
        with np.errstate(invalid="ignore"):  # infinity times zero
            found = np.where(share > 0.0, own[:, None] * share, 0.0)
        np.maximum(largest, found.max(axis=0, initial=0.0), out=largest)


@jitable
def distances_of(order: int, old: float, both: float, new: float, step: float) -> tuple[float, float]:
    """The larger of |w| and |w'|, and M, from |w|^2, w . w', |w'|^2 and |w' - w|^2."""
    radius = math.sqrt(max(old, new))
    if step == 0.0:
        return radius, 0.0
    if not old + new < _FAR:  # or not a number
        return math.inf, math.inf
    k = order
    factorial = float(max(k, 1))  # of k = 0, 1 and 2
    power = (k + 1) / 2
    ends = (old**power + new**power) / (factorial * (k + 1))
    segment = math.sqrt(step) * (max(old + new + both, 0.0) / 3.0) ** (k / 2) / factorial
    return radius, min(ends, segment)


@jitable
def distances(expansion: Any, q_new: Vector, q: Vector) -> tuple[float, float]:
    """The larger of |w| and |w'|, and M, in O(d D); the same if q and q_new change places.

    `expansion` has order, center and whitening, as certificates have. M is infinite where powers overflow.
    """
    # |w|^2, w . w', |w'|^2 and |w' - w|^2
    old, both, new, step = 0.0, 0.0, 0.0, 0.0
    for a in range(expansion.whitening.shape[0]):
        w, w_new = 0.0, 0.0
        for j in range(q.shape[0]):
            w += expansion.whitening[a, j] * (q[j] - expansion.center[j])
            w_new += expansion.whitening[a, j] * (q_new[j] - expansion.center[j])
        old += w * w
        both += w * w_new
        new += w_new * w_new
        step += (w_new - w) ** 2
    return distances_of(expansion.order, old, both, new, step)


@jitable
def _along_coordinates(slopes: Vector, q_new: Vector, q: Vector) -> float:
    """The largest change of a term between two states, by its largest slopes along the coordinates."""
    total = 0.0
    for j in range(q.shape[0]):
        if q_new[j] != q[j]:
            total += slopes[j] * abs(q_new[j] - q[j])
    return total


@jitable
def remainder_range(certificate: RemainderCertificate, q_new: Vector, q: Vector) -> float:
    """A number that max_i - min_i of R_i(q_new) - R_i(q) does not exceed, over all rows but the exact ones.

    In O(d D); infinite where nothing is known.
    """
    radius, size = distances(certificate, q_new, q)
    if size == 0.0:
        return 0.0
    for r in range(certificate.radii.shape[0]):
        if radius <= certificate.radii[r] and size < math.inf:
            # The directions of rows are whitened up to a tolerance.
            bound = certificate.constants[r] * size * INFLATION
            if certificate.slopes.shape[0] > 0:
                bound = min(bound, _along_coordinates(certificate.slopes[r], q_new, q))
            width: float = 2.0 * (bound + certificate.rounding)
            return width
    return math.inf


# Rows drawn in proportion to their bounds -------------------------------------------------


class RowDraws(NamedTuple):
    """Bounds b_i on the remainders of all rows, and how rows are drawn by them, as a kernel sees it.

    There are three ways: bounds c_i M, bounds by groups of whitened coordinates (`group_draws`), and bounds
    c_i M of which rows are tried against bounds of their own (`screened_draws`). What compiled code calls is
    the way of one model, and nothing of the others.
    """

    state: RowSampler  # All that the functions need; it has size N
    # ``(state, phi_new, phi) -> move``, what is known of a pair of states before any row is read.
    # It has `tier`, and `expected`, how many rows will be drawn. It is the same if the states change places.
    move: Callable[[Any, Vector, Vector], Any]
    # ``(rng, state, move, n) -> rows``: of n rows, drawn independently, those that are evaluated
    draw: Callable[[np.random.Generator, Any, Any, int], Index]
    bounds: Callable[[Any, Any, Index], Vector]  # ``(state, move, rows) -> b_i`` of some rows

    @property
    def has_all_radii(self) -> bool:
        """Whether the constants are c_i, and those of the last tier hold everywhere."""
        return self.move is plain_move and self.state.screen is None and bool(np.isinf(self.state.radii[2]))


class RowSampler(NamedTuple):
    """Bounds on the remainders of all rows, and how to draw rows by them. It has size N."""

    order: int  # Of the expansion, 1 or 2
    center: Vector  # (D,)
    whitening: Matrix  # (d, D): W, with w = W (q - center)
    radii: Vector  # (3,): how far each tier reaches in |w|
    totals: Vector  # (3,): C of each tier; may be infinite
    # (3, N): c_i of each tier, or k_i of `group_draws`. Read only, and perhaps mapped from a file.
    constants: Singles
    tables: Any  # To draw rows: three `BlockTable`, by the c_i of each tier; or those of `group_draws`
    rounding: float  # What rounding may add to a remainder, which is a difference of larger numbers
    most: float  # Pairs with C M above this are decided on all rows
    screen: Any = None  # What drawn rows are tried by; see `screened_draws`


def bounded_terms(
    terms: Sequence[RowFunction],
    coordinates: ExpansionCoordinates,
    curvature: Mapping[str, Curvature],
) -> list[BoundedTerm]:
    """The terms with bounds of their derivatives, at the radii of a `RowSampler`.

    `curvature` has bounds of the user, by the names of terms, which may be opaque. Raises
    UnboundedError if nothing is known of the remainders of a term; the message names it.
    """
    radii = coordinates.typical_radius * _TIERS
    return [bounded_term(term, coordinates, radii, curvature.get(term.name)) for term in terms]


def row_sampler_of(
    terms: Sequence[BoundedTerm],
    coordinates: ExpansionCoordinates,
    rounding: float,
    most: float,
    on_disk: ConstantsTable | None = None,
    known: Sequence[Singles] = (),
) -> RowSampler:
    """Make a `RowSampler` in one pass over the rows of some terms, from `bounded_terms`.

    `on_disk` is an empty table (3, N) for the c_i. By default they are kept in memory. `known` are for each
    term the c_i (3, n) of its first rows, in the same coordinates, for the first three tiers and the last.
    """
    shape = 3, sum(each.term.n_rows for each in terms)
    table = InMemory(shape, np.float32) if on_disk is None else on_disk
    last = write_constants(terms, table, known)
    constants = table.values.view()
    constants.flags.writeable = False
    tables = tuple(block_table(each, BLOCK if on_disk is None else LONG_BLOCK) for each in constants)
    return RowSampler(
        order=coordinates.order,
        center=np.ascontiguousarray(coordinates.center, dtype=np.float64),
        whitening=np.ascontiguousarray(coordinates.whitening, dtype=np.float64),
        radii=coordinates.typical_radius * _TIERS[[0, 1, last]],
        totals=np.array([table.total for table in tables]),
        constants=constants,
        tables=tables,
        rounding=rounding,
        most=most,
    )


class ConstantsTable(Protocol):
    """A table that numbers of rows are written to; `data.files.ScratchTable` is one on disk."""

    @property
    def values(self) -> npt.NDArray[Any]:
        """The numbers that have been written; constants have the shape (3, N)."""

    def write(self, row: int, start: int, values: npt.NDArray[Any]) -> None:
        """Write neighbours in one row of the table."""


# Makes a table of a shape and a dtype.
NewTable = Callable[[tuple[int, int], npt.DTypeLike], ConstantsTable]


class InMemory:
    """A table in memory."""

    def __init__(self, shape: tuple[int, int], dtype: npt.DTypeLike) -> None:
        self.values: npt.NDArray[Any] = np.empty(shape, dtype)

    def write(self, row: int, start: int, values: npt.NDArray[Any]) -> None:
        """Write neighbours in one row of the table."""
        self.values[row, start : start + len(values)] = values


def write_constants(
    terms: Sequence[BoundedTerm], table: ConstantsTable, known: Sequence[Singles] = ()
) -> int:
    """Write the c_i of all rows for three tiers, and say which of the four radii the third one has.

    That is number 3, or 2 if the c_i of some row are infinite at the last radius: all have that of the one
    before then. Raises SelfCheckError if a number that was written is below the constant.
    """
    last, begun, first = 3, 0, 0
    skipped = [constants.shape[1] for constants in known] or [0] * len(terms)
    for each, constants in zip(terms, known, strict=False):
        for tier in range(3):
            table.write(tier, first, constants[tier])
        first += each.term.n_rows
    for name, start, c in _pieces(terms, skipped):
        if last == 3 and not np.all(c[3] < np.finfo(np.float32).max):
            last, begun = 2, start
        for tier, radius in enumerate((0, 1, last)):
            _write(table, tier, name, start, c[radius])
    for name, start, c in _pieces(terms, [0] * len(terms)) if last == 2 and (begun or known) else ():
        if start >= begun:
            break
        _write(table, 2, name, start, c[2])
    return last


def _pieces(terms: Sequence[BoundedTerm], skipped: Sequence[int]) -> Iterator[tuple[str, int, Matrix]]:
    """Name of the term, position of the first row in the population, and c_i (4, m), of some neighbours."""
    first = 0
    for each, n in zip(terms, skipped, strict=True):
        for positions, c in each.constants(n):
            yield each.term.name, first + int(positions[0]), c * INFLATION
        first += each.term.n_rows


def _write(table: ConstantsTable, tier: int, name: str, start: int, c: Matrix) -> None:
    table.write(tier, start, rounded_up(c))
    written = table.values[tier, start : start + len(c)]
    below = np.flatnonzero(written < c)
    if len(below):
        row = below[0]
        raise SelfCheckError(
            f"Self-check failed for the term {name!r}: the bound of row {start + row:,} of all terms is "
            f"{c[row]!r}, and {written[row]!r} was written, which is below it. This is a defect of "
            "pymc_austerity, or of the disk: please report the model."
        )


def positions_of_largest(weights: Singles, most: int) -> Index:
    """Positions of the largest weights, so many of them; of equal ones the first."""
    best = np.empty(0, dtype=np.int64)
    least = -np.inf
    for start in range(0, len(weights), _CHUNK):
        larger = start + np.flatnonzero(weights[start : start + _CHUNK] > least)
        rows = np.concatenate([best, larger])
        best = np.sort(rows[np.argsort(-weights[rows], kind="stable")[:most]])
        least = float(weights[best].min()) if len(best) == most else -np.inf
    return best


class Move(NamedTuple):
    """Numbers of a pair of states that bounds need before any row is read; the same if they change places."""

    tier: int  # Of the bounds
    expected: float  # How many rows will be drawn: C M


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
    return np.float64(size) * np.take(constants, rows)  # Python calls it for thousands of rows, too


def plain_draws(sampler: RowSampler) -> RowDraws:
    """Rows drawn in proportion to c_i M."""
    return RowDraws(sampler, plain_move, plain_draw, plain_bounds)
