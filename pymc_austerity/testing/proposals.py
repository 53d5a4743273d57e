"""Does a proposal leave a known law alone, and itself?"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from typing import Any

import numba
import numpy as np
from numba.extending import register_jitable
from scipy import stats

from pymc_austerity.acceptance.exact import Exact
from pymc_austerity.kernels.metropolis import transitions
from pymc_austerity.kernels.moves import proposed_move
from pymc_austerity.kernels.ranges import no_range
from pymc_austerity.kernels.stratum import NO_STRATUM
from pymc_austerity.proposals.base import Adapt, BoundProposal, Propose, bind, is_fitted
from pymc_austerity.target import Index, QuadraticProxy, Target, Vector
from pymc_austerity.testing.compare import require, require_close, require_same, require_same_state
from pymc_austerity.testing.fitted import FITS, proxy_of
from pymc_austerity.testing.targets import NORMAL, Law

# Transitions in which an adaptive proposal learns, past its first window, before it is frozen.
_N_TUNE = 200
# Probability of a correct proposal to fail a comparison of distribution functions.
_P_LIMIT = 1e-4
_INTERPRETED_IS_SLOW = 10


def check_proposal(
    proposal: Any,
    n_dim: int,
    *,
    law: Law = NORMAL,
    n_chains: int = 20_000,
    n_transitions: int = 5,
    seed: int = 0,
) -> None:
    """Check a proposal: its functions, what it remembers, and that exact chains with it keep a known law.

    Parameters
    ----------
    proposal : Proposal, FittedProposal or callable
        As for a step: an object with `bind`, one with `bind_to`, which is checked with the normal law at the
        mode of `law`, and with ones that are displaced, too narrow and too wide; or a function
        ``(q, rng) -> (q_new, log_hastings)``.
    n_dim : int
        Dimension D.
    law : Law, default N(1.5, 1) for each coordinate
        A law whose size suits the proposal; `targets.LOG_NORMAL` for proposals of positive numbers.
    n_chains, n_transitions : int
        Independent chains, and transitions of each, in which the law may change.
    seed : int, default 0

    Raises
    ------
    AssertionError
        With what differs, by how much, in standard errors, and what it means.
    TypeError
        If the proposal moves along the slope of a model, as `Surrogate` does.

    See Also
    --------
    check_moves, check_memory, check_invariance : The parts, in this order.

    Notes
    -----
    *Guarantee*: a reversible proposal with the right log_hastings passes, but for bad luck with a seed.

    A function that numba cannot compile is checked interpreted, with a tenth of the chains.

    *When it fails*: with steps much smaller or much larger than the law nothing moves, and little is seen.
    That a proposal reaches every state is not checked.

    Examples
    --------
    >>> from pymc_austerity import RandomWalk
    >>> from pymc_austerity.testing import check_proposal
    >>> check_proposal(RandomWalk(scale=0.5), n_dim=2)
    """
    for fit in FITS if is_fitted(proposal) else ["fitted"]:
        proxy = proxy_of(law, n_dim, *FITS[fit])
        bound = _bind(proposal, n_dim, law, proxy)
        again = _bind(proposal, n_dim, law, proxy)
        require(
            not any(np.shares_memory(*pair) for pair in zip(bound.state, again.state, strict=True)),
            "bind hands out the same arrays twice: one chain changes the proposal of the next.",
        )
        require(
            not any(np.shares_memory(array, given) for array in bound.state for given in proxy),
            "bind_to keeps the arrays that it is given: one step changes the proposal of the next.",
        )
        try:
            check_moves(bound, n_dim, law=law, seed=seed)
            check_memory(bound, n_dim, law=law, seed=seed)
            check_invariance(bound, n_dim, law=law, n_chains=n_chains, n_transitions=n_transitions, seed=seed)
        except AssertionError as error:
            if not is_fitted(proposal):
                raise
            raise AssertionError(f"With a normal law that is {fit}: {error}") from error


def check_moves(proposal: Any, n_dim: int, *, law: Law = NORMAL, n_moves: int = 200, seed: int = 0) -> None:
    """A move is a new finite vector and a number, the same interpreted and compiled; q stays as it was."""
    bound = _bind(proposal, n_dim, law)
    compiled, _ = _compile(bound, law, n_dim)
    for k, q in enumerate(_starts(law, n_moves, n_dim, seed)):
        kept, state = q.copy(), deepcopy(bound.state)
        rng = np.random.default_rng([seed, k])
        q_new, log_hastings = bound.propose(state, q, rng)
        after = rng.random()
        require_same("q after a proposal", q, kept, "The proposal works in place: rejections are lost.")
        require_same_state(
            "State after a proposal",
            state,
            bound.state,
            "propose changes the state of the proposal; only adapt may.",
        )
        require(
            isinstance(q_new, np.ndarray) and q_new.shape == (n_dim,) and q_new.dtype == np.float64,
            f"q_new must be a float vector of length {n_dim}, got {q_new!r}.",
        )
        require(np.all(np.isfinite(q_new)), f"From q = {q} the proposal goes to {q_new}.")
        require(
            np.ndim(log_hastings) == 0 and log_hastings < np.inf,
            f"log_hastings must be a number below infinity, got {log_hastings!r}.",
        )
        require(
            not any(np.shares_memory(q_new, array) for array in (q, *state)),
            "q_new shares memory with q or the state of the proposal: later proposals overwrite the chain.",
        )
        if compiled is not None:
            rng = np.random.default_rng([seed, k])
            other, other_hastings = compiled(state, q, rng)
            meaning = "The compiled proposal does not do what its Python source does."
            require_same("Compiled and interpreted, q_new", other, q_new, meaning, 1e-12)
            require_same(
                "Compiled and interpreted, log_hastings", other_hastings, log_hastings, meaning, 1e-9
            )
            require_same("Compiled and interpreted, next random number", rng.random(), after, meaning)


def check_memory(proposal: Any, n_dim: int, *, law: Law = NORMAL, seed: int = 0) -> None:
    """With ``tune=False`` nothing is learnt; what is learnt otherwise is finite, and the same if compiled."""
    bound = _bind(proposal, n_dim, law)
    compiled = _compile(bound, law, n_dim)[1]
    starts, state = _starts(law, 1, n_dim, seed), deepcopy(bound.state)
    walk = _walk(bound.propose, bound.adapt, law.log_density)
    run = compiled or walk
    run(starts, _N_TUNE, False, np.random.default_rng(seed), np.arange(1), state, Exact().bind(1))
    require_same_state(
        f"State of the proposal after {_N_TUNE} transitions without tuning",
        state,
        bound.state,
        "A proposal that learns while draws are kept has another stationary law than the target.",
    )
    learnt = []
    for function in (run, walk):
        state = deepcopy(bound.state)
        function(starts, _N_TUNE, True, np.random.default_rng(seed), np.arange(1), state, Exact().bind(1))
        learnt.append(state)
    for one, other in zip(*learnt, strict=True):
        require_same("Compiled and interpreted, what was learnt", one, other, "They differ.", 1e-9)


def check_invariance(
    proposal: Any,
    n_dim: int,
    *,
    law: Law = NORMAL,
    n_chains: int = 20_000,
    n_transitions: int = 5,
    seed: int = 0,
) -> None:
    """Chains that start with exact draws of a law, and decide exactly, still have it after some transitions.

    Compares means, squares and products of all coordinates (as normal scores) before and after, in pairs, and
    distribution functions. A proposal that adapts does so first, and is then frozen.
    """
    bound = _bind(proposal, n_dim, law)
    run = _compile(bound, law, n_dim)[1]
    if run is None:
        run = _walk(bound.propose, bound.adapt, law.log_density)
        n_chains //= _INTERPRETED_IS_SLOW
    rng, state = np.random.default_rng(seed), deepcopy(bound.state)
    starts, schedule = _starts(law, n_chains, n_dim, seed), Exact().bind(1)
    run(starts[:1], _N_TUNE, True, rng, np.arange(1), state, schedule)
    ends, n_accepted = run(starts, n_transitions, False, rng, np.arange(1), state, schedule)
    n_all = n_chains * n_transitions
    require(
        n_accepted >= 100,
        f"{n_accepted} of {n_all} proposals were accepted: nothing can be seen. Give a `law` that suits the "
        "size of the proposal.",
    )
    meaning = (
        f"{n_accepted} of {n_all} proposals were accepted. If the law does not stay, log_hastings is wrong: "
        "it must be log q(q | q_new) - log q(q_new | q)."
    )
    with np.errstate(invalid="ignore"):
        before, after = law.to_normal(starts), law.to_normal(ends)
    for d in range(n_dim):
        for what, e in [(f"The mean of coordinate {d}", None)] + [
            (f"The mean product of coordinates {d} and {e}", e) for e in range(d, n_dim)
        ]:
            old, new = (z[:, d] if e is None else z[:, d] * z[:, e] for z in (before, after))
            change = new - old
            require_close(
                f"{what}, in units of the law,",
                float(old.mean() + change.mean()),
                float(old.mean()),
                float(change.std() / np.sqrt(n_chains)),
                0.0,
                meaning,
            )
        p = stats.kstest(after[:, d], "norm").pvalue
        require(
            p > _P_LIMIT,
            f"The distribution function of coordinate {d} is not that of the law any more: p = {p:.1e} "
            f"(Kolmogorov and Smirnov). {meaning}",
        )


def _bind(proposal: Any, n_dim: int, law: Law, proxy: QuadraticProxy | None = None) -> BoundProposal:
    if isinstance(proposal, BoundProposal):
        bound = proposal
    else:
        if proxy is None and is_fitted(proposal):
            proxy = proxy_of(law, n_dim)
        bound = bind(proposal, n_dim, Exact().target_accept(n_dim), proxy)
    if bound.is_surrogate:
        raise TypeError(
            "A surrogate proposal moves along the slope of the global terms, which the laws of this check do "
            "not have. Check that it is reversible for them."
        )
    return bound


def _starts(law: Law, n: int, n_dim: int, seed: int) -> np.ndarray:
    return law.from_normal(np.random.default_rng(seed).standard_normal((n, n_dim)))


def _walk(
    propose: Propose, adapt: Adapt, log_density: Callable[[Vector], float]
) -> Callable[..., tuple[np.ndarray, int]]:
    """``(starts, n, tune, rng, population, state, schedule) -> (ends, n_accepted)``."""
    global_log_ratio, log_ratios = _target_of(log_density)
    draw, decide, accept = Exact().functions

    def walk(
        starts: np.ndarray,
        n: int,
        tune: bool,
        rng: np.random.Generator,
        population: Index,
        state: Any,
        schedule: Any,
    ) -> tuple[np.ndarray, int]:
        ends, n_accepted = np.empty_like(starts), 0
        for c in range(starts.shape[0]):
            out = transitions(
                n, tune, rng, starts[c].copy(), (), population, NO_STRATUM, state, schedule, 0,
                proposed_move, propose, adapt, draw, decide, accept, no_range,
                Target(global_log_ratio, log_ratios),
            )  # fmt: skip
            ends[c] = out.q
            n_accepted += out.n_accepted
        return ends, n_accepted

    return walk


@lru_cache(maxsize=32)
def _dispatchers(
    propose: Propose, adapt: Adapt, log_density: Callable[[Vector], float]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`propose` and `_walk`, to be compiled when they are called."""

    def one(state: Any, q: Vector, rng: np.random.Generator) -> tuple[Vector, float]:
        return propose(state, q, rng)  # type: ignore[no-any-return]

    return numba.njit(one), numba.njit(_walk(propose, adapt, log_density))


def _compile(
    bound: BoundProposal, law: Law, n_dim: int
) -> tuple[Callable[..., Any] | None, Callable[..., Any] | None]:
    """`propose`, and `_walk`, compiled; None for a function of the user that numba cannot compile."""
    functions = _dispatchers(bound.propose, bound.adapt, law.log_density)
    q, rng, state = _starts(law, 1, n_dim, 0), np.random.default_rng(0), deepcopy(bound.state)
    try:
        functions[0](state, q[0], rng)
        functions[1](q, 1, False, rng, np.arange(1), state, Exact().bind(1))
    except Exception as error:  # numba passes some errors of the code it compiles through
        if bound.compilable:
            raise AssertionError(f"numba cannot compile the proposal, which says it is: {error}") from error
        return None, None
    return functions


def _target_of(log_density: Callable[[Vector], float]) -> Target:
    """One local term: the log density."""

    @register_jitable
    def log_ratios(q_new: Vector, q: Vector, index: Index, args: Any) -> Vector:
        return np.full(index.shape[0], log_density(q_new) - log_density(q))

    @register_jitable
    def global_log_ratio(q_new: Vector, q: Vector, args: Any) -> float:
        return 0.0

    return Target(global_log_ratio, log_ratios)
