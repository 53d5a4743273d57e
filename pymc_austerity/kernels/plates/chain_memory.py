"""Between the values of the model and the coordinates of the chain.

A chain moves theta, eps_g and delta_h. The model has effects u_g = loc_g + C z_g and v_h = n_h + T z_h, or z
itself where it is not centred. Below a scale of some 1e-15 of the location u no longer tells z. So a chain
remembers z beside the values that it returned, and goes on with it as long as it is handed the same values.
"""

from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.plates.coordinates import (
    displacement,
    effects_of,
    eps_of,
    standardised,
    standardised_from_eps,
)
from pymc_austerity.kernels.plates.moves import PlateState, at_theta, no_state
from pymc_austerity.kernels.plates.nested import delta_of, standardised_outer
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.kernels.plates.slopes import (
    effects_with_slopes,
    eps_with_slopes,
    scale_factor,
    standardised_from_eps_with_slopes,
    standardised_with_slopes,
)
from pymc_austerity.target import Target, Vector


class ChainMemory(NamedTuple):
    """Memory of a chain on a plate: standardised effects, and the values that they belong to."""

    q: Vector  # (n,): values of the model that it returned; NaN before the first
    scales: Vector  # (k + 1,): the factor C, row by row, and T, of which z is
    z: Vector  # (G q,): z_g, one after the other
    outer: Vector  # (H,): z_h


def new_memory(plate: Plate, n_values: int) -> ChainMemory:
    """The memory of a chain that has returned nothing yet, of a block of `n_values` numbers."""
    q = plate.sums.n_effects
    return ChainMemory(
        np.full(n_values, np.nan),
        np.zeros(q * (q + 1) // 2 + 1),
        np.zeros(len(plate.sums.slopes)),
        np.zeros(len(plate.outer.columns)),
    )


@jitable
def begin(
    q: Vector, plate: Plate, memory: ChainMemory, args: tuple[Any, ...], target: Target
) -> tuple[PlateState, PlateState]:
    """The state at q, and room for another."""
    sums, outer = plate.sums, plate.outer
    n_shared, n_effects = q.shape[0] - sums.slopes.shape[0], sums.n_effects
    state, other = no_state(n_shared, plate), no_state(n_shared, plate)
    theta, eps, delta = q[:n_shared].copy(), np.empty(memory.z.shape[0]), np.empty(memory.outer.shape[0])
    given = target.features(theta, args)  # scales depend on no coordinate that is scaled
    for j in range(plate.rule.scaled.shape[0]):
        theta[plate.rule.scaled[j]] *= given[plate.rule.scaled_by[j]]
    displacement(sums, theta, state.d)
    if not remembers(memory, q, plate, given):
        standardise(q, theta, state.d, plate, memory, given)
    if n_effects == 1:
        eps_of(sums, state.d, given[0], given[1], memory.z, eps)
    else:
        factor, log_precision = scale_factor(given, n_effects), given[n_effects * (n_effects + 1) // 2]
        eps_with_slopes(sums, state.d, factor, log_precision, memory.z, eps)
    if delta.shape[0] > 0:
        delta_of(sums, outer, theta, state.d, given, memory.outer, delta)
    return at_theta(state, theta, delta, eps, plate, args, target), other


@jitable
def remembers(memory: ChainMemory, q: Vector, plate: Plate, features: Vector) -> bool:
    """Is the state the one that was returned, with the same scales? Other steps may have moved these."""
    n = memory.scales.shape[0] - 1
    for j in range(n):
        if memory.scales[j] != features[j]:
            return False
    if memory.outer.shape[0] > 0 and memory.scales[n] != features[plate.outer.scale_at]:
        return False
    same = True
    for k in range(q.shape[0]):
        same = same and memory.q[k] == q[k]
    return same


@jitable
def standardise(
    q: Vector, theta: Vector, d: Vector, plate: Plate, memory: ChainMemory, features: Vector
) -> None:
    """Write z of all effects to the memory, which is of no state until a run ends."""
    sums, outer = plate.sums, plate.outer
    memory.q[0] = np.nan
    effects, n_effects = q[theta.shape[0] :], sums.n_effects
    if not plate.rule.is_centered:
        memory.z[:] = by_groups(effects / plate.effects.ratio, plate.rule.n_vectors)
    elif n_effects == 1:
        standardised(sums, d, features[0], effects, memory.z)
    else:
        together = by_groups(effects, plate.rule.n_vectors)
        standardised_with_slopes(sums, d, scale_factor(features, n_effects), together, memory.z)
    if memory.outer.shape[0] > 0:
        if outer.is_centered:
            standardised_outer(sums, outer, theta, d, features, memory.outer)
        else:
            for h in range(memory.outer.shape[0]):
                memory.outer[h] = q[sums.linear[outer.columns[h]]]


@jitable
def end(
    q: Vector, state: PlateState, plate: Plate, memory: ChainMemory, args: tuple[Any, ...], target: Target
) -> None:
    """Write the state to q, and remember it."""
    sums, outer = plate.sums, plate.outer
    memory.q[0] = np.nan  # until all of it is written
    n_shared, n_effects = state.theta.shape[0], sums.n_effects
    q[:n_shared] = state.theta
    given = target.features(state.theta, args)
    for j in range(plate.rule.scaled.shape[0]):
        q[plate.rule.scaled[j]] /= given[plate.rule.scaled_by[j]]
    effects = q[n_shared:]
    if n_effects == 1:
        standardised_from_eps(sums, given[0], given[1], state.locations, state.eps, memory.z)
        if plate.rule.is_centered:
            effects_of(sums, state.d, given[0], memory.z, effects)
    else:
        factor, log_precision = scale_factor(given, n_effects), given[n_effects * (n_effects + 1) // 2]
        standardised_from_eps_with_slopes(sums, factor, log_precision, state.locations, state.eps, memory.z)
        if plate.rule.is_centered:
            effects_with_slopes(sums, state.d, factor, memory.z, effects)
    if not plate.rule.is_centered:
        effects[:] = memory.z * plate.effects.ratio
    if plate.rule.n_vectors > 1:
        effects[:] = by_effects(effects, plate.rule.n_vectors)
    memory.outer[:] = state.outer
    if not outer.is_centered:
        for h in range(memory.outer.shape[0]):
            q[sums.linear[outer.columns[h]]] = memory.outer[h]
    n = memory.scales.shape[0] - 1
    memory.scales[:n] = given[:n]
    if memory.outer.shape[0] > 0:
        memory.scales[n] = given[outer.scale_at]
    memory.q[:] = q


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
    return by_groups(effects, effects.shape[0] // n_vectors)
