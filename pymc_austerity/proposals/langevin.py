"""Langevin moves along the gradient of a minibatch."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.proposals.base import Block, BoundProposal, ProposalKernel, no_adaptation, no_density
from pymc_austerity.target import CHUNK, Index, Target, Vector
from pymc_austerity.validation import first_batch, is_whole, require_real


@dataclass(frozen=True)
class Langevin:
    """Moves along the gradient of a minibatch, for any step with a decision rule.

    Parameters
    ----------
    step_size : float > 0
        a: the variance of the noise of a move, in the units of the value variables squared.
    batch_size : int >= 1, default 100
        Local terms of the minibatch, n.
    mix : float in [0, 1), default 0.1
        Share of moves that are a random walk. The choice does not depend on q.
    scale : float > 0, optional
        Standard deviation of the random walk. Default: sqrt(step_size).

    Raises
    ------
    ValueError
        If a parameter is out of its range, or `batch_size` is larger than the number of local terms.

    Notes
    -----
    q' = q + (a/2) g(q) + N(0, a), with g the gradient of the global terms plus N/n times that of the local
    terms of a minibatch X, drawn without replacement (equation 9 of Korattikara et al. 2014). The densities
    of the move and of its reverse are those given the same X. So each X has a kernel of its own that keeps
    the posterior, and so does their mixture. A fresh minibatch for the way back would be right as well,
    because the two could be exchanged. But its noise comes on top, and fewer moves are accepted. The test
    draws its own rows. If it read X, the log ratios that it sees would depend on the proposal.

    With ``control_variate=Taylor()`` the minibatch estimates the gradient of the remainders only. Each move
    reads n terms, for its gradient at both states; `n_used` counts them.

    *The paper, corrected*: its section 6.4 blames large gradients met by noise for the jumps of uncorrected
    Langevin dynamics. Full gradients do the same, because it is the Euler step that overshoots. The test
    rejects these jumps. But the corrected chain does not visit what is left of the kink either: not the
    density forbids it, but the reverse proposal. Started there, the exact test accepted none of 500,000
    moves. With ``mix=0.1`` it left after 69.

    *Guarantee*: that of the decision rule.

    *When it fails*: `step_size` is one number, for coordinates of one size: give the step a block of such. If
    the gradient of a minibatch is noisy compared with sqrt(a), moves are rejected: take a smaller
    `step_size`, a larger `batch_size`, or ``control_variate=Taylor()``.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import AusterityMH, Taylor
    >>> from pymc_austerity.proposals import Langevin
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> with model:
    ...     step = AusterityMH(control_variate=Taylor(), proposal=Langevin(step_size=2e-4))
    ...     point, (stats,) = step.step({"level": np.array(1.0), "slope": np.array(0.3)})
    >>> bool(abs(point["slope"] - 0.3) < 0.1)
    True
    """

    step_size: float
    batch_size: int = 100
    mix: float = 0.1
    scale: float | None = None

    def __post_init__(self) -> None:
        why = "It is a variance, in the units of the unconstrained variables squared."
        require_real("step_size of Langevin", self.step_size, "(0, inf)", why)
        if not is_whole(self.batch_size) or self.batch_size < 1:
            raise ValueError(f"batch_size of Langevin must be a positive integer, got {self.batch_size!r}.")
        require_real("mix", self.mix, "[0, 1)", "It is the share of random-walk moves.")
        if self.scale is not None:
            require_real("scale of Langevin", self.scale, "(0, inf)", "Leave it out for sqrt(step_size).")

    def bind_to_block(self, block: Block, target_accept: float) -> BoundProposal:
        """Fix the size of the minibatch."""
        first_batch(self.batch_size, self.batch_size, block.n_local)
        scale = math.sqrt(self.step_size) if self.scale is None else self.scale
        state = LangevinState(
            scale=np.array([float(scale)]),
            step_size=np.array([float(self.step_size)]),
            mix=np.array([float(self.mix)]),
            sizes=np.array([self.batch_size, block.n_local], dtype=np.int64),
            n_read=np.zeros(1, dtype=np.int64),
        )
        return BoundProposal(
            state,
            no_density,
            no_adaptation,
            move=langevin_move,
            target_functions=("global_log_ratio", "global_gradient", "local_gradient"),
        )


class LangevinState(NamedTuple):
    """State of a `Langevin` proposal: `scale` is that of the random walk, `sizes` are n and N.

    `n_read` counts the terms of minibatches; whoever reports it sets it back to zero.
    """

    scale: Vector
    step_size: Vector
    mix: Vector
    sizes: Index
    n_read: Index


@jitable
def langevin_move(
    proposal: ProposalKernel, q: Vector, rng: np.random.Generator, args: tuple[Any, ...], target: Target
) -> tuple[Vector, float]:
    """Move by a random walk, or along the gradient of a minibatch."""
    state = proposal.state
    walk = rng.random() < state.mix[0]
    z = rng.standard_normal(len(q))
    if walk:
        q_new = q + state.scale[0] * z
        return q_new, target.global_log_ratio(q_new, q, args)
    a, n, n_local = state.step_size[0], state.sizes[0], state.sizes[1]
    batch = distinct_positions(rng, n, n_local)
    state.n_read[0] += n
    forward = q + 0.5 * a * estimated_gradient(q, batch, n_local, args, target)
    q_new = forward + math.sqrt(a) * z
    # The same minibatch on the way back.
    backward = q_new + 0.5 * a * estimated_gradient(q_new, batch, n_local, args, target)
    log_hastings = 0.0
    for d in range(len(q)):
        log_hastings += (q_new[d] - forward[d]) ** 2 - (q[d] - backward[d]) ** 2
    return q_new, target.global_log_ratio(q_new, q, args) + 0.5 * log_hastings / a


@jitable
def distinct_positions(rng: np.random.Generator, n: int, size: int) -> Index:
    """A uniform draw of n of the positions 0, ..., size - 1 without replacement; all in order if n is `size`.

    It is the shuffle of Fisher and Yates. Of the array that is shuffled only the places that have changed are
    kept, in a hash table: time and memory are in proportion to n, whatever `size`.
    """
    if n == size:
        return np.arange(size)
    length = 2
    while length < 2 * n:
        length *= 2
    places, contents = np.full(length, -1), np.empty(length, dtype=np.int64)
    drawn = np.empty(n, dtype=np.int64)
    for k in range(n):
        j = k + int(rng.random() * (size - k))
        at_k = _slot(places, k)
        moved = contents[at_k] if places[at_k] == k else k
        at_j = _slot(places, j)
        drawn[k] = contents[at_j] if places[at_j] == j else j
        places[at_j] = j
        contents[at_j] = moved
    return drawn


@jitable
def _slot(places: Index, place: int) -> int:
    """Place of the table where a number is kept, or would be."""
    last = places.shape[0] - 1
    # Neighbours are scattered by Knuth's multiplicative hash.
    slot: int = (place * 2654435761 >> 7) & last
    while places[slot] != -1 and places[slot] != place:
        slot = (slot + 1) & last
    return slot


@jitable
def estimated_gradient(
    q: Vector, index: Index, n_local: int, args: tuple[Any, ...], target: Target
) -> Vector:
    """The gradient of the global terms, and N / n times that of the local terms at n positions."""
    n = index.shape[0]
    total = np.zeros(q.shape[0])
    for start in range(0, n, CHUNK):
        total += target.local_gradient(q, index[start : min(start + CHUNK, n)], args)
    estimate: Vector = target.global_gradient(q, args) + total * (n_local / n)
    return estimate
