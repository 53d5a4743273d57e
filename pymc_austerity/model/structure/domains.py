"""Where the operations of a graph are defined, if their stable form is defined in more places.

exp(log(x)) is x, but not for negative x, where the density of the model is not a number. The domain of a
logarithm, root or power is kept as long as the nodes are there that have it. Where one of them has vanished,
the rows become minus infinity outside of the domain, as where a check of parameters fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import Elemwise

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import Expression, constant, ordered
from pymc_austerity.bounds.expressions.trees import over_cases, paths


def _is_whole(exponent: Expression) -> bool:
    return exponent.op == "constant" and float(exponent.value).is_integer()  # type: ignore[arg-type]


_ZERO, _ONE, _NEVER = constant(0.0), constant(1.0), constant(-np.inf)
# What has to be positive, from the arguments of an operation; None for nothing.
_POSITIVE: dict[type, Callable[..., Expression | None]] = {
    ps.Log: lambda x: x,
    ps.Log2: lambda x: x,
    ps.Log10: lambda x: x,
    ps.Sqrt: lambda x: x,
    ps.Log1p: lambda x: forms.add(_ONE, x),
    ps.Pow: lambda x, exponent: None if _is_whole(exponent) else x,
}
# Nodes that are defined for some arguments only.
_WITH_DOMAIN = ("log", "log1p", "log1mexp", "power", "gammaln", "digamma", "rising")


class Domain(NamedTuple):
    """Condition that an operation sets on its argument."""

    positive: Expression  # Has to be above zero
    kept_by: frozenset[Expression]  # Nodes that are not defined elsewhere


def domains_of(node: Apply, args: Sequence[np.ndarray], results: np.ndarray) -> list[Domain]:
    """Conditions that a node sets on its first argument, for all elements that move and may be negative."""
    if not isinstance(node.op, Elemwise) or type(node.op.scalar_op) not in _POSITIVE:
        return []
    inside, found = _POSITIVE[type(node.op.scalar_op)], []
    for *own, result in zip(
        *(np.broadcast_to(one, results.shape).ravel() for one in (*args, results)), strict=True
    ):
        positive = inside(*own)
        if positive is not None and positive.moves and not positive.range.is_positive:
            found.append(Domain(positive, _with_domain(result)))
    return found


def within(root: Expression, domains: Iterable[Domain]) -> Expression:
    """The expression; minus infinity outside of the domains that it has lost."""
    nodes = [_with_domain(case) for _, case in paths(root)]
    for domain in dict.fromkeys(domains):
        if not domain.kept_by or not all(domain.kept_by <= own for own in nodes):
            root = forms.select(_is_inside(domain.positive), root, _NEVER)
    return root


@over_cases
def _is_inside(x: Expression) -> Expression:
    """Whether it is not negative. Cases in which it does not move are what they are."""
    return forms.greater_equal(x, _ZERO) if x.moves else _ONE


def _with_domain(expression: Expression) -> frozenset[Expression]:
    return frozenset(one for one in ordered(expression) if one.op in _WITH_DOMAIN and one.moves)
