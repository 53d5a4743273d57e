"""All partial derivatives of an expression at a point, divided by alpha!, in many digits."""

from collections.abc import Sequence

from mpmath import mpf

from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.jets.tape import multi_indices
from tests.bounds.expressions import OPERATIONS
from tests.bounds.jets.exact_functions import taylor, taylor_of_two

Index = tuple[int, ...]
Jet = dict[Index, mpf]

CONDITIONS = {"positive", "nonnegative", "zero", "not", "and", "or"}


class ExactJets:
    """Jets of an order in n variables z, of which predictors are affine functions.

    Parameters
    ----------
    predictors : sequence of (value, slopes)
        Of each predictor at the point.
    data : sequence of float
    order : int
    """

    def __init__(self, predictors: Sequence, data: Sequence[float], order: int) -> None:
        self._n = len(predictors[0][1])
        self._indices = multi_indices(self._n, order)
        self._order, self._zero = order, (0,) * self._n
        self._predictors, self._data = predictors, data
        self._found: dict[Expression, Jet] = {}

    def of(self, x: Expression) -> Jet:
        if x not in self._found:
            self._found[x] = self._jet(x)
        return self._found[x]

    def coefficients(self, x: Expression) -> list[mpf]:
        jet = self.of(x)
        return [jet.get(index, mpf(0)) for index in self._indices]

    def _jet(self, x: Expression) -> Jet:
        if x.op == "predictor":
            value, slopes = self._predictors[x.value]
            return {index: mpf(c) for index, c in zip(self._indices, (value, *slopes), strict=False)}
        if x.op in ("data", "constant"):
            return self._number(self._data[x.value] if x.op == "data" else x.value)
        if x.op == "select":
            return self.of(x.args[1 if self._value(x.args[0]) != 0 else 2])
        if x.op in CONDITIONS:
            return self._number(OPERATIONS[x.op](*map(self._value, x.args)))
        if x.op == "sum":
            added, coefficients = x.value
            terms = [self._scaled(c, self.of(arg)) for c, arg in zip(coefficients, x.args, strict=True)]
            return self._added(self._number(added), *terms)
        if x.op in ("product", "square"):
            return self._times(self.of(x.args[0]), self.of(x.args[-1]))
        return self._composed(x.op, *map(self.of, x.args))

    def _value(self, x: Expression) -> mpf:
        return self.of(x)[self._zero]

    def _number(self, c) -> Jet:
        return {self._zero: mpf(c)}

    def _scaled(self, c, a: Jet) -> Jet:
        return {index: c * x for index, x in a.items()}

    def _added(self, *jets: Jet) -> Jet:
        return {i: sum((jet[i] for jet in jets if i in jet), mpf(0)) for i in set().union(*jets)}

    def _times(self, a: Jet, b: Jet) -> Jet:
        out: Jet = {}
        for i, x in a.items():
            for j, y in b.items():
                if sum(i) + sum(j) <= self._order:
                    k = tuple(map(sum, zip(i, j, strict=True)))
                    out[k] = out.get(k, mpf(0)) + x * y
        return out

    def _composed(self, op: str, a: Jet, extra: Jet | None = None) -> Jet:
        if op == "log_ndtr_between":
            return self._composed_of_two(a, extra)
        y = extra[self._zero] if extra else mpf(0)
        series = taylor(op, a[self._zero], self._order, y)
        moving = self._moving(a)
        out = self._number(series[-1])
        for c in series[-2::-1]:  # Horner's method
            out = self._added(self._times(out, moving), self._number(c))
        return out

    def _moving(self, a: Jet) -> Jet:
        return {index: x for index, x in a.items() if index != self._zero}

    def _composed_of_two(self, a: Jet, b: Jet) -> Jet:
        powers = [[self._number(1)], [self._number(1)]]
        for own, jet in zip(powers, (a, b), strict=True):
            for _ in range(self._order):
                own.append(self._times(own[-1], self._moving(jet)))
        series = taylor_of_two(a[self._zero], b[self._zero], self._order)
        terms = (self._scaled(c, self._times(powers[0][i], powers[1][j])) for (i, j), c in series.items())
        return self._added(*terms)
