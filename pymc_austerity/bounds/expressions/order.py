"""An order of expressions that does not depend on when they were made, so that equal sums are one object."""

from hashlib import blake2b
from weakref import WeakKeyDictionary

from pymc_austerity.bounds.expressions.node import Expression

type Key = tuple[int, int, str]

_FIRST = {"constant": 0, "predictor": 1, "data": 2}
_KEYS: WeakKeyDictionary[Expression, Key] = WeakKeyDictionary()


def order_key(expression: Expression) -> Key:
    """Predictors come first, then data, then what is made of them, the smaller first."""
    found = _KEYS.get(expression)
    if found is None:
        keys = [order_key(arg) for arg in expression.args]
        size = 1 + sum(key[1] for key in keys)
        text = f"{expression.op} {expression.value!r} {[key[2] for key in keys]}"
        name = (
            blake2b(text.encode(), digest_size=12).hexdigest()
            if expression.args
            else f"{expression.value!r:>12}"
        )
        found = _KEYS[expression] = (_FIRST.get(expression.op, 3), size, f"{expression.op} {name}")
    return found
