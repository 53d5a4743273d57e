"""Third-order terms of the Taylor polynomials of a plate: they are known, so that fourth-order ones remain.

With c_i = f_i''' at the center and t_i = e_g + z_i . d, as in `coordinates`,

    sum of c_i t_i^3 / 6 = sum over g of (T_g e_g^3 + 3 S_g . d e_g^2 + 3 d' Q_g d e_g) / 6 + R(d) / 6,

    T_g = sum of c_i,   S_g = sum of c_i z_i,   Q_g = sum of c_i z_i z_i',   R(d) = sum of c_i (z_i . d)^3,

over the rows of a group, the last over all. The sums take O(G V^2) numbers for V columns that vary within
groups. These terms are a part of the log ratio of a move, and no row is read for them. Remainders and their
bounds become smaller by a factor of the order of t_i.
"""

from typing import NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index, Matrix, Vector


class Cubic(NamedTuple):
    """The sums. Without third-order terms all are empty."""

    columns: Index  # (V,): which of the P columns z has, here
    levels: Vector  # (G,): T_g
    mixed: Matrix  # (V, G): S_g
    # (V (V + 1) / 2, G): Q_g, of the products (0, 0), (1, 0), (1, 1), (2, 0), ...; those of different columns
    # count twice
    products: Matrix
    # (V (V + 1) (V + 2) / 6,): R, of the products (0, 0, 0), (1, 0, 0), (1, 1, 0), ..., as often as they
    # occur
    shared: Vector


def no_cubic() -> Cubic:
    """An empty record, where there are no third-order terms."""
    nothing = np.zeros((0, 0))
    return Cubic(np.zeros(0, np.int64), np.zeros(0), nothing, nothing, np.zeros(0))


class CubicAt(NamedTuple):
    """The third-order terms at a d: a polynomial of each e_g."""

    # firsts, seconds (G,): d' Q_g d / 2 and S_g . d / 2.
    firsts: Vector
    seconds: Vector
    constant: float  # R(d) / 6


@jitable
def room_for_cubic(cubic: Cubic) -> CubicAt:
    """Room for one; of size 0 without third-order terms."""
    n = cubic.levels.shape[0]
    return CubicAt(np.zeros(n), np.zeros(n), 0.0)


@jitable
def cubic_at(cubic: Cubic, d: Vector, room: CubicAt) -> CubicAt:
    """Third-order terms at d, as functions of the levels e_g; the record's vectors are written over."""
    (columns, _, mixed, products, shared), (firsts, seconds, _) = cubic, room
    n_groups, n, pair, triple, constant = firsts.shape[0], columns.shape[0], 0, 0, 0.0
    firsts[:], seconds[:] = 0.0, 0.0
    for a in range(n):
        own = 0.5 * d[columns[a]]
        for g in range(n_groups):
            seconds[g] += own * mixed[a, g]
        for b in range(a + 1):
            product = own * d[columns[b]]
            for g in range(n_groups):
                firsts[g] += product * products[pair, g]
            pair += 1
            for c in range(b + 1):
                constant += product * d[columns[c]] * shared[triple]
                triple += 1
    return CubicAt(firsts, seconds, constant / 3.0)


@jitable
def add_cubic(cubic: Cubic, at: CubicAt, levels: Vector, sign: float, result: Vector) -> None:
    """Add the third-order terms that contain e_g to a number of each group, or subtract them."""
    (firsts, seconds, _), of_levels = at, cubic.levels
    for g in range(of_levels.shape[0]):
        e = levels[g]
        result[g] += sign * e * (firsts[g] + e * (seconds[g] + e * of_levels[g] / 6.0))


@jitable
def cubic_change(cubic: Cubic, at: CubicAt, levels: Vector, new_at: CubicAt, new_levels: Vector) -> float:
    """The change of all third-order terms together."""
    changes = np.zeros(cubic.levels.shape[0])
    add_cubic(cubic, new_at, new_levels, 1.0, changes)
    add_cubic(cubic, at, levels, -1.0, changes)
    return np.sum(changes) + new_at.constant - at.constant
