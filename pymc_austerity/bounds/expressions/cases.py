"""Cases that differ only in what is affine or does not move are merged: the last pass over an expression.

log p(y = 1) and log p(y = 2) of an ordered logistic model are the same function of other cutpoints. Such
cases become one expression, in which selects by data pick the affine parts.
"""

from collections import defaultdict
from collections.abc import Iterator

from pymc_austerity.bounds.expressions.alike import Alike, on_one_side, shape
from pymc_austerity.bounds.expressions.conditions import SIGNS
from pymc_austerity.bounds.expressions.linear import ONE, ZERO
from pymc_austerity.bounds.expressions.node import Expression, constant
from pymc_austerity.bounds.expressions.rebuild import rebuilt
from pymc_austerity.bounds.expressions.trees import Path, floats, known_on, paths, pruned, select_node, tested


def _in_case(x: Expression, path: Path) -> Expression:
    """A case with the conditions that are known in it decided."""

    def replaced(part: Expression) -> Expression | None:
        known = known_on(path, part) if part.op in SIGNS and not part.moves else None
        return None if known is None else (ONE if known else ZERO)

    return rebuilt(x, replaced)


def _at_known_data(x: Expression, path: Path) -> Expression:
    """A case that stands alone, with the numbers of the data that are the same in all its rows."""
    known = {}
    for atom, truth in path:
        core, scale, offset = tested(atom.args[0])
        if atom.op == "zero" and truth and core.op == "data":
            known[core] = constant(-offset / scale)
    return rebuilt(x, known.get) if known else x


def _with(values: Iterator[Expression | None], x: Expression, path: Path = ()) -> Expression | None:
    """The tree of cases with other values; None where no value is needed."""
    x = pruned(x, path)
    if not floats(x):
        return next(values)
    atom, a, b = x.args
    yes = _with(values, a, (*path, (atom, True)))
    no = _with(values, b, (*path, (atom, False)))
    if yes is None or no is None:
        return no if yes is None else yes
    return select_node(atom, yes, no)


def finished(root: Expression) -> Expression:
    """The expression with cases that are alike merged."""
    ways = list(paths(root))
    if len(ways) == 1:
        return ways[0][1]
    cases = on_one_side([_in_case(x, path) for path, x in ways])
    groups: dict[str, list[int]] = defaultdict(list)
    for number, case in enumerate(cases):
        groups[shape(case)].append(number)
    found: list[Expression | None] = [None] * len(cases)
    for members in groups.values():
        if len(members) == 1:
            (only,) = members
            found[only] = _at_known_data(cases[only], ways[only][0])
            continue

        def picked(values: list[Expression], members: list[int] = members) -> Expression:
            by_case: list[Expression | None] = [None] * len(cases)
            for number, value in zip(members, values, strict=True):
                by_case[number] = value
            tree = _with(iter(by_case), root)
            assert tree is not None
            return tree

        merged = Alike([cases[number] for number in members], picked).expression()
        for number in members:
            found[number] = merged
    tree = _with(iter(found), root)
    assert tree is not None
    return tree
