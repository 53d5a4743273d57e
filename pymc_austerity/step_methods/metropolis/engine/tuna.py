"""What the kernel of `TunaMH` is handed."""

import numpy as np

from pymc_austerity.bounds.row_sampler import RowDraws
from pymc_austerity.kernels.tuna import TunaRule, tuna_transitions
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.step_methods.metropolis.engine.base import Inputs


class TunaInputs(Inputs):
    """What `kernels.tuna` is handed.

    Parameters
    ----------
    factorisation : Factorisation
        Whose local terms are remainders.
    rows : RowDraws
    chi : float
    debug : bool
        Whether terms larger than their bounds are only counted.
    """

    kernel = staticmethod(tuna_transitions)
    functions = ("global_log_ratio", "log_ratios", "features")

    def __init__(self, factorisation: Factorisation, rows: RowDraws, chi: float, debug: bool) -> None:
        self.n_local = self.n_others = factorisation.n_local
        self.rows = rows
        self._chi, self._debug = chi, debug
        self.target = CompiledTarget(factorisation)

    def restart(self) -> None:
        """Begin to count violations."""
        self.violations = np.zeros(1, dtype=np.int64)
        self.given = {"rows": self.rows, "rule": TunaRule(self._chi, self.violations, self._debug)}
