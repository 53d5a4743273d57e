"""Chains of steps, run here or in processes, and their draws, in memory or on disk."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pymc as pm
from xarray import DataTree

from pymc_austerity.sampling import pymc_names
from pymc_austerity.sampling.chains import Block, Recorder, Results, blocks_of, chains_of
from pymc_austerity.sampling.on_disk import StoredResults
from pymc_austerity.sampling.processes import run_in_processes
from pymc_austerity.step_methods.metropolis.base import SubsampledStep

logger = logging.getLogger("pymc.austerity")

# Nanoseconds of all chains below which processes would take longer to start than chains to run.
_SHORT = 2e9
# Bytes of draws in memory that are worth a word before chains start.
_LARGE = 2e9


class Run(NamedTuple):
    """How chains are run, by names of `pm.sample`, whatever their steps."""

    draws: int
    tune: int | None
    chains: int | None
    cores: int | None
    random_seed: Any
    initvals: Any
    var_names: Sequence[str] | None
    progressbar: Any
    quiet: bool
    discard_tuned_samples: bool
    compute_convergence_checks: bool
    idata_kwargs: Mapping[str, Any] | None


def run_steps(
    model: pm.Model,
    step: Any,
    run: Run,
    path: Path | None = None,
    *,
    mp_ctx: Any = None,
    blas_cores: Any = "auto",
) -> DataTree:
    """Run chains of one or several steps, and return their draws as `pm.sample` does; with a path on disk."""
    context = pymc_names.multiprocessing_context(mp_ctx)
    cores = min(4, pymc_names.cpu_count()) if run.cores is None else run.cores
    n_chains = max(2, cores) if run.chains is None else run.chains
    _, cores, blas = pymc_names.setup_cores_blas_cores(blas_cores, n_chains, cores, context)
    chains = chains_of(
        model, step, draws=run.draws, tune=run.tune, chains=n_chains, random_seed=run.random_seed,
        initvals=run.initvals,
    )  # fmt: skip
    recorder = Recorder(model, chains, run.var_names)
    results: Results | StoredResults
    if path is None:
        _tell_of_memory(n_chains * run.draws * recorder.bytes_of_draw, run)
        results = Results(recorder, chains)
    else:
        results = StoredResults(path, recorder, chains, keeps_tuning=not run.discard_tuned_samples)
    bars = pymc_names.ProgressBars(
        step_method=chains.step, chains=n_chains, draws=run.draws, tune=chains.tune,
        progressbar=run.progressbar and not run.quiet,
    )  # fmt: skip
    made, n = [0] * n_chains, chains.tune + run.draws

    def see(chain: int, block: Block) -> None:
        """Keep draws of a chain, and show how far it is."""
        results.add(chain, block)
        made[chain] += block.n
        is_tuning = made[chain] <= chains.tune
        bars.see(
            chain, block.n, is_last=made[chain] == n, draw=made[chain] - 1, tuning=is_tuning, stats=block.last
        )

    with pymc_names.quiet_logging(run.quiet):
        try:
            with bars:
                if cores > 1 and n_chains > 1 and not _is_short(chains.step, n_chains * n):
                    run_in_processes(chains, cores, context, blas, see)
                else:
                    begin = chains.step.sampling_state
                    for chain in range(n_chains):
                        chains.step.sampling_state = begin
                        for block in blocks_of(chains, chain):
                            see(chain, block)
        except KeyboardInterrupt:
            pass  # what was drawn is kept
        except BaseException:
            if isinstance(results, StoredResults):
                results.write_all()
            raise
        return results.returned(
            discard_tuned_samples=run.discard_tuned_samples,
            compute_convergence_checks=run.compute_convergence_checks,
            idata_kwargs=run.idata_kwargs,
            quiet=run.quiet,
        )


def _is_short(step: Any, n_draws: int) -> bool:
    """Do so many draws take little work? That is known of steps that move a block."""
    if not isinstance(step, SubsampledStep) or step.recipe.is_field:
        return False
    return n_draws * step.nanoseconds_of_draw < _SHORT


def _tell_of_memory(n_bytes: float, run: Run) -> None:
    if n_bytes > _LARGE and not run.quiet:
        logger.warning(
            "sample: the draws will take %.3g GB of memory. trace='draws.zarr' writes them to disk; "
            "var_names=[...] leaves variables out.",
            n_bytes / 1e9,
        )
