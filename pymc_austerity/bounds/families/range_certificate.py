"""Certificates of the range of log ratios: what is kept of the rows of a term, and what it says.

A certificate is a record of a few arrays. Each form of slopes has a subclass with a method `interval`. numba
looks it up by the class of the record when a kernel is compiled, so that a kernel contains the functions of
the forms that its model has, and no others; the class is in the signature that compiled code is kept under.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload_method

from pymc_austerity.bounds.enclosure import Enclosure
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Matrix, Vector


class _Record(NamedTuple):
    factors: Vector
    least: float
    largest: float
    first: Enclosure
    second: Enclosure


class RangeCertificate(_Record):
    """All that is needed to bound the log ratios of one term; a few arrays, none as long as the data.

    A subclass says what the constants of rows are, and defines `points` and `interval`.

    Attributes
    ----------
    factors : ndarray (2,)
        Common factors of the first two constants of all rows.
    least, largest : float
        Of the first constant, without its factor, over all rows.
    first, second : Enclosure
        Enclosures of points in D + 1 dimensions, made from the rows (x_i, o_i) and the constants.
    needs_offset : bool
        Whether the o_i matter, and must therefore be fixed.
    n_factors : int
        So many constants, the first, may change by a common factor.
    """

    needs_offset: ClassVar[bool]
    n_factors: ClassVar[int]

    @staticmethod
    def points(rows: Matrix, constants: Matrix) -> tuple[Matrix, Matrix]:
        """The points that are enclosed, from (x_i, o_i) (m, D + 1) and constants (m, n) of some rows."""
        raise NotImplementedError

    def interval(self, q_new: Vector, q: Vector) -> tuple[float, float]:
        """An interval that contains l_i(q_new) - l_i(q) for all rows; `register_jitable`."""
        raise NotImplementedError


# Not strict: annotations of the two functions differ. Stubs of numba do not know this.
@overload_method(types.NamedTuple, "interval", strict=False)  # type: ignore[call-arg]
def _interval(self: Any, q_new: Any, q: Any) -> Callable[..., Any] | None:
    if not issubclass(self.instance_class, RangeCertificate):
        return None
    interval: Callable[..., Any] = self.instance_class.interval
    return interval


def without_offset(rows: Matrix, factor: Vector) -> Matrix:
    """Points factor_i (x_i, 0)."""
    points = rows * factor[:, None]
    points[:, -1] = 0.0
    return points


@jitable
def step_between(q_new: Vector, q: Vector) -> Vector:
    """(q_new - q, 0): its product with (x, o) is the change of eta."""
    u = np.zeros(q.shape[0] + 1)
    for j in range(q.shape[0]):
        u[j] = q_new[j] - q[j]
    return u


@jitable
def with_one(q: Vector) -> Vector:
    """(q, 1): its product with (x, o) is eta."""
    u = np.ones(q.shape[0] + 1)
    for j in range(q.shape[0]):  # an assignment to a slice takes numba seconds to compile
        u[j] = q[j]
    return u


@jitable
def exponential(x: float) -> float:
    """exp(x), infinite where it overflows."""
    return math.exp(x) if x < 709.0 else math.inf
