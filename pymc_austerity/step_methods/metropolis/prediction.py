"""How many rows TunaMH will draw, told before it starts."""

import math
from typing import NamedTuple

import numpy as np

from pymc_austerity.bounds.remainder import RowDraws
from pymc_austerity.bounds.screened_draws import mean_share
from pymc_austerity.mode.mode_fit import FittedTerms, ModeReport
from pymc_austerity.proposals.base import BoundProposal, no_adaptation
from pymc_austerity.proposals.random_walk import OPTIMAL_SCALE
from pymc_austerity.step_methods.messages import few_digits

# Moves that are tried out: so many, or fewer in many dimensions, where a move takes long in plain Python.
_MOVES, _FEWEST, _BUDGET = 200, 20, 100_000
_SEED = 2020
# Rows that are tried against their own bounds.
_ROWS = 500
# A sum of remainders that varies by less than this is decided by a small batch.
_SMALL_SPREAD = 1.0
# Dimensions above which a loose bound is to blame for many rows.
_MANY_DIMENSIONS = 50
# Rows that AusterityMH reads of remainders, and how many times as many are worth a word.
_FEW_ROWS, _MANY_TIMES = 150, 10


class Prediction(NamedTuple):
    """Expected cost of a transition, where the fitted normal distribution is the posterior."""

    terms: float  # Expected number of rows that are evaluated for a transition
    total: float  # C, the sum of the bounds c_i near the mode
    size: float  # Mean of C M over moves, each with the C of its tier, divided by C near the mode
    n_dim: int  # Dimensions of the normal distribution

    def __str__(self) -> str:
        return f"{few_digits(self.terms)} rows for a transition (C = {self.total:.3g}, M = {self.size:.3g})"

    def is_loose(self, report: ModeReport) -> bool:
        """Are there many more rows than the remainders need, for the number of dimensions?"""
        return (
            self.terms > _MANY_TIMES * _FEW_ROWS
            and self.n_dim > _MANY_DIMENSIONS
            and report.remainder_sd < _SMALL_SPREAD
        )

    def advice(self, report: ModeReport, n_rows: int) -> str:
        """Why so many, and what is cheaper."""
        if not np.isfinite(self.total):
            return (
                "The remainders of some rows have no finite bound near the mode: their log density has a "
                "kink or a pole there, or what it computes is not known to stay where it is smooth."
            )
        if not report.remainder_sd < _SMALL_SPREAD:
            return (
                "The posterior is far from the normal distribution at its mode (its log density is off by "
                f"{report.remainder_sd:.2g}), as with few data for a parameter: pm.NUTS suits it better."
            )
        why = f"The bounds are loose in {self.n_dim} dimensions, not the data difficult: "
        if self.n_dim <= _MANY_DIMENSIONS:
            why = f"{n_rows:,} rows are few for {self.n_dim} dimensions: bounds shrink with 1/sqrt(N). "
        return (
            f"{why}AusterityMH(control_variate=Taylor()) would read some {min(_FEW_ROWS, n_rows):,} rows, "
            "with a small error that is not bounded."
        )


def predict(draws: RowDraws, proposal: BoundProposal, found: FittedTerms, chi: float) -> Prediction:
    """Try out moves from draws of the fitted distribution.

    Moves of a `Surrogate` need a compiled model; independent draws, which are further apart, stand for them.
    A walk that is yet to learn its size is taken to have the optimal one.
    """
    rng, sampler = np.random.default_rng(_SEED), draws.state
    mode_fit, features = found.mode_fit, found.features
    n_dim = len(mode_fit.unwhiten)
    moves = max(min(_MOVES, _BUDGET // n_dim**2), _FEWEST)
    old, new = np.tile(mode_fit.proxy.mode, (2, moves, 1))
    for states in (old, new):
        states[:, mode_fit.free] += rng.standard_normal((moves, n_dim)) @ mode_fit.unwhiten.T
    if proposal.adapt is not no_adaptation and not proposal.is_surrogate:
        new[:, mode_fit.free] -= mode_fit.proxy.mode[mode_fit.free]
        new = old + OPTIMAL_SCALE / math.sqrt(n_dim) * new * mode_fit.free
    elif not proposal.is_surrogate:
        for k in range(moves):
            if proposal.plain is None:
                new[k] = proposal.propose(proposal.state, old[k].copy(), rng)[0]
            else:  # a user's function
                new[k] = proposal.plain(old[k].copy(), rng)[0]
    if proposal.is_surrogate and mode_fit.of_features is not None:
        # A surrogate follows features, whose distribution is nearer to normal than that of q.
        _, directions = mode_fit.of_features
        old, new = sampler.center + rng.standard_normal((2, moves, len(directions))) @ directions.T
    else:
        old, new = (np.array([features(q) for q in states]) for states in (old, new))
    pairs = [draws.move(sampler, a, b) for a, b in zip(new, old, strict=True)]
    expected = np.array([move.expected for move in pairs])
    rows = rng.integers(sampler.constants.shape[1], size=_ROWS)
    read = np.array([mean_share(sampler, move, rows) for move in pairs])
    bounded = np.isfinite(expected)  # the others are decided on all rows
    n_local = float(sampler.constants.shape[1])
    drawn = np.full(moves, n_local)
    n_drawn = expected[bounded] * (1.0 + chi * expected[bounded])
    drawn[bounded] = np.where(n_drawn <= sampler.most, read[bounded] * n_drawn, n_local)
    some = expected[bounded].mean() if np.any(bounded) else 0.0
    size = float(some / sampler.totals[0]) if sampler.totals[0] > 0.0 else 0.0
    return Prediction(float(np.mean(drawn)), float(sampler.totals[0]), size, n_dim)
