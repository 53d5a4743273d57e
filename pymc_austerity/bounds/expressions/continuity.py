"""Which selects are continuous: |x|, or a loss that is quadratic near zero and linear further out.

Of a continuous function with a derivative on either side of a kink, changes are bounded by the derivatives of
both sides. Whether the branches a and b agree where the argument u of the condition changes its sign is tried
at random columns of data, and at roots of u along random lines. A difference a - b of elementary functions
that vanishes at all of these vanishes wherever u does, but with probability zero.
"""

from functools import lru_cache
from typing import cast

import numpy as np

from pymc_austerity.bounds.expressions.evaluate import Values, evaluate
from pymc_austerity.bounds.expressions.node import Expression, constant, ordered
from pymc_austerity.bounds.expressions.rebuild import rebuilt
from pymc_austerity.bounds.expressions.trees import select_node

_LINES, _FEWEST, _TOLERANCE, _SEED = 64, 8, 1e-7, 2061
# Where roots are looked for along a line, and how often the steps that contain one are halved.
_STEPS = np.sinh(np.linspace(-16.0, 16.0, 257))
_HALVINGS = 70
_FAR = 1e3


@lru_cache(maxsize=1024)
def is_continuous(select: Expression) -> bool:
    """Whether the branches of a select agree where the sign changes that its condition asks for."""
    condition, yes, no = select.args
    if condition.op not in ("positive", "nonnegative") or not condition.moves:
        return False
    argument = condition.args[0]
    rng = np.random.default_rng(_SEED)
    data, start, direction = _random_leaves(select, rng)

    def at(root: Expression, t: Values) -> Values:
        there = {k: start[k] + t * direction[k] for k in start}
        return np.broadcast_to(evaluate(root, there, data), np.shape(t))

    signs = np.stack([at(argument, np.full(_LINES, t)) > 0.0 for t in _STEPS])
    step, line = np.nonzero(signs[1:] != signs[:-1])
    data, start, direction = ({k: x[line] for k, x in own.items()} for own in (data, start, direction))
    low, high, sign = _STEPS[step], _STEPS[step + 1], signs[step, line]
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        same = (at(argument, middle) > 0.0) == sign
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    a, b = at(yes, low), at(no, low)
    known = np.isfinite(a) & np.isfinite(b)
    with np.errstate(invalid="ignore"):
        agree = np.abs(a - b) <= _TOLERANCE * (1.0 + np.abs(a) + np.abs(b))
    return bool(known.sum() >= _FEWEST and np.all(agree[known]))


def with_kinks_outside(root: Expression) -> Expression:
    """The function with selects that are not continuous by themselves at its root, as |x| sign(x) has one."""
    selects = (one for one in ordered(root) if one.op == "select" and one.args[0].moves)
    jumps = (one.args[0] for one in selects if not is_continuous(one))
    condition = next(jumps, None)
    if condition is None or (root.op == "select" and root.args[0].moves):
        return root
    yes, no = (rebuilt(root, {condition: constant(truth)}.get) for truth in (1.0, 0.0))
    return select_node(condition, with_kinks_outside(yes), with_kinks_outside(no))


def _random_leaves(
    root: Expression, rng: np.random.Generator
) -> tuple[dict[int, Values], dict[int, Values], dict[int, Values]]:
    """Columns of data within their ranges; predictors, and directions in which these move."""
    data, start, direction = {}, {}, {}
    for one in ordered(root):
        number = cast(int, one.value)
        if one.op == "data":
            low, high = np.clip([one.range.low, one.range.high], -_FAR, _FAR)
            data[number] = low + (high - low) * rng.random(_LINES)
        elif one.op == "predictor":
            start[number], direction[number] = rng.standard_normal((2, _LINES))
    return data, start, direction
