"""Does a decision rule keep its promise? Its probabilities against those of the exact test."""

from __future__ import annotations

import math
from copy import deepcopy
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from scipy.special import expit

from pymc_austerity.acceptance.base import (
    AcceptanceRule,
    Exact,
    ExactBarker,
    RuleFunctions,
    Sample,
    all_seen,
    nothing_read,
)
from pymc_austerity.compilation import entry, jitable
from pymc_austerity.kernels.metropolis import Rule, full_transitions, merge, unknown_sum
from pymc_austerity.kernels.subsample import Rows, population_of, rows_of
from pymc_austerity.proposals.base import BoundProposal, no_adaptation
from pymc_austerity.target import Target, Vector
from pymc_austerity.testing.compare import (
    error_of_mean,
    require,
    require_close,
    require_same,
    require_same_state,
)
from pymc_austerity.testing.targets import CHAIN, Chain, Run, Trace, normal_chain, runs, two_point_chain
from pymc_austerity.validation import renamed

# Jumps of `normal_chain` whose acceptance probabilities are estimated: little and much noise, up and down.
_PAIRS = ((0, 1), (1, 0), (1, 2), (3, 0))
# Log ratios of decisions with all terms, and as many values of u for each.
_LOG_RATIOS = (-3.0, -1.3, -0.2, 0.4, 1.3, 3.0)
_N_UNIFORMS = 1000
_EXACT = Exact()


@renamed(seed="random_seed")
def check_rule(
    rule: AcceptanceRule,
    *,
    exact: Exact | ExactBarker | None = None,
    n_draws: int = 20_000,
    random_seed: int = 0,
) -> None:
    """Check a decision rule: its functions, its acceptance probabilities, and the distribution of its chains.

    Parameters
    ----------
    rule : AcceptanceRule
        With stages of N = 2000 terms. If it has ``needs_range = True`` it is given the exact range.
    exact : Exact or ExactBarker, default Exact()
        The exact test that the rule approximates: Metropolis's or Barker's.
    n_draws : int, default 20000
        Transitions from each of the pairs of states. More find smaller errors.
    random_seed : int, default 0

    Raises
    ------
    AssertionError
        With what differs, by how much, in standard errors, and what it means.

    See Also
    --------
    check_schedule, check_others, check_with_all_terms, check_not_finite, check_compiled, check_acceptance,
    check_law
        The parts, in this order.

    Notes
    -----
    *Guarantee*: a rule that keeps its promise passes, but for bad luck with a seed (6e-5 per comparison).

    *When it fails*: a difference below `error_bound` and four standard errors is not seen, nor is one that
    needs other data than normal log ratios (and two-valued ones for rules that need the range): a rule that
    passes can be wrong for heavy tails. How much a rule reads is not judged: one that is too careful passes.

    Examples
    --------
    >>> from pymc_austerity.acceptance import TTest
    >>> from pymc_austerity.testing import check_rule
    >>> check_rule(TTest(epsilon=0.05, batch_size=200), n_draws=1000)
    """
    exact = _EXACT if exact is None else exact
    check_schedule(rule)
    check_others(rule, seed=random_seed)
    check_with_all_terms(rule, exact=exact, seed=random_seed)
    check_not_finite(rule, seed=random_seed)
    check_compiled(rule, seed=random_seed)
    check_acceptance(rule, exact=exact, n_draws=n_draws, seed=random_seed)
    check_law(rule, exact=exact, n_draws=2 * n_draws, seed=random_seed)


# Are the functions of a rule what a kernel needs? -----------------------------------------------------------


def check_schedule(rule: AcceptanceRule) -> None:
    """Stages grow and end with all terms; promises are numbers between 0 and 1."""
    least = getattr(rule, "batch_size", None) or 1  # a batch that was asked for is not cut down
    for n_local in sorted({max(n, least) for n in (1, 2, 999, 2000)}):
        schedule = rule.bind(n_local)
        ends, block = schedule.ends, schedule.block
        require(
            isinstance(ends, np.ndarray) and ends.dtype == np.int64 and ends.ndim == 1 and len(ends) > 0,
            f"ends of bind({n_local}) must be a vector of int64, got {ends!r}.",
        )
        require(
            ends[0] > 0 and np.all(np.diff(ends) > 0) and ends[-1] == n_local,
            f"ends of bind({n_local}) must increase from above 0 to {n_local}, got {ends}.",
        )
        require(
            block >= 1 and np.all(ends[:-1] % block == 0),
            f"block of bind({n_local}) must divide all ends but the last, got {block} and {ends}.",
        )
        bound = rule.error_bound(n_local)
        require(0.0 <= bound <= 1.0, f"error_bound({n_local}) must be in [0, 1], got {bound!r}.")
    for n_dim in (1, 10):
        rate = rule.target_accept(n_dim)
        require(0.0 < rate < 1.0, f"target_accept({n_dim}) must be in (0, 1), got {rate!r}.")


class _FirstUniform:
    """A generator whose first uniform number is given; counts what it is asked for."""

    def __init__(self, u: float, rng: np.random.Generator) -> None:
        self._u, self._rng, self.calls = u, rng, 0

    def random(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self._u if self.calls == 1 and not args and not kwargs else self._rng.random(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        self.calls += 2  # not a uniform number: the decision is no function of one u
        return getattr(self._rng, name)


def check_others(rule: AcceptanceRule, *, seed: int = 0) -> None:
    """A pilot asks for rows that are there, and that fill whole blocks."""
    n_local, rng = 2000, np.random.default_rng(seed)
    for block in (1, 5):
        schedule = rule.bind(n_local)._replace(block=block)
        n = int(schedule.ends[0]) // block * block
        for sd in (0.0, *np.geomspace(1e-6, 10.0, 40)):
            sample = nothing_read(n_local)
            if n > 1:
                sample = merge(sample, sd * rng.standard_normal(n))
            others = rule.functions.others(schedule, sample)
            require(
                others == 0 or (others > 0 and others % block == 0 and n + others <= n_local),
                f"After a pilot of {n} of {n_local} terms with standard deviation {sd:.3g}, in blocks of "
                f"{block}, others wants {others}: they have to be 0, or fill blocks, and be there.",
            )


def check_with_all_terms(rule: AcceptanceRule, *, exact: Exact | ExactBarker = _EXACT, seed: int = 0) -> None:
    """When all terms are read the decision is that of the exact test, and a tie rejects.

    The probability is enumerated over u where the decision needs nothing else, and estimated where it does.
    """
    n_local = 2000
    schedule, stream = rule.bind(n_local), np.random.default_rng(seed)
    draw, decide, accept, *_ = rule.functions
    last = len(schedule.ends) - 1
    for log_ratio in _LOG_RATIOS:
        n_accepted, n_others = 0, 0
        for u in (np.arange(_N_UNIFORMS) + 0.5) / _N_UNIFORMS:
            rng: Any = _FirstUniform(float(u), stream)
            psi = draw(rng) / n_local
            mean = log_ratio / n_local
            sample = Sample(n_local, n_local, mean, 1.0, mean - 0.1, mean + 0.1, mean, 30.0, 1.0, 0.0)
            require(
                decide(schedule, last, sample, psi, 0.2),
                f"decide wants more terms when all {n_local} are read (psi = {psi:.3g}): the kernel "
                "reads beyond the end.",
            )
            n_accepted += bool(accept(schedule, sample, psi, rng))
            n_others += rng.calls != 1
        expected = exact_probability(exact, log_ratio)
        spread = math.sqrt(expected * (1.0 - expected) / _N_UNIFORMS) if n_others else 0.0
        require_close(
            f"With all terms read, the probability of accepting a log ratio of {log_ratio}",
            n_accepted / _N_UNIFORMS,
            float(expected),
            spread,
            1.01 / _N_UNIFORMS,
            f"It has to be that of {exact!r}: `draw` or `accept` is wrong.",
        )
    if draw is exact.functions.draw:
        sample = Sample(n_local, n_local, 0.25, 1.0, 0.2, 0.3, 0.25, 30.0, 1.0, 0.0)
        require(
            not accept(schedule, sample, 0.25, np.random.default_rng(seed)),
            "A tie, mean == psi, has to be rejected: log u < log ratio is strict.",
        )


def check_not_finite(rule: AcceptanceRule, *, seed: int = 0) -> None:
    """A log ratio of minus infinity or NaN rejects, one of plus infinity accepts."""
    chain = normal_chain()
    cases = [("prior", -np.inf, False), ("prior", np.nan, False), ("terms", -np.inf, False)]
    cases += [("terms", np.nan, False), ("start", -np.inf, True)]
    for part, value, expected in cases:
        terms, prior = chain.terms.copy(), chain.prior.copy()
        if part == "prior":
            prior[1] = value
        else:
            terms[1 if part == "terms" else 0] = value
        trace = decisions(rule, chain._replace(terms=terms, prior=prior), 0, 1, 200, seed, chain.ranges)
        wrong = int(np.sum(trace.accepted != expected))
        where = {"prior": "a proposed global term", "terms": "proposed local terms", "start": "current terms"}
        require(
            wrong == 0,
            f"With {where[part]} of {value}, {wrong} of 200 proposals were "
            f"{'rejected' if expected else 'accepted'}. Such a chain "
            f"{'never leaves' if expected else 'enters'} states of density zero.",
        )


def check_compiled(rule: AcceptanceRule, *, n_transitions: int = 100, seed: int = 0) -> None:
    """Interpreted and compiled kernels do the same with the same random numbers, and leave nothing behind."""
    chain = normal_chain()
    n_local = chain.terms.shape[1]
    schedule = rule.bind(n_local)
    rows = rows_of(schedule)
    kept, ranges = deepcopy(schedule), chain.ranges
    results = []
    for run in (compiled(rule.functions), interpreted(rule.functions), compiled(rule.functions)):
        rng = np.random.default_rng(seed)
        start, jumps = np.zeros((1, 1)), jumps_of(chain)
        trace = run(start, n_transitions, False, rng, chain.args, rows, jumps, schedule, ranges)
        results.append((trace, rng.random()))
        require_same(
            "Population",
            rows.population,
            population_of(schedule),
            "A decision leaves its traces in the next one.",
        )
        require_same_state("Schedule", schedule, kept, "The rule changes its schedule while it decides.")
    (one, after), (other, other_after), (again, _) = results
    meaning = "The compiled rule does not do what its Python source does."
    for name in ("accepted", "q", "n_used", "n_stages"):
        require_same(f"Compiled and interpreted, {name}", getattr(one, name), getattr(other, name), meaning)
        require_same(
            f"First and second run, {name}",
            getattr(again, name),
            getattr(one, name),
            "The rule remembers something.",
        )
    for name in ("mean", "psi"):
        require_same(
            f"Compiled and interpreted, {name}", getattr(one, name), getattr(other, name), meaning, 1e-9
        )
    require_same("Next random number", after, other_after, "The two use different numbers of random numbers.")
    if rule.functions.decide is all_seen:
        found = all_terms(rule.functions, chain, n_transitions, np.random.default_rng(seed))
        require_same("Kernel of all terms, accepted", found, one.accepted, "It decides differently.")


# Are its decisions those of the exact test? -----------------------------------------------------------------


def check_acceptance(
    rule: AcceptanceRule, *, exact: Exact | ExactBarker = _EXACT, n_draws: int = 20_000, seed: int = 0
) -> None:
    """Acceptance probabilities differ from those of the exact test by at most ``rule.error_bound(N)``.

    If the rule draws the same number as the exact test, decisions are compared one by one, which finds errors
    of the order of 1 / n_draws. Rules that need the range are tried on two-valued log ratios too.
    """
    needs_range = getattr(rule, "needs_range", False)
    for chain, pairs in [(normal_chain(), _PAIRS), (two_point_chain(), ((0, 1), (3, 1)))][: 1 + needs_range]:
        ranges, means = chain.ranges, chain.terms.mean(axis=1)
        allowed = rule.error_bound(chain.terms.shape[1])
        for k, (i, j) in enumerate(pairs):
            trace = decisions(rule, chain, i, j, n_draws, seed + k, ranges)
            log_ratio = chain.log_ratios[i, j]
            expected = float(exact_probability(exact, log_ratio))
            if rule.functions.draw is exact.functions.draw:
                right = means[j] - means[i] > trace.psi
                differences = trace.accepted.astype(float) - right
                found, error = expected + differences.mean(), differences.std() / math.sqrt(n_draws)
            else:
                found = trace.accepted.mean()
                error = math.sqrt(expected * (1.0 - expected) / n_draws)
            require_close(
                f"The acceptance probability of a jump with log ratio {log_ratio:.3g} and standard deviation "
                f"{np.std(chain.terms[j] - chain.terms[i]):.2g} of its terms",
                float(found),
                expected,
                float(error),
                allowed,
                f"The rule breaks the promise of its error_bound, {allowed:.3g}; it read "
                f"{trace.n_used.mean():.0f} of {chain.terms.shape[1]} terms on average.",
            )


def check_law(
    rule: AcceptanceRule, *, exact: Exact | ExactBarker = _EXACT, n_draws: int = 40_000, seed: int = 0
) -> None:
    """An enumerated chain is as near to its target as theorem 1 of Korattikara et al. (2014) says.

    Its distance in total variation is at most error_bound / (1 - eta), with eta the contraction of the exact
    chain: the largest distance in total variation of two rows of its transition matrix.
    """
    chain = normal_chain()
    schedule, n_local = rule.bind(chain.terms.shape[1]), chain.terms.shape[1]
    trace = compiled(rule.functions)(
        np.zeros((1, 1)), n_draws, False, np.random.default_rng(seed), chain.args, rows_of(schedule),
        jumps_of(chain), schedule, chain.ranges,
    )  # fmt: skip
    visits = trace.q == np.arange(len(chain.law))
    matrix = chain.jumps * exact_probability(exact, chain.log_ratios)
    np.fill_diagonal(matrix, 0.0)
    np.fill_diagonal(matrix, 1.0 - matrix.sum(axis=1))
    eta = max(0.5 * np.abs(one - other).sum() for one in matrix for other in matrix)
    # As if all frequencies were wrong at once.
    error = 0.5 * sum(error_of_mean(column) for column in visits.T)
    distance = 0.5 * float(np.abs(visits.mean(axis=0) - chain.law).sum())
    require_close(
        "The distance in total variation of the chain's distribution from the target",
        distance,
        0.0,
        error,
        rule.error_bound(n_local) / (1.0 - eta),
        f"Frequencies {np.round(visits.mean(axis=0), 4)} instead of {np.round(chain.law, 4)}. An exact chain "
        f"with the contraction eta = {eta:.3f} does not amplify the rule's error_bound that much.",
    )


def exact_probability(exact: Exact | ExactBarker, log_ratio: npt.ArrayLike) -> Any:
    """Acceptance probability of the exact test, in closed form."""
    if isinstance(exact, ExactBarker):
        return expit(log_ratio)
    if isinstance(exact, Exact):
        return np.exp(np.minimum(log_ratio, 0.0))
    raise TypeError(f"exact must be Exact() or ExactBarker(), got {exact!r}.")


def decisions(
    rule: AcceptanceRule, chain: Chain, i: int, j: int, n: int, seed: int, ranges: np.ndarray
) -> Trace:
    """Transitions from state i in which j is proposed, with the log_hastings of the chain's own proposal."""
    schedule, n_states = rule.bind(chain.terms.shape[1]), len(chain.prior)
    always_j = jumps_of(chain)._replace(probabilities=np.eye(n_states)[np.full(n_states, j)])
    return compiled(rule.functions)(
        np.full((n, 1), float(i)), 1, False, np.random.default_rng(seed), chain.args, rows_of(schedule),
        always_j, schedule, ranges,
    )  # fmt: skip


# A rule in the kernels, on a chain of a few states ----------------------------------------------------------


class Jumps(NamedTuple):
    """State of a proposal that jumps between the states of a `Chain`; see there."""

    scale: Vector
    probabilities: np.ndarray
    log_hastings: np.ndarray


@jitable
def jump(state: Jumps, q: Vector, rng: np.random.Generator) -> tuple[Vector, float]:
    """Draw the next state from a row of probabilities."""
    i, j, u = int(q[0]), 0, rng.random()
    while u >= state.probabilities[i, j] and j < state.probabilities.shape[1] - 1:
        u -= state.probabilities[i, j]
        j += 1
    return np.array([float(j)]), state.log_hastings[i, j]


def jumps_of(chain: Chain) -> Jumps:
    """The chain's own proposal."""
    return Jumps(np.array([np.nan]), chain.jumps, chain.log_hastings)


@jitable
def tabulated_range(
    bound: Any, q_new: Vector, q: Vector, args: tuple[Any, ...], rows: Rows, target: Target
) -> float:
    """The exact range of the log ratios of a `Chain`; `bound` is its `ranges`."""
    return bound[int(q[0]), int(q_new[0])]  # type: ignore[no-any-return]


def interpreted(rule: RuleFunctions) -> Run:
    """Runs of a rule on a `Chain`: its `Jumps` are the state of the proposal, its `ranges` the bound."""
    proposal = BoundProposal(None, jump, no_adaptation).kernel(...)
    return runs(CHAIN, proposal, Rule(..., ..., *rule, tabulated_range))


@cache
def compiled(rule: RuleFunctions) -> Run:
    """`interpreted`, compiled when it is called; `AssertionError` if numba cannot compile the rule."""
    function: Any = entry(interpreted(rule), cache=False)

    def run(*args: Any) -> Trace:
        try:
            result: Trace = function(*args)
        except numba.core.errors.NumbaError as error:
            raise AssertionError(
                "numba cannot compile the functions of the rule. They have to be pure functions, marked with "
                f"numba.extending.register_jitable, of numbers and arrays of the schedule: {error}"
            ) from error
        return result

    return run


def all_terms(rule: RuleFunctions, chain: Chain, n: int, rng: np.random.Generator) -> np.ndarray:
    """Decisions of the kernel that keeps the sum at the current state, interpreted; from state 0."""
    q, accepted = np.zeros(1), np.empty(n, np.bool_)
    current = unknown_sum(chain.terms.shape[1], q)
    proposal = BoundProposal(jumps_of(chain), jump, no_adaptation)
    for t in range(n):
        out = full_transitions(
            1, False, rng, q, chain.args, current, rule, proposal.kernel(proposal.state), CHAIN
        )
        q, accepted[t] = out.q, out.accepted
    return accepted
