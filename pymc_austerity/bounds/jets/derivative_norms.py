"""How large the derivatives of rows along unit vectors become: the c_i of `bounds.remainder`.

Row i is f(eta_i + V_i w) with V_i of shape (p, d). With G = V_i V_i' = L L' and z in the unit ball of R^p,
V_i u runs through L z for |u| <= 1: so |w| <= rho gives |z| <= rho, and

    c_i = sup over |z| <= rho of max over |x| = 1 of |T_z[x, ..., x]|

for the tensor T_z of derivatives of order g of f(eta_i + L z) by z: g is 2 or 3, or 4 for p = 1. Symmetric
forms are largest at equal arguments (Banach), so that this bounds mixed arguments, too.

*Effort.* The jet over a box encloses T there, loosely. Its expansion at the midpoint of the box is tighter
where the box is small: with J = 2,

    |T(z) - T(c)| <= |T'(c)| h + |T''(box)| h^2 / 2,

coefficient by coefficient; the intersection of both is taken. And a box may be cut into parts, along those
coordinates of z where it pays.

*The largest value of a symmetric form on the unit sphere, from enclosures of its coefficients.* F(x) = g! sum
over |alpha| = g of c_alpha x^alpha, for the Taylor coefficients c_alpha of degree g = 2 or 3: that is T[x,
..., x] for the tensor T of derivatives. On a great circle F is a trigonometric polynomial of degree g, so
that its largest value is at most 1 / cos(g delta) times the largest on points of a covering, delta being the
largest angle between any line and the nearest point (Bernstein and Szego). Points x and -x are as good as
each other.

In four variables and more coverings are large, and the largest eigenvalue of G = U U' is bounded instead, U
being the p x p^(g - 1) matrix that T unfolds to: it is at most trace(G^32)^(1/32).
"""

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.jets.codes import LARGEST_ORDER
from pymc_austerity.bounds.jets.compiled import entry, inner, of_records
from pymc_austerity.bounds.jets.machine import LANES, Block, Box, Slots, run, slots_for
from pymc_austerity.bounds.jets.ranges import WORK
from pymc_austerity.bounds.jets.tape import Tape, multi_indices
from pymc_austerity.target import Array, Vector

# Points on half a circle; cells along each edge of the faces of a cube.
_CIRCLE, _CUBE = 48, 16
_SQUARINGS = 5


class Covering(NamedTuple):
    """Numbers by which forms of one degree in p variables are bounded."""

    # (G, m): g! x^alpha at the points of the covering; no rows in four and more
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


_INFLATION = 1.0 + 1e-12
# A predictor that is a multiple of another one: its own share is taken to be so large at least.
_OWN = 1e-14
_EPS = 2.0**-52
# J, where derivatives of that order are known.
_ORDER = 2


class Expansion(NamedTuple):
    """How coefficients of degree g are expanded at the midpoint of a box."""

    # first, last: the coefficients of degree g in the list of all
    first: int
    last: int
    # (T, 3 + p): for a coefficient alpha of degree g and a beta with 1 <= |beta| <= J: which alpha, the place
    # of alpha + beta, |beta|, and beta
    terms: npt.NDArray[np.int64]
    weights: Vector  # (T,): (alpha + beta)! / (alpha! beta!)


class Effort(NamedTuple):
    """How much is computed for a row."""

    extra: int  # J, the order of the expansion; 0 for none
    parts: tuple[int, ...]  # Into how many parts the box is cut along each coordinate


def expansion_order(degree: int) -> int:
    """J that pays for derivatives of an order: what they are enclosed by has order J + g at most."""
    return min(_ORDER, LARGEST_ORDER - degree)


@lru_cache
def expansion(n_variables: int, degree: int, extra: int) -> Expansion:
    """The expansion of order J of coefficients of a degree."""
    indices = multi_indices(n_variables, degree + extra)
    places = {index: k for k, index in enumerate(indices)}
    own = [k for k, index in enumerate(indices) if sum(index) == degree]
    terms, weights = [], []
    for k in own:
        for beta in indices[1:]:
            if sum(beta) <= extra:
                total = tuple(a + b for a, b in zip(indices[k], beta, strict=True))
                terms.append((k - own[0], places[total], sum(beta), *beta))
                weights.append(math.prod(map(math.comb, total, beta)))
    return Expansion(
        own[0],
        own[-1] + 1,
        np.array(terms, dtype=np.int64).reshape(-1, 3 + n_variables),
        np.array(weights, dtype=np.float64),
    )


def midpoints(radius: float, parts: tuple[int, ...]) -> Array:
    """Midpoints of the parts of the cube |z_k| <= radius that reach into the ball."""
    steps = [(2.0 * np.arange(n) + 1.0 - n) / n for n in parts]
    found = np.array(list(itertools.product(*steps)))
    nearest = np.maximum(np.abs(found) - 1.0 / np.array(parts), 0.0)
    inside = found[(nearest**2).sum(axis=1) <= _INFLATION]
    return inside * radius if math.isfinite(radius) else inside * 0.0


def derivative_norms(
    tape: Tape, eta: Array, directions: Array, data: Array, radius: float, degree: int, effort: Effort
) -> Vector:
    """Upper bounds c_i for some rows.

    Parameters
    ----------
    tape : Tape
        The program of f to order `degree` + `effort.extra`.
    eta : ndarray (m, p)
        Predictors at the center.
    directions : ndarray (m, p, d)
        V_i.
    data : ndarray (n_data, m)
    radius : float
        rho; may be infinite.
    degree : int
        g.
    effort : Effort
        If `radius` is infinite, one without an expansion or parts.

    Returns
    -------
    ndarray (m,)
        Infinite where nothing is known.
    """
    p = eta.shape[1]
    gram = np.einsum("mpd,mqd->mpq", directions, directions)
    half = radius / np.array(effort.parts) * _INFLATION
    return _norms(
        tape,
        expansion(p, degree, effort.extra),
        covering(p, degree),
        np.ascontiguousarray(eta, dtype=np.float64),
        np.ascontiguousarray(gram),
        np.ascontiguousarray(data, dtype=np.float64),
        midpoints(radius, effort.parts),
        half,
        radius * _INFLATION,
        slots_for(tape),
        effort.extra,
    )


@of_records
def _norms(
    tape: Tape,
    series: Expansion,
    cover: Covering,
    eta: Array,
    gram: Array,
    data: Array,
    middles: Array,
    half: Vector,
    rho: float,
    slots: Slots,
    extra: int,
) -> Vector:
    """The largest bound over all parts of the box, for one block of rows after the other."""
    m, p = eta.shape
    n_own = series.last - series.first
    result, nothing = np.zeros(m), np.zeros(p)
    block = Block(np.empty((p, LANES)), np.zeros((p, p, LANES)), np.empty((data.shape[0], LANES)))
    middle, radius = np.empty((n_own, LANES)), np.empty((n_own, LANES))
    center, spread = np.empty((n_own, LANES)), np.empty((n_own, LANES))
    found = np.empty(LANES)
    work = np.empty(WORK)
    for start in range(0, m, LANES):
        _load(block, eta, gram, data, start)
        for part in range(middles.shape[0]):
            at = middles[part]
            if extra > 0:
                run(tape, block, Box(at, nothing, rho), slots, work)
                _expanded(tape, series, slots, half, extra - 1, center, spread)
            run(tape, block, Box(at, half, rho), slots, work)
            _own(tape, series, slots, middle, radius)
            if extra > 0:
                _last_term(tape, series, slots, half, extra, spread)
                _intersect(middle, radius, center, spread)
            largest_forms(cover, middle, radius, found)
            for lane in range(min(LANES, m - start)):
                result[start + lane] = max(result[start + lane], found[lane])
    return result


@inner
def _load(block: Block, eta: Array, gram: Array, data: Array, start: int) -> None:
    """Rows from `start` on, with the last one repeated; L by Cholesky's method."""
    m, p = eta.shape
    for lane in range(LANES):
        row = min(start + lane, m - 1)
        for k in range(data.shape[0]):
            block.data[k, lane] = data[k, row]
        for i in range(p):
            block.eta[i, lane] = eta[row, i]
            for j in range(i + 1):
                rest = gram[row, i, j]
                for k in range(j):
                    rest -= block.factor[i, k, lane] * block.factor[j, k, lane]
                if i == j:
                    own = max(rest, 0.0) + _OWN * gram[row, i, i]
                    block.factor[i, i, lane] = math.sqrt(own) * _INFLATION
                else:
                    pivot = block.factor[j, j, lane]
                    block.factor[i, j, lane] = rest / pivot if pivot > 0.0 else 0.0


@inner
def _own(tape: Tape, series: Expansion, slots: Slots, middle: Array, radius: Array) -> None:
    """Coefficients of degree g over the box."""
    for k in range(series.first, series.last):
        for lane in range(LANES):
            middle[k - series.first, lane] = slots.middle[tape.root, k, lane]
            radius[k - series.first, lane] = slots.radius[tape.root, k, lane]


@inner
def _expanded(
    tape: Tape, series: Expansion, slots: Slots, half: Vector, upto: int, center: Array, spread: Array
) -> None:
    """Coefficients at the midpoint, and what terms of the expansion up to an order add to them."""
    _own(tape, series, slots, center, spread)
    for t in range(series.terms.shape[0]):
        if series.terms[t, 2] <= upto:
            _grow(tape, series, slots, half, t, spread)


@inner
def _last_term(tape: Tape, series: Expansion, slots: Slots, half: Vector, order: int, spread: Array) -> None:
    """Add the last term of the expansion, which holds over the whole box."""
    for t in range(series.terms.shape[0]):
        if series.terms[t, 2] == order:
            _grow(tape, series, slots, half, t, spread)


@inner
def _grow(tape: Tape, series: Expansion, slots: Slots, half: Vector, t: int, spread: Array) -> None:
    own, other = series.terms[t, 0], series.terms[t, 1]
    weight = series.weights[t] * _INFLATION
    for k in range(half.shape[0]):
        weight *= half[k] ** series.terms[t, 3 + k]
    for lane in range(LANES):
        size = abs(slots.middle[tape.root, other, lane]) + slots.radius[tape.root, other, lane]
        spread[own, lane] += weight * size


@inner
def _intersect(middle: Array, radius: Array, center: Array, spread: Array) -> None:
    """Replace enclosures by their intersection with others, number by number."""
    for k in range(middle.shape[0]):
        for lane in range(LANES):
            m, r, c, s = middle[k, lane], radius[k, lane], center[k, lane], spread[k, lane]
            if not s < math.inf:
                continue
            low, high = max(m - r, c - s), min(m + r, c + s)
            if not r < math.inf:
                low, high = c - s, c + s
            middle[k, lane] = 0.5 * (low + high)
            radius[k, lane] = 0.5 * abs(high - low) * _INFLATION + 4.0 * _EPS * (abs(low) + abs(high))
