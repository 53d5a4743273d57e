"""The machine that runs the program of an expression on a block of rows: interval jets in z.

Predictors are eta_0 + L z; boxes of z have a midpoint and a half width, and all that is certified is for
|z| <= rho. Each coefficient is a midpoint and a radius. Behind the coefficients of what is affine in z there
is one more, the value at z = 0. A result adds 2^-52 of its size to its radius for
rounding, and inflates it by a few units in the last place.

One compiled function serves all models: the program is data.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.jets import codes
from pymc_austerity.bounds.jets import tape as steps
from pymc_austerity.bounds.jets.compiled import entry, inner
from pymc_austerity.bounds.jets.functions import special_derivatives
from pymc_austerity.bounds.jets.ranges import ranges_of
from pymc_austerity.bounds.jets.tape import Tape, address_for, n_taylor
from pymc_austerity.target import Array, Vector

# Rows that are computed together.
LANES = 16

_EPS = 2.0**-52
_TINY = 1e-300
_INFLATION = 1.0 + 8.0 * _EPS
# An allowance for the rounding of predictors and of affine forms, relative to their size.
_AFFINE = 1e-13
# What a condition is on a box.
_FALSE, _TRUE, _OPEN = 0, 1, 2


class Block(NamedTuple):
    """Some rows: `LANES` of them."""

    eta: Array  # (p, LANES): predictors at the center
    factor: Array  # (p, p, LANES): L, lower triangular
    data: Array  # (n_data, LANES)


class Box(NamedTuple):
    """A box of z, of which the part with |z| <= rho matters."""

    at: Vector  # (p,)
    # (p,): half of its width along each coordinate. Zero for the midpoint alone; may be infinite.
    half: Vector
    rho: float


class Slots(NamedTuple):
    """Jets, and conditions, of a program."""

    # middle, radius (n_slots, n_coefficients + 1, LANES)
    middle: Array
    radius: Array
    decided: npt.NDArray[np.int8]  # (n_slots, LANES)
    special: int  # Where the machine code of special functions is, if the program has any


def slots_for(tape: Tape) -> Slots:
    """Work space for the program of an expression."""
    shape = (tape.n_slots, max(tape.n_coefficients, n_taylor(tape)) + 1, LANES)
    decided = np.zeros((tape.n_slots, LANES), dtype=np.int8)
    return Slots(np.zeros(shape), np.zeros(shape), decided, address_for(tape))


@entry
def run(tape: Tape, block: Block, box: Box, slots: Slots, work: Array) -> None:
    """Run the program: the jet of the expression is in the slot `tape.root` then."""
    for number in range(tape.steps.shape[0]):
        step = tape.steps[number]
        code, out, a, b, third, last = step[0], step[1], step[2], step[3], step[4], step[5]
        c = tape.numbers[number]
        if code == steps.MULTIPLY:
            if c == 0.0:
                _clear(slots, out, tape.n_coefficients)
            _multiply(tape, slots, out, a, b, third, last)
        elif code == steps.ADD:
            _add(tape, slots, out, a, third, last, c)
        elif code == steps.TAYLOR:
            _taylor(slots, out, a, b, third, tape.order, work)
        elif code == steps.COMPOSE:
            _clear(slots, out, tape.n_coefficients)
            _copy_value(slots, out, 0, a)
            _copy_value(slots, out, tape.n_coefficients, a)
        elif code == steps.SQUARE:
            _range_of_square(slots, out, a)
        elif code == steps.CONSTANT:
            _clear(slots, out, tape.n_coefficients)
            _fill(slots.middle[out, 0], c)
            _fill(slots.middle[out, tape.n_coefficients], c)
        elif code == steps.DATA:
            _clear(slots, out, tape.n_coefficients)
            _load(slots.middle[out, 0], block.data[a])
            _load(slots.middle[out, tape.n_coefficients], block.data[a])
        elif code == steps.PREDICTOR:
            _clear(slots, out, tape.n_coefficients)
            _predictor(slots, out, a, block, box, tape)
        elif code == steps.TIGHTEN:
            if 0.0 < box.half.max() < math.inf:
                _tighten(slots, out, box, tape.n_coefficients)
        elif code in (steps.POSITIVE, steps.NONNEGATIVE, steps.ZERO):
            _compare(slots, out, a, code, c)
        elif code == steps.NOT:
            for lane in range(LANES):
                found = slots.decided[a, lane]
                slots.decided[out, lane] = _OPEN if found == _OPEN else 1 - found
        elif code in (steps.AND, steps.OR):
            _connect(slots, out, a, b, code)
        else:
            first = 1 + block.eta.shape[0] if c != 0.0 else 0
            _select(slots, out, third, a, b, first, tape.n_coefficients)


@inner
def _clear(slots: Slots, out: int, n: int) -> None:
    for k in range(n + 1):
        _fill(slots.middle[out, k], 0.0)
        _fill(slots.radius[out, k], 0.0)


@inner
def _fill(lanes: Vector, value: float) -> None:
    for lane in range(LANES):
        lanes[lane] = value


@inner
def _load(lanes: Vector, values: Vector) -> None:
    for lane in range(LANES):
        lanes[lane] = values[lane]


@inner
def _copy_value(slots: Slots, out: int, k: int, a: int) -> None:
    _load(slots.middle[out, k], slots.middle[a, 0])
    _load(slots.radius[out, k], slots.radius[a, 0])


@inner
def _predictor(slots: Slots, out: int, which: int, block: Block, box: Box, tape: Tape) -> None:
    """Eta + L (at + h), |h| <= half in every coordinate."""
    p = block.eta.shape[0]
    for lane in range(LANES):
        eta = block.eta[which, lane]
        middle, reach = eta, 0.0
        for k in range(p):
            coefficient = block.factor[which, k, lane]
            if tape.order > 0:
                slots.middle[out, 1 + k, lane] = coefficient
            if coefficient != 0.0:
                middle += coefficient * box.at[k]
                reach += abs(coefficient) * box.half[k]
        slots.middle[out, 0, lane] = middle
        slots.radius[out, 0, lane] = reach * (1.0 + 1e-12) + _AFFINE * (abs(middle) + abs(eta))
        slots.middle[out, tape.n_coefficients, lane] = eta
        slots.radius[out, tape.n_coefficients, lane] = _AFFINE * abs(eta)


@inner
def _tighten(slots: Slots, out: int, box: Box, n: int) -> None:
    """An affine form of z reaches rho |a| only, which is less than what it does in the box.

    The midpoint of the box stays inside, for the segments from there of the mean value form.
    """
    middle, radius = slots.middle[out], slots.radius[out]
    for lane in range(LANES):
        square, slack, move, size = 0.0, 0.0, 0.0, 0.0
        for k in range(box.at.shape[0]):
            a = middle[1 + k, lane]
            square += a * a
            slack += radius[1 + k, lane]
            move += a * box.at[k]
            size += abs(a * box.at[k])
        center, m, r = middle[n, lane], middle[0, lane], radius[0, lane]
        rounding = radius[n, lane] + _AFFINE * (abs(center) + size) + _TINY
        reach = box.rho * (math.sqrt(square) + slack) * (1.0 + 1e-12) + rounding
        low, high = max(m - r, center - reach), min(m + r, center + reach)
        if low <= high:  # else this part of the box is outside of the ball
            here, rounding = center + move, rounding + slack * box.rho
            low, high = min(low, here - rounding), max(high, here + rounding)
            middle[0, lane] = 0.5 * (low + high)
            radius[0, lane] = 0.5 * (high - low) * _INFLATION + 2.0 * _EPS * (abs(low) + abs(high)) + _TINY


@inner
def _add(tape: Tape, slots: Slots, out: int, a: int, first: int, last: int, c: float) -> None:
    """Add c times a jet."""
    size = abs(c)
    for q in range(first, last):
        k = tape.pairs[q, 2]
        m1, r1 = slots.middle[a, k], slots.radius[a, k]
        m, r = slots.middle[out, k], slots.radius[out, k]
        for lane in range(LANES):
            term = c * m1[lane]
            total = m[lane] + term
            m[lane] = total
            r[lane] = (r[lane] + size * r1[lane]) * _INFLATION + _EPS * (abs(total) + abs(term))


@inner
def _multiply(tape: Tape, slots: Slots, out: int, a: int, b: int, first: int, last: int) -> None:
    """Add products of coefficients."""
    for q in range(first, last):
        i, j, k = tape.pairs[q, 0], tape.pairs[q, 1], tape.pairs[q, 2]
        weight = tape.weights[q]
        m1, r1 = slots.middle[a, i], slots.radius[a, i]
        m2, r2 = slots.middle[b, j], slots.radius[b, j]
        m, r = slots.middle[out, k], slots.radius[out, k]
        for lane in range(LANES):
            term = weight * m1[lane] * m2[lane]
            total = m[lane] + term
            spread = abs(m1[lane]) * r2[lane] + r1[lane] * (abs(m2[lane]) + r2[lane])
            m[lane] = total
            r[lane] = (r[lane] + weight * spread) * _INFLATION + _EPS * (abs(total) + 2.0 * abs(term))


@inner
def _range_of_square(slots: Slots, out: int, a: int) -> None:
    """The value of a square is not negative, and is known exactly."""
    for lane in range(LANES):
        m, r = slots.middle[a, 0, lane], slots.radius[a, 0, lane]
        low, high = m - r, m + r
        top = max(abs(low), abs(high)) ** 2
        bottom = 0.0 if low <= 0.0 <= high else min(abs(low), abs(high)) ** 2
        if top < math.inf:
            slots.middle[out, 0, lane] = 0.5 * (bottom + top)
            slots.radius[out, 0, lane] = 0.5 * (top - bottom) + 8.0 * _EPS * top + _TINY


@inner
def _taylor(slots: Slots, out: int, a: int, code: int, extra: int, order: int, work: Array) -> None:
    """Ranges of phi^(k) / k! over that of the argument, or over those of both."""
    middle, radius, other = work[6], work[7], work[5]
    is_of_two = code == codes.LOG_NDTR_BETWEEN
    n = (order + 1) * (order + 2) // 2 if is_of_two else order + 1
    for lane in range(LANES):
        m, r = slots.middle[a, 0, lane], slots.radius[a, 0, lane]
        pad = 2.0 * _EPS * (abs(m) + r)
        y = slots.middle[extra, 0, lane] if extra >= 0 else 0.0
        if is_of_two:
            reach = slots.radius[extra, 0, lane]
            other[0], other[1] = r + pad, reach + 2.0 * _EPS * (abs(y) + reach)
            special_derivatives(slots.special, code, m, y, order, middle, radius, other)
        else:
            ranges_of(code, m - r - pad, m + r + pad, y, order, work, middle, radius, slots.special)
        for k in range(n):
            slots.middle[out, k, lane] = middle[k]
            slots.radius[out, k, lane] = radius[k]


@inner
def _compare(slots: Slots, out: int, a: int, code: int, moves: float) -> None:
    """Is a number above zero, at least zero, or zero, wherever the box allows it to be?"""
    for lane in range(LANES):
        m = slots.middle[a, 0, lane]
        r = slots.radius[a, 0, lane] if moves != 0.0 else 0.0
        low, high = m - r, m + r
        found = _OPEN
        if code == steps.POSITIVE:
            if low > 0.0:
                found = _TRUE
            elif high <= 0.0:
                found = _FALSE
        elif code == steps.NONNEGATIVE:
            if low >= 0.0:
                found = _TRUE
            elif high < 0.0:
                found = _FALSE
        elif low == 0.0 and high == 0.0:
            found = _TRUE
        elif low > 0.0 or high < 0.0:
            found = _FALSE
        slots.decided[out, lane] = found


@inner
def _connect(slots: Slots, out: int, a: int, b: int, code: int) -> None:
    """Conjunction of two conditions, or their disjunction, in each lane."""
    for lane in range(LANES):
        one, two = slots.decided[a, lane], slots.decided[b, lane]
        strong = _FALSE if code == steps.AND else _TRUE
        if one == strong or two == strong:
            slots.decided[out, lane] = strong
        elif one == _OPEN or two == _OPEN:
            slots.decided[out, lane] = _OPEN
        else:
            slots.decided[out, lane] = 1 - strong


@inner
def _select(slots: Slots, out: int, condition: int, a: int, b: int, first: int, n: int) -> None:
    """The branch that the condition tells.

    Where the box does not decide it, the first coefficients are those of either branch, which is enough to
    bound how a continuous function changes. Nothing is known of the others.
    """
    middle, radius = slots.middle, slots.radius
    for lane in range(LANES):
        found = slots.decided[condition, lane]
        for k in range(n + 1):
            if found != _OPEN:
                which = a if found == _TRUE else b
                middle[out, k, lane], radius[out, k, lane] = middle[which, k, lane], radius[which, k, lane]
                continue
            low, high = -math.inf, math.inf
            if k < first:
                low = min(middle[a, k, lane] - radius[a, k, lane], middle[b, k, lane] - radius[b, k, lane])
                high = max(middle[a, k, lane] + radius[a, k, lane], middle[b, k, lane] + radius[b, k, lane])
            if high - low < math.inf:
                middle[out, k, lane] = 0.5 * (low + high)
                radius[out, k, lane] = 0.5 * (high - low) * _INFLATION + _EPS * (abs(low) + abs(high)) + _TINY
            else:
                middle[out, k, lane], radius[out, k, lane] = 0.0, math.inf
