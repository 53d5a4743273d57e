"""Sweeps over a plate: a move of what the groups share, then a move of every group's own level."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.metropolis import Rule
from pymc_austerity.kernels.plates.coordinates import displacement, effects_of, standardised
from pymc_austerity.kernels.plates.decisions import (
    Decisions,
    groups_by_drawn_rows,
    outer_by_drawn_rows,
    shared_by_drawn_rows,
)
from pymc_austerity.kernels.plates.moves import PlateState, at_theta, move_plate, move_shared, no_state
from pymc_austerity.kernels.plates.outer_move import move_outer
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.kernels.plates.row_tests import RowTests, groups_by_tests, shared_by_test
from pymc_austerity.kernels.plates.slopes import (
    effects_with_slopes,
    scale_factor,
    standardised_with_slopes,
)
from pymc_austerity.target import Target, Vector


class SweepOutcome(NamedTuple):
    """What several sweeps in a row did; up to `psi` as in `kernels.metropolis.Outcome`."""

    q: Vector
    n_accepted: int
    n_used: int
    n_stages: int
    n_exhausted: int
    n_clipped: int
    accepted: bool
    log_ratio_mean: float
    log_ratio_se: float
    psi: float
    shared_n_used: int
    plate_n_used: int
    plate_accepted: float
    whole_groups: int


@jitable
def plate_sweeps(
    n_transitions: int,
    tune: bool,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    plate: Plate,
    target: Target,
) -> SweepOutcome:
    """Run sweeps from `q`, decided exactly by drawn rows.

    Parameters
    ----------
    n_transitions : int
        Sweeps.
    tune : bool
        Is not looked at: all is fitted before the chain begins.
    rng : numpy.random.Generator
    q : ndarray
        theta, then the effects of all groups as the model has them.
    args : tuple
        Handed to the functions of `target`.
    plate : Plate
    target : Target
        ``global_log_ratio(theta_new, theta, args)`` is that of the prior of theta. ``features(theta, args)``
        are tau, the logarithm of the precision of normal residuals (0 for other likelihoods), the shape of
        the effects' prior (0 for a normal one), and scales of inner effects.

    Returns
    -------
    SweepOutcome
        `n_accepted` counts shared moves, `plate_accepted` is the sum of the shares of groups that moved.
    """
    decisions = Decisions(0, shared_by_drawn_rows, groups_by_drawn_rows, outer_by_drawn_rows)
    return sweeps(n_transitions, rng, q, args, plate, decisions, target)


@jitable
def tested_sweeps(
    n_transitions: int,
    tune: bool,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    plate: Plate,
    tests: RowTests,
    rule: Rule,
    target: Target,
) -> SweepOutcome:
    """Run sweeps from `q`, decided by `rule` on a subsample of remainders; the rest is as in `plate_sweeps`.

    Parameters
    ----------
    tests : RowTests
    rule : Rule
        Its schedule holds the stages of the tests of all rows, and of those of groups, one after the other.
    """
    decisions = Decisions((tests, rule), shared_by_test, groups_by_tests, outer_by_drawn_rows)
    return sweeps(n_transitions, rng, q, args, plate, decisions, target)


@jitable
def sweeps(
    n_transitions: int,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    plate: Plate,
    decisions: Decisions,
    target: Target,
) -> SweepOutcome:
    """The loop."""
    state, other = begin(q, plate, args, target)
    n_accepted = shared_n_used = plate_n_used = whole_groups = n_exhausted = n_clipped = 0
    plate_accepted, accepted, log_ratio = 0.0, False, math.nan
    for _ in range(n_transitions):
        state, other, counts = move_shared(rng, plate, state, other, args, decisions, target)
        accepted, log_ratio = counts.accepted > 0.0, counts.log_ratio
        n_accepted += int(accepted)
        shared_n_used += counts.n_used
        n_exhausted += int(counts.n_whole == plate.bounds.sizes.shape[0])
        n_clipped += counts.n_clipped
        whole_groups += counts.n_whole
        if plate.outer.columns.shape[0] > 0:
            state, other, counts = move_outer(rng, plate, state, other, args, decisions, target)
            plate_n_used += counts.n_used
            whole_groups += counts.n_whole
        counts = move_plate(rng, plate, state, decisions)
        plate_accepted += counts.accepted
        plate_n_used += counts.n_used
        n_clipped += counts.n_clipped
        whole_groups += counts.n_whole
    end(q, state, plate, args, target)
    return SweepOutcome(
        q, n_accepted, shared_n_used + plate_n_used, n_transitions, n_exhausted, n_clipped, accepted,
        log_ratio, 0.0, math.nan,
        shared_n_used, plate_n_used, plate_accepted, whole_groups,
    )  # fmt: skip


@jitable
def begin(q: Vector, plate: Plate, args: tuple[Any, ...], target: Target) -> tuple[PlateState, PlateState]:
    """The state at q, and room for another."""
    sums = plate.sums
    n_shared = q.shape[0] - sums.slopes.shape[0]
    state, other = no_state(n_shared, plate), no_state(n_shared, plate)
    theta, eps = q[:n_shared].copy(), np.empty(sums.slopes.shape[0])
    given = target.features(theta, args)  # scales depend on no coordinate that is scaled
    for j in range(plate.rule.scaled.shape[0]):
        theta[plate.rule.scaled[j]] *= given[plate.rule.scaled_by[j]]
    displacement(sums, theta, state.d)
    n_effects, is_centered = sums.n_effects, plate.rule.is_centered
    effects = q[n_shared:] if is_centered else q[n_shared:] / plate.effects.ratio
    if n_effects == 1:
        standardised(sums, state.d, given[0], given[1], effects, is_centered, eps)
    else:
        factor, log_precision = scale_factor(given, n_effects), given[n_effects * (n_effects + 1) // 2]
        together = by_groups(effects, plate.rule.n_vectors)
        standardised_with_slopes(sums, state.d, factor, log_precision, together, is_centered, eps)
    return at_theta(state, theta, eps, plate, args, target), other


@jitable
def by_groups(effects: Vector, n_vectors: int) -> Vector:
    """Effects of each group one after the other, from so many vectors of effects."""
    n, result = effects.shape[0] // n_vectors, np.empty(effects.shape[0])
    for j in range(n_vectors):
        for g in range(n):
            result[g * n_vectors + j] = effects[j * n + g]
    return result


@jitable
def by_effects(effects: Vector, n_vectors: int) -> Vector:
    """The inverse of `by_groups`."""
    n, result = effects.shape[0] // n_vectors, np.empty(effects.shape[0])
    for j in range(n_vectors):
        for g in range(n):
            result[j * n + g] = effects[g * n_vectors + j]
    return result


@jitable
def end(q: Vector, state: PlateState, plate: Plate, args: tuple[Any, ...], target: Target) -> None:
    """Write the state to q."""
    n_shared = state.theta.shape[0]
    q[:n_shared] = state.theta
    given = target.features(state.theta, args)
    for j in range(plate.rule.scaled.shape[0]):
        q[plate.rule.scaled[j]] /= given[plate.rule.scaled_by[j]]
    n_effects, is_centered = plate.sums.n_effects, plate.rule.is_centered
    if n_effects == 1:
        effects_of(plate.sums, state.d, given[0], given[1], state.eps, is_centered, q[n_shared:])
    else:
        factor, log_precision = scale_factor(given, n_effects), given[n_effects * (n_effects + 1) // 2]
        together = np.empty(state.eps.shape[0])
        effects_with_slopes(plate.sums, state.d, factor, log_precision, state.eps, is_centered, together)
        q[n_shared:] = by_effects(together, plate.rule.n_vectors)
    if not plate.rule.is_centered:
        q[n_shared:] *= plate.effects.ratio
