"""Expressions that are quadratic in one predictor."""

from typing import cast

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.linear import ZERO
from pymc_austerity.bounds.expressions.node import Expression, constant, ordered
from pymc_austerity.model.structure.affine_expressions import leaves

# Coefficients of 1, t and t^2.
Quadratic = tuple[Expression, Expression, Expression]


def by_powers(root: Expression) -> Quadratic | None:
    """Coefficients of 1, t and t^2, t being predictor 0; None if that is not all there is."""
    found: dict[Expression, Quadratic | None] = {}
    for one in ordered(root):
        if 0 not in leaves(one, "predictor"):
            found[one] = (one, ZERO, ZERO)
        elif one.op == "predictor":
            found[one] = (ZERO, constant(1.0), ZERO)
        else:
            own = [found[arg] for arg in one.args]
            known = [each for each in own if each is not None]
            found[one] = _combined(one, known) if len(known) == len(own) else None
    return found[root]


def _combined(one: Expression, parts: list[Quadratic]) -> Quadratic | None:
    if one.op == "sum":
        first, factors = cast(tuple[float, tuple[float, ...]], one.value)
        scaled = [
            [forms.multiply(constant(factor), each) for each in part]
            for factor, part in zip(factors, parts, strict=True)
        ]
        a, b, c = (forms.add(*each) for each in zip(*scaled, strict=True))
        return forms.add(constant(first), a), b, c
    if one.op == "square":
        return _product(parts[0], parts[0])
    return _product(*parts) if one.op == "product" else None


def _product(a: Quadratic, b: Quadratic) -> Quadratic | None:
    degree = sum(max(k for k in range(3) if k == 0 or part[k] is not ZERO) for part in (a, b))
    if degree > 2:
        return None
    return (
        forms.multiply(a[0], b[0]),
        forms.add(forms.multiply(a[0], b[1]), forms.multiply(a[1], b[0])),
        forms.add(forms.multiply(a[0], b[2]), forms.multiply(a[1], b[1]), forms.multiply(a[2], b[0])),
    )
