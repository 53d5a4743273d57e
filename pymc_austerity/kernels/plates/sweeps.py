"""Sweeps over a plate: a move of what the groups share, then a move of every group's own level."""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.metropolis import Rule
from pymc_austerity.kernels.plates.chain_memory import ChainMemory, begin, end
from pymc_austerity.kernels.plates.cubic import add_cubic
from pymc_austerity.kernels.plates.decisions import (
    Counts,
    Decisions,
    groups_by_drawn_rows,
    outer_by_drawn_rows,
    shared_by_drawn_rows,
)
from pymc_austerity.kernels.plates.moves import PlateState, at_theta, move_plate, move_shared, propose_normal
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.kernels.plates.row_tests import RowTests, groups_by_tests, shared_by_test
from pymc_austerity.kernels.plates.thinning import Pair
from pymc_austerity.target import Target, Vector

# The move of effects of outer groups, each of which decides on the rows of its groups; see `nested`.


@jitable
def move_outer(
    rng: np.random.Generator,
    plate: Plate,
    state: PlateState,
    other: PlateState,
    args: tuple[Any, ...],
    decisions: Decisions,
    target: Target,
) -> tuple[PlateState, PlateState, Counts]:
    """Propose every delta_h and keep all eps_g: each outer group decides alone.

    The state comes first, then room for another, as in `moves.move_shared`.
    """
    n, n_groups = state.delta.shape[0], plate.bounds.sizes.shape[0]
    delta, log_ratios, accepted = np.empty(n), np.empty(n), np.zeros(n, np.bool_)
    for h in range(n):
        delta[h], log_ratios[h] = propose_normal(rng, state.delta[h], 1.0)
    new = at_theta(other, state.theta, delta, state.eps, plate, args, target)
    of_groups = np.zeros(n_groups)
    for g in range(state.excesses.shape[0]):
        of_groups[g] = new.excesses[g] - state.excesses[g]
    add_cubic(plate.cubic, new.cubic, new.levels, 1.0, of_groups)
    add_cubic(plate.cubic, state.cubic, state.levels, -1.0, of_groups)
    pair = Pair(state.levels, new.levels, state.d, new.d, state.displaced, new.displaced)
    counts = decisions.outer(rng, plate, decisions.numbers, pair, of_groups, log_ratios, accepted)
    for h in range(n):
        if not accepted[h]:
            delta[h] = state.delta[h]
    return at_theta(other, state.theta, delta, state.eps, plate, args, target), state, counts


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
    memory: ChainMemory,
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
    memory : ChainMemory
        Of the chain; it is written to.
    target : Target
        ``global_log_ratio(theta_new, theta, args)`` is that of the prior of theta, without outer effects.
        ``features(theta, args)`` are tau, the logarithm of the precision of normal residuals (0 for other
        likelihoods), the shape of the effects' prior (0 for a normal one), and scales of inner effects.

    Returns
    -------
    SweepOutcome
        `n_accepted` counts shared moves, `plate_accepted` is the sum of the shares of groups that moved.
    """
    decisions = Decisions(0, shared_by_drawn_rows, groups_by_drawn_rows, outer_by_drawn_rows)
    return sweeps(n_transitions, rng, q, args, plate, memory, decisions, target)


@jitable
def tested_sweeps(
    n_transitions: int,
    tune: bool,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    plate: Plate,
    memory: ChainMemory,
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
    return sweeps(n_transitions, rng, q, args, plate, memory, decisions, target)


@jitable
def sweeps(
    n_transitions: int,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    plate: Plate,
    memory: ChainMemory,
    decisions: Decisions,
    target: Target,
) -> SweepOutcome:
    """Make some sweeps: a move of what groups share, then a move of each group's effects."""
    state, other = begin(q, plate, memory, args, target)
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
    end(q, state, plate, memory, args, target)
    return SweepOutcome(
        q, n_accepted, shared_n_used + plate_n_used, n_transitions, n_exhausted, n_clipped, accepted,
        log_ratio, 0.0, math.nan,
        shared_n_used, plate_n_used, plate_accepted, whole_groups,
    )  # fmt: skip
