"""Sweeps over a plate: a move of what the groups share, then a move of every group's own level."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.metropolis import Rule
from pymc_austerity.kernels.plates.chain_memory import ChainMemory, begin, end
from pymc_austerity.kernels.plates.decisions import (
    Decisions,
    groups_by_drawn_rows,
    outer_by_drawn_rows,
    shared_by_drawn_rows,
)
from pymc_austerity.kernels.plates.moves import move_plate, move_shared
from pymc_austerity.kernels.plates.outer_move import move_outer
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.kernels.plates.row_tests import RowTests, groups_by_tests, shared_by_test
from pymc_austerity.target import Target, Vector


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
