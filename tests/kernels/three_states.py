"""A chain on three states whose transition probabilities are known, as a target for kernels."""

import itertools
import math

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.acceptance import Exact
from pymc_austerity.kernels.metropolis import transitions
from pymc_austerity.kernels.subsample import rows_of
from pymc_austerity.target import Target
from tests.kernels.engines import ScriptedRng, by, rule_of
from tests.statistical.errors import p_of_counts

# Three states, a proposal that is far from symmetric, seven terms and a global part.
JUMPS = np.array([[0.1, 0.7, 0.2], [0.25, 0.15, 0.6], [0.5, 0.3, 0.2]])
_table = np.random.default_rng(8)
TERMS = _table.normal(size=(3, 7)) * [[0.5], [0.3], [0.4]]
GLOBAL = np.array([0.3, -0.5, 0.1])
LAW = np.exp(TERMS.sum(axis=1) + GLOBAL)
LAW /= LAW.sum()


@register_jitable
def jump(state, q, rng):
    """`state` is [1] for the right log_hastings, and something else for a planted fault."""
    i = int(q[0])
    u, j = rng.random(), 0
    while u >= JUMPS[i, j]:
        u -= JUMPS[i, j]
        j += 1
    return np.array([float(j)]), state[0] * math.log(JUMPS[j, i] / JUMPS[i, j])


RIGHT, WITHOUT, WRONG_WAY_ROUND = np.array([1.0]), np.array([0.0]), np.array([-1.0])


@register_jitable
def table_global(q_new, q, args):
    return GLOBAL[int(q_new[0])] - GLOBAL[int(q[0])]


@register_jitable
def table_terms(q_new, q, index, args):
    return args[0][int(q_new[0])][index] - args[0][int(q[0])][index]


@register_jitable
def table_rows(q, index, args):
    return args[0][int(q[0])][index]


TABLE = Target(table_global, table_terms, table_rows)


def metropolis_matrix(law=LAW, jumps=JUMPS):
    """Transition probabilities of the textbook chain."""
    return chain_matrix(lambda ratio: np.minimum(1, ratio), law, jumps)


def barker_matrix():
    """Transition probabilities with Barker's rule, 1 / (1 + exp(-log ratio))."""
    return chain_matrix(lambda ratio: ratio / (1 + ratio))


def chain_matrix(acceptance, law=LAW, jumps=JUMPS):
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (law[None, :] * jumps.T) / (law[:, None] * jumps)
    return with_rest(np.where(jumps > 0, jumps * acceptance(ratio), 0.0))


def with_rest(matrix):
    """The matrix with what is left of each row on its diagonal."""
    np.fill_diagonal(matrix, 0)
    np.fill_diagonal(matrix, 1 - matrix.sum(axis=1))
    return matrix


def matrix_by_bisection(transition, jumps=JUMPS):
    """Transition probabilities of a kernel, by bisection for the u at which acceptance ends.

    ``transition(rng, q)`` makes one transition from q with proposals from a row of `jumps`, and accepts for
    all u below some value.
    """

    def accepted(i, j, u):
        into_j = jumps[i, :j].sum() + 0.5 * jumps[i, j]
        out = transition(ScriptedRng([into_j, u]), np.array([float(i)]))
        assert not out.accepted or out.q[0] == j
        return out.accepted

    matrix = np.zeros((3, 3))
    for i, j in itertools.permutations(range(3), 2):
        if jumps[i, j] == 0:
            continue
        low, high = 0.0, 1.0
        if accepted(i, j, np.nextafter(1, 0)):
            low = 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if accepted(i, j, middle) else (low, middle)
        matrix[i, j] = jumps[i, j] * low
    return with_rest(matrix)


def kernel_matrix(rule=None, *, rows=(), hastings=RIGHT, target=TABLE, kernel=transitions):
    """Transition probabilities of a kernel with exact rows; with `Exact` its decision is monotone in u."""
    rule = rule or Exact()
    schedule = rule.bind(TERMS.shape[1] - len(rows))

    def transition(rng, q):
        return kernel(
            1, False, rng, q, (TERMS,), rows_of(schedule, np.array(rows, dtype=np.int64)),
            rule_of(rule, schedule), by(jump, hastings), target,
        )  # fmt: skip

    return matrix_by_bisection(transition)


def counts_of_moves(states):
    """Counts of the moves of a chain that began in state 0, from each state to each.

    Given its state, each move is a fresh draw from that row of the transition matrix.
    """
    counts = np.zeros((3, 3))
    np.add.at(counts, (np.r_[0, states[:-1]], states), 1)
    return counts


def worst_p(counts, matrix):
    return min(p_of_counts(c, p) for c, p in zip(counts, matrix, strict=True))
