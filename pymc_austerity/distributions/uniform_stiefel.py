"""`UniformStiefel`: the uniform distribution on matrices with orthonormal columns.

Its log density is 0, or an error. Off the manifold there is no density. A step that goes there, or asks for a
gradient, does not suit the variable. Minus infinity would be a chain that never moves, so both are errors
that say which step does.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import Continuous
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import normalize_rng_param
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.linalg import qr
from pytensor.tensor.random.utils import normalize_size_param

from pymc_austerity.validation import is_whole

# Largest entry of |W'W - I| that is rounding.
TOLERANCE = 1e-8


def nearest_orthonormal(matrices: np.ndarray) -> np.ndarray:
    """The matrices with orthonormal columns that are nearest to some of full rank."""
    left, _, right = np.linalg.svd(matrices, full_matrices=False)
    return np.asarray(left @ right)


class OrthonormalDensity(Op):
    """0 for each matrix, and an error if one of them is not orthonormal; `label` names the variable."""

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
        gram = np.swapaxes(value, -1, -2) @ value
        away = np.max(np.abs(gram - np.eye(value.shape[-1])), initial=0.0)
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


class UniformStiefelRV(SymbolicRandomVariable):
    """Draws of the uniform distribution."""

    name = "uniform_stiefel"
    extended_signature = "[rng],[size],(),()->[rng],(n,k)"
    _print_name = ("UniformStiefel", "\\operatorname{UniformStiefel}")

    @classmethod
    def rv_op(cls, n: Any, k: Any, *, size: Any = None, rng: Any = None) -> Variable:
        """Graph of the draws."""
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        n, k = pt.as_tensor(n, ndim=0, dtype="int64"), pt.as_tensor(k, ndim=0, dtype="int64")
        # The numbers of rows and columns of a variable do not change: numbers make static shapes.
        rows, columns = (int(get_underlying_scalar_constant_value(number)) for number in (n, k))
        batch = () if rv_size_is_none(size) else tuple(size)
        next_rng, normal = pt.random.normal(size=(*batch, rows, columns), rng=rng, return_next_rng=True)
        # Q of a normal matrix is uniform if the diagonal of R is positive.
        q, r = qr(normal, mode="reduced")
        draws = q * pt.sign(pt.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
        return cls(inputs=[rng, size, n, k], outputs=[next_rng, draws])(rng, size, n, k)


class UniformStiefel(Continuous):
    r"""Uniform distribution on n x k matrices W with orthonormal columns, W'W = I.

    Parameters
    ----------
    name : str
        Of the variable.
    n : int >= 1
        Rows.
    k : int, optional
        Columns, at most n. Default: n, the orthogonal matrices of either determinant.
    **kwargs
        As of every PyMC distribution: `dims`, `initval`, `shape`.

    Raises
    ------
    ValueError
        If n or k is not a positive integer, k is larger than n, or `shape` or `dims` say something else.

    Notes
    -----
    The matrices form the Stiefel manifold. Its uniform distribution is the only one that stays as it is if W
    is multiplied by orthogonal matrices, from the left or from the right. Draws are the factor Q of a normal
    matrix. The variable is not transformed.

    The log density is 0, with respect to that distribution. Off the manifold, by more than 1e-8 in an entry
    of W'W, there is none: an error names the proposal that stays on it. So does the gradient.

    *Guarantee*: draws are exact.

    *When it fails*: only steps with ``proposal=StiefelWalk()`` move the variable. PyMC's own steps, other
    proposals and control variates are refused.

    Examples
    --------
    The unmixing matrix of an independent component analysis of white data:

    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import AusterityMH
    >>> from pymc_austerity.distributions import UniformStiefel
    >>> from pymc_austerity.proposals import StiefelWalk
    >>> X = np.random.default_rng(1).laplace(size=(2000, 2)) / np.sqrt(2)
    >>> with pm.Model() as model:
    ...     W = UniformStiefel("W", 2)
    ...     x = pm.Potential("x", pm.logp(pm.Logistic.dist(0, 1), X @ W.T).sum(1))
    ...     step = AusterityMH([W], epsilon=0.05, proposal=StiefelWalk())
    ...     idata = pm.sample(20, tune=20, chains=1, step=step, progressbar=False)
    >>> last = idata.posterior["W"].values[0, -1]
    >>> bool(np.allclose(last.T @ last, np.eye(2)))
    True
    """

    rv_type = UniformStiefelRV
    rv_op = UniformStiefelRV.rv_op

    def __new__(cls, name: str, n: int, k: int | None = None, **kwargs: Any) -> Variable:
        """Add the variable to the model of the context."""
        return super().__new__(cls, name, n, k, **kwargs)

    @classmethod
    def dist(cls, n: Any, k: Any = None, **kwargs: Any) -> Variable:
        """The distribution without a name, as for `pymc.draw`."""
        n, k = _checked_sizes(n, k)
        shape = kwargs.get("shape")
        if shape is not None:
            _require_shape(shape, n, k)
        return super().dist([n, k], **kwargs)

    @staticmethod
    def support_point(rv: Variable, *args: Any) -> Variable:
        """The first columns of the unit matrix."""
        return pt.broadcast_to(pt.eye(*rv.type.shape[-2:]), rv.shape)

    @staticmethod
    def logp(value: Variable, n: Variable, k: Variable) -> Variable:
        """0 on the manifold."""
        return OrthonormalDensity(value.name or "W")(value)


def is_uniform_stiefel(rv: Variable) -> bool:
    """Is this random variable a `UniformStiefel`?"""
    return rv.owner is not None and isinstance(rv.owner.op, UniformStiefelRV)


def _checked_sizes(n: Any, k: Any) -> tuple[int, int]:
    if not is_whole(n) or n < 1:
        raise ValueError(f"n of UniformStiefel must be a positive integer, the rows of W, got {n!r}.")
    if k is None:
        k = n
    if not is_whole(k) or not 1 <= k <= n:
        raise ValueError(
            f"k of UniformStiefel must be an integer from 1 to n = {n}, got {k!r}: there are no more than n "
            "orthonormal columns of n numbers. For orthonormal rows transpose W."
        )
    return int(n), int(k)


def _require_shape(shape: Any, n: int, k: int) -> None:
    """Raise `ValueError` if a shape that was given, or that of dims, is not that of n x k matrices."""
    lengths = list(shape) if isinstance(shape, list | tuple) else [shape]
    if None in lengths or Ellipsis in lengths:
        return
    known = tuple(int(length.eval() if isinstance(length, Variable) else length) for length in lengths)
    if known[-2:] != (n, k):
        raise ValueError(
            f"UniformStiefel({n}, {k}) has {n} x {k} matrices, but its shape or dims say {known}: leave them "
            "out, or let the last two be n and k."
        )
