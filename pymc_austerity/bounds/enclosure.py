"""Shapes that enclose a set of points v_i, and what they say of v_i . u for all i at once.

Three shapes enclose the same points; `extent` intersects what each says, in O(K^2) operations for points
of K coordinates, whatever their number:

- the *box*: low_j <= v_ij <= high_j, so v . u is between the sums of the smaller and of the larger of
  low_j u_j and high_j u_j. Sharp for dummy variables.
- the *ball* |v_i - c| <= R about the mean c: |v . u - c . u| <= R |u|.
- the *ellipsoid* v_i = c + A z_i + e_i with |z_i| <= r and |e_ij| <= residual_j, so
  |v . u - c . u| <= r |A'u| + sum_j |u_j| residual_j. For A A' the covariance of the points, |A'u| is the
  standard deviation of v . u: the sharpest of the three for correlated columns.

*Why this is rigorous*: c and A come from a sample of the points, and may be anything: with B any matrix,
z_i = B (v_i - c) and e_i = v_i - c - A z_i is an identity. Only R, r, the residual and the box, which are
maxima over all points, matter. B is the pseudo-inverse of A, so that e_i is rounding error where the sample
spans all directions; where it does not (collinear or rare columns), the residual takes what is missing.
Radii are enlarged by a factor 1 + 1e-9, and intervals by 1e-12 of the largest possible terms, for rounding.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.target import Matrix, Vector

# Beyond this the ellipsoid is left out: its matrix costs more than it is worth.
_LARGEST_ELLIPSOID = 201
# Directions with less of the (standardised) variance than this are left to the residual.
_FLAT = 1e-10
_INFLATION = 1.0 + 1e-9
_ROUNDING = 1e-12


class Enclosure(NamedTuple):
    """Shapes that enclose a set of points in K dimensions."""

    n_points: int
    # low, high (K,): the box
    low: Vector
    high: Vector
    center: Vector  # (K,): of the ball and of the ellipsoid
    ball_radius: float  # Of the ball
    axes: Matrix  # (K, k): A; no columns if there is no ellipsoid
    ellipsoid_radius: float  # r
    residual: Vector  # (K,)


class EnclosureBuilder:
    """Enclose points that come in portions.

    Center and metric are taken from a `sample` (n, K) of the points. The enclosure is valid for any.
    """

    def __init__(self, sample: Matrix) -> None:
        width = sample.shape[1]
        self._n = 0
        self._low, self._high = np.full(width, np.inf), np.full(width, -np.inf)
        self._center = sample.mean(axis=0) if len(sample) else np.zeros(width)
        self._axes, self._inverse = _metric(sample - self._center)
        self._ball_radius = self._ellipsoid_radius = 0.0
        self._residual = np.zeros(width)

    def add(self, points: Matrix) -> None:
        """Enclose these points too."""
        if not len(points):
            return
        if not np.all(np.isfinite(points)):
            raise UnboundedError("some rows of the design are not finite")
        self._n += len(points)
        self._low = np.minimum(self._low, points.min(axis=0))
        self._high = np.maximum(self._high, points.max(axis=0))
        centred = points - self._center
        self._ball_radius = max(self._ball_radius, _longest(centred))
        z = centred @ self._inverse.T
        self._ellipsoid_radius = max(self._ellipsoid_radius, _longest(z))
        self._residual = np.maximum(self._residual, np.abs(centred - z @ self._axes.T).max(axis=0))

    def enclosure(self) -> Enclosure:
        """The enclosure of all points so far."""
        width = len(self._low)
        if not self._n:
            self._low, self._high = np.zeros(width), np.zeros(width)
        largest = np.maximum(np.abs(self._low), np.abs(self._high))
        rounding = width * 1e-15 * (np.abs(self._axes).sum(axis=1) * self._ellipsoid_radius + largest)
        return Enclosure(
            n_points=self._n,
            low=self._low,
            high=self._high,
            center=self._center,
            ball_radius=float(self._ball_radius * _INFLATION),
            axes=np.ascontiguousarray(self._axes),
            ellipsoid_radius=float(self._ellipsoid_radius * _INFLATION),
            residual=self._residual * _INFLATION + rounding,
        )


def _longest(vectors: Matrix) -> float:
    return math.sqrt(np.einsum("ij,ij->i", vectors, vectors).max()) if vectors.shape[1] else 0.0


def _metric(centred: Matrix) -> tuple[Matrix, Matrix]:
    """A with A A' = the covariance, and its pseudo-inverse, by way of the correlation matrix."""
    n, width = centred.shape
    if not n or width > _LARGEST_ELLIPSOID:
        return np.empty((width, 0)), np.empty((0, width))
    scale = np.sqrt(np.einsum("ij,ij->j", centred, centred) / n)
    inverse_scale = np.divide(1.0, scale, out=np.zeros(width), where=scale > 0.0)
    standard = centred * inverse_scale
    values, vectors = np.linalg.eigh(standard.T @ standard / n)
    kept = values > _FLAT * max(float(values[-1]), np.finfo(float).tiny)
    root = np.sqrt(values[kept])
    axes = scale[:, None] * vectors[:, kept] * root
    inverse = (vectors[:, kept] / root).T * inverse_scale
    return axes, inverse


@jitable
def extent(enclosure: Enclosure, u: Vector) -> tuple[float, float]:
    """An interval that contains v_i . u for all points; (0, 0) if there are none."""
    if enclosure.n_points == 0:
        return 0.0, 0.0
    low, high, middle, square, rough, size = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(u.shape[0]):
        a, b = enclosure.low[j] * u[j], enclosure.high[j] * u[j]
        low += min(a, b)
        high += max(a, b)
        middle += enclosure.center[j] * u[j]
        square += u[j] * u[j]
        rough += abs(u[j]) * enclosure.residual[j]
        size += max(abs(a), abs(b))
    half = enclosure.ball_radius * math.sqrt(square)
    if enclosure.axes.shape[1] > 0:
        along = 0.0  # |A'u|^2
        for a in _along_axes(enclosure, u):
            along += a * a
        half = min(half, enclosure.ellipsoid_radius * math.sqrt(along) + rough)
    low, high = max(low, middle - half), min(high, middle + half)
    pad = _ROUNDING * size
    # Where all points agree, rounding may have exchanged the two.
    return min(low, high) - pad, max(low, high) + pad


@jitable
def extent_of_product(enclosure: Enclosure, u: Vector, w: Vector) -> tuple[float, float]:
    """An interval that contains (v_i . u)(v_i . w) for all points.

    One is the product of the two extents. The other knows that both factors are of the same point: within
    the ellipsoid, with a = A'u, b = A'w, alpha = c . u and beta = c . w,

        (alpha + a.z)(beta + b.z) = alpha beta + (alpha b + beta a) . z + z'(a b' + b a')z / 2

    and the eigenvalues of (a b' + b a') / 2 are (a.b +- |a||b|) / 2 and 0. For a and b at right angles, that
    is half as wide. The residual adds at most its share of either factor times the other.
    """
    if enclosure.n_points == 0:
        return 0.0, 0.0
    u_low, u_high = extent(enclosure, u)
    w_low, w_high = extent(enclosure, w)
    low, high = product(u_low, u_high, w_low, w_high)
    if enclosure.axes.shape[1] > 0:
        a, b = _along_axes(enclosure, u), _along_axes(enclosure, w)
        alpha, beta, rough_u, rough_w, size_u, size_w = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(u.shape[0]):
            alpha += enclosure.center[j] * u[j]
            beta += enclosure.center[j] * w[j]
            rough_u += enclosure.residual[j] * abs(u[j])
            rough_w += enclosure.residual[j] * abs(w[j])
            largest = max(abs(enclosure.low[j]), abs(enclosure.high[j]))
            size_u += largest * abs(u[j])
            size_w += largest * abs(w[j])
        aa, bb, ab, linear = 0.0, 0.0, 0.0, 0.0
        for k in range(a.shape[0]):
            aa += a[k] * a[k]
            bb += b[k] * b[k]
            ab += a[k] * b[k]
            linear += (alpha * b[k] + beta * a[k]) ** 2
        r = enclosure.ellipsoid_radius
        lengths = math.sqrt(aa) * math.sqrt(bb)
        rest = rough_u * max(abs(w_low), abs(w_high)) + rough_w * max(abs(u_low), abs(u_high))
        rest += 3.0 * rough_u * rough_w + 4.0 * _ROUNDING * size_u * size_w
        shift = r * math.sqrt(linear) + rest
        low = max(low, alpha * beta - shift + r * r * min(0.0, (ab - lengths) / 2.0))
        high = min(high, alpha * beta + shift + r * r * max(0.0, (ab + lengths) / 2.0))
    return min(low, high), max(low, high)


@jitable
def product(a_low: float, a_high: float, b_low: float, b_high: float) -> tuple[float, float]:
    """All products of a number in [a_low, a_high] and one in [b_low, b_high].

    Zero times infinity is zero: an infinite end stands for finite numbers as large as you like. Of what is
    not a number, nothing is known.
    """
    if not (a_low <= a_high and b_low <= b_high):
        return -math.inf, math.inf
    low, high = math.inf, -math.inf
    for a in (a_low, a_high):
        for b in (b_low, b_high):
            p = 0.0 if a == 0.0 or b == 0.0 else a * b
            low, high = min(low, p), max(high, p)
    return low, high


@jitable
def _along_axes(enclosure: Enclosure, u: Vector) -> Vector:
    """The vector A'u of the ellipsoid, one number for each of its axes."""
    result = np.zeros(enclosure.axes.shape[1])
    for j in range(u.shape[0]):
        if u[j] != 0.0:
            for k in range(result.shape[0]):
                result[k] += enclosure.axes[j, k] * u[j]
    return result
