"""Values of scalar expressions, for all rows at once."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy import special

from pymc_austerity.bounds.expressions.node import Expression, ordered

Values = npt.NDArray[np.float64]
Leaves = Values | Sequence[Values] | Mapping[int, Values]


def evaluate(root: Expression, predictors: Leaves, data: Leaves) -> Values:
    """Value of an expression in each row.

    Parameters
    ----------
    root : Expression
    predictors, data : sequence or dict of ndarray (m,), or ndarray (k, m)
        Values of the leaves with these numbers. Those that do not occur are not looked up.

    Returns
    -------
    ndarray (m,), or a number if no leaf has rows
    """
    leaves = {"predictor": predictors, "data": data}
    found: dict[Expression, Any] = {}
    with np.errstate(all="ignore"):
        for one in _ordered(root):
            if one.op in leaves:
                found[one] = leaves[one.op][cast(int, one.value)]
            else:
                found[one] = _RULES[one.op](one.value, *(found[arg] for arg in one.args))
    return np.asarray(found[root], dtype=np.float64)


@lru_cache(maxsize=256)
def _ordered(root: Expression) -> tuple[Expression, ...]:
    """The nodes in their order, which passes over all rows ask for again and again."""
    return tuple(ordered(root))


def _sum(value: Any, *args: Values) -> Any:
    first, coefficients = value
    return first + sum(c * arg for c, arg in zip(coefficients, args, strict=True))


def _log1mexp(x: Values) -> Values:
    """log(1 - e^x), from the one of two forms that keeps its digits."""
    near = np.minimum(x, 0.0) > -np.log(2.0)
    return np.where(near, np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@np.errstate(all="ignore")
def log_of_share(s: Values | float, w: Values | float) -> Values:
    """log(Phi(s + w) - Phi(s)), in the lower tail; by an integral where s and s + w are near."""
    is_above = np.greater(s, np.multiply(-0.5, w))
    low, high = np.where(is_above, np.add(-s, -w), s), np.where(is_above, -s, np.add(s, w))
    bottom, top = special.log_ndtr(low), special.log_ndtr(high)
    inside: Values = np.zeros(np.shape(low))
    for node, weight in zip(0.5 + 0.5 * _NODES, 0.5 * _WEIGHTS, strict=True):
        inside = inside + weight * np.exp(-node * w * (low + 0.5 * node * w))
    near = np.log(w * inside) - 0.5 * low * low - 0.5 * np.log(2.0 * np.pi)
    found: Values = np.where(w * (w - low) < 1.0, near, top + _log1mexp(bottom - top))
    return found


def _select(condition: Any, a: Any, b: Any) -> Any:
    """`np.where`, but -0.0 is 0.0; sums of two numbers, of which one is zero, need no branches."""
    which = np.asarray(condition) != 0.0
    if np.ndim(a) == np.ndim(b) == 0 and np.isfinite(a) and np.isfinite(b):
        return np.multiply(which, float(a)) + np.multiply(~which, float(b))
    return np.where(which, a, b)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, *args: function(*args)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "product": np.multiply,
    "square": np.square,
    "power": np.power,
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "reciprocal": lambda x: 1.0 / np.asarray(x),
    "sigmoid": special.expit,
    "softplus": lambda x: np.logaddexp(0.0, x),
    "log1mexp": _log1mexp,
    "gammaln": special.gammaln,
    "digamma": special.digamma,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfcx": special.erfcx,
    "log_ndtr": special.log_ndtr,
    "log_ndtr_between": log_of_share,
    "sin": np.sin,
    "cos": np.cos,
    "arctan": np.arctan,
    "rising": lambda x, y: special.gammaln(x + y) - special.gammaln(x),
    "rising_exp": lambda x, y: special.gammaln(np.exp(x) + y) - special.gammaln(np.exp(x)),
    "select": _select,
    "positive": lambda x: np.asarray(x > 0.0, dtype=np.float64),
    "nonnegative": lambda x: np.asarray(x >= 0.0, dtype=np.float64),
    "zero": lambda x: np.asarray(x == 0.0, dtype=np.float64),
    "not": lambda x: 1.0 - x,
    "and": np.minimum,
    "or": np.maximum,
}
_RULES: dict[str, Callable[..., Any]] = {
    **{op: _plain(function) for op, function in _FUNCTIONS.items()},
    "constant": lambda value: value,
    "sum": _sum,
}
