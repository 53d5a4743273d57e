"""Surrogate transitions: many moves that touch no data, then one test that does (Liu 2001)."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.proposals.base import BoundProposal, ProposalKernel, no_density
from pymc_austerity.proposals.laplace import squared, times_transposed, times_upper
from pymc_austerity.target import QuadraticProxy, Target, Vector
from pymc_austerity.validation import require_whole

# Leapfrog steps of a trajectory, at most.
_LONGEST = 10
# Acceptance rate of Hamiltonian Monte Carlo to aim at.
_TARGET_ACCEPT = 0.8
_START = 0.5


@dataclass(frozen=True)
class Surrogate:
    """Hamiltonian moves for prior(q) x exp(Taylor polynomial of the log likelihood), without any data.

    For arbitrary priors: hierarchical scales, simplexes, ordered vectors, correlation matrices. Needs a
    ``control_variate``.

    Parameters
    ----------
    n_inner : int >= 1, default 5
        Hamiltonian trajectories for each transition.

    Raises
    ------
    ValueError
        If `n_inner` is not a positive integer.

    Notes
    -----
    The surrogate density s(q) = exp(P(q) + Q(q)) has the global terms P of the model in full, at the present
    values of all other variables, and the Taylor polynomial Q of the local terms. An inner kernel that is
    reversible for s proposes q' with s(q) K(q, q') = s(q') K(q', q), so that the Metropolis ratio is

        exp[P(q') + sum l_i(q') - P(q) - sum l_i(q)] s(q) / s(q') = exp(sum_i [r_i(q') - r_i(q)]):

    only the remainders are left, and base = 0. The inner kernel is `n_inner` times the same Hamiltonian Monte
    Carlo transition, with 1 to 10 leapfrog steps (the number is drawn without regard to q), in coordinates in
    which the posterior at the mode is round. A kernel that is reversible stays so when it is repeated; a scan
    of several different kernels would not be. The step size is tuned to an acceptance rate of 0.8, and
    then frozen.

    *Guarantee*: as exact as the test of the remainders.

    *When it fails*: where the likelihood is far from its polynomial, acceptance is low. For funnels (a
    hierarchical scale with little data for each group) Hamiltonian moves with one step size mix slowly; more
    of them help.

    References
    ----------
    .. [1] Liu, J. S. (2001). Monte Carlo Strategies in Scientific Computing, section 9.4.3. Springer.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import AusterityMH, Surrogate, Taylor
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> with model:
    ...     step = AusterityMH(control_variate=Taylor(), proposal=Surrogate())
    ...     idata = pm.sample(100, tune=200, chains=1, step=step, random_seed=1, progressbar=False)
    >>> idata.sample_stats["acceptance_rate"].mean().item() > 0.6
    True
    """

    n_inner: int = 5

    def __post_init__(self) -> None:
        require_whole(1, n_inner=self.n_inner)

    def bind_to(self, proxy: QuadraticProxy) -> BoundProposal:
        """Start from steps of half a standard deviation."""
        _, unwhiten = proxy.factors()
        state = SurrogateState(
            scale=np.array([_START * len(unwhiten) ** -0.25]),
            unwhiten=unwhiten,
            n_inner=np.array([self.n_inner], dtype=np.int64),
            accepted=np.zeros(1),
            counts=np.zeros(1, dtype=np.int64),
        )
        return BoundProposal(
            state,
            no_density,
            adapt_step_size,
            move=surrogate_move,
            target_functions=("global_log_ratio", "global_gradient"),
        )


class SurrogateState(NamedTuple):
    """State of a `Surrogate`: `scale` is the step size, `accepted` the last inner acceptance rate.

    q = unwhiten @ z has precision L L' where z is round.
    """

    scale: Vector
    unwhiten: npt.NDArray[np.float64]
    n_inner: npt.NDArray[np.int64]
    accepted: Vector
    counts: npt.NDArray[np.int64]


@jitable
def surrogate_move(
    proposal: ProposalKernel, q: Vector, rng: np.random.Generator, args: tuple[Any, ...], target: Target
) -> tuple[Vector, float]:
    """Move by a kernel that is reversible for the global terms (Liu 2001).

    exp(global) K(q, q') is symmetric in q and q', so the change of the global terms and the ratio of the
    proposal densities cancel. If all inner moves were rejected there is nothing to test: base is infinite.
    """
    q_new = inner_transitions(proposal.state, q, rng, args, target)
    return q_new, math.inf if np.all(q_new == q) else 0.0


@jitable
def inner_transitions(
    state: SurrogateState, q: Vector, rng: np.random.Generator, args: tuple[Any, ...], target: Target
) -> Vector:
    """Repeat one Hamiltonian Monte Carlo transition that is reversible for the surrogate density."""
    total = 0.0
    n_dim = len(q)
    for _ in range(state.n_inner[0]):
        n_steps = 1 + int(rng.random() * _LONGEST)
        momentum = rng.standard_normal(n_dim)
        before = 0.5 * squared(momentum)
        q_new = q.copy()
        slope = times_transposed(state.unwhiten, target.global_gradient(q_new, args))
        for _ in range(n_steps):
            momentum = momentum + 0.5 * state.scale[0] * slope
            q_new = q_new + state.scale[0] * times_upper(state.unwhiten, momentum)
            slope = times_transposed(state.unwhiten, target.global_gradient(q_new, args))
            momentum = momentum + 0.5 * state.scale[0] * slope
        change = target.global_log_ratio(q_new, q, args) + before - 0.5 * squared(momentum)
        u = rng.random()
        if not change < math.inf:  # a divergent trajectory, or an end at which rounding makes it infinite
            continue
        total += math.exp(min(0.0, change))
        if u < math.exp(min(0.0, change)):
            q = q_new
    state.accepted[0] = total / state.n_inner[0]
    return q


@jitable
def adapt_step_size(state: SurrogateState, q: Vector, accepted: bool) -> None:
    """Robbins-Monro steps towards the acceptance rate; the inner one, whatever the outer test said."""
    state.counts[0] += 1
    gain = min(1.0, 10.0 / state.counts[0])
    state.scale[0] *= math.exp((state.accepted[0] - _TARGET_ACCEPT) * gain)
