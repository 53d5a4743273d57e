"""Value, gradient and Hessian of a function, and graphs that compute them."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad, pushforward
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.utils import MethodNotDefined

from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.model.graph.rewrite import rebuild, stable
from pymc_austerity.target import Vector


class Derivatives(NamedTuple):
    """A function at a point."""

    value: float
    gradient: Vector  # (D,)
    hessian: np.ndarray  # (D, D)

    def plus(self, other: Derivatives, weight: float = 1.0) -> Derivatives:
        """The sum of two functions, the second with a weight."""
        return Derivatives(
            self.value + weight * other.value,
            self.gradient + weight * other.gradient,
            self.hessian + weight * other.hessian,
        )


def zero(n_dim: int) -> Derivatives:
    """The function that is zero everywhere."""
    return Derivatives(0.0, np.zeros(n_dim), np.zeros((n_dim, n_dim)))


def symmetric(value: np.ndarray, gradient: np.ndarray, hessian: np.ndarray) -> Derivatives:
    """Value, gradient and Hessian of a compiled function; rounding has left the Hessian symmetric."""
    return Derivatives(float(value), gradient, (hessian + hessian.T) / 2.0)


def with_derivatives(density: Variable, q: Variable) -> list[Variable]:
    """A scalar graph, its gradient, and its Hessian along all coordinates at once."""
    gradient = grad(density, q, disconnected_inputs="ignore")
    direction = q.type("direction")
    change = pushforward([gradient], [q], [direction], disconnected_outputs="ignore")[0]
    hessian = vectorised(change, direction, q.type.shape[0])
    if hessian.type.ndim == 1:  # a gradient that does not change: flat, or made of straight pieces
        hessian = pt.zeros_like(pt.constant(np.eye(q.type.shape[0])))
    return [density, gradient, hessian]


def vectorised(graph: Variable, direction: Variable, n_dim: int) -> Variable:
    """A graph for all unit vectors in place of `direction`, one below the other."""
    units = pt.constant(np.eye(n_dim))
    try:
        return vectorize_graph(graph, {direction: units})
    except NotImplementedError:  # an operation that knows no batches
        return pt.stack([rebuild([graph], {direction: row})[0] for row in units])


def slopes(rows: Variable, at: Variable, index: Variable) -> list[Variable]:
    """First and second derivative of each row by the one number on which it depends.

    Parameters
    ----------
    rows : TensorVariable
        Terms, of shape (m,), as a function of `at`.
    at : TensorVariable
        One number for each row, or one for all.
    index : TensorVariable
        Row numbers, for m.

    Returns
    -------
    list of TensorVariable
        f_i' and f_i'', of shape (m,) each.
    """
    result, last = [], stable(rows)
    for _ in range(2):
        last = pushforward([last], [at], [pt.ones_like(at)], disconnected_outputs="ignore")[0]
        result.append(last if last.type.ndim else pt.alloc(last, index.shape[0]))
    return result


# What operations of these names compute.
_FAMILIES = {"a Bessel function": r"[ijky](\d|v)e?", "a hypergeometric function": r".*2f1.*"}


def not_smooth(what: str, error: Exception) -> NoNormalApproximationError:
    """The error for a part of the model without a gradient or a Hessian."""
    why = str(error)
    if isinstance(error, MethodNotDefined):
        operation = str(error.args[-1])
        families = [name for name, form in _FAMILIES.items() if re.fullmatch(form, operation, re.IGNORECASE)]
        why = f"PyTensor has no second derivative of {', '.join([operation, *families])}"
    return NoNormalApproximationError(
        f"{what} cannot be differentiated twice, which a mode and a Taylor polynomial need: {why}. Use "
        "pm.NUTS, or a step without control_variate, and with a random walk."
    )
