"""Compiled transitions of tables of gamma processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from pymc_austerity.kernels.cox_ingersoll_ross import cir_transitions
from pymc_austerity.kernels.langevin import sgrld_transitions
from pymc_austerity.model.compile.cache_key import key_of
from pymc_austerity.model.compile.native import NativeKernel, addresses_of, from_source, generator_at
from pymc_austerity.target import Array

Transitions = Callable[[np.random.Generator, Array, Array, float], Array]

_SOURCE = """
def transitions(rng, x, y, step_size, result):
    result[:] = kernel(generator_at(rng), x, y, step_size)
"""


@cache
def _compiled(kernel: Transitions) -> Any:
    """`kernel`, compiled such that no Python code runs inside; see `model.native`."""
    environment: dict[str, Any] = {
        "__name__": kernel.__module__,
        "kernel": kernel,
        "generator_at": generator_at,
    }
    key = key_of([_SOURCE], [kernel, NativeKernel])
    return from_source(_SOURCE, "transitions", environment, key)


def exact_transitions(rng: np.random.Generator, log_theta: Array, shape: Array, step_size: float) -> Array:
    """Exact transitions of the gamma processes: `kernels.cox_ingersoll_ross.cir_transitions`, compiled."""
    result = np.empty(log_theta.shape[0])
    _compiled(cir_transitions)(addresses_of(rng), log_theta, shape, step_size, result)
    return result


def euler_transitions(rng: np.random.Generator, theta: Array, drift: Array, step_size: float) -> Array:
    """Euler steps of the gamma processes: `kernels.langevin.sgrld_transitions`, compiled."""
    result = np.empty(theta.shape[0])
    _compiled(sgrld_transitions)(addresses_of(rng), theta, drift, step_size, result)
    return result


def each_row(
    transitions: Transitions, rng: np.random.Generator, x: Array, y: Array, step_size: Array
) -> Array:
    """Transitions of tables, in one call unless the step sizes differ, as they do with estimated rates."""
    steps = step_size.ravel()
    if np.all(steps == steps[0]):
        return transitions(rng, x.ravel(), y.ravel(), steps[0]).reshape(x.shape)
    pairs = zip(np.ravel(x), np.ravel(y), steps, strict=True)
    moved = [transitions(rng, np.array([a]), np.array([b]), h)[0] for a, b, h in pairs]
    return np.array(moved).reshape(x.shape)
