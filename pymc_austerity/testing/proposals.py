"""Does a proposal leave a known distribution alone, and itself?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy
from scipy import optimize

from pymc_austerity.acceptance.base import Exact
from pymc_austerity.compilation import entry, jitable
from pymc_austerity.kernels.metropolis import Rule, no_range
from pymc_austerity.kernels.subsample import rows_of
from pymc_austerity.proposals.base import BoundProposal, ProposalKernel, bind, is_fitted
from pymc_austerity.target import Index, QuadraticProxy, Target, Vector
from pymc_austerity.testing.compare import require, require_close, require_same, require_same_state
from pymc_austerity.testing.targets import NORMAL, Law, Run, runs
from pymc_austerity.validation import renamed

# Transitions in which an adaptive proposal learns, past its first window, before it is frozen.
_N_TUNE = 200
# Moves of which each is looked at.
_N_MOVES = 200
# Probability of a correct proposal to fail a comparison of distribution functions.
_P_LIMIT = 1e-4
# The share of the chains that run interpreted.
_INTERPRETED_SHARE = 10
# (Shift of the mode, width) of each, in standard deviations. A fit that is poor makes chains slow, not wrong.
FITS = {"fitted": (0.0, 1.0), "displaced": (0.7, 1.0), "too narrow": (-0.3, 0.6), "too wide": (0.3, 1.7)}
# Step of second differences, in standard scores.
_STEP = 1e-3


@renamed(seed="random_seed")
def check_proposal(
    proposal: Any,
    n_dim: int,
    *,
    law: Law = NORMAL,
    n_chains: int = 20_000,
    n_transitions: int = 5,
    random_seed: int = 0,
) -> None:
    """Check a proposal: its functions, its memory, and that exact chains with it keep a known distribution.

    Parameters
    ----------
    proposal : Proposal or callable
        As for a step: an object with `bind`, one with `bind_to`, which is checked with the normal
        distribution at the mode of `law`, and with ones that are displaced, too narrow and too wide; or a
        function ``(q, rng) -> (q_new, log_hastings)``.
    n_dim : int
        Dimension D.
    law : Law, default N(1.5, 1) for each coordinate
        A distribution whose size suits the proposal; `targets.LOG_NORMAL` for proposals of positive numbers.
    n_chains, n_transitions : int
        Independent chains, and transitions of each, in which the distribution may change.
    random_seed : int, default 0

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

    Everything is checked interpreted first, with a tenth of the chains, so that most errors are found before
    anything is compiled. For a function that numba cannot compile that is all.

    *When it fails*: with steps much smaller or much larger than the distribution nothing moves, and little is
    seen. That a proposal reaches every state is not checked.

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
            not any(
                np.shares_memory(*pair) for pair in zip(_read(bound.state), _read(again.state), strict=True)
            ),
            "bind hands out the same arrays twice: one chain changes the proposal of the next.",
        )
        require(
            not any(np.shares_memory(array, given) for array in _read(bound.state) for given in proxy),
            "bind_to keeps the arrays that it is given: one step changes the proposal of the next.",
        )
        starts = _starts(law, n_chains, n_dim, random_seed)
        try:
            for walks in _interpreted_and_compiled(bound, law, starts):
                chains = starts if walks.compiled else starts[: n_chains // _INTERPRETED_SHARE]
                _require_moves(bound, walks, starts[:_N_MOVES], random_seed)
                _require_memory(bound, walks, law, chains, random_seed)
                _require_invariance(bound, walks, law, chains, n_transitions, random_seed)
        except AssertionError as error:
            if not is_fitted(proposal):
                raise
            raise AssertionError(f"With a normal distribution that is {fit}: {error}") from error


def check_moves(
    proposal: Any, n_dim: int, *, law: Law = NORMAL, n_moves: int = _N_MOVES, seed: int = 0
) -> None:
    """A move is a new finite vector and a number, the same interpreted and compiled; q stays as it was."""
    bound, starts = _bind(proposal, n_dim, law), _starts(law, n_moves, n_dim, seed)
    for walks in _interpreted_and_compiled(bound, law, starts):
        _require_moves(bound, walks, starts, seed)


def check_memory(proposal: Any, n_dim: int, *, law: Law = NORMAL, seed: int = 0) -> None:
    """Check that ``tune=False`` learns nothing; what is learnt is finite, and the same if compiled."""
    bound, starts = _bind(proposal, n_dim, law), _starts(law, 1, n_dim, seed)
    for walks in _interpreted_and_compiled(bound, law, starts):
        _require_memory(bound, walks, law, starts, seed)


def check_invariance(
    proposal: Any,
    n_dim: int,
    *,
    law: Law = NORMAL,
    n_chains: int = 20_000,
    n_transitions: int = 5,
    seed: int = 0,
) -> None:
    """Chains that start with exact draws, and decide exactly, keep their distribution.

    Compares means, squares and products of all coordinates (as normal scores) before and after, in pairs, and
    distribution functions. A proposal that adapts does so first, and is then frozen. One that cannot be
    compiled runs a tenth of the chains.
    """
    bound, starts = _bind(proposal, n_dim, law), _starts(law, n_chains, n_dim, seed)
    *_, walks = _interpreted_and_compiled(bound, law, starts)
    if not walks.compiled:
        starts = starts[: n_chains // _INTERPRETED_SHARE]
    _require_invariance(bound, walks, law, starts, n_transitions, seed)


def _require_moves(bound: BoundProposal, walks: Walks, starts: np.ndarray, seed: int) -> None:
    n_dim = starts.shape[1]
    meaning = "The compiled proposal does not do what its Python source does."
    for k, q in enumerate(starts):
        kept, state, rng = q.copy(), deepcopy(bound.state), np.random.default_rng([seed, k])
        q_new, log_hastings = walks.propose(state, q, rng)
        require_same("q after a proposal", q, kept, "The proposal works in place: rejections are lost.")
        require_same_state(
            "State after a proposal",
            _read(state),
            _read(bound.state),
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
            not any(np.shares_memory(q_new, array) for array in (q, *_read(state))),
            "q_new shares memory with q or the state of the proposal: later proposals overwrite the chain.",
        )
        if walks.compiled:
            again = np.random.default_rng([seed, k])
            other, other_hastings = bound.propose(deepcopy(bound.state), q, again)
            require_same("Compiled and interpreted, q_new", q_new, other, meaning, 1e-12)
            hastings = log_hastings, other_hastings
            require_same("Compiled and interpreted, log_hastings", *hastings, meaning, 1e-9)
            numbers = rng.random(), again.random()
            require_same("Compiled and interpreted, next random number", *numbers, meaning)


def _read(state: Any) -> Any:
    """Fields of the state of a proposal that moves read: all but `deviations`, which are notes of moves."""
    names = getattr(state, "_fields", ())
    if "deviations" not in names:
        return state
    return tuple(value for name, value in zip(names, state, strict=True) if name != "deviations")


def _require_memory(bound: BoundProposal, walks: Walks, law: Law, starts: np.ndarray, seed: int) -> None:
    def learnt(walks: Walks, tune: bool) -> Any:
        """State of the proposal after a chain."""
        state = deepcopy(bound.state)
        walks.chains(starts[:1], _N_TUNE, tune, np.random.default_rng(seed), state)
        return _read(state)

    require_same_state(
        f"State of the proposal after {_N_TUNE} transitions without tuning",
        learnt(walks, False),
        _read(bound.state),
        "A proposal that learns while draws are kept has another stationary distribution than the target.",
    )
    if walks.compiled:
        for one, other in zip(learnt(walks, True), learnt(interpreted(bound, law), True), strict=True):
            require_same("Compiled and interpreted, what was learnt", one, other, "They differ.", 1e-9)


def _require_invariance(
    bound: BoundProposal, walks: Walks, law: Law, starts: np.ndarray, n_transitions: int, seed: int
) -> None:
    rng, state = np.random.default_rng(seed), deepcopy(bound.state)
    walks.chains(starts[:1], _N_TUNE, True, rng, state)
    ends, n_accepted = walks.chains(starts, n_transitions, False, rng, state)
    n_chains, n_dim = starts.shape
    n_all = n_chains * n_transitions
    require(
        n_accepted >= 100,
        f"{n_accepted} of {n_all} proposals were accepted: nothing can be seen. Give a `law` that suits the "
        "size of the proposal.",
    )
    meaning = (
        f"{n_accepted} of {n_all} proposals were accepted. If the distribution does not stay, log_hastings "
        "is wrong: it must be log q(q | q_new) - log q(q_new | q)."
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
                f"{what}, in units of the distribution,",
                float(old.mean() + change.mean()),
                float(old.mean()),
                float(change.std() / np.sqrt(n_chains)),
                0.0,
                meaning,
            )
        p = scipy.stats.kstest(after[:, d], "norm").pvalue
        require(
            p > _P_LIMIT,
            f"The distribution of coordinate {d} is not what it was: p = {p:.1e} "
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
            "A surrogate proposal moves along the slope of the global terms, which the distributions of this "
            "check do not have. Check that it is reversible for them."
        )
    return bound


def _starts(law: Law, n: int, n_dim: int, seed: int) -> np.ndarray:
    return law.from_normal(np.random.default_rng(seed).standard_normal((n, n_dim)))


# Chains of a proposal that decide exactly, interpreted or compiled ------------------------------------------


class Walks(NamedTuple):
    """Functions of a proposal that its checks run."""

    propose: Callable[..., Any]  # ``(state, q, rng) -> (q_new, log_hastings)``
    run: Run
    compiled: bool

    def chains(
        self, starts: np.ndarray, n: int, tune: bool, rng: np.random.Generator, state: Any
    ) -> tuple[np.ndarray, int]:
        """Run `n` transitions from each of `starts`; return where they end, and how many were accepted."""
        schedule = Exact().bind(1)
        trace = self.run(starts, n, tune, rng, (), rows_of(schedule), state, schedule, 0)
        return trace.q[n - 1 :: n], int(trace.accepted.sum())


def interpreted(bound: BoundProposal, law: Law) -> Walks:
    """Walks of a proposal in plain Python."""
    return Walks(bound.propose, _exact_runs(bound.kernel(...), law.log_density), False)


def _interpreted_and_compiled(bound: BoundProposal, law: Law, starts: np.ndarray) -> Iterator[Walks]:
    """Walks in plain Python, then compiled by numba, unless a function of the user's cannot be."""
    yield interpreted(bound, law)
    walks = _dispatchers(bound.kernel(...), law.log_density)
    rng, state = np.random.default_rng(0), deepcopy(bound.state)
    try:
        walks.propose(state, starts[0], rng)
        walks.chains(starts[:1], 1, False, rng, state)
    except Exception as error:  # numba passes some errors of the code it compiles through
        if bound.compilable:
            raise AssertionError(f"numba cannot compile the proposal, which says it is: {error}") from error
    else:
        yield walks


@lru_cache(maxsize=32)
def _dispatchers(proposal: ProposalKernel, log_density: Callable[[Vector], float]) -> Walks:
    """Walks of a proposal that are compiled when they are called."""
    propose = proposal.propose

    def one(state: Any, q: Vector, rng: np.random.Generator) -> tuple[Vector, float]:
        moved: tuple[Vector, float] = propose(state, q, rng)
        return moved

    return Walks(entry(one, cache=False), entry(_exact_runs(proposal, log_density), cache=False), True)


def _exact_runs(proposal: ProposalKernel, log_density: Callable[[Vector], float]) -> Run:
    return runs(_target_of(log_density), proposal, Rule(..., ..., *Exact().functions, no_range))


@lru_cache(maxsize=32)
def _target_of(log_density: Callable[[Vector], float]) -> Target:
    """Target with one local term: the log density."""

    @jitable
    def log_ratios(q_new: Vector, q: Vector, index: Index, args: Any) -> Vector:
        return np.full(index.shape[0], log_density(q_new) - log_density(q))

    @jitable
    def global_log_ratio(q_new: Vector, q: Vector, args: Any) -> float:
        return 0.0

    return Target(global_log_ratio, log_ratios)


# Normal distributions that fitted proposals are checked with ------------------------------------------------


def proxy_of(law: Law, n_dim: int, shift: float = 0.0, width: float = 1.0) -> QuadraticProxy:
    """The normal distribution at the mode of `law`, or one with another mode and another width.

    `shift` is that of the mode, in standard deviations of the normal distribution; `width` is a factor of the
    standard deviation.
    """

    def density(x: float) -> float:
        return float(law.log_density(np.array([x])))

    def at(z: float) -> float:
        return float(law.from_normal(np.array([z]))[0])

    z = float(optimize.minimize_scalar(lambda z: -density(at(z)), bounds=(-5.0, 5.0), method="bounded").x)
    mode = at(z)
    h = _STEP * (at(z + 1.0) - at(z - 1.0))
    precision = (2.0 * density(mode) - density(mode - h) - density(mode + h)) / (h * h)
    return QuadraticProxy(
        np.full(n_dim, mode + shift / math.sqrt(precision)), np.eye(n_dim) * precision / width**2
    )
