"""Are the functions of a decision rule what a kernel needs?"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from pymc_austerity.acceptance.base import AcceptanceRule, Sample, nothing_read
from pymc_austerity.acceptance.exact import Exact, ExactBarker, all_seen
from pymc_austerity.kernels.metropolis import merge
from pymc_austerity.kernels.subsample import population_of, rows_of
from pymc_austerity.testing.compare import require, require_close, require_same, require_same_state
from pymc_austerity.testing.engines import Trace, all_terms, compiled, interpreted, jumps_of, one_jump
from pymc_austerity.testing.targets import Chain, normal_chain

# Log ratios of decisions with all terms, and as many values of u for each.
_LOG_RATIOS = (-3.0, -1.3, -0.2, 0.4, 1.3, 3.0)
_N_UNIFORMS = 1000


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
    """Transitions from state i in which j is proposed."""
    schedule = rule.bind(chain.terms.shape[1])
    return compiled(rule.functions)(
        n, True, np.random.default_rng(seed), np.array([float(i)]), chain.args, rows_of(schedule),
        one_jump(chain, j), schedule, ranges,
    )  # fmt: skip


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


def check_with_all_terms(
    rule: AcceptanceRule, *, exact: Exact | ExactBarker | None = None, seed: int = 0
) -> None:
    """When all terms are read the decision is that of the exact test, and a tie rejects.

    The probability is enumerated over u where the decision needs nothing else, and estimated where it does.
    """
    exact = Exact() if exact is None else exact
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
        start, jumps = np.zeros(1), jumps_of(chain)
        trace = run(n_transitions, False, rng, start, chain.args, rows, jumps, schedule, ranges)
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
    for name in ("accepted", "state", "n_used", "n_stages"):
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
