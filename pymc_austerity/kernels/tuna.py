"""Metropolis-Hastings with exact decisions from a handful of terms (TunaMH; Zhang, Cooper & De Sa 2020).

Remainders R_i have bounds |R_i(q') - R_i(q)| <= b_i. For a move from q to q', with x_i =
[R_i(q') - R_i(q)] / b_i and B the sum of all b_i, count each row i

    s_i ~ Poisson(b_i [(1 - x_i) / 2 + chi B])

times, independently. For the move back x_i has the other sign. The counts are part of the proposal: the
ratio of their probabilities, backwards over forwards, is

    exp(-sum of [R_i(q') - R_i(q)]) product over i of [(1 + x_i + 2 chi B) / (1 - x_i + 2 chi B)]^s_i,

in which the exponential cancels what the log density has of the remainders. What is left to decide on is
`base` and the product over the rows that were counted.

To draw the counts, draw Poisson(B + chi B^2) rows, each with probability b_i / B, and keep each with
probability [(1 - x_i) / 2 + chi B] / (1 + chi B). The chi = 0 of most uses draws the fewest rows.

The b_i are the same for the move back. Mostly they are c_i M, with an M of the pair of states
(`bounds.remainder`, which lists the ways to draw rows). Where remainders are bounded in
features phi of the state, M is that of phi(q) and phi(q').

`docs/explanation/exact_subsampling.md` has the proof.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.acceptance.base import log_uniform
from pymc_austerity.bounds.remainder import RowDraws
from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import CompiledError
from pymc_austerity.kernels.metropolis import Outcome, leaves_zero
from pymc_austerity.proposals.base import ProposalKernel
from pymc_austerity.target import CHUNK, Index, Target, Vector, chunk_from

# More rows than anybody waits for, if their number is finite at all.
_TOO_MANY = 1e9


class RemainderBoundError(CompiledError):
    """A Taylor remainder is larger than its bound: decisions by a wrong bound would be wrong."""

    sentence = (
        "The Taylor remainder of local term number {0} changed by {1}, and the bound on that is {2}: "
        "the bound is wrong, and so would be the decisions. If you gave `curvature`, correct it; if you "
        "wrote to the data since the step was built, build another; else please report the model. "
        "AusterityMH(control_variate=Taylor()) needs no bound."
    )


class TunaRule(NamedTuple):
    """How rows are counted, and what happens where a bound is wrong."""

    chi: float
    violations: Index  # (1,): counts terms that were larger than their bound
    debug: bool  # Count them only; otherwise the first one is an error


@jitable
def tuna_transitions(
    n_transitions: int,
    tune: bool,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    rows: RowDraws,
    rule: TunaRule,
    proposal: ProposalKernel,
    target: Target,
) -> Outcome:
    """Run TunaMH transitions from `q`, of shape (D,). Terms count once for each time they are drawn.

    The proposal learns while `tune`. `args` are handed to the functions of `target`, whose local terms are
    the remainders. `rows` has the bounds on these, by the `features` of the target, and draws rows by them.
    """
    n_local = rows.state.constants.shape[1]
    n_accepted = n_used = n_stages = n_exhausted = 0
    accepted = False
    estimate = psi = error = math.nan
    for _ in range(n_transitions):
        q_new, base = proposal.move(proposal, q, rng, args, target)
        threshold = log_uniform(rng)
        psi = (threshold - base) / n_local
        estimate = error = math.nan
        if base == math.inf and np.all(q_new == q):  # a surrogate that stays
            accepted = True
        elif base == -math.inf or math.isnan(base):
            accepted = False  # outside the support of the prior
        elif base == math.inf:
            accepted = leaves_zero(q_new, q, args, n_local, target)
        else:
            phi_new, phi = target.features(q_new, args), target.features(q, args)
            move = rows.move(rows.state, phi_new, phi)
            n_stages += 1
            if move.expected * (1.0 + rule.chi * move.expected) <= min(rows.state.most, _TOO_MANY):
                estimate, n = poisson_log_ratio(rng, q_new, q, args, rows, move, rule, target)
                n_used += n
            else:  # for the move back too
                estimate, error = sum_of_log_ratios(q_new, q, args, n_local, target), 0.0
                n_used += n_local
                n_exhausted += 1
            accepted = base + estimate > threshold
            if estimate == math.inf:
                accepted = leaves_zero(q_new, q, args, n_local, target)
        if accepted:
            q = q_new
            n_accepted += 1
        if tune:
            proposal.adapt(proposal.state, q, accepted)
    return Outcome(q, n_accepted, n_used, n_stages, n_exhausted, 0, accepted, estimate / n_local, error, psi)


@jitable
def poisson_log_ratio(
    rng: np.random.Generator,
    q_new: Vector,
    q: Vector,
    args: tuple[Any, ...],
    rows: RowDraws,
    move: Any,
    rule: TunaRule,
    target: Target,
) -> tuple[float, int]:
    """Log of the product over the rows that were counted, and the number of rows that were read.

    Rows are read in the order in which they are stored.
    """
    extra = rule.chi * move.expected
    n = rng.poisson(move.expected * (1.0 + extra)) if move.expected > 0.0 else 0
    result, n_read = 0.0, 0
    for start in range(0, n, CHUNK):
        index = rows.draw(rng, rows.state, move, min(CHUNK, n - start))
        sort_rows(index)
        n_read += index.shape[0]
        bounds = rows.bounds(rows.state, move, index)
        log_ratios = target.log_ratios(q_new, q, index, args)
        for k in range(index.shape[0]):
            bound = bounds[k]
            if not abs(log_ratios[k]) <= bound + rows.state.rounding:  # or not a number
                rule.violations[0] += 1
                if not rule.debug:
                    raise RemainderBoundError(index[k], log_ratios[k], bound)
                if not math.isfinite(log_ratios[k]):
                    return -math.inf, n_read
            x = min(max(log_ratios[k] / bound, -1.0), 1.0)
            if rng.random() * (1.0 + extra) < 0.5 * (1.0 - x) + extra:
                if x == -1.0 and extra == 0.0:
                    return -math.inf, n_read
                result += math.log((1.0 + x + 2.0 * extra) / (1.0 - x + 2.0 * extra))
    return result, n_read


@jitable
def sort_rows(rows: Index) -> None:
    """Sort some positions in place, by a Shell sort.

    NumPy's sort takes numba ten times as long to compile, and is faster from a thousand rows on only.
    """
    gap = rows.shape[0]
    while gap > 1:
        gap = 1 if gap < 5 else gap * 5 // 11
        for k in range(gap, rows.shape[0]):
            row, place = rows[k], k
            while place >= gap and rows[place - gap] > row:
                rows[place] = rows[place - gap]
                place -= gap
            rows[place] = row


@jitable
def sum_of_log_ratios(q_new: Vector, q: Vector, args: tuple[Any, ...], n_local: int, target: Target) -> float:
    """Sum of l_i(q_new) - l_i(q) over all local terms, `CHUNK` of them at a time."""
    total = 0.0
    for start in range(0, n_local, CHUNK):
        for x in target.log_ratios(q_new, q, chunk_from(start, n_local), args):
            total += x
    return total
