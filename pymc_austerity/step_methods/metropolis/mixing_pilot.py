"""How well a step mixes: a short run when it is set up."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pymc.initial_point import PointType

from pymc_austerity.exceptions import warn
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.messages import few_digits
from pymc_austerity.step_methods.metropolis.engine.base import Engine
from pymc_austerity.target import Vector

_SEED = 2022
# Chains, the draws in which each settles, and those that count: so many, or fewer where a draw takes long.
_CHAINS, _SETTLE, _MOST, _FEWEST = 4, 100, 1000, 100
# Nanoseconds for all of them; for a row that is read; for a move, and for each of its squared dimensions.
_BUDGET, _OF_ROW, _OF_MOVE, _OF_SQUARE = 5e8, 50.0, 2e4, 10.0
# A move of a surrogate is made of several inner ones, of several steps each.
_INNER = 5.0
# Fewer effective draws a draw are too few: the pilot itself has hardly mixed, and may be far too confident.
_POOR = 0.05
# A fitted proposal that fits has more. Where a scale can be near 0, a pilot may not have been there.
_USUAL = 0.3
# A pilot that takes so many times what was planned, as where a few moves read very many rows, is given up.
_AT_MOST = 4.0

SLOW_ADVICE = (
    "A posterior far from normal does this, as of rare events, or of a scale near 0 where groups hardly "
    "differ: write their effects non-centred. Or let recommend() choose a step that mixes."
)
# However the effects of a field are written, its coordinates are the same.
FIELD_ADVICE = (
    "A posterior far from normal does this, as of rare events, or of groups with few rows. Let recommend() "
    "choose a step that mixes."
)


class Mixing(NamedTuple):
    """What a pilot run says of the draws of a step."""

    efficiency: float  # Effective draws (bulk) for each draw, of the coordinate that mixes worst
    dimension: int  # Which coordinate of the block that is
    n_draws: int  # Draws of the pilot

    @property
    def is_poor(self) -> bool:
        """Are there so few effective draws that chains would hardly mix?"""
        return self.efficiency < _POOR

    @property
    def is_doubtful(self) -> bool:
        """Are there fewer effective draws than fitted proposals usually have?"""
        return self.efficiency < _USUAL

    @property
    def effective(self) -> float:
        """Effective draws of the pilot."""
        return self.efficiency * self.n_draws

    def __str__(self) -> str:
        return f"one effective draw in {1.0 / self.efficiency:.3g}, by a pilot run of {self.n_draws:,}"


def warn_of_poor_mixing(mixing: Mixing, name: str, *, is_field: bool) -> None:
    """Tell that chains would hardly mix; `name` is the variable that mixes worst."""
    warn(
        f"The step mixes badly: {mixing.n_draws:,} draws of a pilot run were worth about "
        f"{few_digits(mixing.effective)} independent ones of {name}. "
        f"{FIELD_ADVICE if is_field else SLOW_ADVICE}"
    )


def affordable(nanoseconds: float, budgets: Mapping[int, float], n_settle: int) -> tuple[int, int]:
    """Draws of each chain, and chains, where a draw takes so long; no draws if there are too few to tell.

    The first number of chains is taken whose budget, in nanoseconds, pays for enough draws.
    """
    for n_chains, budget in budgets.items():
        n_draws = int(min(budget / (n_chains * nanoseconds) - n_settle, _MOST))
        if n_draws >= _FEWEST:
            return n_draws, n_chains
    return 0, 1


def draws_of_pilot(n_rows: float, n_dim: int, steps_per_draw: int, *, is_surrogate: bool) -> int:
    """Draws of each chain of a block that can be afforded; 0 if there are too few to tell."""
    nanoseconds = nanoseconds_of_draw(n_rows, n_dim, steps_per_draw, is_surrogate=is_surrogate)
    n_draws, _ = affordable(nanoseconds, {_CHAINS: _BUDGET}, _SETTLE)
    return n_draws


def nanoseconds_of_draw(n_rows: float, n_dim: int, steps_per_draw: int, *, is_surrogate: bool) -> float:
    """What a draw of a block takes, roughly, whose transitions read so many rows."""
    move = (_OF_MOVE + _OF_SQUARE * n_dim**2) * (_INNER if is_surrogate else 1.0)
    return steps_per_draw * (_OF_ROW * n_rows + move)


def try_out(
    engine: Engine,
    start: Callable[[np.random.Generator], Vector],
    point: PointType,
    proposal_state: Any,
    *,
    n_draws: int,
    steps_per_draw: int = 1,
    n_watched: int | None = None,
    n_chains: int = _CHAINS,
    n_settle: int = _SETTLE,
    see: Callable[[Any], None] | None = None,
) -> npt.NDArray[np.float64] | None:
    """Draws (chain, draw, D) of chains, each from a state of its own; None if they read far too many rows.

    `start` draws a state. Chains run a copy of the engine and of the proposal's state, which learns in the
    first `n_settle` draws. Of the other `n_draws` the first `n_watched` coordinates are returned, by default
    all, and `see` is handed each outcome.
    """
    stage("pilot run", f" of {n_chains} x {n_draws:,} draws")
    engine, rng = engine.copy(), np.random.default_rng(_SEED)
    chains, n_used = [], 0
    for _ in range(n_chains):
        state, q = deepcopy(proposal_state), start(rng)
        draws = np.empty((n_draws, len(q)))
        for k in range(-n_settle, n_draws):
            outcome: Any = engine.run(steps_per_draw, k < 0, rng, q.copy(), point, state)
            q, n_used = outcome.q.copy(), n_used + outcome.n_used
            if see is None and _OF_ROW * n_used > _AT_MOST * _BUDGET:
                warn(
                    f"A pilot run was given up after {n_used:,} rows, many more than were predicted: some "
                    "moves read up to a million, as their bounds are loose. Leave switch_above as it is: "
                    "they are then decided on all rows."
                )
                return None
            draws[max(k, 0)] = q
            if see is not None and k >= 0:
                see(outcome)
        chains.append(draws[:, :n_watched])
        engine.restart()
    return np.array(chains)


def mixing_of(draws: npt.NDArray[np.float64]) -> Mixing:
    """The coordinate that mixes worst, of draws of shape (chain, draw, D).

    A coordinate that stands still has one effective draw in each chain.
    """
    from arviz_stats.base.array import array_stats  # takes half a second

    n_chains, n_draws, _ = draws.shape
    total = n_chains * n_draws
    with np.errstate(all="ignore"):
        sizes = np.asarray(array_stats.ess(np.moveaxis(draws, 2, 0), chain_axis=1, draw_axis=2), dtype=float)
    stands = np.ptp(draws, axis=1).max(axis=0) == 0.0
    sizes[stands | ~np.isfinite(sizes)] = n_chains
    worst = int(np.argmin(sizes))
    return Mixing(float(min(sizes[worst] / total, 1.0)), worst, total)
