"""What a transition kernel needs to know of a model: plain functions, and nothing of PyMC."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from pymc_austerity.compilation import jitable

# Arrays of floats in one dimension, in two, and in any number of them (which types do not tell apart).
Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Array = npt.NDArray[np.float64]
# Numbers of rows, coordinates or groups; and numbers of rows in half the memory, where a table has size N.
Index = npt.NDArray[np.int64]
RowNumbers = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
# Numbers of rows in single precision: bounds and lengths, rounded up.
Singles = npt.NDArray[np.float32]

# Terms evaluated at a time: memory stays small when a decision needs all of them.
CHUNK = 8192


@jitable
def chunk_from(start: int, n: int) -> Index:
    """The positions from `start` on, below n: `CHUNK` of them at most. (numba takes long over arange.)"""
    result = np.empty(min(CHUNK, n - start), np.int64)
    for k in range(result.shape[0]):
        result[k] = start + k
    return result


# Names of the parameters of each function of a `Target`; `args` is a tuple that is handed through unread.
TARGET_PARAMETERS = {
    "global_log_ratio": ("q_new", "q", "args"),
    "log_ratios": ("q_new", "q", "index", "args"),
    "log_terms": ("q", "index", "args"),
    "global_gradient": ("q", "args"),
    "features": ("q", "args"),
    "local_gradient": ("q", "index", "args"),
    "transitions": ("q", "index", "args"),
    "slab": ("q", "args"),
}
# Those that return a number; the others return a vector.
TARGET_NUMBERS = frozenset({"global_log_ratio"})


def missing(name: str) -> Callable[..., Any]:
    """Stub of a function of a `Target`."""
    message = f"This target has no {name}."

    def stub(*given: Any) -> Any:
        raise NotImplementedError(message)

    return jitable(stub)


@jitable
def state_itself(q: Vector, args: tuple[Any, ...]) -> Vector:
    """`Target.features` where bounds are stated in q: phi(q) = q."""
    return q


class Target(NamedTuple):
    """A log density that is global(q) + sum over i < N of l_i(q), as a kernel sees it.

    A kernel calls some of these functions. The others are stubs, which raise an error (`features` returns q).

    `args` is a tuple handed through unread: the values of variables outside the block, and data. States
    are float vectors of shape (D,). Tests write a `Target` by hand; `model.compile` makes one from a
    `Factorisation`. numba knows no defaults of a NamedTuple: compiled code names all eight functions.
    """

    # global(q_new) - global(q)
    global_log_ratio: Callable[[Vector, Vector, tuple[Any, ...]], float] = missing("global_log_ratio")
    # (m,): l_i(q_new) - l_i(q) for the m positions i in `index`, in any order
    log_ratios: Callable[[Vector, Vector, Index, tuple[Any, ...]], Vector] = missing("log_ratios")
    # (m,): l_i(q), for kernels that evaluate one state after the other; q may be a vector of integers
    log_terms: Callable[[npt.NDArray[Any], Index, tuple[Any, ...]], Vector] = missing("log_terms")
    # (D,): the gradient of global(q), for proposals that move along it
    global_gradient: Callable[[Vector, tuple[Any, ...]], Vector] = missing("global_gradient")
    # (p,): phi(q), the coordinates in which bounds on the terms are stated
    features: Callable[[Vector, tuple[Any, ...]], Vector] = state_itself
    # (D,): the gradient of the sum of l_i(q) over the positions in `index`
    local_gradient: Callable[[Vector, Index, tuple[Any, ...]], Vector] = missing("local_gradient")
    # Of chains of states: what says how the states q go on to the sites in `index` (`kernels.particle_gibbs`)
    transitions: Callable[[Vector, Index, tuple[Any, ...]], Vector] = missing("transitions")
    # (3 p,): of coefficients that come and go the location of the prior of each, then the scales, then the
    # degrees of freedom (`proposals.jumps`)
    slab: Callable[[Vector, tuple[Any, ...]], Vector] = missing("slab")


class Expansion(NamedTuple):
    """Second-order (or first-order) Taylor polynomial of the sum of all local terms, without its constant.

    It is one in the D coordinates of q, or in p features phi(q) of it where these enter the terms linearly.
    """

    order: int  # 1 or 2
    center: Vector  # (D,) or (p,)
    gradient: Vector  # The sum of the gradients of the l_i at the center
    hessian: Matrix  # The sum of their Hessians


class QuadraticProxy(NamedTuple):
    """A normal distribution that is close to the posterior of a block: N(mode, precision^-1)."""

    mode: Vector  # (D,)
    precision: Matrix  # (D, D): minus the Hessian of the log density at the mode

    def factors(self) -> tuple[Matrix, Matrix]:
        """Upper triangular L' and its inverse, with L L' the precision: w = L'(q - mode) is N(0, I)."""
        lower = np.linalg.cholesky(self.precision)
        inverse = solve_triangular(lower, np.eye(len(lower)), lower=True).T
        return np.ascontiguousarray(lower.T), np.ascontiguousarray(inverse)
