"""Moves of a subsampled step one at a time, with all of their log ratios."""

import math
from typing import NamedTuple

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.model.factorisation import vector_of
from pymc_austerity.proposals.base import no_adaptation
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.engine.sequential import RuleEngine
from pymc_austerity.target import CHUNK, Vector

# Moves that are decided without the data are proposed anew so many times.
_ATTEMPTS = 100


class Move(NamedTuple):
    """A proposed move."""

    # q, q_new (D,)
    q: Vector
    q_new: Vector
    # What the sum of the N' log ratios is added to: the change of the global terms, the proposal's own log
    # ratio, and the log ratios of the rows that are always read
    base: float
    # (N',): l_i(q_new) - l_i(q) of the rows that are sampled from, of remainders if there is a control
    # variate
    log_ratios: Vector


class SingleMoves:
    """Moves as `step` would propose them, evaluated on all data.

    Parameters
    ----------
    step : SubsampledStep
        With a decision rule. It is used as it is: its proposal must have learnt what it is to learn.
    point : dict
        Values of all variables, to build with if the step comes from another process.
    """

    def __init__(self, step: SubsampledStep, point: PointType) -> None:
        step.require_built(point)
        engine = step.engine
        assert isinstance(engine, RuleEngine)
        self._step, self._options, self._compiled = step, step.options, engine.target
        self._proposal = step.recipe.bind()
        self._target = self._compiled.interpreted()
        self._exact_rows = engine.exact_rows
        self._others = np.delete(np.arange(engine.n_local), self._exact_rows)
        self.n_others = engine.n_others

    @property
    def adapts(self) -> bool:
        """Does the proposal learn while tuning?"""
        return self._options.tune and self._proposal.adapt is not no_adaptation

    def from_state(self, point: PointType, rng: np.random.Generator) -> Move | None:
        """Propose a move from the state in `point`; None if no move that needs the data is proposed."""
        args, q = self._compiled.args(point), vector_of(self._step.factorisation, point)
        proposal = self._proposal.kernel(self._step.proposal_state)
        with np.errstate(all="ignore"):
            for _ in range(_ATTEMPTS):
                q_new, base = proposal.move(proposal, q, rng, args, self._target)
                if math.isfinite(base):
                    if len(self._exact_rows):
                        base += float(np.sum(self._target.log_ratios(q_new, q, self._exact_rows, args)))
                    chunks = [self._others[a : a + CHUNK] for a in range(0, self.n_others, CHUNK)]
                    parts = [self._target.log_ratios(q_new, q, chunk, args) for chunk in chunks]
                    return Move(q, q_new, base, np.concatenate(parts))
        return None
