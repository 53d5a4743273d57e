"""Scalar operations of PyTensor as operations on expressions.

Truth values of PyTensor are conditions of expressions: 1.0, 0.0, or a comparison. Where numbers are asked
for they become 1.0 and 0.0, and where truth values are asked for a number becomes "is not zero".
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce

import pytensor.scalar as ps
import pytensor.scalar.math as pm
from pytensor.graph.op import Op

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import Expression, constant

# An operation on the expressions of one element, and on the dtypes of its inputs and of its result.
Scalar = Callable[[list[Expression], Sequence[str], str], Expression]

ZERO, ONE = constant(0.0), constant(1.0)
# Terms of a sum of probabilities of counts, at most.
_FEW_EVENTS = 4


class NoForm(Exception):  # noqa: N818 - it is caught, and becomes an obstacle
    """An operation that has no form as an expression, by its name."""


def number(x: Expression, dtype: str) -> Expression:
    """A truth value as 1.0 or 0.0; numbers as they are."""
    return forms.select(x, ONE, ZERO) if dtype == "bool" else x


def condition(x: Expression, dtype: str) -> Expression:
    """A number as the condition that it is not zero; truth values as they are."""
    return x if dtype == "bool" else forms.not_equal(x, ZERO)


def scalar_rule(op: Op, dtypes: Sequence[str], result: str) -> Callable[..., Expression]:
    """How to compute one element of an operation.

    Raises
    ------
    NoForm
    """
    for kind, rule in _RULES.items():
        if isinstance(op, kind):
            return lambda *args: rule(list(args), dtypes, result)
    raise NoForm(type(op).__name__)


def _numbers(function: Callable[..., Expression]) -> Scalar:
    """A function of numbers."""

    def rule(args: list[Expression], dtypes: Sequence[str], result: str) -> Expression:
        return function(*map(number, args, dtypes))

    return rule


def _folded(function: Callable[..., Expression], of_truths: Callable[..., Expression]) -> Scalar:
    """A function of any number of numbers; of truth values, another."""

    def rule(args: list[Expression], dtypes: Sequence[str], result: str) -> Expression:
        if result == "bool":
            return reduce(of_truths, map(condition, args, dtypes))
        return function(*map(number, args, dtypes))

    return rule


def _truths(name: str, function: Callable[..., Expression]) -> Scalar:
    """A function of truth values; of integers it would be one of their bits."""

    def rule(args: list[Expression], dtypes: Sequence[str], result: str) -> Expression:
        if result != "bool":
            raise NoForm(name)
        return reduce(function, map(condition, args, dtypes))

    return rule


def _switch(args: list[Expression], dtypes: Sequence[str], result: str) -> Expression:
    where, yes, no = args
    where = condition(where, dtypes[0])
    if result == "bool":
        return forms.either(forms.both(where, yes), forms.both(forms.negated(where), no))
    return forms.select(where, number(yes, dtypes[1]), number(no, dtypes[2]))


def _cast(args: list[Expression], dtypes: Sequence[str], result: str) -> Expression:
    (x,), (dtype,) = args, dtypes
    if result == "bool":
        return condition(x, dtype)
    if result != "float64" and dtype.startswith("float"):  # rounded
        raise NoForm("Cast")
    return number(x, dtype)


def _second(args: list[Expression], dtypes: Sequence[str], result: str) -> Expression:
    return condition(args[1], dtypes[1]) if result == "bool" else number(args[1], dtypes[1])


def _invert(args: list[Expression], dtypes: Sequence[str], result: str) -> Expression:
    if result != "bool":
        raise NoForm("Invert")
    return forms.negated(args[0])


def _gamma(x: Expression) -> Expression:
    if not x.range.is_positive:
        raise NoForm("Gamma")
    return forms.exp(forms.gammaln(x))


def _clip(x: Expression, low: Expression, high: Expression) -> Expression:
    return forms.minimum(forms.maximum(x, low), high)


def _upper_gamma(shape: Expression, x: Expression) -> Expression:
    """P(fewer than `shape` events of a Poisson variable with mean x), of few."""
    few = next((k for k in range(1, _FEW_EVENTS + 1) if shape is constant(k)), None)
    if few is None or not x.range.low >= 0.0:
        raise NoForm("GammaIncC")
    powers = [forms.multiply(*[ONE, *[x] * k], constant(1.0 / math.factorial(k))) for k in range(few)]
    return forms.multiply(forms.exp(forms.negative(x)), forms.add(*powers))


def _lower_gamma(shape: Expression, x: Expression) -> Expression:
    if shape is not ONE or not x.range.low >= 0.0:
        raise NoForm("GammaInc")
    return forms.negative(forms.expm1(forms.negative(x)))


def _incomplete_beta(a: Expression, b: Expression, x: Expression) -> Expression:
    if b is not ONE or not 0.0 <= x.range.low <= x.range.high <= 1.0:
        raise NoForm("BetaInc")
    return forms.power(x, a)


def _exp2(x: Expression) -> Expression:
    return forms.exp(forms.multiply(constant(math.log(2.0)), x))


def _xor(a: Expression, b: Expression) -> Expression:
    return forms.both(forms.either(a, b), forms.negated(forms.both(a, b)))


_OF_NUMBERS: dict[type, Callable[..., Expression]] = {
    ps.Sub: forms.subtract,
    ps.TrueDiv: forms.divide,
    ps.Neg: forms.negative,
    ps.Reciprocal: forms.reciprocal,
    ps.Exp: forms.exp,
    ps.Exp2: _exp2,
    ps.Expm1: forms.expm1,
    ps.Log: forms.log,
    ps.Log1p: forms.log1p,
    ps.Log2: forms.log2,
    ps.Log10: forms.log10,
    ps.Sqrt: forms.sqrt,
    ps.Sqr: forms.square,
    ps.Pow: forms.power,
    ps.Abs: forms.absolute,
    ps.Sign: forms.sign,
    ps.Maximum: forms.maximum,
    ps.Minimum: forms.minimum,
    ps.Clip: _clip,
    ps.Sin: forms.sin,
    ps.Cos: forms.cos,
    ps.Tanh: forms.tanh,
    ps.Sinh: forms.sinh,
    ps.Cosh: forms.cosh,
    ps.ArcTan: forms.arctan,
    pm.Sigmoid: forms.sigmoid,
    pm.Softplus: forms.softplus,
    pm.Log1mexp: forms.log1mexp,
    pm.GammaLn: forms.gammaln,
    pm.Gamma: _gamma,
    pm.Psi: forms.digamma,
    pm.GammaIncC: _upper_gamma,
    pm.GammaInc: _lower_gamma,
    pm.BetaInc: _incomplete_beta,
    pm.Erf: forms.erf,
    pm.Erfc: forms.erfc,
    pm.Erfcx: forms.erfcx,
    ps.LT: forms.less,
    ps.GT: forms.greater,
    ps.LE: forms.less_equal,
    ps.GE: forms.greater_equal,
    ps.EQ: forms.equal,
    ps.NEQ: forms.not_equal,
    ps.IsNan: forms.is_nan,
    ps.IsInf: forms.is_infinite,
}
_RULES: dict[type, Scalar] = {
    ps.Add: _folded(forms.add, forms.either),
    ps.Mul: _folded(forms.multiply, forms.both),
    ps.AND: _truths("AND", forms.both),
    ps.OR: _truths("OR", forms.either),
    ps.XOR: _truths("XOR", _xor),
    ps.Invert: _invert,
    ps.Switch: _switch,
    ps.Cast: _cast,
    ps.Second: _second,
    ps.Identity: lambda args, dtypes, result: args[0],
}


def register(kind: type, function: Callable[..., Expression]) -> None:
    """Give a scalar operation of PyTensor a form: a function of the expressions of its arguments."""
    _RULES[kind] = _numbers(function)


for _kind, _function in _OF_NUMBERS.items():
    register(_kind, _function)
