"""The move of effects of outer groups, each of which decides on the rows of its groups; see `nested`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.plates.cubic import add_cubic
from pymc_austerity.kernels.plates.decisions import Counts, Decisions
from pymc_austerity.kernels.plates.moves import PlateState, at_theta, propose_normal
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.kernels.plates.thinning import Pair
from pymc_austerity.target import Target


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
