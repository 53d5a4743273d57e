"""Proposals from the normal distribution fitted to the posterior at its mode (Laplace's approximation)."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.proposals.base import BoundProposal, no_adaptation
from pymc_austerity.proposals.deviations import Deviations, no_deviations, note
from pymc_austerity.proposals.random_walk import OPTIMAL_SCALE
from pymc_austerity.target import Matrix, QuadraticProxy, Vector
from pymc_austerity.validation import require_real


@dataclass(frozen=True)
class Laplace:
    r"""Independence or pCN moves that are reversible for N(mode, H^-1), mixed with random-walk moves.

    Parameters
    ----------
    kind : "independence" or "pcn", default "independence"
        Propose q' ~ N(mode, H^-1), or q' = mode + rho (q - mode) + sqrt(1 - rho^2) xi with xi ~ N(0, H^-1).
    rho : float in (0, 1), optional
        For "pcn" only, default 0.5.
    mix : float in [0, 1), default 0.1
        Share of random-walk moves with steps from N(0, (2.38^2 / D) H^-1). The choice does not depend on q.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    Mode and H, minus the Hessian of the log posterior of the block at the mode, are found when the step is
    built. With w = L'(q - mode) and L L' = H, log_hastings = (\|w'\|^2 - \|w\|^2) / 2 for both kinds, and 0
    for a random-walk move. The preconditioned Crank-Nicolson proposal is that of Cotter et al. (2013), with
    the posterior's own normal approximation for the reference measure.

    *Guarantee*: log_hastings is exact, whatever the quality of the approximation; nothing adapts.

    *When it fails*: an independence proposal whose tails are lighter than the posterior's stays for long in
    the tails, which the random-walk moves mend, at their own pace. For a posterior with several modes, or far
    from normal, acceptance is low; `Surrogate` takes any prior.

    References
    ----------
    .. [1] Cotter, S. L., Roberts, G. O., Stuart, A. M. & White, D. (2013). MCMC methods for functions:
       modifying old algorithms to make them faster. Statistical Science 28.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import Laplace, MetropolisHastings
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> with model:
    ...     step = MetropolisHastings(proposal=Laplace())
    ...     idata = pm.sample(100, tune=100, chains=1, step=step, random_seed=1, progressbar=False)
    >>> idata.sample_stats["acceptance_rate"].mean().item() > 0.6
    True
    """

    kind: Literal["independence", "pcn"] = "independence"
    rho: float | None = None
    mix: float = 0.1

    def __post_init__(self) -> None:
        if self.kind not in ("independence", "pcn"):
            raise ValueError(f'kind must be "independence" or "pcn", got {self.kind!r}.')
        if self.rho is not None and self.kind != "pcn":
            raise ValueError(f'rho={self.rho!r} is for kind="pcn"; an independence proposal has rho = 0.')
        if self.rho is not None:
            require_real("rho", self.rho, "(0, 1)", "Larger values take smaller steps.")
        require_real("mix", self.mix, "[0, 1)", "It is the share of random-walk moves.")

    def bind_to(self, proxy: QuadraticProxy) -> BoundProposal:
        """Factorise the precision."""
        rho = 0.0 if self.kind == "independence" else 0.5 if self.rho is None else self.rho
        whiten, unwhiten = proxy.factors()
        n_dim = len(unwhiten)
        state = LaplaceState(
            scale=np.array([OPTIMAL_SCALE / math.sqrt(n_dim)]),
            rho=np.array([rho]),
            mix=np.array([self.mix]),
            mode=np.array(proxy.mode),
            whiten=whiten,
            unwhiten=unwhiten,
            variances=(unwhiten**2).sum(axis=1),
            deviations=no_deviations(n_dim),
        )
        return BoundProposal(state, propose_laplace, no_adaptation)


class LaplaceState(NamedTuple):
    """State of a `Laplace` proposal; `scale` is that of the random walk.

    `whiten` is L' with L L' = H, and `unwhiten` its inverse; both are upper triangular.
    """

    scale: Vector
    rho: Vector
    mix: Vector
    mode: Vector
    whiten: Matrix
    unwhiten: Matrix
    variances: Vector  # Of the fitted distribution
    deviations: Deviations  # Of the chain's proposals, in the coordinates of q


@jitable
def propose_laplace(state: LaplaceState, q: Vector, rng: np.random.Generator) -> tuple[Vector, float]:
    """Move in coordinates w = L'(q - mode), in which the fitted distribution is N(0, I)."""
    walk = rng.random() < state.mix[0]
    z = rng.standard_normal(len(q))
    w = times_upper(state.whiten, q - state.mode)
    if walk:
        note(state.deviations)
        w_new = w + state.scale[0] * z
        return state.mode + times_upper(state.unwhiten, w_new), 0.0
    rho, latest = state.rho[0], state.deviations.latest
    w_new = rho * w + math.sqrt(1.0 - rho * rho) * z
    away = times_upper(state.unwhiten, w_new)
    for j in range(len(q)):
        own = away[j] - rho * (q[j] - state.mode[j])
        latest[0, j] = own
        latest[1, j] = own * own - (1.0 - rho * rho) * state.variances[j]
    note(state.deviations)
    return state.mode + away, 0.5 * (squared(w_new) - squared(w))


@jitable
def times_upper(matrix: Matrix, vector: Vector) -> Vector:
    """An upper triangular matrix times a vector."""
    result = np.zeros(len(vector))
    for i in range(len(vector)):
        total = 0.0
        for j in range(i, len(vector)):
            total += matrix[i, j] * vector[j]
        result[i] = total
    return result


@jitable
def times_transposed(upper: Matrix, vector: Vector) -> Vector:
    """The transpose of an upper triangular matrix times a vector."""
    result = np.zeros(len(vector))
    for i in range(len(vector)):
        for j in range(i, len(vector)):
            result[j] += upper[i, j] * vector[i]
    return result


@jitable
def squared(vector: Vector) -> float:
    """Sum of squares."""
    total = 0.0
    for x in vector:
        total += x * x
    return total
