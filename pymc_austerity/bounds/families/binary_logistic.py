"""Logistic regression with binary responses: y_i = 1 with probability sigmoid(eta) = 1 / (1 + exp(-eta)).

The slope is 1 - sigmoid(eta) or -sigmoid(eta), a case of `binary_response`. That is `logistic` with n_i = 1,
whose bounds do without the o_i; these here are sharper where the design leaves eta little room, and at worst
the same.
"""

import numpy as np

from pymc_austerity.bounds.families import logistic
from pymc_austerity.bounds.families.base import TOLERANCE, Family
from pymc_austerity.bounds.families.binary_response import BinaryResponses, interval_of_responses
from pymc_austerity.bounds.families.range_certificate import exponential
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Matrix, Vector


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The responses y_i."""
    constants = logistic.identify(eta, slopes)
    if constants is None:
        return None
    y = np.round(constants[:, 1:])
    fits = np.abs(constants - np.concatenate([y - 1.0, y], axis=1)) <= TOLERANCE
    return y if np.all(fits) and np.all((y == 0.0) | (y == 1.0)) else None


@jitable
def slopes_between(response: int, low: float, high: float) -> tuple[float, float]:
    """The least and the largest slope of a term with this response, for eta from low to high."""
    if response == 1:
        return _sigmoid(-high), _sigmoid(-low)
    return -_sigmoid(high), -_sigmoid(low)


@jitable
def _sigmoid(eta: float) -> float:
    return 1.0 / (1.0 + exponential(-eta))


class LogisticResponses(BinaryResponses):
    """Certificate of terms of binary responses with a logistic link."""

    @jitable
    def interval(self, q_new: Vector, q: Vector) -> tuple[float, float]:
        """An interval that contains all log ratios of the term."""
        return interval_of_responses(self, slopes_between, q_new, q)


FAMILY = Family("binary logistic", identify, LogisticResponses)
