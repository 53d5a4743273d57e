"""Gaussian random walks, fixed or tuned while they run."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.proposals.base import BoundProposal, NoState, no_adaptation
from pymc_austerity.target import Vector
from pymc_austerity.validation import require_real

# Transitions before the covariance is estimated for the first time; each estimate takes half as many
# again as the one before, and forgets it.
_FIRST_WINDOW = 50
# Weight of the old steps in a new covariance, in observations for each dimension.
_PRIOR_WEIGHT = 3
# The optimal scale of a random walk on a Gaussian target is this over sqrt(D) (Roberts & Rosenthal 2001).
OPTIMAL_SCALE = 2.38
_MAX_DIMENSION = 1000


@dataclass(frozen=True, eq=False)
class RandomWalk:
    """Gaussian random walk of fixed size: q_new = q + N(0, scale^2 I) or q + N(0, cov).

    Parameters
    ----------
    scale : float > 0 or ndarray of shape (D,), optional
        Standard deviation of the steps, in the units of the value variables (the unconstrained scale).
    cov : ndarray of shape (D, D), optional
        Covariance of the steps. Give either `scale` or `cov`.

    Raises
    ------
    ValueError
        If both or neither are given, a scale is not positive, or `cov` is not positive definite.

    Notes
    -----
    *Guarantee*: symmetric, log_hastings = 0.

    *When it fails*: it mixes slowly if its size does not suit the posterior; see `AdaptiveRandomWalk`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import AusterityMH, RandomWalk
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> with model:
    ...     step = AusterityMH(proposal=RandomWalk(scale=[0.02, 0.02]))
    ...     point, (stats,) = step.step({"level": np.array(1.0), "slope": np.array(0.3)})
    >>> bool(abs(point["slope"] - 0.3) < 0.1)
    True
    """

    scale: float | npt.ArrayLike | None = None
    cov: npt.ArrayLike | None = None

    def __post_init__(self) -> None:
        if (self.scale is None) == (self.cov is None):
            raise ValueError("RandomWalk needs either scale or cov, and not both.")
        if self.scale is not None:
            scale = np.asarray(self.scale, dtype=np.float64)
            if scale.ndim > 1 or not np.all(np.isfinite(scale)) or not np.all(scale > 0):
                raise ValueError(f"scale must be a positive number or a vector of them, got {self.scale!r}.")
        else:
            _cholesky(np.asarray(self.cov, dtype=np.float64))

    def bind(self, n_dim: int, target_accept: float = 0.0) -> BoundProposal:
        """Fix the factor of the covariance. `target_accept` is not used."""
        if self.scale is not None:
            scale = np.asarray(self.scale, dtype=np.float64)
            if scale.ndim == 1 and scale.shape != (n_dim,):
                raise ValueError(f"scale must have length {n_dim}, got shape {scale.shape}.")
            fixed = NoState(np.broadcast_to(scale, (n_dim,)).copy())
            return BoundProposal(fixed, propose_scaled, no_adaptation)
        cov = np.asarray(self.cov, dtype=np.float64)
        if cov.shape != (n_dim, n_dim):
            raise ValueError(f"cov must have shape {(n_dim, n_dim)}, got {cov.shape}.")
        state = CorrelatedWalk(np.array([1.0]), _cholesky(cov))
        return BoundProposal(state, propose_correlated, no_adaptation)


def _cholesky(cov: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if cov.ndim != 2 or cov.shape[0] != cov.shape[1]:
        raise ValueError(f"cov must be a symmetric matrix, got shape {cov.shape}.")
    if not np.all(np.isfinite(cov)):
        raise ValueError(f"cov must be finite, got {cov}.")
    if np.abs(cov - cov.T).max() > 1e-8 * np.abs(cov).max():
        raise ValueError(f"cov must be a symmetric matrix, got {cov}.")
    try:
        return np.linalg.cholesky(cov)
    except np.linalg.LinAlgError:
        low = float(np.linalg.eigvalsh(cov).min())
        raise ValueError(f"cov must be positive definite; its smallest eigenvalue is {low:.3g}.") from None


@jitable
def propose_scaled(state: NoState, q: Vector, rng: np.random.Generator) -> tuple[Vector, float]:
    """Step to q + scale * z with z ~ N(0, I)."""
    return q + state.scale * rng.standard_normal(len(q)), 0.0


class CorrelatedWalk(NamedTuple):
    """State of a random walk with step scale * factor @ z."""

    scale: Vector
    factor: npt.NDArray[np.float64]


@jitable
def propose_correlated(state: Any, q: Vector, rng: np.random.Generator) -> tuple[Vector, float]:
    """Step to q + scale * factor @ z with z ~ N(0, I) and a lower triangular factor."""
    z = rng.standard_normal(len(q))
    q_new = q.copy()
    for i in range(q.shape[0]):
        step = 0.0
        for j in range(i + 1):
            step += state.factor[i, j] * z[j]
        q_new[i] += state.scale[0] * step
    return q_new, 0.0


@dataclass(frozen=True)
class AdaptiveRandomWalk:
    """Gaussian random walk whose covariance and scale are learnt while tuning, and then frozen.

    Parameters
    ----------
    target_accept : float in (0, 1), optional
        Acceptance rate to aim at. Default: that of the step's decision rule, for Metropolis's 0.44 for
        D <= 2, else 0.234; for Barker's 0.27, 0.23, 0.19 and 0.16 for D = 1, 2, 10 and above 20.

    Raises
    ------
    ValueError
        If `target_accept` is not between 0 and 1, or the block has more than 1000 dimensions.

    Notes
    -----
    The steps have covariance scale^2 S with S the empirical covariance of the chain (Haario, Saksman &
    Tamminen 2001), estimated over windows of 50, 75, 112, ... transitions, each forgetting the one
    before but for a prior that keeps narrow directions narrow. The scale follows the acceptance rate
    by Robbins-Monro steps, starting at 2.38 / sqrt(D) in every window. At transition t of a window and T
    of all their size is min(1, 10 / (t + T / 10)).

    *Guarantee*: symmetric, log_hastings = 0; nothing is adapted after tuning.

    *When it fails*: under a subsampled test it learns from a chain that is too wide, takes larger steps, and
    makes the test err more (posterior standard deviations of 1.6-1.9 instead of 1.4 times the exact ones on
    the doctor visits of the README at epsilon = 0.05): for coarse tests learn the steps from a short exact
    run, and give them as ``RandomWalk(cov=...)``. With too few tuning transitions for the dimension (some
    100 D); on posteriors whose shape changes from place to place; beyond some 50 dimensions a random walk is
    slow in any case.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import AusterityMH
    >>> from pymc_austerity.proposals import AdaptiveRandomWalk
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> with model:
    ...     step = AusterityMH(proposal=AdaptiveRandomWalk(target_accept=0.3))
    ...     point, (stats,) = step.step({"level": np.array(1.0), "slope": np.array(0.3)})
    >>> bool(stats["scale"] > 0)  # what it has learnt so far
    True
    """

    target_accept: float | None = None

    def __post_init__(self) -> None:
        if self.target_accept is not None:
            require_real("target_accept", self.target_accept, "(0, 1)", "The usual value is 0.234.")

    def bind(self, n_dim: int, target_accept: float) -> BoundProposal:
        """Start from the identity. A rate given by the user goes before that of the decision rule."""
        if n_dim > _MAX_DIMENSION:
            raise UnsuitableError(
                f"AdaptiveRandomWalk learns a {n_dim} x {n_dim} covariance, more than {_MAX_DIMENSION} "
                "dimensions: give long vectors to another step method, or use RandomWalk(scale)."
            )
        target = target_accept if self.target_accept is None else self.target_accept
        state = AdaptiveWalk(
            scale=np.array([OPTIMAL_SCALE / math.sqrt(n_dim)]),
            factor=np.eye(n_dim),
            mean=np.zeros(n_dim),
            scatter=np.zeros((n_dim, n_dim)),
            counts=np.array([0, _FIRST_WINDOW, 0], dtype=np.int64),
            target_accept=np.array([target]),
        )
        return BoundProposal(state, propose_correlated, adapt)


class AdaptiveWalk(NamedTuple):
    """State of `AdaptiveRandomWalk`.

    `counts` holds the transitions seen in the present window, its length, and all transitions; `mean`
    and `scatter` are Welford's running mean and sum of outer products over the window.
    """

    scale: Vector
    factor: npt.NDArray[np.float64]
    mean: Vector
    scatter: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]
    target_accept: Vector


@jitable
def adapt(state: AdaptiveWalk, q: Vector, accepted: bool) -> None:
    """Learn from the state `q` that a transition arrived at."""
    n_dim = q.shape[0]
    state.counts[0] += 1
    t = state.counts[0]
    outcome = 1.0 if accepted else 0.0
    # The gain falls in a window, and from window to window: tuning may end shortly after one has begun.
    state.counts[2] += 1
    gain = min(1.0, 10.0 / (t + 0.1 * state.counts[2]))
    state.scale[0] *= math.exp((outcome - state.target_accept[0]) * gain)
    before = q - state.mean
    state.mean[:] += before / t
    for i in range(n_dim):
        for j in range(i + 1):
            state.scatter[i, j] += (q[i] - state.mean[i]) * before[j]
    if t == state.counts[1]:
        _next_window(state)


@jitable
def _next_window(state: AdaptiveWalk) -> None:
    """Take the covariance of the finished window, and begin the next.

    The steps of the finished window serve as a prior worth 3 D observations: they are known to suit the
    narrow directions, and keep the matrix positive definite however little the chain has moved.
    """
    n_dim = state.mean.shape[0]
    t, weight = state.counts[0], _PRIOR_WEIGHT * n_dim
    suited = (state.scale[0] / OPTIMAL_SCALE) ** 2 * n_dim
    for i in range(n_dim):
        for j in range(i + 1):
            prior = 0.0
            for k in range(j + 1):
                prior += state.factor[i, k] * state.factor[j, k]
            state.scatter[i, j] = (state.scatter[i, j] + weight * suited * prior) / (t + weight)
    for i in range(n_dim):  # Cholesky
        for j in range(i + 1):
            total = state.scatter[i, j]
            for k in range(j):
                total -= state.factor[i, k] * state.factor[j, k]
            if i == j:
                state.factor[i, i] = math.sqrt(max(total, 1e-14 * state.scatter[i, i]))
            else:
                state.factor[i, j] = total / state.factor[j, j]
    state.scale[0] = OPTIMAL_SCALE / math.sqrt(n_dim)
    state.counts[0] = 0
    state.counts[1] += state.counts[1] // 2
    state.mean[:] = 0.0
    state.scatter[:] = 0.0
