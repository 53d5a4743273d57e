"""The log density of the uniform distribution on matrices with orthonormal columns: 0, or an error.

Off the manifold there is no density. A step that goes there, or asks for a gradient, does not suit the
variable. Minus infinity would be a chain that never moves, so both are errors that say which step does.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

# Largest entry of |W'W - I| that is rounding.
TOLERANCE = 1e-8


def off_by(matrices: np.ndarray) -> float:
    """Largest entry of |W'W - I|, for one matrix or several."""
    gram = np.swapaxes(matrices, -1, -2) @ matrices
    return float(np.max(np.abs(gram - np.eye(matrices.shape[-1])), initial=0.0))


def nearest_orthonormal(matrices: np.ndarray) -> np.ndarray:
    """The matrices with orthonormal columns that are nearest to some of full rank."""
    left, _, right = np.linalg.svd(matrices, full_matrices=False)
    return np.asarray(left @ right)


class OrthonormalDensity(Op):
    """0 for each matrix, and an error if one of them is not orthonormal.

    Parameters
    ----------
    label : str
        Name of the variable, for messages.
    """

    __props__ = ("label",)

    def __init__(self, label: str) -> None:
        self.label = label

    @property
    def advice(self) -> str:
        """Advice to the user about a value off the manifold."""
        return (
            "A start has to be orthonormal too. Of the steps, only those with proposal=StiefelWalk() stay "
            f"there: AusterityMH([{self.label}], proposal=StiefelWalk())."
        )

    def make_node(self, value: Any) -> Apply:
        value = pt.as_tensor(value)
        return Apply(self, [value], [pt.tensor(dtype="float64", shape=value.type.shape[:-2])])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        return [tuple(shapes[0][:-2])]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        (value,) = inputs
        away = off_by(value)
        if not away <= TOLERANCE:
            raise ValueError(
                f"{self.label} has to have orthonormal columns, but |W'W - I| is up to {away:.3g}. "
                f"{self.advice}"
            )
        output_storage[0][0] = np.zeros(value.shape[:-2])

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        # PyMC takes a NotImplementedError for "no gradient", and goes on with another step in silence.
        raise ValueError(
            f"{self.label} is a UniformStiefel variable, whose density has no gradient: NUTS and other steps "
            f"that need one leave the matrices with orthonormal columns. {self.advice}"
        )

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        return self.pullback(inputs, outputs, tangents)


def orthonormal_names(log_densities: Iterable[Variable]) -> set[str]:
    """Names of the variables whose columns have to be orthonormal for some log densities."""
    nodes = toposort(list(log_densities))
    return {str(node.inputs[0].name) for node in nodes if isinstance(node.op, OrthonormalDensity)}


@register_funcify_default_op_cache_key(OrthonormalDensity)
def _compiled_density(op: OrthonormalDensity, **kwargs: Any) -> Any:
    message = f"{op.label} has to have orthonormal columns, but W'W is not I. {op.advice}"

    @numba_njit
    def is_orthonormal(matrix):  # type: ignore[no-untyped-def]
        n, k = matrix.shape
        for a in range(k):
            for b in range(a + 1):
                total = -1.0 if a == b else 0.0
                for i in range(n):
                    total += matrix[i, a] * matrix[i, b]
                if not abs(total) <= TOLERANCE:
                    return False
        return True

    @numba_njit
    def density(value):  # type: ignore[no-untyped-def]
        matrices = np.ascontiguousarray(value).reshape((-1, value.shape[-2], value.shape[-1]))
        for matrix in matrices:
            if not is_orthonormal(matrix):
                raise ValueError(message)
        return np.zeros(value.shape[:-2])

    return density
