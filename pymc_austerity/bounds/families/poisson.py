"""Counts with a logarithmic link: f_i'(eta) = y_i - w_i exp(eta), w_i > 0.

With t_i = eta_i + log w_i and s_i = x_i . (q' - q), l_i = y_i s_i - (exp(t_i') - exp(t_i)). Two bounds hold:

- y_i s_i is within the extent of the points y_i x_i, and exp(t') - exp(t), which is exp(t) expm1(s) and also
  -exp(t') expm1(-s), within the products of the extremes of their factors;
- by the mean value theorem l_i = s_i (y_i - exp(t)) for a t between its lowest and highest value on the way,
  t- and t+, which is s_i times a number between min y - exp(t+) and max y - exp(t-).

The exponential makes these bounds wide for designs with long tails: exp(t+) is that of the worst row.
"""

import math

import numpy as np

from pymc_austerity.bounds.enclosure import extent, product
from pymc_austerity.bounds.families.base import ROUNDING, Family, agree, value_at
from pymc_austerity.bounds.families.range_certificate import (
    RangeCertificate,
    exponential,
    step_between,
    with_one,
    without_offset,
)
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Matrix, Vector


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The counts y_i and the weights w_i."""
    low, high = value_at(eta, slopes, -10.0), value_at(eta, slopes, 10.0)
    w = (low - high) / (math.exp(10.0) - math.exp(-10.0))
    y = low + w * math.exp(-10.0)
    # Counts are found with an error that is relative to the weights, which exposures may make large.
    y = np.where(np.abs(y) < ROUNDING * w, 0.0, y)
    with np.errstate(all="ignore"):
        mean = w * np.exp(eta)[:, None]
        expected, size = y - mean, np.abs(y) + mean
        expected = np.where(np.isposinf(np.exp(eta))[:, None], -np.inf, expected)
    # At log(0) PyMC switches to another formula.
    inside = np.abs(eta) <= 300.0
    if not np.all(w > 0.0) or not agree(eta[inside], slopes[inside], expected[inside], 1.0, size[inside]):
        return None
    return np.stack([y, w], axis=1)


class PoissonTerms(RangeCertificate):
    """Certificate of terms with counts y_i and weights w_i."""

    needs_offset = True
    n_factors = 2

    @staticmethod
    def points(rows: Matrix, constants: Matrix) -> tuple[Matrix, Matrix]:
        """The points y_i x_i, and (x_i, o_i + log w_i)."""
        shifted = rows.copy()
        shifted[:, -1] += np.log(constants[:, 1])
        return without_offset(rows, constants[:, 0]), shifted

    @jitable
    def interval(self, q_new: Vector, q: Vector) -> tuple[float, float]:
        """An interval that contains all log ratios of the term."""
        factor, weight = self.factors[0], self.factors[1]
        least, largest = self.least, self.largest
        if not weight > 0.0:
            return -math.inf, math.inf
        shift = math.log(weight)
        u = step_between(q_new, q)
        s_low, s_high = extent(self.second, u)
        y_low, y_high = extent(self.first, u)
        y_low, y_high = product(factor, factor, y_low, y_high)
        low, high = extent(self.second, with_one(q))
        low_new, high_new = extent(self.second, with_one(q_new))
        mean_low, mean_high = exponential(low + shift), exponential(high + shift)
        new_low, new_high = exponential(low_new + shift), exponential(high_new + shift)
        a_low, a_high = product(mean_low, mean_high, _expm1(s_low), _expm1(s_high))
        b_low, b_high = product(-new_high, -new_low, _expm1(-s_high), _expm1(-s_low))
        change_low, change_high = max(a_low, b_low), min(a_high, b_high)
        least, largest = min(factor * least, factor * largest), max(factor * least, factor * largest)
        slope_low, slope_high = least - max(mean_high, new_high), largest - min(mean_low, new_low)
        c_low, c_high = product(slope_low, slope_high, s_low, s_high)
        return max(c_low, y_low - change_high), min(c_high, y_high - change_low)


@jitable
def _expm1(x: float) -> float:
    return math.expm1(x) if x < 709.0 else math.inf


FAMILY = Family("Poisson", identify, PoissonTerms)
