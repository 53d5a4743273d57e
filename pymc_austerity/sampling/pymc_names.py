"""Names of PyMC that are not public, by which chains are made as `pm.sample` makes them, and returned.

All of them are here, and `tests/sample/test_pymc_names.py` has a test for each: a new version of PyMC that
moves one is noticed at once.
"""

from typing import Any

from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants, find_observations
from pymc.backends.base import MultiTrace
from pymc.initial_point import make_initial_point_fns_per_chain
from pymc.progress_bar import MCMCProgressBarManager, NutpieProgressBarManager
from pymc.sampling.mcmc import _quiet_logging as quiet_logging
from pymc.sampling.mcmc import _sample_return as sample_return
from pymc.sampling.mcmc import (
    assign_step_methods,
    get_default_tune_steps,
    instantiate_steppers,
    setup_cores_blas_cores,
)
from pymc.sampling.parallel import _cpu_count as cpu_count
from pymc.sampling.parallel import _initialize_multiprocessing_context as multiprocessing_context
from pymc.stats.convergence import log_warning_stats, log_warnings, run_convergence_checks
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.arraystep import PopulationArrayStepShared
from pymc.step_methods.compound import CompoundStep, flatten_steps
from pymc.util import get_random_generator

__all__ = [
    "STEP_METHODS",
    "CompoundStep",
    "MultiTrace",
    "NutpieProgressBarManager",
    "PopulationArrayStepShared",
    "ProgressBars",
    "assign_step_methods",
    "coords_and_dims_for_inferencedata",
    "cpu_count",
    "find_constants",
    "find_observations",
    "flatten_steps",
    "get_default_tune_steps",
    "get_random_generator",
    "instantiate_steppers",
    "log_warning_stats",
    "log_warnings",
    "make_initial_point_fns_per_chain",
    "multiprocessing_context",
    "quiet_logging",
    "run_convergence_checks",
    "sample_return",
    "setup_cores_blas_cores",
]


class ProgressBars(MCMCProgressBarManager):  # type: ignore[misc]  # PyMC has no types
    """PyMC's progress bars, for draws that come many at a time."""

    def see(self, chain: int, n: int, **found: Any) -> None:
        """Show n draws more of a chain, and what is said of the last of them."""
        if self._show_progress and n > 1:
            self.completed_draws += n - 1
            self._backend.update(0 if self.combined_progress else chain, n - 1, False, {}, False)
        self.update(chain_idx=chain, **found)
