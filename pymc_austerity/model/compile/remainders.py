"""Source code of the log ratios of Taylor remainders, row by row.

PyTensor's function of the same graph makes an array of every step, and takes numba a second or more to
compile. Where it is known how rows are read from the data, a loop over rows is written instead.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple, cast

from pytensor.graph.basic import Variable

from pymc_austerity.bounds.expressions.node import Expression, constant, node
from pymc_austerity.bounds.jets.source import Jet, Writer


class Read(NamedTuple):
    """A number of each row: that in a leaf (n,), or in a column of a leaf (n, k)."""

    leaf: Variable
    column: int | None = None


class Summand(NamedTuple):
    """A number a row, affine in the block."""

    # first, length: which coordinates of the block it has: neighbours; none if `length` is 0
    first: int
    length: int
    values: Variable | None  # A leaf (n, length) that multiplies them; by default ones
    lookup: Variable | None  # A leaf (n,) of integers: which one of them it is
    factors: tuple[Read | float, ...]  # Multiply all of it


class AffineRows(NamedTuple):
    """A predictor: the offset, and the sum over k of coefficient k times the sum of some summands."""

    offset: Expression
    terms: tuple[tuple[Expression, tuple[Summand, ...]], ...]


class RemainderSource(NamedTuple):
    """The remainders of a term: f(eta; data) without its Taylor polynomial in the predictors."""

    expression: Expression  # f
    data: Mapping[int, Read]  # The columns of data in f
    predictors: tuple[AffineRows, ...]
    numbers: Mapping[int, Read]  # The columns of data in the predictors
    center: Variable  # The leaf (D,) about which terms are expanded
    # Leaves (n,): derivatives of each row by its predictors at the center, then second ones by j <= k
    slopes: tuple[Variable, ...]


def log_ratios_source(
    terms: Sequence[tuple[int, RemainderSource]], n_dim: int, array: Callable[[Variable], str]
) -> str | None:
    """The function ``log_ratios(q_new, q, index, table)`` of a `Target`; None if it would be long.

    `terms` are the local terms, in their order, each after its number of rows; `n_dim` is the length D of the
    block. `array` gives the source of a leaf, made from `table`.
    """
    names: dict[Variable, str] = {}
    branches, first = [], 0
    for number, (size, source) in enumerate(terms):
        lines = _Row(source, names).lines()
        if lines is None:
            return None
        start = [
            f"{'elif' if number else 'if'} index[lane] < {first + size}:",
            f"    i = index[lane] - {first}",
        ]
        branches += [*start, *(f"    {line}" for line in lines)]
        first += size
    return "\n".join(
        [
            "def log_ratios(q_new, q, index, table):",
            *(f"    {name} = {array(leaf)}" for leaf, name in names.items()),
            "    result = np.empty(index.shape[0])",
            f"    center = {names[terms[0][1].center]}",
            f"    there, here = np.empty({n_dim}), np.empty({n_dim})",
            f"    for k in range({n_dim}):",
            "        there[k], here[k] = q_new[k] - center[k], q[k] - center[k]",
            "    for lane in range(index.shape[0]):",
            *(f"        {line}" for line in branches),
            "    return result",
        ]
    )


class _Row:
    """Writes the log ratio of one row of a term.

    For predictor j, c is its value at the center, and t and s are its changes from there to the new state
    and to the old one.
    """

    def __init__(self, source: RemainderSource, names: dict[Variable, str]) -> None:
        self._source, self._names, self._lines = source, names, list[str]()
        names.setdefault(source.center, f"a{len(names)}")

    def lines(self) -> list[str] | None:
        """All statements; None if they would be many."""
        source = self._source
        if not all(self._predictor(j, one) for j, one in enumerate(source.predictors)):
            return None
        writer = Writer(lambda j: Jet(f"c{j} + t{j}", {}, {}), lambda k: self._read(source.data[k]))
        moving = _moving_part(source.expression)
        there = writer.written(moving)
        writer.move(lambda j: Jet(f"c{j} + s{j}", {}, {}))
        here = writer.written(moving)
        if there is None or here is None:
            return None
        return [
            *self._lines,
            *writer.lines,
            f"result[lane] = {there.value} - {here.value} - ({self._polynomial()})",
        ]

    def _polynomial(self) -> str:
        p = len(self._source.predictors)
        slopes = [self._read(Read(leaf)) for leaf in self._source.slopes]
        terms = [f"{slopes[j]} * (t{j} - s{j})" for j in range(p)]
        for slope, (j, k) in zip(slopes[p:], combinations_with_replacement(range(p), 2), strict=False):
            if j == k:
                terms.append(f"0.5 * {slope} * (t{j} - s{j}) * (t{j} + s{j})")
            else:
                terms.append(f"{slope} * (t{j} * t{k} - s{j} * s{k})")
        return " + ".join(terms)

    def _predictor(self, j: int, predictor: AffineRows) -> bool:
        numbers = self._source.numbers
        writer = Writer(lambda k: Jet("", {}, {}), lambda k: self._read(numbers[k]), f"o{j}_")
        offset = writer.written(predictor.offset)
        coefficients = [writer.written(factor) for factor, _ in predictor.terms]
        if offset is None or None in coefficients:
            return False
        self._lines += [*writer.lines, f"c{j}, t{j}, s{j} = {offset.value}, 0.0, 0.0"]
        for coefficient, (_, summands) in zip(coefficients, predictor.terms, strict=True):
            for one in summands:
                self._summand(j, one, cast(Jet, coefficient).value)
        return True

    def _summand(self, j: int, one: Summand, coefficient: str) -> None:
        factors = [self._read(f) if isinstance(f, Read) else f"({f!r})" for f in one.factors]
        factor = " * ".join([coefficient, *factors])
        if not one.length:
            self._lines.append(f"c{j} += {factor}")
            return
        self._lines.append(f"f = {factor}")
        where, body = f"{one.first} + k", "f"
        if one.lookup is not None:
            self._lines += [
                f"k = {self._name(one.lookup)}[i]",
                f"k = k + {one.length} if k < 0 else k",
                f"if k < 0 or k >= {one.length}:",
                "    raise IndexError('a row looks up a coordinate that there is not')",
            ]
            indent = ""
        else:
            self._lines.append(f"for k in range({one.length}):")
            indent = "    "
            if one.values is not None:
                body = f"f * {self._name(one.values)}[i, k]"
        self._lines += [
            f"{indent}x, w = {body}, {where}",
            f"{indent}c{j} += x * center[w]",
            f"{indent}t{j} += x * there[w]",
            f"{indent}s{j} += x * here[w]",
        ]

    def _read(self, one: Read) -> str:
        place = "i" if one.column is None else f"i, {one.column}"
        # A product, for numba has no float() of a bool.
        return f"(1.0 * {self._name(one.leaf)}[{place}])"

    def _name(self, leaf: Variable) -> str:
        return self._names.setdefault(leaf, f"a{len(self._names)}")


def _moving_part(root: Expression) -> Expression:
    """An expression without summands that are the same at all states."""
    if root.op != "sum":
        return root
    _, factors = cast(tuple[float, tuple[float, ...]], root.value)
    kept = [(arg, c) for arg, c in zip(root.args, factors, strict=True) if arg.moves]
    if not kept:
        return constant(0.0)
    return node("sum", tuple(arg for arg, _ in kept), (0.0, tuple(c for _, c in kept)))
