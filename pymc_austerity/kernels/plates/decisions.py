"""What a sweep over a plate asks: is theta' accepted, and which groups take their new levels.

Two kinds of answers fit: rows that are drawn by bounds (`thinning`), which is exact, and a test on a
subsample of remainders (`row_tests`). A chain is nowhere of density zero, so that no true ratio is infinite:
one that rounding has made so is not accepted.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.kernels.plates.thinning import (
    Pair,
    Shift,
    add_log_ratios,
    candidates_of,
    draw_row,
    rates_of,
    room_for_rows,
    shift_of,
)
from pymc_austerity.target import Vector

# Rows that are collected before they are evaluated.
_ROOM = 1024

Accepted = npt.NDArray[np.bool_]


class Counts(NamedTuple):
    """Counts of what a move read and accepted."""

    accepted: float  # The share that was
    # n_used, n_whole: rows, and groups of which all were read
    n_used: int
    n_whole: int
    n_clipped: int  # Decisions that took a variance for smaller than it was
    log_ratio: float


class Decisions(NamedTuple):
    """How the two moves are decided."""

    numbers: Any  # What the functions need besides the plate
    # callable: ``(rng, plate, numbers, pair, base) -> Counts``; `base` is the log ratio without remainders
    shared: Callable[[np.random.Generator, Plate, Any, Pair, float], Counts]
    # callable: ``(rng, plate, numbers, pair, log_ratios, accepted) -> Counts``. `log_ratios` (G,) are those
    # without remainders, and may be written over; which groups move is written to `accepted` (G,).
    groups: Callable[[np.random.Generator, Plate, Any, Pair, Vector, Accepted], Counts]
    # callable: ``(rng, plate, numbers, pair, of_groups, log_ratios, accepted) -> Counts``, the same for outer
    # groups: `log_ratios` and `accepted` (H,) are theirs, and `of_groups` (G,) is what groups add to them
    outer: Callable[[np.random.Generator, Plate, Any, Pair, Vector, Vector, Accepted], Counts]


@jitable
def shared_by_drawn_rows(
    rng: np.random.Generator, plate: Plate, numbers: Any, pair: Pair, base: float
) -> Counts:
    """Decide on theta' exactly."""
    log_ratios = np.zeros(plate.bounds.sizes.shape[0])
    n_used, n_whole = 0, 0
    if plate.rule.has_remainders and base > -math.inf:
        shift = shift_of(plate.bounds, pair.d, pair.d_new)
        n_used, n_whole = compare(rng, plate, pair, shift, plate.rule.kappa, log_ratios)
    log_ratio = base + np.sum(log_ratios)
    accepted = math.log(1.0 - rng.random()) < log_ratio < math.inf
    return Counts(1.0 if accepted else 0.0, n_used, n_whole, 0, log_ratio)


@jitable
def groups_by_drawn_rows(
    rng: np.random.Generator, plate: Plate, numbers: Any, pair: Pair, log_ratios: Vector, accepted: Accepted
) -> Counts:
    """Decide on every group exactly."""
    n_used, n_whole = 0, 0
    if plate.rule.has_remainders:
        shift = shift_of(plate.bounds, pair.d, pair.d_new)
        n_used, n_whole = compare(rng, plate, pair, shift, 1.0, log_ratios)
    for g in range(log_ratios.shape[0]):
        ratio = log_ratios[g]
        accepted[g] = 0.0 <= ratio < math.inf or math.log(1.0 - rng.random()) < ratio < 0.0
    return Counts(np.sum(accepted) / log_ratios.shape[0], n_used, n_whole, 0, 0.0)


@jitable
def outer_by_drawn_rows(
    rng: np.random.Generator,
    plate: Plate,
    numbers: Any,
    pair: Pair,
    of_groups: Vector,
    log_ratios: Vector,
    accepted: Accepted,
) -> Counts:
    """Decide on every outer group exactly, by rows of all its groups."""
    n_used, n_whole, parents = 0, 0, plate.outer.parents
    if plate.rule.has_remainders:
        shift = shift_of(plate.bounds, pair.d, pair.d_new)
        n_used, n_whole = compare(rng, plate, pair, shift, plate.rule.kappa, of_groups)
    for g in range(parents.shape[0]):
        if parents[g] >= 0:
            log_ratios[parents[g]] += of_groups[g]
    for h in range(log_ratios.shape[0]):
        ratio = log_ratios[h]
        accepted[h] = 0.0 <= ratio < math.inf or math.log(1.0 - rng.random()) < ratio < 0.0
    return Counts(np.sum(accepted) / max(1, log_ratios.shape[0]), n_used, n_whole, 0, 0.0)


@jitable
def compare(
    rng: np.random.Generator, plate: Plate, pair: Pair, shift: Shift, kappa: float, result: Vector
) -> tuple[int, int]:
    """Add to every group the log ratio of its rows; how many were read, and groups that read all."""
    starts, sizes = plate.rows.starts, plate.bounds.sizes
    rates = rates_of(plate.bounds, plate.sums.cells, pair, shift, kappa)
    tiers, _, _, expected = rates
    candidates, drawn, n, n_used, n_whole = candidates_of(plate), room_for_rows(_ROOM), 0, 0, 0
    clock = rng.standard_exponential()
    for g in range(result.shape[0]):
        if sizes[g] == 0:
            continue
        i, last, whole = starts[g] - 1, starts[g + 1] - 1, tiers[g] < 0
        n_whole += int(whole)
        clock -= expected[g]
        while (whole and i < last) or clock < 0.0:
            bound = -1.0
            if whole:
                i += 1
            else:
                clock += rng.standard_exponential()
                i, bound = draw_row(rng, candidates, g, rates, pair, shift, kappa)
                if i < 0:
                    continue
            if n == _ROOM:
                add_log_ratios(rng, plate, drawn, n, pair, result)
                n = 0
            drawn.rows[n], drawn.groups[n], drawn.bounds[n] = i, g, bound
            n += 1
            n_used += 1
    add_log_ratios(rng, plate, drawn, n, pair, result)
    return n_used, n_whole
