"""The largest value of a symmetric form on the unit sphere, from enclosures of its coefficients.

F(x) = g! sum over |alpha| = g of c_alpha x^alpha, for the Taylor coefficients c_alpha of degree g = 2 or 3:
that is T[x, ..., x] for the tensor T of derivatives. On a great circle F is a trigonometric polynomial of
degree g, so that its largest value is at most 1 / cos(g delta) times the largest on points of a covering,
delta being the largest angle between any line and the nearest point (Bernstein and Szego). Points x and -x
are as good as each other.

In four variables coverings are large, and the largest eigenvalue of G = U U' is bounded instead, U being the
p x p^(g - 1) matrix that T unfolds to: it is at most trace(G^32)^(1/32).
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.jets.compiled import entry, inner
from pymc_austerity.bounds.jets.tape import multi_indices
from pymc_austerity.target import Array, Vector

# Points on half a circle; cells along each edge of the faces of a cube.
_CIRCLE, _CUBE = 48, 16
_SQUARINGS = 5


class Covering(NamedTuple):
    """Numbers by which forms of one degree in p variables are bounded."""

    # (G, m): g! x^alpha at the points of the covering; no rows in four variables
    monomials: npt.NDArray[np.float64]
    tensor: npt.NDArray[np.int64]  # (p, p^(g - 1)): where in the list of the alphas the elements of U are
    factors: Vector  # (m,): alpha!, by which coefficients become derivatives
    inflation: float  # 1 / cos(g delta)


@lru_cache
def covering(n_variables: int, degree: int) -> Covering:
    """The covering for forms of this degree."""
    alphas = [index for index in multi_indices(n_variables, degree) if sum(index) == degree]
    places = {index: k for k, index in enumerate(alphas)}
    elements = itertools.product(range(n_variables), repeat=degree)
    tensor = np.array([places[tuple(one.count(k) for k in range(n_variables))] for one in elements])
    points, angle = _points(n_variables)
    return Covering(
        math.factorial(degree) * np.prod(points[:, None, :] ** np.array(alphas)[None], axis=2),
        tensor.reshape(n_variables, -1),
        np.array([math.prod(map(math.factorial, index)) for index in alphas], dtype=np.float64),
        1.0 / math.cos(degree * angle),
    )


def _points(n_variables: int) -> tuple[npt.NDArray[np.float64], float]:
    """Points of half the sphere, and the largest angle from any line to the nearest."""
    if n_variables == 1:
        return np.ones((1, 1)), 0.0
    if n_variables == 2:
        t = (np.arange(_CIRCLE) + 0.5) * math.pi / _CIRCLE
        return np.stack([np.cos(t), np.sin(t)], axis=1), math.pi / (2 * _CIRCLE)
    if n_variables > 3:
        return np.empty((0, n_variables)), 0.0
    # A grid of equal angles on the faces of the cube. From the middle of a cell to its corner these change
    # by half a step each; at the corners of a face that is an angle of sqrt(8 / 3) half steps.
    grid = np.tan(((np.arange(_CUBE) + 0.5) / _CUBE - 0.5) * math.pi / 2.0)
    u, v = (x.ravel() for x in np.meshgrid(grid, grid))
    face = np.stack([np.ones_like(u), u, v], axis=1)
    points = np.concatenate([np.roll(face, shift, axis=1) for shift in range(3)])
    return points / np.linalg.norm(points, axis=1, keepdims=True), math.sqrt(8.0 / 3.0) * math.pi / (
        4 * _CUBE
    )


@entry
def largest_forms(cover: Covering, middle: Array, radius: Array, result: Vector) -> None:
    """Upper bounds of |F| on the unit sphere, for coefficients in middle +- radius, of shape (m, rows)."""
    n_rows = middle.shape[1]
    if cover.monomials.shape[0] == 0:
        for row in range(n_rows):
            result[row] = _or_infinite(_by_unfolding(cover, middle[:, row], radius[:, row]))
        return
    value, size = np.empty(n_rows), np.empty(n_rows)
    for row in range(n_rows):
        result[row] = 0.0
    for g in range(cover.monomials.shape[0]):
        for row in range(n_rows):
            value[row], size[row] = 0.0, 0.0
        for k in range(middle.shape[0]):
            monomial = cover.monomials[g, k]
            positive = abs(monomial)
            m, r = middle[k], radius[k]
            for row in range(n_rows):
                value[row] += monomial * m[row]
                size[row] += positive * r[row]
        for row in range(n_rows):
            found = abs(value[row]) + size[row]
            # What is not a number stays.
            result[row] = result[row] if found <= result[row] or math.isnan(result[row]) else found
    for row in range(n_rows):
        result[row] = _or_infinite(result[row] * cover.inflation * (1.0 + 1e-12))


@inner
def _or_infinite(bound: float) -> float:
    """A bound, or infinity where it is NaN."""
    return math.inf if math.isnan(bound) else bound


@inner
def _by_unfolding(cover: Covering, middle: Vector, radius: Vector) -> float:
    """The spectral norm of U for the midpoints, and the Frobenius norm for the radii."""
    p, width = cover.tensor.shape
    gram = np.zeros((p, p))
    rest = 0.0
    for i in range(p):
        for c in range(width):
            at = cover.tensor[i, c]
            rest += (radius[at] * cover.factors[at]) ** 2
            for j in range(p):
                other = cover.tensor[j, c]
                gram[i, j] += middle[at] * cover.factors[at] * middle[other] * cover.factors[other]
    scale = 0.0
    for i in range(p):
        scale += gram[i, i]
    if not scale > 0.0:
        return math.sqrt(rest) * (1.0 + 1e-12) if scale == 0.0 else math.inf
    power, last = np.empty((p, p)), gram
    for i in range(p):
        for j in range(p):
            last[i, j] /= scale
    for _ in range(_SQUARINGS):
        for i in range(p):
            for j in range(p):
                power[i, j] = 0.0
                for k in range(p):
                    power[i, j] += last[i, k] * last[k, j]
        power, last = last, power
    trace = 0.0
    for i in range(p):
        trace += last[i, i]
    largest = scale * trace ** (1.0 / 2**_SQUARINGS)
    return (math.sqrt(largest) + math.sqrt(rest)) * (1.0 + 1e-12)
