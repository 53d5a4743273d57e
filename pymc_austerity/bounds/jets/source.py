"""Source code of an expression: its value, and derivatives by the predictors, row by row.

The machine of `points` runs the programs of all expressions, and takes long to compile. Most expressions are
short. Their derivatives are written as a function here, which takes a fraction of a second.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

from pymc_austerity.bounds.expressions.node import Expression, ordered

# Statements of a function, at most: then the machine takes less.
_MOST_STATEMENTS = 250

# Statements that compute a function v of x, and of the data y, with room z and e; and those that compute its
# derivatives d and s. What leaves the domain is no number.
_FUNCTIONS = {
    "exp": (["{v} = math.exp({x})"], ["{d} = {v}", "{s} = {v}"]),
    "expm1": (["{v} = math.expm1({x})"], ["{d} = {v} + 1.0", "{s} = {d}"]),
    "log": (
        ["{z} = {x} if {x} > 0.0 else math.nan", "{v} = math.log({z})"],
        ["{d} = 1.0 / {z}", "{s} = -{d} * {d}"],
    ),
    "log1p": (
        ["{z} = {x} if {x} > -1.0 else math.nan", "{v} = math.log1p({z})"],
        ["{d} = 1.0 / (1.0 + {z})", "{s} = -{d} * {d}"],
    ),
    "reciprocal": (
        ["{z} = {x} if {x} != 0.0 else math.nan", "{v} = 1.0 / {z}"],
        ["{d} = -{v} * {v}", "{s} = -2.0 * {v} * {d}"],
    ),
    "sigmoid": (
        ["{e} = math.exp(-abs({x}))", "{z} = 1.0 / (1.0 + {e})", "{v} = {z} if {x} > 0.0 else {e} * {z}"],
        ["{d} = {e} * {z} * {z}", "{s} = {d} * (1.0 - {e}) * {z} * (-1.0 if {x} > 0.0 else 1.0)"],
    ),
    "softplus": (
        ["{e} = math.exp(-abs({x}))", "{v} = max({x}, 0.0) + math.log1p({e})"],
        ["{z} = 1.0 / (1.0 + {e})", "{d} = {z} if {x} > 0.0 else {e} * {z}", "{s} = {e} * {z} * {z}"],
    ),
    "log1mexp": (
        [
            "{z} = {x} if {x} < 0.0 else math.nan",
            "{v} = math.log(-math.expm1({z})) if {z} > -0.69 else math.log1p(-math.exp({z}))",
        ],
        ["{d} = -1.0 / math.expm1(-{z})", "{s} = {d} * (1.0 - {d})"],
    ),
    "sin": (["{v} = math.sin({x})"], ["{d} = math.cos({x})", "{s} = -{v}"]),
    "cos": (["{v} = math.cos({x})"], ["{d} = -math.sin({x})", "{s} = -{v}"]),
    "arctan": (["{v} = math.atan({x})"], ["{d} = 1.0 / (1.0 + {x} * {x})", "{s} = -2.0 * {x} * {d} * {d}"]),
    "power": (
        ["{z} = {x} if {x} > 0.0 else math.nan", "{v} = {z} ** {y}"],
        ["{d} = {y} * {z} ** ({y} - 1.0)", "{s} = {y} * ({y} - 1.0) * {z} ** ({y} - 2.0)"],
    ),
    # Of data alone: their derivatives are long.
    "gammaln": (["{z} = {x} if {x} > 0.0 else math.nan", "{v} = math.lgamma({z})"], []),
    "erf": (["{v} = math.erf({x})"], []),
    "erfc": (["{v} = math.erfc({x})"], []),
}
_CONDITIONS = {
    "positive": "{} > 0.0",
    "nonnegative": "{} >= 0.0",
    "zero": "{} == 0.0",
    "not": "{} == 0.0",
    "and": "{} != 0.0 and {} != 0.0",
    "or": "{} != 0.0 or {} != 0.0",
}


class Jet(NamedTuple):
    """Names of a value, and of derivatives by the predictors that are not zero."""

    value: str
    first: dict[int, str]
    second: dict[tuple[int, int], str]


def source_of(root: Expression, n_predictors: int) -> str | None:
    """The function ``program(eta, data, result)``, or None if it would be long.

    `eta` has the shape (p, m), and `data` (n_data, m). `result`, of shape (1 + p + p (p + 1) / 2, m), gets
    values, first derivatives, and second ones by predictors j <= k in the order of the rows of a matrix.
    """
    writer = Writer(lambda k: Jet(f"eta[{k}, i]", {k: "1.0"}, {}), lambda k: f"data[{k}, i]")
    jet = writer.written(root)
    if jet is None:
        return None
    pairs = [(j, k) for j in range(n_predictors) for k in range(j, n_predictors)]
    first = [jet.first.get(k, "0.0") for k in range(n_predictors)]
    results = [jet.value, *first, *(jet.second.get(pair, "0.0") for pair in pairs)]
    lines = [*writer.lines, *(f"result[{k}, i] = {name}" for k, name in enumerate(results))]
    body = "\n".join(f"        {line}" for line in lines)
    return f"def program(eta, data, result):\n    for i in range(eta.shape[1]):\n{body}\n"


class Writer:
    """Writes statements that compute expressions of one row; each has names of its own.

    Parameters
    ----------
    predictor : callable
        ``(number) -> Jet``: source of a predictor. Without derivatives, none are written of what is made of
        it.
    data : callable
        ``(column) -> str``: source of a number of the row.
    prefix : str
        Of all names.

    Attributes
    ----------
    lines : list of str
        Statements so far.
    """

    def __init__(
        self, predictor: Callable[[int], Jet], data: Callable[[int], str], prefix: str = "v"
    ) -> None:
        self.lines: list[str] = []
        self._predictor, self._data, self._prefix = predictor, data, prefix
        self._found: dict[Expression, Jet] = {}

    def written(self, root: Expression) -> Jet | None:
        """Names of an expression, which is written now; None if that is not possible, or long."""
        return self._found[root] if all(self._add(one) for one in ordered(root)) else None

    def move(self, predictor: Callable[[int], Jet]) -> None:
        """Predictors are others from here on. What does not depend on them is not written again."""
        self._predictor = predictor
        self._found = {one: jet for one, jet in self._found.items() if not one.moves}

    def _add(self, one: Expression) -> bool:
        """Write an expression, after its arguments; False if that is not possible, or long."""
        if one in self._found:
            return True
        args = [self._found[arg] for arg in one.args]
        if one.op in ("constant", "predictor", "data"):
            self._found[one] = self._leaf(one)
        elif one.op in _CONDITIONS:
            holds = _CONDITIONS[one.op].format(*(arg.value for arg in args))
            self._found[one] = Jet(self._named(f"1.0 if {holds} else 0.0"), {}, {})
        elif one.op == "sum":
            self._found[one] = self._sum(one, args)
        elif one.op in ("product", "square"):
            self._found[one] = self._times(args[0], args[-1])
        elif one.op == "select":
            self._found[one] = self._select(args)
        else:
            value, derivatives = _FUNCTIONS.get(one.op, ([], []))
            wanted = bool(args and args[0].first)
            if not value or (wanted and not derivatives) or any(arg.moves for arg in one.args[1:]):
                return False
            self._found[one] = self._function([*value, *derivatives] if wanted else value, args)
        return len(self.lines) <= _MOST_STATEMENTS

    def _named(self, text: str) -> str:
        name = f"{self._prefix}{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def _leaf(self, one: Expression) -> Jet:
        if one.op == "constant":
            return Jet(_number(cast(float, one.value)), {}, {})
        number = cast(int, one.value)
        jet = Jet(self._data(number), {}, {}) if one.op == "data" else self._predictor(number)
        return jet._replace(value=self._named(jet.value))

    def _sum(self, one: Expression, args: Sequence[Jet]) -> Jet:
        offset, factors = cast(tuple[float, tuple[float, ...]], one.value)

        def of(names: Sequence[str | None]) -> str:
            return " + ".join(_product(_number(c), x) for c, x in zip(factors, names, strict=True) if x)

        start = f"{_number(offset)} + " if offset else ""
        value = self._named(start + of([arg.value for arg in args]))
        first = {k: self._named(of([a.first.get(k) for a in args])) for k in _keys(a.first for a in args)}
        second = {k: self._named(of([a.second.get(k) for a in args])) for k in _keys(a.second for a in args)}
        return Jet(value, first, second)

    def _times(self, a: Jet, b: Jet) -> Jet:
        value = self._named(f"{a.value} * {b.value}")
        first = {}
        for k in _keys((a.first, b.first)):
            terms = [_product(a.value, b.first.get(k)), _product(b.value, a.first.get(k))]
            first[k] = self._named(" + ".join(filter(None, terms)))
        second = {}
        for j, k in _pairs(first):
            terms = [
                _product(a.value, b.second.get((j, k))),
                _product(b.value, a.second.get((j, k))),
                _product(a.first.get(j), b.first.get(k)),
                _product(a.first.get(k), b.first.get(j)),
            ]
            if any(terms):
                second[j, k] = self._named(" + ".join(filter(None, terms)))
        return Jet(value, first, second)

    def _function(self, statements: Sequence[str], args: Sequence[Jet]) -> Jet:
        """phi(u), whose second derivatives are phi'(u) u_jk + phi''(u) u_j u_k."""
        u, prefix = args[0], f"{self._prefix}{len(self.lines)}"
        names = {name: prefix + name for name in "vdsze"}
        names |= dict(zip("xy", (arg.value for arg in args), strict=False))
        self.lines += [one.format(**names) for one in statements]
        d, s = names["d"], names["s"]
        first = {k: self._named(_product(d, own)) for k, own in u.first.items()}
        second = {}
        for j, k in _pairs(first):
            terms = [_product(s, u.first[j], u.first[k]), _product(d, u.second.get((j, k)))]
            second[j, k] = self._named(" + ".join(filter(None, terms)))
        return Jet(names["v"], first, second)

    def _select(self, args: Sequence[Jet]) -> Jet:
        condition, a, b = args

        def of(one: str | None, other: str | None) -> str:
            return self._named(f"{one or '0.0'} if {condition.value} != 0.0 else {other or '0.0'}")

        first = {k: of(a.first.get(k), b.first.get(k)) for k in _keys((a.first, b.first))}
        second = {k: of(a.second.get(k), b.second.get(k)) for k in _keys((a.second, b.second))}
        return Jet(of(a.value, b.value), first, second)


def _product(*factors: str | None) -> str:
    """A product of names; empty if one of them is none, and so zero."""
    return "" if None in factors else " * ".join(one for one in factors if one not in (None, "1.0")) or "1.0"


def _number(value: float) -> str:
    """A number as source; in parentheses if it is negative."""
    text = repr(value) if math.isfinite(value) else f"{'-' if value < 0.0 else ''}math.{abs(value)}"
    return f"({text})" if text.startswith("-") else text


def _keys[K](jets: Iterable[dict[K, str]]) -> list[K]:
    return list(dict.fromkeys(key for one in jets for key in one))


def _pairs(first: Iterable[int]) -> list[tuple[int, int]]:
    own = sorted(first)
    return [(j, k) for j in own for k in own if j <= k]
