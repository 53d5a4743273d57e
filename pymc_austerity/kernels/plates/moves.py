"""The two moves of a sweep: of what all groups share, and of every group's own level.

`decisions` answers whether they are accepted. By drawn rows both are decided as in `kernels.tuna`: rows are
drawn with Poisson counts of means B_i, each counted with probability (1 - x_i) / 2, x_i = change_i / B_i, and
the log ratio is base + the sum of log (1 + x) / (1 - x) over those that are counted. A group beyond its reach
has all its rows read instead, and adds their changes. Which groups these are depends on the two states in the
same way, so that the moves are reversible.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.plates.cells import Displaced, displace, not_displaced
from pymc_austerity.kernels.plates.coordinates import displacement, quadratic
from pymc_austerity.kernels.plates.cubic import CubicAt, add_cubic, cubic_at, cubic_change, room_for_cubic
from pymc_austerity.kernels.plates.decisions import Counts, Decisions
from pymc_austerity.kernels.plates.effects_density import (
    NORMAL,
    drawn,
    log_excess,
    standard_coordinates,
)
from pymc_austerity.kernels.plates.fitted_proposal import SharedProposal
from pymc_austerity.kernels.plates.nested import write_outer
from pymc_austerity.kernels.plates.records import EffectsDensity, Plate
from pymc_austerity.kernels.plates.scores import from_scores, to_scores
from pymc_austerity.kernels.plates.slopes import levels_of, quadratic_with_slopes, scale_factor
from pymc_austerity.kernels.plates.thinning import Pair
from pymc_austerity.target import Target, Vector

# Proposals for what all groups share: independent draws of a fitted distribution, or a random walk.

# Degrees of freedom of independent draws of theta: with fewer they leave the bounds' radius too often.
_DOF = 20.0


@jitable
def propose_shared(
    rng: np.random.Generator, proposal: SharedProposal, theta: Vector, args: tuple[Any, ...], target: Target
) -> tuple[Vector, float]:
    """A proposal for theta, and the log of its ratio of densities, back over forth.

    It is drawn in coordinates zeta, of which some are functions of normal scores; the ratio has the Jacobian.
    """
    moved = proposal.moved
    q = int(moved.shape[0])
    old, new = theta.copy(), np.empty(theta.shape[0])
    ratio = -to_zeta(proposal, target.features(theta, args), old) - to_scores(proposal, old)
    new[:] = old
    xi = rng.standard_normal(q)
    if rng.random() >= proposal.independent:
        for k in range(q):
            for j in range(k + 1):
                new[moved[k]] += proposal.scale * proposal.factor[k, j] * xi[j]
    else:
        stretch = math.sqrt(_DOF / (2.0 * rng.standard_gamma(0.5 * _DOF)))
        old_square, new_square = 0.0, 0.0
        for k in range(q):
            w, v = 0.0, 0.0
            for j in range(k + 1):
                w += proposal.inverse[k, j] * (old[moved[j]] - proposal.mean[j])
                v += proposal.factor[k, j] * xi[j]
            new[moved[k]] = proposal.mean[k] + stretch * v
            old_square += w * w
            new_square += (stretch * xi[k]) ** 2
        log_ratio = math.log1p(new_square / _DOF) - math.log1p(old_square / _DOF)
        ratio += 0.5 * (_DOF + q) * log_ratio
    ratio += from_scores(proposal, new)
    # Scales depend on coordinates that zeta and theta have in common.
    ratio += to_theta(proposal, target.features(new, args), new)
    return new, ratio


@jitable
def to_theta(proposal: SharedProposal, features: Vector, zeta: Vector) -> float:
    """Write theta over zeta; the log of the determinant of d theta / d zeta."""
    n, total = proposal.mapped.shape[0], 0.0
    y = np.empty(n)
    for j in range(n):
        mean, scale = mean_and_scale(proposal, features, j)
        y[j] = mean + scale * zeta[proposal.mapped[j]]
        total += math.log(scale) if scale > 0.0 else -math.inf
    for i in range(n):
        v = 0.0
        for j in range(n):
            v += proposal.basis[i, j] * y[j]
        zeta[proposal.mapped[i]] = v
    add_shear(proposal, zeta, -1.0)
    return total


@jitable
def to_zeta(proposal: SharedProposal, features: Vector, theta: Vector) -> float:
    """Write zeta over theta; the log of the determinant of d theta / d zeta."""
    n, total = proposal.mapped.shape[0], 0.0
    add_shear(proposal, theta, 1.0)
    y = np.zeros(n)
    for i in range(n):
        v = theta[proposal.mapped[i]]
        for j in range(n):
            y[j] += proposal.basis[i, j] * v
    for j in range(n):
        mean, scale = mean_and_scale(proposal, features, j)
        theta[proposal.mapped[j]] = (y[j] - mean) / scale
        total += math.log(scale)
    return total


@jitable
def mean_and_scale(proposal: SharedProposal, features: Vector, j: int) -> tuple[float, float]:
    """Mean and standard deviation of y_j, coordinate j of the proposal, given the scales."""
    t2 = features[proposal.scales_at[j]] ** 2
    r = 1.0 / (1.0 + proposal.weights[j] * t2)
    return (proposal.slopes[j] * t2 + proposal.locations[j]) * r, math.sqrt(t2 * r)


@jitable
def add_shear(proposal: SharedProposal, theta: Vector, sign: float) -> None:
    """Add S v, or its negative, to the other coefficients."""
    for i in range(proposal.others.shape[0]):
        total = 0.0
        for j in range(proposal.mapped.shape[0]):
            total += proposal.shear[i, j] * theta[proposal.mapped[j]]
        theta[proposal.others[i]] += sign * total


# Share of random walks among the proposals for levels, and their size.
_WALKS, _STEP = 0.1, 0.5
# Under a prior that is not normal: shares of proposals from the prior, and of random walks, whose sizes are
# between these.
_OWN, _MORE_WALKS, _SMALLEST, _LARGEST = 0.1, 0.5, 0.5, 4.0


class PlateState(NamedTuple):
    """State of a chain on a plate, with what follows from it."""

    theta: Vector  # (q,)
    d: Vector  # (P,)
    # delta, outer (H,): of outer effects delta_h, and z_h (`nested`)
    delta: Vector
    outer: Vector
    # eps, levels, locations, means, scales (G,): eps_g, and e_g, nu_g, m_g, s_g that belong to theta; with
    # slopes (G q,), and F_g (G q q,) in place of s_g
    eps: Vector
    levels: Vector
    locations: Vector
    means: Vector
    scales: Vector
    # shifts, roots, excesses (G,) or (0,): y_g = shift_g + root_g eps_g, and what the prior of the effects
    # differs by from the normal one; empty if it is normal
    shifts: Vector
    roots: Vector
    excesses: Vector
    shape: float  # Of the prior of the effects
    displaced: Displaced  # What levels of other factors add in each group
    cubic: CubicAt
    quadratic: float  # What of the log density of theta is beside its prior; see `coordinates`, and `nested`


@jitable
def no_state(n_shared: int, plate: Plate) -> PlateState:
    """Room for a state."""
    n, n_groups = plate.sums.slopes.shape[0], plate.bounds.sizes.shape[0]
    n_other = 0 if plate.effects.kind == NORMAL else n
    return PlateState(
        np.empty(n_shared),
        np.empty(plate.sums.center.shape[0]),
        np.empty(plate.outer.columns.shape[0]),
        np.empty(plate.outer.columns.shape[0]),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n * plate.sums.n_effects),
        np.empty(n_other),
        np.empty(n_other),
        np.empty(n_other),
        0.0,
        not_displaced(n_groups),
        room_for_cubic(plate.cubic),
        0.0,
    )


@jitable
def at_theta(
    state: PlateState,
    theta: Vector,
    delta: Vector,
    eps: Vector,
    plate: Plate,
    args: tuple[Any, ...],
    target: Target,
) -> PlateState:
    """Write the state with these coordinates. Its numbers are in the record that is returned.

    Outer effects in `theta` are written anew: those of delta.
    """
    sums, value = plate.sums, 0.0
    state.theta[:], state.delta[:], state.eps[:] = theta, delta, eps
    displacement(sums, state.theta, state.d)
    given = target.features(theta, args)
    q = sums.n_effects
    if delta.shape[0] > 0:
        value += write_outer(sums, plate.outer, state.theta, state.d, given, state.delta, state.outer)
    if q == 1:
        value += quadratic(sums, state.d, given[0], given[1], state.locations, state.means, state.scales)
    else:
        log_precision = given[q * (q + 1) // 2]
        factor = scale_factor(given, q)
        value += quadratic_with_slopes(
            sums, state.d, factor, log_precision, state.locations, state.means, state.scales
        )
    displace(sums.cells, sums.shares, state.d, state.displaced)
    levels_of(q, state.means, state.scales, eps, state.levels)
    standard_coordinates(sums, given[0], given[1], state.means, state.shifts, state.roots)
    for g in range(state.excesses.shape[0]):
        y = state.shifts[g] + state.roots[g] * eps[g]
        state.excesses[g] = log_excess(plate.effects, given[2], y)
    return PlateState(
        state.theta,
        state.d,
        state.delta,
        state.outer,
        state.eps,
        state.levels,
        state.locations,
        state.means,
        state.scales,
        state.shifts,
        state.roots,
        state.excesses,
        given[2],
        state.displaced,
        cubic_at(plate.cubic, state.d, state.cubic),
        value,
    )


@jitable
def move_shared(
    rng: np.random.Generator,
    plate: Plate,
    state: PlateState,
    other: PlateState,
    args: tuple[Any, ...],
    decisions: Decisions,
    target: Target,
) -> tuple[PlateState, PlateState, Counts]:
    """Move theta and keep all eps_g and delta_h; the state comes first, then room for another."""
    theta, ratio = propose_shared(rng, plate.proposal, state.theta, args, target)
    base = ratio + target.global_log_ratio(theta, state.theta, args)
    if not -math.inf < base < math.inf:  # outside of the support, not a number, or infinite by rounding
        return state, other, Counts(0.0, 0, 0, 0, base)
    new = at_theta(other, theta, state.delta, state.eps, plate, args, target)
    base += new.quadratic - state.quadratic + np.sum(new.excesses) - np.sum(state.excesses)
    base += cubic_change(plate.cubic, state.cubic, state.levels, new.cubic, new.levels)
    pair = Pair(state.levels, new.levels, state.d, new.d, state.displaced, new.displaced)
    counts = decisions.shared(rng, plate, decisions.numbers, pair, base)
    if counts.accepted > 0.0:
        return new, state, counts
    return state, new, counts


@jitable
def move_plate(rng: np.random.Generator, plate: Plate, state: PlateState, decisions: Decisions) -> Counts:
    """Propose every eps_g, and decide group by group; the state is changed."""
    n_groups, q, n = plate.bounds.sizes.shape[0], plate.sums.n_effects, state.eps.shape[0]
    new_eps, new_levels, log_ratios = np.empty(n), np.empty(n), np.zeros(n_groups)
    new_excesses, effects, widths = np.empty(state.excesses.shape[0]), plate.effects, plate.bounds.widths
    for g in range(n_groups):
        if effects.kind == NORMAL:
            for j in range(g * q, (g + 1) * q):
                new_eps[j], ratio = propose_normal(rng, state.eps[j], widths[g])
                log_ratios[g] += ratio
        else:  # there are no slopes
            line, excess = (state.shifts[g], state.roots[g]), state.excesses[g]
            new, ratio = propose_other(rng, effects, state.shape, state.eps[g], line, excess, widths[g])
            new_excesses[g] = log_excess(effects, state.shape, state.shifts[g] + state.roots[g] * new)
            new_eps[g], log_ratios[g] = new, ratio + new_excesses[g] - state.excesses[g]
    levels_of(q, state.means, state.scales, new_eps, new_levels)
    add_cubic(plate.cubic, state.cubic, new_levels, 1.0, log_ratios)
    add_cubic(plate.cubic, state.cubic, state.levels, -1.0, log_ratios)
    pair = Pair(state.levels, new_levels, state.d, state.d, state.displaced, state.displaced)
    accepted = np.zeros(n_groups, np.bool_)
    counts = decisions.groups(rng, plate, decisions.numbers, pair, log_ratios, accepted)
    for g in range(n_groups):
        if accepted[g]:
            for j in range(g * q, (g + 1) * q):
                state.eps[j], state.levels[j] = new_eps[j], new_levels[j]
            if plate.effects.kind != NORMAL:
                state.excesses[g] = new_excesses[g]
    return counts


@jitable
def propose_normal(rng: np.random.Generator, eps: float, width: float) -> tuple[float, float]:
    """A new eps_g under a normal prior, and the log ratio without remainders.

    It is N(0, h_g^2), or, less often, of a random walk: that leaves tails that are heavier than those of the
    proposal.
    """
    xi = rng.standard_normal()
    if rng.random() < _WALKS:
        new, share = eps + _STEP * xi, 1.0
    else:
        new, share = width * xi, 1.0 - 1.0 / (width * width)
    return new, 0.5 * share * (eps * eps - new * new)


@jitable
def propose_other(
    rng: np.random.Generator,
    effects: EffectsDensity,
    shape: float,
    eps: float,
    line: tuple[float, float],
    excess: float,
    width: float,
) -> tuple[float, float]:
    """Propose eps_g for a prior that is not normal; the ratio leaves out what it differs by.

    Some proposals are draws of the prior itself: where a group has no rows, its tails are those of the
    posterior. Many are of random walks: with some rows, far from the others, eps_g is not near zero.
    """
    kind, (shift, root) = rng.random(), line
    if kind < _MORE_WALKS:
        new = eps + _SMALLEST * (_LARGEST / _SMALLEST) ** rng.random() * rng.standard_normal()
        return new, 0.5 * (eps * eps - new * new)
    if kind < 1.0 - _OWN:
        return propose_normal(rng, eps, width)
    y, y_new = shift + root * eps, drawn(rng, effects, shape)
    new = (y_new - shift) / root
    # The density of a proposal is exp(excess) N(y; 0, 1): the excess, which the target has, too, cancels.
    cancels = excess - log_excess(effects, shape, y_new)
    return new, 0.5 * (eps * eps - new * new) + 0.5 * (y_new * y_new - y * y) + cancels
