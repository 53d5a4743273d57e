"""Cases that the data decide, kept at the root of an expression.

op(select(c, a, b), d) becomes select(c, op(a, d), op(b, d)) where the condition c does not move. Conditions
are tested in one order on the way to each case, and those that an earlier one decides are not asked again.
"""

import math
from collections.abc import Callable, Iterator
from functools import wraps

from pymc_austerity.bounds.expressions.linear import linear
from pymc_austerity.bounds.expressions.node import EVERYWHERE, Expression, Range, node
from pymc_austerity.bounds.expressions.order import order_key
from pymc_austerity.bounds.expressions.ranges import union

# Beyond this number of cases a select stays where it is.
MOST_CASES = 64

type Path = tuple[tuple[Expression, bool], ...]


def is_cases(x: Expression) -> bool:
    """Whether an expression is a choice, by the data, between two expressions that move."""
    return x.op == "select" and not x.args[0].moves


def floats(x: Expression) -> bool:
    """Whether operations on an expression are applied in its branches: cases that move, and guards."""
    return is_cases(x) and (x.moves or any(_is_guard(branch) for branch in x.args[1:]))


def _is_guard(x: Expression) -> bool:
    return (x.op == "constant" and math.isinf(x.range.low)) or floats(x)


def select_node(condition: Expression, a: Expression, b: Expression) -> Expression:
    """Node for a choice of one of two expressions, which is not simplified."""
    return a if a is b else node("select", (condition, a, b), range=union(a.range, b.range))


def tested(x: Expression) -> tuple[Expression, float, float]:
    """Core, scale and offset of the argument of a condition, which is offset + scale * core."""
    added, terms = linear(x)
    if len(terms) != 1:
        return x, 1.0, 0.0
    ((core, scale),) = terms.items()
    return core, scale, added


def _interval(atom: Expression, truth: bool, before: Range) -> Range:
    """The numbers that remain for the argument of a condition of which the truth is known."""
    low, high, nonzero = before
    if atom.op == "zero":
        low, high = (0.0, 0.0) if truth else (low, high)
        return Range(low, high, not truth)
    strict = (atom.op == "positive") == truth
    end = (5e-324 if truth else -5e-324) if strict else 0.0
    return Range(max(low, end), high, nonzero) if truth else Range(low, min(high, end), nonzero)


def decided_by_range(op: str, r: Range) -> bool | None:
    """Whether a condition holds for all numbers of a range, for none, or for some."""
    if op == "zero":
        return (
            True if r.low == r.high == 0.0 else (False if r.nonzero or r.low > 0.0 or r.high < 0.0 else None)
        )
    if r.is_positive or (op == "nonnegative" and r.low >= 0.0):
        return True
    return False if r.is_negative or (op == "positive" and r.high <= 0.0) else None


def implied(known: Expression, truth: bool, asked: Expression) -> bool | None:
    """Truth of a condition given that of another one; None if it does not follow."""
    if known is asked:
        return truth
    core, scale, offset = tested(known.args[0])
    other, times, added = tested(asked.args[0])
    if core is not other:
        return None
    if offset == added and scale == times:
        return decided_by_range(asked.op, _interval(known, truth, known.args[0].range))
    inside = _interval(known, truth, EVERYWHERE)
    ends = [times * (end - offset) / scale + added for end in (inside.low, inside.high)]
    low, high = min(ends), max(ends)
    # The ends themselves are left out if the condition was strict, but only zero can be left out of a range.
    strict = inside.low == 5e-324 or inside.high == -5e-324
    return decided_by_range(asked.op, Range(low, high, strict and 0.0 in (low, high)))


def known_on(path: Path, asked: Expression) -> bool | None:
    """Truth of a condition given those on the way to a case; None if it does not follow."""
    for atom, truth in path:
        answer = implied(atom, truth, asked)
        if answer is not None:
            return answer
    return None


def pruned(x: Expression, path: Path) -> Expression:
    """The case, or the cases, that are left on this way."""
    while is_cases(x):
        answer = known_on(path, x.args[0])
        if answer is None:
            return x
        x = x.args[1] if answer else x.args[2]
    return x


def _next(args: tuple[Expression, ...]) -> Expression | None:
    conditions = [arg.args[0] for arg in args if floats(arg)]
    return min(conditions, key=order_key) if conditions else None


def _count(args: tuple[Expression, ...], path: Path, most: int) -> int:
    args = tuple(pruned(arg, path) for arg in args)
    atom = _next(args)
    if atom is None or most <= 0:
        return 1
    yes = _count(args, (*path, (atom, True)), most)
    return yes + _count(args, (*path, (atom, False)), most - yes)


def _lifted(function: Callable[..., Expression], args: tuple[Expression, ...], path: Path) -> Expression:
    args = tuple(pruned(arg, path) for arg in args)
    atom = _next(args)
    if atom is None:
        return function(*args)
    yes = _lifted(function, args, (*path, (atom, True)))
    return select_node(atom, yes, _lifted(function, args, (*path, (atom, False))))


def over_cases(function: Callable[..., Expression]) -> Callable[..., Expression]:
    """A constructor that is applied in each case of its arguments."""

    @wraps(function)
    def constructor(*args: Expression) -> Expression:
        if _next(args) is None or _count(args, (), MOST_CASES) > MOST_CASES:
            return function(*args)
        return _lifted(function, args, ())

    return constructor


def paths(x: Expression, path: Path = ()) -> Iterator[tuple[Path, Expression]]:
    """The cases of an expression, each with the conditions on the way to it."""
    x = pruned(x, path)
    if not floats(x):
        yield path, x
        return
    yield from paths(x.args[1], (*path, (x.args[0], True)))
    yield from paths(x.args[2], (*path, (x.args[0], False)))


def _restricted(x: Expression, path: Path) -> Expression:
    return _lifted(lambda one: one, (x,), path)


def _chosen(condition: Expression, a: Expression, b: Expression, path: Path) -> Expression:
    known = known_on(path, condition)
    if known is not None:
        return _restricted(a if known else b, path)
    a, b = pruned(a, path), pruned(b, path)
    atom = min((condition, *(x.args[0] for x in (a, b) if floats(x))), key=order_key)
    if atom is condition:
        yes, no = ((*path, (atom, True)), (*path, (atom, False)))
        return select_node(atom, _restricted(a, yes), _restricted(b, no))
    yes_branch = _chosen(condition, a, b, (*path, (atom, True)))
    return select_node(atom, yes_branch, _chosen(condition, a, b, (*path, (atom, False))))


def chosen(condition: Expression, a: Expression, b: Expression) -> Expression:
    """A where a condition holds, else b; if the data decide, as one tree with its conditions in order."""
    as_it_stands = select_node(condition, a, b)
    if not floats(as_it_stands) or _count((a, b), (), MOST_CASES) > MOST_CASES:
        return as_it_stands
    return _chosen(condition, a, b, ())
