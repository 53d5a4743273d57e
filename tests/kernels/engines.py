"""Targets written by hand, and the kernel around them, interpreted or compiled."""

from functools import cache
from typing import NamedTuple

import numba
import numpy as np
from numba.extending import register_jitable

from pymc_austerity.acceptance.base import standard_error
from pymc_austerity.kernels.log_ratio_range import no_range
from pymc_austerity.kernels.metropolis import sequential_test, transitions
from pymc_austerity.kernels.moves import proposed_move
from pymc_austerity.kernels.stratum import NO_STRATUM
from pymc_austerity.target import Target


class Trace(NamedTuple):
    """States, and what the kernel said of each transition."""

    q: np.ndarray
    accepted: np.ndarray
    n_used: np.ndarray
    n_stages: np.ndarray
    exhausted: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    psi: np.ndarray


def _make_trace(propose, adapt, rule, target, kernel=transitions, range_of=no_range):
    draw, decide, accept = rule
    global_log_ratio, log_ratios = target

    def trace(n, tune, rng, q, args, population, proposal, schedule, bound=0):
        states = np.empty((n, q.shape[0]))
        accepted, exhausted = np.empty(n, np.bool_), np.empty(n, np.int64)
        used, stages = np.empty(n, np.int64), np.empty(n, np.int64)
        mean, error, psi = np.empty(n), np.empty(n), np.empty(n)
        for t in range(n):
            out = kernel(
                1, tune, rng, q, args, population, NO_STRATUM, proposal, schedule, bound,
                proposed_move, propose, adapt, draw, decide, accept, range_of,
                Target(global_log_ratio, log_ratios),
            )  # fmt: skip
            q = out.q
            states[t], accepted[t], used[t] = q, out.accepted, out.n_used
            stages[t], exhausted[t] = out.n_stages, out.n_exhausted
            mean[t], error[t], psi[t] = out.log_ratio_mean, out.log_ratio_se, out.psi
        return Trace(states, accepted, used, stages, exhausted, mean, error, psi)

    return trace


def interpreted_trace(propose, adapt, rule, target, **kwargs):
    """``(n, tune, rng, q, args, population, proposal, schedule) -> Trace``, in plain Python."""
    return _make_trace(propose, adapt, rule, target, **kwargs)


@cache
def compiled_trace(propose, adapt, rule, target, **kwargs):
    """The same, compiled."""
    return numba.njit(_make_trace(propose, adapt, rule, target, **kwargs))


@cache
def compiled_transitions(propose, adapt, rule, target):
    """`transitions` compiled around its functions, as `model.compile` does it."""
    draw, decide, accept = rule
    global_log_ratio, log_ratios = target

    @numba.njit
    def engine(n, tune, rng, q, args, population, proposal, schedule):
        return transitions(
            n, tune, rng, q, args, population, NO_STRATUM, proposal, schedule, 0,
            proposed_move, propose, adapt, draw, decide, accept, no_range,
            Target(global_log_ratio, log_ratios),
        )  # fmt: skip

    return engine


# Targets ----------------------------------------------------------------------------------------


@register_jitable
def normal_prior(q_new, q, args):
    """N(0, 2^2) on every coordinate."""
    total = 0.0
    for d in range(q.shape[0]):
        total += (q[d] - q_new[d]) * (q[d] + q_new[d]) / 8.0
    return total


@register_jitable
def regression_terms(q_new, q, index, args):
    """y_i ~ N(x_i . q, 1)."""
    x, y = args
    out = np.empty(index.shape[0])
    for k in range(index.shape[0]):
        i = index[k]
        new, old = y[i], y[i]
        for d in range(q.shape[0]):
            new -= x[i, d] * q_new[d]
            old -= x[i, d] * q[d]
        out[k] = 0.5 * (old - new) * (old + new)
    return out


REGRESSION = Target(normal_prior, regression_terms)


@register_jitable
def nothing(q_new, q, args):
    return 0.0


@register_jitable
def given_terms(q_new, q, index, args):
    """Terms that are handed in, whatever the states."""
    return args[0][index]


GIVEN = Target(nothing, given_terms)


@cache
def compiled_test(decide):
    """``(n_calls, rng, psi, terms, population, schedule, width) -> (n, stages, mean)``, of length n_calls."""

    @numba.njit
    def run(n_calls, rng, psi, terms, population, schedule, width=np.nan):
        n, stages, mean = np.empty(n_calls), np.empty(n_calls), np.empty(n_calls)
        q = np.zeros(1)
        for t in range(n_calls):
            sample, stages[t] = sequential_test(
                rng, psi, width, q, q, (terms,), population, NO_STRATUM, schedule, decide,
                Target(nothing, given_terms),
            )  # fmt: skip
            n[t], mean[t] = sample.n, sample.mean
        return n, stages, mean

    return run


# A planted bug: Student's test as if the rows were drawn with replacement ---------------------------


@register_jitable
def significant_without_fpc(schedule, stage, sample, psi, width):
    """`TTest` without the finite-population correction."""
    if sample.n == sample.n_local:
        return True
    error = standard_error(sample.n, 1 << 60, sample.m2)
    return error > 0.0 and abs(sample.mean - psi) > schedule.bounds[stage] * error


class ScriptedRng:
    """Stands in for a generator: hands out given numbers, and counts them."""

    def __init__(self, uniforms=(), normals=()):
        self.uniforms, self.normals = list(uniforms), list(normals)
        self.calls = []

    def random(self):
        self.calls.append("random")
        return self.uniforms.pop(0)

    def standard_normal(self, size):
        self.calls.append("normal")
        return np.array([self.normals.pop(0) for _ in range(size)])
