"""A random walk on matrices with orthonormal columns."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.proposals.base import Block, BoundProposal, no_adaptation
from pymc_austerity.target import Matrix, Vector
from pymc_austerity.validation import require_real

# Share of the moves that change the sign of a determinant, where a matrix is square.
_REFLECTIONS = 0.1
# A rotation with larger steps turns W nearly around, and mixes worse.
_LARGEST = 2.0


@dataclass(frozen=True)
class StiefelWalk:
    """Random walk of a `UniformStiefel` variable: W' = C(S) W, with a random rotation C(S).

    Parameters
    ----------
    scale : float > 0, optional
        Standard deviation of the entries of S, in radians where it is small. Default: learnt while the chain
        tunes, and then frozen.

    Raises
    ------
    ValueError
        If `scale` is not positive.

    Notes
    -----
    S is skew, S' = -S, with entries from N(0, scale^2). C(S) = (I - S/2)^-1 (I + S/2) is its Cayley map, a
    rotation. C(-S) is the inverse of C(S), and S and -S are equally likely. So the walk is symmetric under
    the uniform distribution, for matrices of any number of columns: log_hastings = 0.

    A rotation never changes the sign of det W. For a square W one move in ten negates a random row instead.
    That share is fixed. A block of several matrices rotates all of them, and negates a row of one.

    One Newton-Schulz step, W (3 I - W'W) / 2, removes the rounding of each move.

    The scale follows the acceptance rate of rotations by Robbins-Monro steps. It is at most 2 / sqrt(n):
    larger steps turn W nearly around.

    *The paper, corrected*: Korattikara et al. (2014, section 6.2) take the random walk of Ouyang (2008), and
    do not say how it comes to the other determinant. A walk by rotations alone does not.

    *Guarantee*: symmetric; nothing is adapted after tuning.

    *When it fails*: it moves all columns alike, and learns no correlations. Modes that differ by an exchange
    of rows are visited only if the walk crosses what is between them.

    References
    ----------
    .. [1] Ouyang, Z. (2008). Bayesian Additive Regression Kernels. PhD thesis, Duke University.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import MetropolisHastings
    >>> from pymc_austerity.distributions import UniformStiefel
    >>> from pymc_austerity.proposals import StiefelWalk
    >>> X = np.random.default_rng(1).laplace(size=(2000, 2)) / np.sqrt(2)
    >>> with pm.Model() as model:
    ...     W = UniformStiefel("W", 2)
    ...     x = pm.Potential("x", pm.logp(pm.Logistic.dist(0, 1), X @ W.T).sum(1))
    ...     step = MetropolisHastings([W], proposal=StiefelWalk(scale=0.05))
    ...     point, (stats,) = step.step({"W": np.eye(2)})
    >>> bool(np.allclose(point["W"].T @ point["W"], np.eye(2)))
    True
    """

    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None:
            why = "Leave it out to have it learnt while tuning."
            require_real("scale of StiefelWalk", self.scale, "(0, inf)", why)

    def bind_to_block(self, block: Block, target_accept: float) -> BoundProposal:
        """Start from steps of moderate size, or from the one that was given."""
        if sum(n * k for n, k in block.matrices) != block.n_dim:
            raise UnsuitableError(
                "StiefelWalk moves UniformStiefel variables and no others. Give these a step of their own, "
                "AusterityMH([W], proposal=StiefelWalk()), and the others another one."
            )
        matrices = np.array(block.matrices, dtype=np.int64)
        largest = _LARGEST / math.sqrt(matrices[:, 0].max())
        state = StiefelState(
            scale=np.array([0.5 * largest if self.scale is None else float(self.scale)]),
            matrices=matrices,
            square=np.flatnonzero(matrices[:, 0] == matrices[:, 1]).astype(np.int64),
            largest=np.array([largest]),
            target_accept=np.array([target_accept]),
            counts=np.zeros(1, dtype=np.int64),
            accepted=np.zeros(1),
        )
        return BoundProposal(state, propose_rotation, adapt_scale if self.scale is None else no_adaptation)


class StiefelState(NamedTuple):
    """State of a `StiefelWalk`.

    `matrices` has the rows and columns of each matrix in q, `square` the numbers of those that are square.
    `accepted` notes whether the last move was a rotation, from which the scale is learnt.
    """

    scale: Vector
    matrices: npt.NDArray[np.int64]
    square: npt.NDArray[np.int64]
    largest: Vector
    target_accept: Vector
    counts: npt.NDArray[np.int64]
    accepted: Vector


@jitable
def propose_rotation(state: StiefelState, q: Vector, rng: np.random.Generator) -> tuple[Vector, float]:
    """Rotate all matrices, or negate a row of one."""
    q_new, n_square, start = q.copy(), state.square.shape[0], 0
    negates = n_square > 0 and rng.random() < _REFLECTIONS
    state.accepted[0] = 0.0 if negates else 1.0
    chosen = state.square[int(rng.random() * n_square)] if negates else -1
    for m in range(state.matrices.shape[0]):
        n, k = state.matrices[m, 0], state.matrices[m, 1]
        if m == chosen:
            row = start + int(rng.random() * n) * k
            q_new[row : row + k] = -q[row : row + k]
        elif not negates:
            matrix = q[start : start + n * k].copy().reshape((n, k))
            rotated = orthonormalised(cayley_times(random_skew(n, state.scale[0], rng), matrix))
            q_new[start : start + n * k] = rotated.ravel()
        start += n * k
    return q_new, 0.0


@jitable
def random_skew(n: int, scale: float, rng: np.random.Generator) -> Matrix:
    """A skew matrix with normal entries."""
    skew = np.zeros((n, n))
    for i in range(n):
        for j in range(i):
            skew[i, j] = scale * rng.standard_normal()
            skew[j, i] = -skew[i, j]
    return skew


@jitable
def cayley_times(skew: Matrix, matrix: Matrix) -> Matrix:
    """(I - S/2)^-1 (I + S/2) W, by Gaussian elimination.

    Every pivot is at least 1, because what is left of a matrix I - S/2 keeps a symmetric part of at least I.
    So rows need not be exchanged.
    """
    n, k = matrix.shape
    left, right = np.eye(n) - 0.5 * skew, matrix.copy()
    for i in range(n):
        for j in range(n):
            for c in range(k):
                right[i, c] += 0.5 * skew[i, j] * matrix[j, c]
    for p in range(n):
        for i in range(p + 1, n):
            factor = left[i, p] / left[p, p]
            for j in range(p + 1, n):
                left[i, j] -= factor * left[p, j]
            for c in range(k):
                right[i, c] -= factor * right[p, c]
    for p in range(n - 1, -1, -1):
        for c in range(k):
            for j in range(p + 1, n):
                right[p, c] -= left[p, j] * right[j, c]
            right[p, c] /= left[p, p]
    return right


@jitable
def orthonormalised(matrix: Matrix) -> Matrix:
    """W (3 I - W'W) / 2, which leaves the square of what W lacks of orthonormal columns."""
    n, k = matrix.shape
    gram = np.zeros((k, k))
    for a in range(k):
        for b in range(k):
            for i in range(n):
                gram[a, b] += matrix[i, a] * matrix[i, b]
    result = np.zeros((n, k))
    for i in range(n):
        for b in range(k):
            total = 1.5 * matrix[i, b]
            for a in range(k):
                total -= 0.5 * matrix[i, a] * gram[a, b]
            result[i, b] = total
    return result


@jitable
def adapt_scale(state: Any, q: Vector, accepted: bool) -> None:
    """Robbins-Monro steps towards the acceptance rate; the negation of a row says nothing of the scale."""
    if state.accepted[0] == 0.0:
        return
    state.counts[0] += 1
    gain = min(1.0, 10.0 / state.counts[0])
    outcome = 1.0 if accepted else 0.0
    scale = state.scale[0] * math.exp((outcome - state.target_accept[0]) * gain)
    state.scale[0] = min(scale, state.largest[0])
