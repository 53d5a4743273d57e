"""Moves with an exact test leave the posterior alone; wrong cancellations do not."""

import itertools
import math
import operator
from functools import reduce

import numba
import numpy as np
import pytest
from numba.extending import register_jitable

from pymc_austerity.acceptance import Exact, TTest
from pymc_austerity.kernels.metropolis import Rule, full_transitions, no_range, transitions, unknown_sum
from pymc_austerity.kernels.subsample import NO_ROWS, rows_of
from pymc_austerity.model.compile.protocol import constructor
from pymc_austerity.proposals.base import proposed_move
from pymc_austerity.target import Target
from tests.kernels.engines import ScriptedRng, by, rule_of
from tests.kernels.three_states import (
    GLOBAL,
    JUMPS,
    LAW,
    RIGHT,
    TABLE,
    TERMS,
    WRONG_WAY_ROUND,
    counts_of_moves,
    jump,
    matrix_by_bisection,
    metropolis_matrix,
    table_terms,
    worst_p,
)
from tests.statistical.theory import stationary

P_LIMIT = 1e-4
N_LOCAL = TERMS.shape[1]


# Inner kernels on three states -------------------------------------------------------------------------


def metropolis(log_density, jumps):
    """Transition matrix that is reversible for a log density."""
    return metropolis_matrix(np.exp(log_density), jumps)


def exchange(i, j):
    """Proposes to go from i to j, and from j to i; stays in the third state."""
    matrix = np.eye(3)
    matrix[[i, j]] = matrix[[j, i]]
    return matrix


def scan(log_density, *kernels):
    return reduce(operator.matmul, [metropolis(log_density, kernel) for kernel in kernels])


A, B = exchange(0, 1), exchange(1, 2)
INNER = metropolis(GLOBAL, JUMPS)


@register_jitable
def inner_jump(state, q, rng):
    """From row to column of a matrix of probabilities."""
    i, j, u = int(q[0]), 0, rng.random()
    while u >= state[i, j] and j < 2:
        u -= state[i, j]
        j += 1
    return np.array([float(j)])


@register_jitable
def surrogate_move(proposal, q, rng, args, target):
    """That of `Surrogate`, with another inner kernel."""
    q_new = proposal.propose(proposal.state, q, rng)
    return q_new, math.inf if np.all(q_new == q) else 0.0


@register_jitable
def with_change_of_global(proposal, q, rng, args, target):
    """A planted fault: the global terms are held against the move once more."""
    q_new = proposal.propose(proposal.state, q, rng)
    return q_new, target.global_log_ratio(q_new, q, args)


@register_jitable
def with_change_taken_off(proposal, q, rng, args, target):
    """A planted fault: as for an independent draw of the global terms."""
    q_new = proposal.propose(proposal.state, q, rng)
    return q_new, -target.global_log_ratio(q_new, q, args)


def one_transition(
    inner, rng, q, *, move=surrogate_move, target=TABLE, terms=TERMS, rule=None, exact_rows=NO_ROWS
):
    rule = rule or Exact()
    schedule = rule.bind(terms.shape[1] - len(exact_rows))
    return transitions(
        1, False, rng, q, (terms,), rows_of(schedule, exact_rows), rule_of(rule, schedule),
        by(inner_jump, inner, move=move), target,
    )  # fmt: skip


def outer_matrix(inner, **kwargs):
    """Transition probabilities where moves of an inner kernel are tested."""
    return matrix_by_bisection(lambda rng, q: one_transition(inner, rng, q, **kwargs), inner)


def error_of_law(inner, **kwargs):
    return np.abs(stationary(outer_matrix(inner, **kwargs)) - LAW).max()


def is_reversible(matrix, law):
    flow = law[:, None] * matrix
    return np.allclose(flow, flow.T, atol=1e-12)


GLOBAL_LAW = np.exp(GLOBAL) / np.exp(GLOBAL).sum()
REVERSIBLE = {
    "one": INNER,
    "repeated": np.linalg.matrix_power(INNER, 5),
    "palindrome": scan(GLOBAL, A, B, A),
    "longer palindrome": scan(GLOBAL, A, B, JUMPS, B, A),
    "independent draws": np.tile(GLOBAL_LAW, (3, 1)),
}
NOT_REVERSIBLE = {"scan": scan(GLOBAL, A, B), "other way round": scan(GLOBAL, B, A)}


@pytest.mark.parametrize("name", REVERSIBLE)
def test_a_reversible_inner_kernel_leaves_the_posterior_alone(name):
    inner = REVERSIBLE[name]
    assert is_reversible(inner, GLOBAL_LAW)
    matrix = outer_matrix(inner)
    np.testing.assert_allclose(stationary(matrix), LAW, atol=1e-12)
    assert is_reversible(matrix, LAW)
    ratios = np.exp(TERMS.sum(axis=1)[None, :] - TERMS.sum(axis=1)[:, None])
    expected = inner * np.minimum(1, ratios)
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(matrix[off], expected[off], atol=1e-12)


@pytest.mark.parametrize("name", NOT_REVERSIBLE)
def test_a_scan_leaves_the_global_part_alone_and_not_the_posterior(name):
    inner = NOT_REVERSIBLE[name]
    np.testing.assert_allclose(GLOBAL_LAW @ inner, GLOBAL_LAW, atol=1e-12)
    assert not is_reversible(inner, GLOBAL_LAW)
    assert error_of_law(inner) > 0.01


@pytest.mark.parametrize("move", [with_change_of_global, with_change_taken_off])
def test_global_terms_that_are_not_cancelled_change_the_law(move):
    """Planted fault: global terms that are counted against the move, or for it."""
    assert error_of_law(INNER, move=move) > 0.02


def test_an_inner_kernel_for_another_density_changes_the_law():
    assert error_of_law(metropolis(np.zeros(3), JUMPS)) > 0.02
    assert error_of_law(metropolis(LAW, JUMPS)) > 0.02
    # Nor may it be reversible for the posterior itself, and the test be made all the same.
    assert error_of_law(metropolis(np.log(LAW), JUMPS)) > 0.02


# With control variates ----------------------------------------------------------------------------------

# The polynomial of each row; what is left is as large as it was.
POLYNOMIAL = 0.7 * TERMS + np.random.default_rng(3).normal(size=(3, N_LOCAL)) * 0.2
WITH_POLYNOMIAL = GLOBAL + POLYNOMIAL.sum(axis=1)


@register_jitable
def expanded_global(q_new, q, args):
    return WITH_POLYNOMIAL[int(q_new[0])] - WITH_POLYNOMIAL[int(q[0])]


EXPANDED = Target(expanded_global, table_terms)


@pytest.mark.parametrize("rows", [[], [2], [0, 3, 6]], ids=str)
def test_with_a_polynomial_the_law_is_the_same(rows):
    """Planted fault: an inner kernel that forgets the polynomial."""
    options = {"target": EXPANDED, "terms": TERMS - POLYNOMIAL, "exact_rows": np.array(rows, int)}
    inner = metropolis(WITH_POLYNOMIAL, JUMPS)
    np.testing.assert_allclose(stationary(outer_matrix(inner, **options)), LAW, atol=1e-12)
    assert error_of_law(INNER, **options) > 0.02  # an inner kernel that forgets the polynomial


# A proposal with a density ------------------------------------------------------------------------------


def test_a_proposal_is_offset_by_the_global_terms_and_its_own_ratio():
    for i, j in itertools.permutations(range(3), 2):
        into_j = JUMPS[i, :j].sum() + 0.5 * JUMPS[i, j]
        for state, sign in ((RIGHT, 1.0), (WRONG_WAY_ROUND, -1.0)):
            q_new, base = proposed_move(
                by(jump, state), np.array([float(i)]), ScriptedRng([into_j]), (TERMS,), TABLE
            )
            assert q_new[0] == j
            expected = GLOBAL[j] - GLOBAL[i] + sign * math.log(JUMPS[j, i] / JUMPS[i, j])
            assert base == pytest.approx(expected, rel=1e-14)


def test_a_surrogate_has_no_offset():
    q_new, base = surrogate_move(by(inner_jump, INNER), np.zeros(1), ScriptedRng([0.99]), (TERMS,), TABLE)
    assert (q_new[0], base) == (2.0, 0.0)


# Staying ------------------------------------------------------------------------------------------------


class Unread:
    def __call__(self, *_):
        raise AssertionError("the data were read")


class Staying(ScriptedRng):
    """The first number leads nowhere: 1 is in the middle of what stays in state 0."""

    def __init__(self, u):
        super().__init__([0.5 * INNER[0, 0], u])


@pytest.mark.parametrize("exact_rows", [[], [1, 4]], ids=str)
@pytest.mark.parametrize("rule", [Exact(), TTest(0.05, 2)], ids=["exact", "ttest"])
@pytest.mark.parametrize("u", [0.0, 0.5, np.nextafter(1, 0)])
def test_a_surrogate_that_stays_reads_nothing_and_is_accepted(u, rule, exact_rows):
    rows = {"target": Target(TABLE.global_log_ratio, Unread()), "exact_rows": np.array(exact_rows, int)}
    out = one_transition(INNER, Staying(u), np.zeros(1), rule=rule, **rows)
    assert out.accepted
    assert (out.q[0], out.n_accepted) == (0.0, 1)
    assert (out.n_used, out.n_stages, out.n_exhausted) == (0, 0, 0)
    assert out.log_ratio_mean == out.log_ratio_se == 0.0


def test_a_surrogate_that_goes_somewhere_is_tested():
    out = one_transition(INNER, ScriptedRng([0.999, 0.5]), np.zeros(1))
    assert out.n_used == N_LOCAL


@register_jitable
def stay(state, q, rng):
    return q.copy(), state[0]


@pytest.mark.parametrize(("log_hastings", "u"), [(-5.0, 0.5), (5.0, 0.5), (-0.1, 0.95)])
def test_a_proposal_that_stays_with_another_density_is_decided(log_hastings, u):
    """A user's function may say so; only a move without any offset is certain."""
    schedule = Exact().bind(N_LOCAL)
    out = transitions(
        1, False, ScriptedRng([u]), np.zeros(1), (TERMS,), rows_of(schedule), rule_of(Exact(), schedule),
        by(stay, np.array([log_hastings])), TABLE,
    )  # fmt: skip
    assert out.accepted == (math.log(u) < log_hastings)
    assert out.n_used == N_LOCAL


# The other kernel, and compiled ---------------------------------------------------------------------------


make_rule = constructor(Rule(..., 0, *Exact().functions, no_range))
make_proposal = constructor(by(inner_jump, ..., move=surrogate_move))
make_target = constructor(TABLE)


@numba.njit
def compiled_states(n, rng, inner, terms, rows, schedule):
    states, accepted = np.empty(n, np.int64), 0
    q = np.zeros(1)
    for t in range(n):
        out = transitions(
            1, False, rng, q, (terms,), rows, make_rule(schedule), make_proposal(inner), make_target()
        )
        q = out.q
        accepted += out.accepted
        states[t] = int(q[0])
    return states, accepted


@pytest.mark.parametrize("rows", [[], [1, 4]], ids=str)
def test_frequencies_and_compiled_draws(rows):
    """Planted fault: an inner kernel that is not reversible."""
    schedule = Exact().bind(N_LOCAL - len(rows))
    terms = 0.3 * TERMS  # every state is visited often
    rest = terms, rows_of(schedule, np.array(rows, int)), schedule
    matrix = outer_matrix(INNER, terms=terms)
    states, accepted = compiled_states(60_000, np.random.default_rng(4), INNER, *rest)
    assert worst_p(counts_of_moves(states), matrix) > P_LIMIT
    plain, plain_accepted = compiled_states.py_func(500, np.random.default_rng(4), INNER, *rest)
    np.testing.assert_array_equal(plain, states[:500])
    assert 0 < plain_accepted < 500
    wrong, _ = compiled_states(60_000, np.random.default_rng(4), NOT_REVERSIBLE["scan"], *rest)
    assert worst_p(counts_of_moves(wrong), matrix) < P_LIMIT
    assert 0.5 < accepted / 60_000 < 1


def test_the_kernel_of_all_terms_makes_the_same_moves():
    """Surrogate moves with sums that are kept from one transition to the next."""
    rng, q, current = np.random.default_rng(5), np.zeros(1), unknown_sum(N_LOCAL, np.zeros(1))
    found = []
    for _ in range(400):
        out = full_transitions(
            1, False, rng, q, (TERMS,), current, Exact().functions,
            by(inner_jump, INNER, move=surrogate_move), TABLE,
        )  # fmt: skip
        q = out.q
        found.append(int(q[0]))
    rng, q, expected = np.random.default_rng(5), np.zeros(1), []
    for _ in range(400):
        q = one_transition(INNER, rng, q).q
        expected.append(int(q[0]))
    assert found == expected
    assert len(set(found)) > 1
    assert all(len(set(found[k : k + 40])) > 1 for k in range(0, 400, 40))
