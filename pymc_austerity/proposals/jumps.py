"""Moves between sub-models: a coefficient comes or goes, or one comes for another.

The state is q = (gamma, beta, others): p numbers 0 or 1, p coefficients, and r more variables. A coefficient
with gamma_j = 0, a *dummy*, is distributed as its slab, whatever the data. Every jump draws all dummies anew,
so that their densities cancel, and `base` has those of the active coefficients alone (Green 1995, with a
state of fixed dimension as of Carlin & Chib 1995).

The coordinates of a sub-model are proposed from the expansion of the log likelihood at the full model's mode.
The log likelihood, with the priors of all but the coefficients, is close to b . x - x . H x / 2, for the d
continuous variables x. A coefficient that is not in the model enters it as zero. So the log posterior of a
sub-model with coordinates S is close to

    (b_S + s m) . x_S - x_S . (H_SS + diag(s)) x_S / 2,

with the precisions s of the slabs of its coefficients, and their locations m: a normal distribution that
takes O(k^3) to find, and no data. Proposed is a multivariate t distribution, which is wider than it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.proposals.base import BoundProposal, NoState, ProposalKernel, no_adaptation, no_density
from pymc_austerity.target import Index, Target, Vector

# Kinds of moves, their names, and what is counted of each.
BIRTH, DEATH, SWAP, OTHER = 0, 1, 2, 3
KINDS = ("births", "deaths", "swaps", "others")
COUNTS = ("proposed", "accepted", "used")
# Families of slabs.
NORMAL, LAPLACE, STUDENT_T = 0, 1, 2
# Degrees of freedom of what is proposed: slabs may have heavier tails than a normal distribution.
DEGREES = 8.0
# Its scale over that of the normal distribution.
INFLATION = 1.1

Redraw = Literal["all", "one"]


@dataclass(frozen=True)
class Jumps:
    """How a step moves between sub-models; see `ReversibleJump`."""

    jump: float  # share of the jumps among the moves
    swap: float  # share of the swaps among the jumps
    redraw: Redraw
    other: Any = None  # What else moves the continuous variables; None for the redraw without a jump


class SubmodelExpansion(NamedTuple):
    """What is known at the mode of the full model; b and H as above."""

    family: int  # of the slab
    # (p + d,): a state with gamma = 1 and the mode, where slabs are looked at that depend on the state.
    center: Vector
    linear: Vector  # (d,)
    precision: npt.NDArray[np.float64]  # (d, d)


class JumpState(NamedTuple):
    """State of the jumps."""

    scale: Vector  # (1,): not a number: it is reported as of other proposals
    shares: Vector  # (2,): `jump` and `swap`
    redraws_all: bool  # whether all coordinates are redrawn
    expansion: SubmodelExpansion
    kind: Index  # (1,): what the last move was
    # (4, 3), by kind: moves proposed, moves accepted and terms read since the last draw.
    tally: npt.NDArray[np.float64]
    given: Any  # state of the proposal of the other moves

    def forget(self) -> None:
        """Begin to count anew."""
        self.kind[0] = OTHER
        self.tally[:] = 0.0


def bound_jumps(
    jumps: Jumps, expansion: SubmodelExpansion, given: BoundProposal | None = None
) -> BoundProposal:
    """Jumps with their state; `given` is the proposal of the other moves, for the d continuous variables.

    `propose` and `learn` are of that proposal, and take its state.
    """
    move = jump_or_redraw if given is None else jump_or_given
    given = given or BoundProposal(NoState(np.array([np.nan])), no_density, no_adaptation)
    state = JumpState(
        scale=np.array([np.nan]),
        shares=np.array([jumps.jump, jumps.swap]),
        redraws_all=jumps.redraw == "all",
        expansion=expansion,
        kind=np.array([OTHER]),
        tally=np.zeros((len(KINDS), len(COUNTS))),
        given=given.state,
    )
    functions = ("global_log_ratio", "slab")
    return replace(
        given, state=state, adapt=no_adaptation, move=move, target_functions=functions, learn=given.adapt
    )


@jitable
def jump_or_redraw(
    proposal: ProposalKernel, q: Vector, rng: np.random.Generator, args: tuple[Any, ...], target: Target
) -> tuple[Vector, float]:
    """A jump, or coefficients and other variables redrawn without one."""
    gamma_new, is_possible = chosen_indicators(proposal.state, q, rng)
    if not is_possible:
        return q.copy(), -math.inf
    return redrawn(proposal.state, gamma_new, q, rng, args, target)


@jitable
def jump_or_given(
    proposal: ProposalKernel, q: Vector, rng: np.random.Generator, args: tuple[Any, ...], target: Target
) -> tuple[Vector, float]:
    """A jump, or a move of all continuous variables, dummies included, by the given proposal."""
    state = proposal.state
    gamma_new, is_possible = chosen_indicators(state, q, rng)
    if not is_possible:
        return q.copy(), -math.inf
    if state.kind[0] != OTHER:
        return redrawn(state, gamma_new, q, rng, args, target)
    p = len(gamma_new)
    x_new, log_hastings = proposal.propose(state.given, q[p:].copy(), rng)
    q_new = q.copy()
    q_new[p:] = x_new
    return q_new, target.global_log_ratio(q_new, q, args) + log_hastings


@jitable
def chosen_indicators(state: JumpState, q: Vector, rng: np.random.Generator) -> tuple[Vector, bool]:
    """Choose the kind of the next move, and the sub-model that it goes to. Is there one?

    A coefficient is chosen with probability 1/p, and a pair with probability 1/(k (p - k)), there and back.
    Where all coefficients are in, or none, there is no pair. That move is rejected: were it a flip
    instead, sub-models next to these would be left for them less often than the other way round.
    """
    p = len(q) - len(state.expansion.linear)
    gamma = q[:p].copy()
    state.kind[0] = OTHER
    if rng.random() >= state.shares[0]:
        return gamma, True
    if rng.random() >= state.shares[1]:
        j = int(rng.random() * p)
        state.kind[0] = BIRTH if gamma[j] == 0.0 else DEATH
        gamma[j] = 1.0 - gamma[j]
        return gamma, True
    state.kind[0] = SWAP
    inside, outside = coordinates_of(gamma, p), coordinates_of(1.0 - gamma, p)
    if len(inside) == 0 or len(outside) == 0:
        return gamma, False
    gamma[inside[int(rng.random() * len(inside))]] = 0.0
    gamma[outside[int(rng.random() * len(outside))]] = 1.0
    return gamma, True


@jitable
def redrawn(
    state: JumpState,
    gamma_new: Vector,
    q: Vector,
    rng: np.random.Generator,
    args: tuple[Any, ...],
    target: Target,
) -> tuple[Vector, float]:
    """Draw the coordinates of the new sub-model, and its dummies.

    `base` is the change of the global terms, without the slabs of the dummies, plus log q(old | gamma) -
    log q(new | gamma_new).
    """
    p, family = len(gamma_new), state.expansion.family
    q_new = q.copy()
    for j in range(p):
        q_new[j] = gamma_new[j]
    new, old = there_and_back(state, q, gamma_new, rng, target.slab(state.expansion.center, args))
    x_new, x_old = drawn(new, rng), np.empty(len(old.mean))
    for a in range(len(x_new)):
        q_new[p + new.coordinates[a]] = x_new[a]
    for a in range(len(x_old)):
        x_old[a] = q[p + old.coordinates[a]]
    slab = target.slab(q_new, args)
    for j in range(p):
        if gamma_new[j] == 0.0:
            q_new[p + j] = drawn_from_slab(family, slab, j, rng)
    base = target.global_log_ratio(q_new, q, args)
    base -= log_slab_of_dummies(family, slab, q_new)
    base += log_slab_of_dummies(family, target.slab(q, args), q)
    return q_new, base + log_density(old, x_old) - log_density(new, x_new)


@jitable
def there_and_back(
    state: JumpState, q: Vector, gamma_new: Vector, rng: np.random.Generator, slab: Vector
) -> tuple[Submodel, Submodel]:
    """Distribution that the new coordinates are drawn from, and that of the old ones on the way back."""
    p, expansion, n_dim = len(gamma_new), state.expansion, len(state.expansion.linear)
    gamma, x = q[:p], q[p:]
    to, back = coordinates_of(gamma_new, n_dim), coordinates_of(gamma, n_dim)
    if state.redraws_all:
        return submodel(expansion, slab, to), submodel(expansion, slab, back)
    # The coefficients that come and go; without a jump any coordinate, the same before and after.
    comes = leaves = -1
    for j in range(p):
        if gamma_new[j] > gamma[j]:
            comes = j
        if gamma_new[j] < gamma[j]:
            leaves = j
    if comes < 0 and leaves < 0 and len(to) > 0:
        comes = leaves = to[int(rng.random() * len(to))]
    new = given_the_others(expansion, slab, to, comes, x)
    return new, given_the_others(expansion, slab, back, leaves, x)


@jitable
def log_slab_of_dummies(family: int, slab: Vector, q: Vector) -> float:
    """Sum of the log densities of the coefficients that are not in the model."""
    p, total = len(slab) // 3, 0.0
    for j in range(p):
        if q[j] == 0.0:
            total += log_slab(family, slab, j, q[p + j])
    return total


# The coordinates of a sub-model ---------------------------------------------------------------------------


class Submodel(NamedTuple):
    """The normal distribution of the coordinates of a sub-model."""

    # (k,): which they are: coefficients that are in the model, and all other continuous variables
    coordinates: Index
    mean: Vector  # (k,)
    lower: npt.NDArray[np.float64]  # (k, k): L with L L' the precision


@jitable
def coordinates_of(gamma: Vector, n_dim: int) -> Index:
    """Coordinates of the sub-model: coefficients j with gamma_j = 1, and what follows the coefficients."""
    p, k = len(gamma), 0
    result = np.empty(n_dim, dtype=np.int64)
    for j in range(n_dim):
        if j >= p or gamma[j] != 0.0:
            result[k] = j
            k += 1
    return result[:k].copy()


@jitable
def submodel(expansion: SubmodelExpansion, slab: Vector, coordinates: Index) -> Submodel:
    """The distribution of k coordinates where all coefficients that are not among them are zero."""
    k, p = len(coordinates), len(slab) // 3
    own, right = np.empty((k, k)), np.empty(k)
    for a in range(k):
        i = coordinates[a]
        right[a] = expansion.linear[i]
        for b in range(k):
            own[a, b] = expansion.precision[i, coordinates[b]]
        if i < p:
            s = slab_precision(expansion.family, slab, i)
            own[a, a] += s
            right[a] += s * slab[i]
    lower = cholesky(own)
    return Submodel(coordinates, solve_transposed(lower, solve(lower, right)), lower)


@jitable
def drawn(own: Submodel, rng: np.random.Generator) -> Vector:
    """A draw of the wider t distribution."""
    z = rng.standard_normal(len(own.mean))
    # A number with the distribution of chi squared, over its degrees of freedom.
    spread = INFLATION / math.sqrt(2.0 * rng.standard_gamma(0.5 * DEGREES) / DEGREES)
    return own.mean + spread * solve_transposed(own.lower, z)


@jitable
def log_density(own: Submodel, x: Vector) -> float:
    """Log density of the wider t distribution."""
    k = len(x)
    log_det = square = 0.0
    for a in range(k):
        log_det += math.log(own.lower[a, a])
        total = 0.0
        for b in range(a, k):
            total += own.lower[b, a] * (x[b] - own.mean[b])
        square += total * total
    square /= INFLATION * INFLATION
    log_t = math.lgamma(0.5 * (DEGREES + k)) - math.lgamma(0.5 * DEGREES)
    log_t -= 0.5 * k * math.log(DEGREES * math.pi)
    log_t -= 0.5 * (DEGREES + k) * math.log1p(square / DEGREES)
    return log_t + log_det - k * math.log(INFLATION)


@jitable
def given_the_others(
    expansion: SubmodelExpansion, slab: Vector, coordinates: Index, i: int, x: Vector
) -> Submodel:
    """The distribution of coordinate i of a sub-model, given its others, whose values are in x (d,).

    With i = -1 that of no coordinate at all.
    """
    if i < 0:
        return Submodel(np.empty(0, dtype=np.int64), np.empty(0), np.empty((0, 0)))
    p = len(slab) // 3
    own, right = expansion.precision[i, i], expansion.linear[i]
    if i < p:
        s = slab_precision(expansion.family, slab, i)
        own += s
        right += s * slab[i]
    for j in coordinates:
        if j != i:
            right -= expansion.precision[i, j] * x[j]
    return Submodel(np.full(1, i), np.full(1, right / own), np.full((1, 1), math.sqrt(own)))


@jitable
def cholesky(matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """L with L L' a positive definite matrix; written out, so that all backends round alike."""
    n = len(matrix)
    lower = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            lower[i, j] = math.sqrt(total) if i == j else total / lower[j, j]
    return lower


@jitable
def solve(lower: npt.NDArray[np.float64], right: Vector) -> Vector:
    """L^-1 times a vector."""
    result = right.copy()
    for i in range(len(right)):
        for k in range(i):
            result[i] -= lower[i, k] * result[k]
        result[i] /= lower[i, i]
    return result


@jitable
def solve_transposed(lower: npt.NDArray[np.float64], right: Vector) -> Vector:
    """L'^-1 times a vector."""
    n = len(right)
    result = right.copy()
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            result[i] -= lower[k, i] * result[k]
        result[i] /= lower[i, i]
    return result


# Slabs ----------------------------------------------------------------------------------------------------
#
# The prior of coefficients, whether they are in the model or not, is of one of three families, with a
# location, a scale and degrees of freedom for each coefficient. `Target.slab` has these as one vector of 3 p
# numbers.


@jitable
def log_slab(family: int, slab: Vector, j: int, x: float) -> float:
    """Log density of coefficient j at x."""
    p = len(slab) // 3
    scale, degrees = float(slab[p + j]), float(slab[2 * p + j])
    z = (x - float(slab[j])) / scale
    if family == LAPLACE:
        return -abs(z) - math.log(2.0 * scale)
    if family == STUDENT_T:
        constant = math.lgamma(0.5 * (degrees + 1.0)) - math.lgamma(0.5 * degrees)
        constant -= 0.5 * math.log(degrees * math.pi) + math.log(scale)
        return constant - 0.5 * (degrees + 1.0) * math.log1p(z * z / degrees)
    return -0.5 * z * z - math.log(scale) - 0.5 * math.log(2.0 * math.pi)


@jitable
def drawn_from_slab(family: int, slab: Vector, j: int, rng: np.random.Generator) -> float:
    """A draw of coefficient j."""
    p = len(slab) // 3
    if family == LAPLACE:
        z = rng.standard_exponential()
        z = z if rng.random() < 0.5 else -z
    elif family == STUDENT_T:
        z = rng.standard_t(slab[2 * p + j])
    else:
        z = rng.standard_normal()
    return float(slab[j] + slab[p + j] * z)


@jitable
def slab_precision(family: int, slab: Vector, j: int) -> float:
    """Precision of the normal distribution that stands for a slab in proposals.

    Of a double exponential distribution it has its variance, of Student's t the Fisher information of the
    location.
    """
    p = len(slab) // 3
    scale, degrees = float(slab[p + j]), float(slab[2 * p + j])
    if family == LAPLACE:
        return 0.5 / (scale * scale)
    if family == STUDENT_T:
        return (degrees + 1.0) / (degrees + 3.0) / (scale * scale)
    return 1.0 / (scale * scale)
