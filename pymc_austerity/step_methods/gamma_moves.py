"""Compiled transitions of tables of gamma processes."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from pymc_austerity.kernels.cir import cir_transitions
from pymc_austerity.kernels.sgrld import sgrld_transitions

Array = npt.NDArray[np.float64]

# Each of them, compiled and cached, is from the file that it depends on: numba notices changes of that only.
exact_transitions: Any = numba.njit(cache=True)(cir_transitions)
euler_transitions: Any = numba.njit(cache=True)(sgrld_transitions)


def each_row(transitions: Any, rng: np.random.Generator, x: Array, y: Array, step_size: Array) -> Array:
    """Transitions of tables, in one call unless the step sizes differ, as they do with estimated rates."""
    steps = step_size.ravel()
    if np.all(steps == steps[0]):
        return transitions(rng, x.ravel(), y.ravel(), steps[0]).reshape(x.shape)
    pairs = zip(np.ravel(x), np.ravel(y), steps, strict=True)
    moved = [transitions(rng, np.array([a]), np.array([b]), h)[0] for a, b, h in pairs]
    return np.array(moved).reshape(x.shape)
