"""Which selects are continuous: |x|, or a loss that is quadratic near zero and linear further out.

Of a continuous function with a derivative on either side of a kink, changes are bounded by the derivatives of
both sides. Whether the branches a and b agree where the argument u of the condition changes its sign is tried
at random columns of data, and at roots of u along random lines, for all that the data may decide. A
difference a - b of elementary functions that vanishes at all of these vanishes wherever u does, but with
probability zero.
"""

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import cast

import numpy as np

from pymc_austerity.bounds.expressions.affine import is_affine
from pymc_austerity.bounds.expressions.conditions import SIGNS
from pymc_austerity.bounds.expressions.evaluate import Values, evaluate
from pymc_austerity.bounds.expressions.linear import ONE, ZERO, linear
from pymc_austerity.bounds.expressions.node import Expression, constant, ordered
from pymc_austerity.bounds.expressions.rebuild import rebuilt
from pymc_austerity.bounds.expressions.trees import select_node
from pymc_austerity.target import Mask

_LINES, _FEWEST, _TOLERANCE, _SEED = 64, 8, 1e-7, 2061
# Where roots are looked for along a line, and how often the steps that contain one are halved.
_STEPS = np.sinh(np.linspace(-16.0, 16.0, 257))
_HALVINGS = 70
# Conditions on data within a select, at most: each is taken to hold, and not to hold.
_MOST_CONDITIONS = 5
# Share of rows on either side of a kink, at least, and bend beside it, at most, relative to that at it, of
# functions that are made of straight pieces.
_BOTH_SIDES, _BENT = 0.01, 1e-6
# Share of rows of which that holds, and widths of what is looked at, beside the spread of the rows: what is
# curved may be a narrow zone.
_NEARLY_ALL, _SCALES = 0.95, (1.0, 1e-2, 1e-4)

# Numbers of leaves, for each line.
_Leaves = dict[int, Values]


@lru_cache(maxsize=1024)
def is_continuous(select: Expression) -> bool:
    """Whether the branches of a select agree where the sign changes that its condition asks for."""
    condition = select.args[0]
    if condition.op not in ("positive", "nonnegative") or not condition.moves:
        return False
    if not _is_piecewise_affine(condition.args[0]):
        return False
    decided = [one for one in ordered(select) if one.op in SIGNS and not one.moves]
    if len(decided) > _MOST_CONDITIONS:
        return False
    return all(
        _agrees(condition.op, *_with(select, dict(zip(decided, truths, strict=True))))
        for truths in product((ZERO, ONE), repeat=len(decided))
    )


def _is_piecewise_affine(x: Expression) -> bool:
    """Whether an argument has few roots along a line: an affine form, or a continuous select of such."""
    if not x.moves or is_affine(x):
        return True
    if x.op == "select":
        return x.args[0].moves and is_continuous(x) and all(map(_is_piecewise_affine, x.args[1:]))
    if x.op == "product":
        return not x.args[0].moves and _is_piecewise_affine(x.args[1])
    return x.op == "sum" and all(map(_is_piecewise_affine, linear(x)[1]))


def _with(select: Expression, known: dict[Expression, Expression]) -> Iterator[Expression]:
    """Argument and branches of a select, with the conditions that the data decide known."""
    condition, *branches = select.args
    return (rebuilt(one, known.get) for one in (condition.args[0], *branches))


def _agrees(op: str, argument: Expression, yes: Expression, no: Expression) -> bool:
    """Whether two branches are the same at all roots of an argument that were found."""
    leaves = _random_leaves([argument, yes, no], np.random.default_rng(_SEED))
    if leaves is None:
        return False
    data, start, direction = leaves

    def at(root: Expression, t: Values) -> Values:
        there = {k: start[k] + t * direction[k] for k in start}
        return np.broadcast_to(evaluate(root, there, data), np.shape(t))

    def holds(t: Values) -> Mask:
        u = at(argument, t)
        return np.asarray(u > 0.0 if op == "positive" else u >= 0.0)

    truths = np.stack([holds(np.full(_LINES, t)) for t in _STEPS])
    step, line = np.nonzero(truths[1:] != truths[:-1])
    data, start, direction = ({k: x[line] for k, x in own.items()} for own in (data, start, direction))
    low, high, truth = _STEPS[step], _STEPS[step + 1], truths[step, line]
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        same = holds(middle) == truth
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    a, b = at(yes, low), at(no, low)
    known = np.isfinite(a) & np.isfinite(b)
    with np.errstate(invalid="ignore"):
        agree = np.abs(a - b) <= _TOLERANCE * (1.0 + np.abs(a) + np.abs(b))
    # Where both overflow nothing is known; where one is infinite, they differ.
    return bool(
        known.sum() >= _FEWEST and np.all(agree[known]) and not np.any(np.isfinite(a) ^ np.isfinite(b))
    )


def _random_leaves(
    roots: list[Expression], rng: np.random.Generator
) -> tuple[_Leaves, _Leaves, _Leaves] | None:
    """Columns of data within their ranges; predictors of their size or near zero, and directions of these.

    None if the range of a column is not known.
    """
    leaves = {one for root in roots for one in ordered(root) if one.op in ("data", "predictor")}
    columns = [one for one in leaves if one.op == "data"]
    size = max((abs(end) for one in columns for end in (one.range.low, one.range.high)), default=1.0)
    if not math.isfinite(size):
        return None
    scale = np.where(np.arange(_LINES) % 2, 1.0, max(size, 1.0))
    data, start, direction = {}, {}, {}
    for one in sorted(leaves, key=lambda one: (one.op, cast(int, one.value))):
        number = cast(int, one.value)
        if one.op == "data":
            data[number] = one.range.low + (one.range.high - one.range.low) * rng.random(_LINES)
        else:
            start[number], direction[number] = scale * rng.standard_normal((2, _LINES))
    return data, start, direction


def is_straight(root: Expression, predictors: Values, data: Mapping[int, Values]) -> bool:
    """Whether rows are made of straight pieces, as -|y - eta| is: no curvature says how a sum of them bends.

    Parameters
    ----------
    root : Expression
        The function of a row.
    predictors : ndarray (p, m)
        Predictors of some rows, about which they are looked at.
    data : dict of int to ndarray (m,)
        Columns of data of these rows.
    """
    arguments = {one.args[0] for one in ordered(root) if one.op in SIGNS and one.moves}
    with np.errstate(invalid="ignore"):
        return any(_bends_at_zeros(root, u, predictors, data) for u in arguments)


def _bends_at_zeros(root: Expression, u: Expression, predictors: Values, data: Mapping[int, Values]) -> bool:
    """Whether rows bend where u is zero, on a line across, and nowhere beside."""

    def at(one: Expression, eta: Values) -> Values:
        return np.broadcast_to(evaluate(one, eta, data), predictors.shape[1:])

    here = at(u, predictors)
    across = np.stack([at(u, predictors + unit[:, None]) - here for unit in np.eye(len(predictors))])
    square = np.sum(across**2, axis=0)
    if min(np.mean(here > 0.0), np.mean(here < 0.0)) < _BOTH_SIDES or not np.all(square > 0.0):
        return False
    zeros, width = predictors - here * across / square, np.std(here) * across / square

    def bend(t: float, scale: float) -> Values:
        """The second difference about a place of each line."""
        before, middle, after = (at(root, zeros + scale * (t + h) * width) for h in (-0.1, 0.0, 0.1))
        return np.asarray(np.abs(before - 2.0 * middle + after))

    return all(
        np.mean(np.maximum(bend(-0.5, s), bend(0.5, s)) < _BENT * bend(0.0, s)) > _NEARLY_ALL for s in _SCALES
    )


def with_kinks_outside(root: Expression) -> Expression:
    """The function with selects that are not continuous by themselves at its root, as |x| sign(x) has one."""
    selects = (one for one in ordered(root) if one.op == "select" and one.args[0].moves)
    jumps = (one.args[0] for one in selects if not is_continuous(one))
    condition = next(jumps, None)
    if condition is None or (root.op == "select" and root.args[0].moves):
        return root
    yes, no = (rebuilt(root, {condition: constant(truth)}.get) for truth in (1.0, 0.0))
    return select_node(condition, with_kinks_outside(yes), with_kinks_outside(no))
