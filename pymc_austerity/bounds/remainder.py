"""Certified bounds on the remainders of Taylor expansions of all local terms.

About a center m, of order k, with t = x_i . (q - m) and eta_i = x_i . m + o_i,

    R_i(q) = f_i(eta_i + t) - sum over j <= k of f_i^(j)(eta_i) t^j / j!.

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
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.bounds.row_constants import INFLATION, ExpansionCoordinates, bounded_term
from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index, Matrix, Vector

# Radii, in units of the typical one; rows are ranked by their constants at that.
_RADII = np.array([0.5, 1.0, 1.5, 2.0, 4.0, math.inf])
_TYPICAL = 1
# Beyond this |w|^2 nothing is known, as powers may overflow.
_FAR = 1e100


class RemainderCertificate(NamedTuple):
    """All that is needed to bound remainders; a few arrays, none as long as the data."""

    order: int  # k, 1 or 2
    center: Vector  # (D,): m
    whitening: Matrix  # (d, D): W
    radii: Vector  # (R,): increasing; the last is infinite
    # (R,): the largest c_i of all rows but the exact ones, for |w| up to each radius; may be infinite
    constants: Vector
    rounding: float = 0.0  # What rounding may add to a remainder, which is a difference of larger numbers


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
    radii = coordinates.typical_radius * _RADII
    largest = np.zeros(len(radii))
    exact, of_exact = np.empty(0, dtype=np.int64), np.empty((len(radii), 0))
    start = 0
    for term in terms:
        for positions, c in bounded_term(term, coordinates, radii).constants():
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
    return RemainderCertificate(coordinates.order, center, whitening, radii, largest), np.sort(exact)


@jitable
def distances_of(order: int, old: float, both: float, new: float, step: float) -> tuple[float, float]:
    """The larger of |w| and |w'|, and M, from |w|^2, w . w', |w'|^2 and |w' - w|^2."""
    radius = math.sqrt(max(old, new))
    if step == 0.0:
        return radius, 0.0
    if not old + new < _FAR:  # or not a number
        return math.inf, math.inf
    k = order
    factorial = float(k)  # of k = 1 and 2
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
            bound: float = 2.0 * (certificate.constants[r] * size * INFLATION + certificate.rounding)
            return bound
    return math.inf
