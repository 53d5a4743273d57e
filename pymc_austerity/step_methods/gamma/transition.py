"""The compiled transition of tables of gamma processes."""

from functools import cache
from typing import Any

import numpy as np

from pymc_austerity.kernels.cox_ingersoll_ross import cir_transitions
from pymc_austerity.model.compile.cache_key import key_of
from pymc_austerity.model.compile.native import NativeKernel, addresses_of, from_source, generator_at
from pymc_austerity.target import Array

_SOURCE = """
def transitions(rng, log_theta, shape, step_size, result):
    result[:] = kernel(generator_at(rng), log_theta, shape, step_size)
"""


@cache
def _compiled() -> Any:
    """`cir_transitions`, compiled such that no Python code runs inside; see `model.compile.native`."""
    environment: dict[str, Any] = {
        "__name__": cir_transitions.__module__,
        "kernel": cir_transitions,
        "generator_at": generator_at,
    }
    key = key_of([_SOURCE], [cir_transitions, NativeKernel])
    return from_source(_SOURCE, "transitions", environment, key)


def exact_transitions(rng: np.random.Generator, log_theta: Array, shape: Array, step_size: Array) -> Array:
    """Transition (3.3) of Baker et al. (2018) of a table of processes with rate one.

    It takes one call unless the step sizes differ, as they do with estimated rates.

    Parameters
    ----------
    rng : numpy.random.Generator
    log_theta : ndarray
        Logarithms of where the processes are.
    shape : ndarray
        Gamma shapes given the data, as they are estimated.
    step_size : ndarray
        h of each process.

    Returns
    -------
    ndarray
        Logarithms of the processes after the transition.
    """
    x, a, h = log_theta.ravel(), shape.ravel(), step_size.ravel()
    moved = np.empty(x.shape[0])
    if np.all(h == h[0]):
        _compiled()(addresses_of(rng), x, a, h[0], moved)
    else:
        for i in range(len(x)):
            _compiled()(addresses_of(rng), x[i : i + 1], a[i : i + 1], h[i], moved[i : i + 1])
    return moved.reshape(log_theta.shape)
