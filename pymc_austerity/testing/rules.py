"""Does a decision rule keep its promise? Its probabilities against those of the exact test."""

from __future__ import annotations

import math

import numpy as np

from pymc_austerity.acceptance.base import AcceptanceRule
from pymc_austerity.acceptance.exact import Exact, ExactBarker
from pymc_austerity.kernels.subsample import rows_of
from pymc_austerity.testing.compare import error_of_mean, require_close
from pymc_austerity.testing.decisions import (
    check_compiled,
    check_not_finite,
    check_others,
    check_schedule,
    check_with_all_terms,
    decisions,
    exact_probability,
)
from pymc_austerity.testing.engines import compiled, jumps_of
from pymc_austerity.testing.targets import normal_chain, two_point_chain

# Jumps of `normal_chain` whose acceptance probabilities are estimated: little and much noise, up and down.
_PAIRS = ((0, 1), (1, 0), (1, 2), (3, 0))


def check_rule(
    rule: AcceptanceRule, *, exact: Exact | ExactBarker | None = None, n_draws: int = 20_000, seed: int = 0
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
    seed : int, default 0

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
    exact = Exact() if exact is None else exact
    check_schedule(rule)
    check_others(rule, seed=seed)
    check_with_all_terms(rule, exact=exact, seed=seed)
    check_not_finite(rule, seed=seed)
    check_compiled(rule, seed=seed)
    check_acceptance(rule, exact=exact, n_draws=n_draws, seed=seed)
    check_law(rule, exact=exact, n_draws=2 * n_draws, seed=seed)


def check_acceptance(
    rule: AcceptanceRule,
    *,
    exact: Exact | ExactBarker | None = None,
    n_draws: int = 20_000,
    seed: int = 0,
) -> None:
    """Acceptance probabilities differ from those of the exact test by at most ``rule.error_bound(N)``.

    If the rule draws the same number as the exact test, decisions are compared one by one, which finds errors
    of the order of 1 / n_draws. Rules that need the range are tried on two-valued log ratios too.
    """
    exact = Exact() if exact is None else exact
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
    rule: AcceptanceRule,
    *,
    exact: Exact | ExactBarker | None = None,
    n_draws: int = 40_000,
    seed: int = 0,
) -> None:
    """An enumerated chain is as near to its target as theorem 1 of Korattikara et al. (2014) says.

    Its distance in total variation is at most error_bound / (1 - eta), with eta the contraction of the exact
    chain: the largest distance in total variation of two rows of its transition matrix.
    """
    exact = Exact() if exact is None else exact
    chain = normal_chain()
    schedule, n_local = rule.bind(chain.terms.shape[1]), chain.terms.shape[1]
    trace = compiled(rule.functions)(
        n_draws, False, np.random.default_rng(seed), np.zeros(1), chain.args, rows_of(schedule),
        jumps_of(chain), schedule, chain.ranges,
    )  # fmt: skip
    visits = trace.state[:, None] == np.arange(len(chain.law))
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
