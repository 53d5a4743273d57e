"""Targets written by hand, and the kernel around them, interpreted or compiled."""

import math
from copy import deepcopy
from functools import cache
from typing import NamedTuple

import numba
import numpy as np
from numba.extending import register_jitable
from scipy.special import ndtr, ndtri, stdtr

from pymc_austerity.acceptance import Exact
from pymc_austerity.acceptance.base import RuleFunctions, standard_error
from pymc_austerity.compilation import entry
from pymc_austerity.kernels.metropolis import Rule, no_range, sequential_test, transitions
from pymc_austerity.kernels.subsample import ALL_ROWS, NO_ROWS, Rows, in_blocks, population_of, rows_of
from pymc_austerity.model.compile.protocol import constructor
from pymc_austerity.proposals import AdaptiveRandomWalk, RandomWalk
from pymc_austerity.proposals.base import BoundProposal, NoState, ProposalKernel, no_adaptation, proposed_move
from pymc_austerity.target import Target


def by(propose, state=None, adapt=no_adaptation, move=proposed_move):
    """A proposal of this function, for a kernel."""
    return ProposalKernel(state, propose, move, adapt)


def rule_of(rule, schedule, bound=0, range_of=no_range):
    """A decision rule, or its functions, with these stages, for a kernel."""
    return Rule(schedule, bound, *getattr(rule, "functions", rule), range_of)


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


@register_jitable
def itself(x):
    """What has nothing to be filled in."""
    return x


def make_trace(kernel, make_rows, make_rule, proposal, target):
    """``(n, tune, rng, q, args, rows, state, *rule) -> Trace`` of records that are made at each call."""
    make_proposal, make_target = constructor(proposal), constructor(target)

    def trace(n, tune, rng, q, args, rows, state, *rule):
        states = np.empty((n, q.shape[0]))
        accepted, exhausted = np.empty(n, np.bool_), np.empty(n, np.int64)
        used, stages = np.empty(n, np.int64), np.empty(n, np.int64)
        mean, error, psi = np.empty(n), np.empty(n), np.empty(n)
        for t in range(n):
            out = kernel(
                1, tune, rng, q, args, make_rows(rows), make_rule(*rule), make_proposal(state), make_target()
            )
            q = out.q
            states[t], accepted[t], used[t] = q, out.accepted, out.n_used
            stages[t], exhausted[t] = out.n_stages, out.n_exhausted
            mean[t], error[t], psi[t] = out.log_ratio_mean, out.log_ratio_se, out.psi
        return Trace(states, accepted, used, stages, exhausted, mean, error, psi)

    return trace


def interpreted_trace(propose, adapt, rule, target):
    """``(n, tune, rng, q, args, rows, proposal, schedule) -> Trace``, in plain Python."""
    make_rule = constructor(Rule(..., 0, *rule, no_range))
    return make_trace(transitions, itself, make_rule, by(propose, ..., adapt), target)


@cache
def compiled_trace(propose, adapt, rule, target):
    """The same, compiled."""
    return entry(interpreted_trace(propose, adapt, rule, target), cache=False)


def assert_same_traces(ours, theirs, **nearly):
    """Equal to the last bit, but for fields with a relative tolerance."""
    for name in Trace._fields:
        one, other = getattr(ours, name), getattr(theirs, name)
        if name in nearly:
            np.testing.assert_allclose(one, other, rtol=nearly[name], atol=1e-15, err_msg=name)
        else:
            np.testing.assert_array_equal(one, other, err_msg=name)


# Proposals, and data of a regression -------------------------------------------------------------


@register_jitable
def multiply_and_shift(state, q, rng):
    """A user's proposal: multiplies the first coordinate, shifts the second."""
    factor = math.exp(0.1 * rng.standard_normal())
    q_new = q.copy()
    q_new[0] *= factor
    q_new[1] += 0.1 * rng.standard_normal()
    return q_new, math.log(factor)


BOUND_PROPOSALS = {
    "scales": RandomWalk(scale=[0.03, 0.1]).bind(2),
    "cov": RandomWalk(cov=[[0.01, 0.004], [0.004, 0.005]]).bind(2),
    "adaptive": AdaptiveRandomWalk().bind(2, 0.44),
    "user": BoundProposal(NoState(np.array([np.nan])), multiply_and_shift, no_adaptation),
}


@cache
def regression_data(n):
    """Covariates (n, 2) and responses, for `REGRESSION`."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 2))
    return x, x @ [0.5, -1.0] + rng.normal(size=n)


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


def run_chain(
    n,
    bound,
    rule,
    data,
    *,
    exact=(),
    blocks=False,
    make=compiled_trace,
    seed=3,
    tune=False,
    target=REGRESSION,
):
    """Trace of a chain, the state of its proposal, and the next random number."""
    schedule = rule.bind(len(data[-1]) - len(exact))
    if blocks:
        schedule = in_blocks(schedule, always=True)
    rows, rng = rows_of(schedule, np.array(exact, dtype=np.int64)), np.random.default_rng(seed)
    state = deepcopy(bound.state)
    trace = make(bound.propose, bound.adapt, rule.functions, REGRESSION)
    found = trace(n, tune, rng, np.array([0.5, -1.0]), data, rows, state, schedule)
    np.testing.assert_array_equal(rows.population, population_of(schedule))
    return found, state, rng.random()


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
    make_rule = constructor(Rule(..., 0, *RuleFunctions(None, decide, None), None))
    make_target = constructor(GIVEN)

    @numba.njit
    def run(n_calls, rng, psi, terms, population, schedule, width=np.nan):
        n, stages, mean = np.empty(n_calls), np.empty(n_calls), np.empty(n_calls)
        q, rows = np.zeros(1), Rows(schedule.ends[-1], population, NO_ROWS, NO_ROWS, ALL_ROWS, 0)
        for t in range(n_calls):
            sample, stages[t], _ = sequential_test(
                rng, psi, width, q, q, (terms,), rows, make_rule(schedule), make_target()
            )
            n[t], mean[t] = sample.n, sample.mean
        return n, stages, mean

    return run


def given_transition(
    rng, terms, *, rule=None, exact=(), base=(0.0, 0.0), leaves=None, blocks=False, kernel=transitions,
    numbered=rows_of,
):  # fmt: skip
    """One interpreted transition from 0 to 1, and the rows that each call asks for.

    Log ratios of the terms are given, and `base` is that of the global part and that of the proposal. What is
    infinite is so because the density at 1 is; where it `leaves`, because the density at 0 is zero. By
    default that is so of what is +inf.
    """
    terms, rule, calls = np.asarray(terms, dtype=float), rule or Exact(), []
    schedule = rule.bind(len(terms) - len(exact))
    if blocks:
        schedule = in_blocks(schedule, always=True)

    def itself(q, x):
        is_left = np.asarray(x) > 0 if leaves is None else leaves
        return np.where(np.isinf(x) & (is_left == (q[0] == 0.0)), np.nan, 0.0)

    def log_ratios(q_new, q, index, args):
        if np.all(q_new == q):
            return itself(q, terms[index])
        assert (q_new[0], q[0]) == (1.0, 0.0)
        calls.append(index.copy())
        return terms[index]

    def global_log_ratio(q_new, q, args):
        return float(itself(q, base[0])) if np.all(q_new == q) else base[0]

    rows = numbered(schedule, np.array(exact, dtype=np.int64))
    out = kernel(
        1, False, rng, np.zeros(1), (), rows, rule_of(rule, schedule), by(lambda *_: (np.ones(1), base[1])),
        Target(global_log_ratio, log_ratios),
    )  # fmt: skip
    np.testing.assert_array_equal(rows.population, population_of(schedule))
    assert out.q[0] == out.accepted == out.n_accepted
    assert out.n_used == sum(map(len, calls))
    return out, calls


def reference_test(values, psi, rule, fpc=True):
    """Algorithm 1 on rows in the order of `values`, with scipy's t: terms read, mean > psi, standard error.

    What was not read may be missing (NaN).
    """
    n_local, n = len(values), 0
    while True:
        n = min(n + rule.batch_size, n_local)
        seen = np.array(values[:n])
        assert not np.any(np.isnan(seen)), "the kernel has stopped too early"
        if n == n_local:
            return n, seen.mean() > psi, 0.0
        error = seen.std(ddof=1) / np.sqrt(n)
        if fpc:
            error *= np.sqrt(1 - (n - 1) / (n_local - 1))
        level = ndtr(-ndtri(1 - rule.epsilon) * (n / n_local) ** (0.5 - rule.boundary))
        if error > 0 and stdtr(n - 1, -abs(seen.mean() - psi) / error) < level:
            return n, seen.mean() > psi, error


# A planted fault: Student's test as if the rows were drawn with replacement ---------------------------


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
