"""Normal errors with a free scale: two linear predictors, eta for the location, zeta for the log scale.

    f(eta, zeta) = c zeta - (A / 2) (y - eta)^2 exp(-2 kappa zeta).

With sigma = exp(zeta) / k that is c = -1, kappa = 1 and A = k^2; precisions have kappa = -1/2; known
weights, and temperatures, are in A and c. kappa zeta is a linear predictor, too, so let kappa = 1, and

    s = sqrt(A) exp(-zeta),    r = (y - eta) s.

*Derivatives* along (a, b), a change of (eta, zeta), with c zeta gone:

    f''  = -(s^2 a^2 + 4 r s a b + 2 r^2 b^2),
    f''' = b (6 s^2 a^2 + 12 r s a b + 4 r^2 b^2).

With the signs of r, a and b dropped these are bounds, which grow with s and |r|. Both are largest in one
corner of the rectangle that |w| <= rho can reach,

    s = sqrt(A) exp(-zeta_0 + rho |v_zeta|),    r = (|y - eta_0| + rho |v_eta|) s.

*Along unit vectors.* Let t0 be the angle between v_eta and v_zeta, or pi less that if it is smaller. Then
|a| = |v_eta| cos t and |b| = |v_zeta| cos(t - t0), with t from 0 to t0: for any other t, neither is larger
than for some of these (t0 - x is as good as pi / 2 + x). With p = s |v_eta| and q = |r| |v_zeta| the bounds
are products of linear forms in cos t and cos(t - t0),

    f'':   (p cos t + l q cos(t - t0)), l = 2 +- sqrt(2),
    f''':  6 |v_zeta| cos(t - t0), and (p cos t + l q cos(t - t0)), l = 1 +- 1 / sqrt(3),

and each form is R cos(t - t_k), with t_k from 0 to t0. The logarithm of a product of n cosines has a second
derivative of -n or less: from any t, with slope g there, its maximum is at most g^2 / (2 n) higher.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pymc_austerity.bounds.enclosure import Matrix
from pymc_austerity.bounds.families.base import TOLERANCE, PairFamily
from pymc_austerity.target import Vector

_FAR, _NEAR = 1e8, 0.1
# Rounding of y - eta, relative to either.
_ROUNDING = 1e-12
# Values at which all rows are verified; locations near the data are added.
_LOCATIONS = np.array([-_FAR, -1e4, -1e2, -1.0, -1e-2, 0.0, 1e-2, 1.0, 1e2, 1e4, _FAR])
_SCALES = np.array([-10.0, -3.0, -0.5, 0.0, 0.5, 3.0, 10.0])
# The l of the two linear forms, for f'' and f'''.
_FORMS = {
    1: (2.0 - math.sqrt(2.0), 2.0 + math.sqrt(2.0)),
    2: (1.0 - 1.0 / math.sqrt(3.0), 1.0 + 1.0 / math.sqrt(3.0)),
}
_NEWTON_STEPS = 3


def identify(slopes: Callable[[Matrix], Matrix]) -> Matrix | None:
    """Which predictor is the location, A, y and kappa."""
    for location in (0, 1):
        order = [location, 1 - location]
        # The order is its own inverse.
        constants = _identified(lambda values, order=order: slopes(values[order])[order])  # type: ignore[misc]
        if constants is not None:
            return np.column_stack([np.full(len(constants), float(location)), constants])
    return None


def _identified(slopes: Callable[[Matrix], Matrix]) -> Matrix | None:
    """A, y and kappa if the first predictor is the location."""
    with np.errstate(all="ignore"):
        ends = slopes(_product(np.array([-_FAR, _FAR]), np.array([-_NEAR, 0.0, _NEAR])))[0]
        precision = (ends[:3] - ends[3:]) / (2.0 * _FAR)  # at three scales
        a, kappa = precision[1], np.log(precision[0] / precision[2]) / (4.0 * _NEAR)
        y = slopes(np.zeros((2, 1)))[0, 0] / a
        nothing = np.all(ends == 0.0, axis=0)  # a row of no weight
        constants = np.where(nothing, 0.0, np.stack([a, y, kappa]))
        if not (np.all(np.isfinite(constants)) and np.all(constants[0] >= 0.0)):
            return None
        near = np.quantile(constants[1], [0.0, 0.5, 1.0])
        values = _product(np.concatenate([_LOCATIONS, near]), _SCALES)
        return constants.T if _agree(values, slopes(values), *constants) else None


def _product(first: Vector, second: Vector) -> Matrix:
    return np.stack([np.repeat(first, len(second)), np.tile(second, len(first))])


def _agree(values: Matrix, slopes: Matrix, a: Vector, y: Vector, kappa: Vector) -> bool:
    """Are both slopes as they should be, up to the tolerance and the rounding of y - eta?"""
    eta, zeta = values[:, :, None]
    s2 = a * np.exp(-2.0 * kappa * zeta)
    rounding = _ROUNDING * (np.abs(y) + np.abs(eta))
    expected = s2 * (y - eta)
    in_location = np.abs(slopes[0] - expected) <= TOLERANCE * np.abs(expected) + s2 * rounding
    growing = kappa * expected * (y - eta)
    size = np.where(np.isfinite(growing), np.abs(growing), np.inf)
    least = size.argmin(axis=0), np.arange(len(y))
    c = slopes[1][least] - growing[least]
    allowed = TOLERANCE * (np.abs(c) + np.abs(growing)) + 2.0 * rounding * np.abs(kappa * expected)
    in_scale = np.abs(slopes[1] - c - growing) <= allowed
    return bool(np.all(in_location & in_scale | ~np.isfinite(growing)))


def norms(constants: Matrix, values: Matrix, v: Matrix, radius: float, order: int) -> Vector:
    """The largest |f''| or |f'''| along a unit vector, for |w| <= radius."""
    location, (a, y, kappa) = constants[:, 0].astype(np.int64), constants[:, 1:].T
    every = np.arange(len(v))
    eta, zeta = values[every, location], kappa * values[every, 1 - location]
    v_eta, v_zeta = v[every, location], kappa[:, None] * v[every, 1 - location]
    length, length_zeta = np.linalg.norm(v_eta, axis=1), np.linalg.norm(v_zeta, axis=1)
    with np.errstate(all="ignore"):
        cosine = np.abs((v_eta * v_zeta).sum(axis=1)) / (length * length_zeta)
        cosine = np.where(length * length_zeta > 0.0, np.minimum(cosine, 1.0), 0.0)
        reach, reach_zeta = (np.where(x > 0.0, x * radius, 0.0) for x in (length, length_zeta))
        s = np.sqrt(a) * np.exp(-zeta + reach_zeta)
        r = (np.abs(y - eta) + reach + _ROUNDING * (np.abs(y) + np.abs(eta))) * s
        size = largest_form(s * length, r * length_zeta, cosine, order)
        if order == 2:
            size = np.where(length_zeta > 0.0, 6.0 * length_zeta * size, 0.0)
    # Of the power s^2 r, whose factors are known up to the tolerance.
    return np.where(np.isnan(size), np.inf, size) * (1.0 + 4.0 * TOLERANCE)


def largest_form(p: Vector, q: Vector, cosine: Vector, order: int) -> Vector:
    """An upper bound, to seven digits, of the products of cosines above, without the factor 6 |v_zeta|."""
    unit = np.maximum(p, q)
    some = np.where(unit > 0.0, unit, 1.0)
    p, q = p / some, q / some
    angle, sine = np.arccos(cosine), np.sqrt((1.0 - cosine) * (1.0 + cosine))
    phases, value = [angle] if order == 2 else [], unit**2
    for form in _FORMS[order]:
        along, across = p + form * q * cosine, form * q * sine
        phases.append(np.arctan2(across, along))
        value = value * np.hypot(along, across)
    first, last = np.minimum.reduce(phases), np.maximum.reduce(phases)
    t = (first + last) / 2.0
    for _ in range(_NEWTON_STEPS):
        tangents = np.tan(t - phases)
        t = np.clip(t - tangents.sum(axis=0) / (1.0 + tangents**2).sum(axis=0), first, last)
    offsets = t - phases
    slope = np.tan(offsets).sum(axis=0)
    largest: Vector = value * np.cos(offsets).prod(axis=0) * np.exp(slope**2 / (2 * len(phases)))
    return largest


FAMILY = PairFamily("normal location and scale", identify, norms)
