"""A sweep over a field: theta with the root, then the nodes by groups of depths; see `moves`."""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.fields.cubic import write_cubics
from pymc_austerity.kernels.fields.decisions import write_levels
from pymc_austerity.kernels.fields.heavy_tails import draw_precisions, log_prior_of_precisions
from pymc_austerity.kernels.fields.held import held_log_density, hold, take_held
from pymc_austerity.kernels.fields.law import propose
from pymc_austerity.kernels.fields.moves import (
    Decisions,
    move_group,
    move_root,
    nodes_by_drawn_rows,
    root_by_drawn_rows,
)
from pymc_austerity.kernels.fields.records import FieldArrays
from pymc_austerity.kernels.fields.row_tests import FieldTests, nodes_by_tests, root_by_test
from pymc_austerity.kernels.fields.state import log_marginal, write_displacements, write_eps
from pymc_austerity.kernels.metropolis import Rule
from pymc_austerity.proposals.deviations import Deviations
from pymc_austerity.target import Target, Vector


class FieldMemory(NamedTuple):
    """What a chain on a field remembers: standardised coordinates, and the values that they belong to."""

    q: Vector  # (D,): values of the model that were returned; NaN before the first
    theta: Vector
    z: Vector  # Of all effects
    eps: Vector  # Of the only turn, for z and theta; NaN where it is not known yet, or there are others
    features: Vector  # At theta, after a draw
    deviations: Deviations  # Of proposals: scores of theta, then eps by coordinates


class SweepOutcome(NamedTuple):
    """Outcome of several sweeps in a row; up to `psi` as in `kernels.metropolis.Outcome`."""

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
    effects_n_used: int
    effects_accepted: float
    whole_groups: int


@jitable
def field_sweeps(
    n_transitions: int,
    tune: bool,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    field: FieldArrays,
    memory: FieldMemory,
    target: Target,
) -> SweepOutcome:
    """Run sweeps from what the memory holds, or a turn of a sweep: other effects are held. All is exact.

    Parameters
    ----------
    n_transitions : int
        Sweeps.
    tune : bool
        Is not looked at: all is fitted before the chain begins.
    rng : numpy.random.Generator
    q : ndarray
        Is returned as it is: the state is in `memory`.
    args : tuple
        Handed to the functions of `target`.
    field : FieldArrays or Packed
    memory : FieldMemory
        Of the chain; theta and z are written to.
    target : Target
        ``global_log_ratio(theta_new, theta, args)`` is that of the prior of theta, ``features(theta, args)``
        are those of the maps.
    """
    decisions = Decisions(0, root_by_drawn_rows, nodes_by_drawn_rows)
    return sweeps(n_transitions, rng, q, args, field, memory, decisions, target)


@jitable
def tested_field_sweeps(
    n_transitions: int,
    tune: bool,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    field: FieldArrays,
    memory: FieldMemory,
    tests: FieldTests,
    rule: Rule,
    target: Target,
) -> SweepOutcome:
    """Run sweeps that `rule` decides on a subsample of remainders; the rest is as in `field_sweeps`.

    Parameters
    ----------
    tests : FieldTests
    rule : Rule
        Its schedule holds the stages of the tests of all populations, one after the other.
    """
    decisions = Decisions((tests, rule), root_by_test, nodes_by_tests)
    return sweeps(n_transitions, rng, q, args, field, memory, decisions, target)


@jitable
def sweeps(
    n_transitions: int,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    field: FieldArrays,
    memory: FieldMemory,
    decisions: Decisions,
    target: Target,
) -> SweepOutcome:
    """Make some sweeps: moves of theta with the root, then one of each group of depths."""
    theta, other = memory.theta, np.empty(memory.theta.shape[0])
    room, schedule = field.room, field.schedule
    features = target.features(theta, args)
    n, n_held = field.coordinates.shape[0], field.held.coordinates.shape[0]
    hold(field, features, memory.z)
    of_held = held_log_density(field.held, features)
    now = -1 if n_held > 0 else int(room.kept[0])
    tails, precisions = field.prior.tails, room.precisions
    has_tails = tails.coordinates.shape[0] > 0
    for j in range(theta.shape[0]):
        if room.theta[j] != theta[j]:
            now = -1
    is_kept = now >= 0 and not has_tails
    if not is_kept:
        now = 0
    is_same = is_kept  # then all that follows from theta and z is there
    for k in range(n):
        value = memory.z[field.coordinates[k]]
        is_same = is_same and room.z[now, k] == value
        room.z[now, k] = value
    if has_tails:
        draw_precisions(rng, tails, features, room.z[now], precisions)
    if not is_kept:
        room.kept[1] = log_marginal(field, features, now)
    height = room.kept[1]
    room.kept[0] = -1.0  # until the draw is whole
    room.eps[now] = memory.eps[:n]
    if has_tails or n_held > 0 or (n > 0 and math.isnan(memory.eps[0])):
        write_eps(field, now)
    if not is_same:
        write_displacements(field, features, now)
    if field.has_remainders and not is_same:
        write_levels(field.bounds, room.d[now], room.levels[now])
        room.deciding[:] = 0
        write_cubics(field, now)
    n_accepted, accepted, log_ratio = 0, False, math.nan
    of_root, of_levels = np.zeros(3), np.zeros(3)
    room.tally[:] = 0.0
    of_eps = memory.deviations.latest[:, theta.shape[0] :]
    for _ in range(n_transitions):
        for _ in range(schedule.n_roots):
            accepted, expected = False, 0.0
            ratio = propose(rng, field.law, schedule.walks, theta, other, memory.deviations)
            ratio += target.global_log_ratio(other, theta, args)
            if math.isfinite(ratio):
                proposed = target.features(other, args)
                new_height = log_marginal(field, proposed, 1 - now)
                new_of_held = held_log_density(field.held, proposed)
                log_ratio = ratio + new_height - height + new_of_held - of_held
                log_ratio += log_prior_of_precisions(tails, proposed, precisions)
                log_ratio -= log_prior_of_precisions(tails, features, precisions)
                if math.isfinite(log_ratio):
                    accepted = move_root(
                        rng, field, now, features, proposed, log_ratio, decisions, of_root, of_eps
                    )
                    if not math.isnan(room.base[-1]):  # far out it may be no number
                        expected = math.exp(min(room.base[-1], 0.0))
                    if accepted:
                        take_held(field)
                        now, height, of_held = 1 - now, new_height, new_of_held
                        theta[:] = other
                        features = proposed
            n_accepted += int(accepted)
            room.tally[0, -1] += 1.0
            room.tally[1, -1] += expected
        for k in range(schedule.depths.shape[0] - 1):
            move_group(rng, field, now, features, k, decisions, of_levels, of_eps)
    for k in range(n):
        memory.z[field.coordinates[k]] = room.z[now, k]
    for k in range(n_held):
        memory.z[field.held.coordinates[k]] = field.held.z[0, k]
    memory.eps[:n], memory.features[:] = room.eps[now], features
    room.theta[:] = theta
    room.kept[0], room.kept[1] = now, height
    n_proposed, n_moved = room.tally[0, :-1].sum(), room.tally[1, :-1].sum()
    of_effects = n_moved / n_proposed if n_proposed > 0.0 else 0.0
    n_root, n_levels = int(of_root[0]), int(of_levels[0])
    return SweepOutcome(
        q, n_accepted, n_root + n_levels, n_transitions, 0, int(of_root[2] + of_levels[2]), accepted,
        log_ratio, 0.0, math.nan,
        n_root, n_levels, of_effects * n_transitions, int(of_root[1] + of_levels[1]),
    )  # fmt: skip
