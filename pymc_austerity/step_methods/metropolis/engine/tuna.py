"""The compiled transitions of `TunaMH`."""

from __future__ import annotations

from typing import Any

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.bounds.row_draws import BoundedRows
from pymc_austerity.kernels.metropolis import Outcome
from pymc_austerity.kernels.tuna import TunaRule, tuna_transitions
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.proposals.base import BoundProposal
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel


class TunaEngine(CompiledKernel):
    """Transitions of `kernels.tuna`.

    Parameters
    ----------
    factorisation : Factorisation
        Whose local terms are remainders.
    rows : BoundedRows
    chi : float
    debug : bool
        Whether terms larger than their bounds are only counted.
    proposal : BoundProposal
    q, point : ndarray, dict
        A state, and the values of all variables, to compile with.
    """

    def __init__(
        self,
        factorisation: Factorisation,
        rows: BoundedRows,
        chi: float,
        debug: bool,
        proposal: BoundProposal,
        q: np.ndarray,
        point: PointType,
    ) -> None:
        self.n_local = self.n_others = factorisation.n_local
        self.rows = rows
        self._rule = TunaRule(chi, np.zeros(1, dtype=np.int64), debug)
        self.target = CompiledTarget(factorisation)
        self._compile(
            tuna_transitions,
            {"rows": rows.kernel(...)},
            ["global_log_ratio", "log_ratios", "features"],
            proposal,
            q,
            point,
        )

    def restart(self) -> None:
        """Begin to count violations."""
        self._rule = self._rule._replace(violations=np.zeros(1, dtype=np.int64))

    def take_violations(self) -> float:
        """Terms larger than their bounds since the last call."""
        count = float(self._rule.violations[0])
        self._rule.violations[0] = 0
        return count

    def run(
        self,
        n: int,
        tune: bool,
        rng: np.random.Generator,
        q: np.ndarray,
        point: PointType,
        proposal_state: Any,
    ) -> Outcome:
        """Make n transitions from q; `point` has the values of the other variables."""
        outcome: Outcome = self._call(
            proposal_state,
            n,
            tune,
            rng,
            q,
            self.target.args(point),
            self.rows.state,
            self._rule,
            proposal_state,
        )
        return outcome
