"""`pm.sample`, with its chains on a Dask cluster."""

import logging
import time
import uuid
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
from pymc.backends import init_traces
from pymc.initial_point import make_initial_point_fns_per_chain
from pymc.model import modelcontext
from pymc.sampling.mcmc import _sample_return, assign_step_methods, instantiate_steppers
from pymc.stats.convergence import log_warning_stats
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.arraystep import PopulationArrayStepShared
from pymc.step_methods.compound import CompoundStep, flatten_steps
from pymc.util import get_random_generator
from xarray import DataTree

from pymc_austerity.cluster.running import ChainsToRun, Drawn, Running
from pymc_austerity.cluster.workers import Inspection, require_client
from pymc_austerity.model.stored_data import files_of
from pymc_austerity.validation import require_whole

_LOG = logging.getLogger("pymc.austerity")
# Bytes beyond which it is said that data are sent.
_LARGE = 100e6


def sample_distributed(
    draws: int = 1000,
    *,
    tune: int = 1000,
    chains: int = 4,
    step: Any,
    client: Any,
    random_seed: Any = None,
    initvals: Any = None,
    var_names: Sequence[str] | None = None,
    discard_tuned_samples: bool = True,
    compute_convergence_checks: bool = True,
    idata_kwargs: Mapping[str, Any] | None = None,
    progressbar: bool = True,
    wait_for_workers: float = 60.0,
    model: pm.Model | None = None,
) -> DataTree:
    """Run the chains of `pm.sample` on the workers of a Dask cluster, one task for each chain.

    Parameters
    ----------
    draws, tune, chains : int
        As in `pm.sample`.
    step : step method or list of step methods
        For all variables of the model, or for some: PyMC chooses steps for the others. Not None, and no step
        that moves all chains together.
    client : distributed.Client
        Of a local cluster, or of one made by dask-jobqueue, dask-kubernetes, Coiled, or
        ``Client("tcp://host:8786")``.
    random_seed : int or numpy.random.Generator, optional
        As in `pm.sample`.
    initvals, var_names, discard_tuned_samples, compute_convergence_checks, idata_kwargs
        As in `pm.sample`.
    progressbar : bool, default True
        A line for each chain.
    wait_for_workers : float, default 60.0
        Seconds for which there may be no worker at all.
    model : pm.Model, optional
        Default: that of the context.

    Returns
    -------
    DataTree
        As `pm.sample` returns it, chains in their order.

    Raises
    ------
    TypeError, ValueError
        If `client` is no connected client, or an argument is out of range.
    RuntimeError
        If a worker has another version of a package, or several threads; if three workers have died with a
        chain; if there are no workers for too long.
    FileNotFoundError
        If a worker does not see rows on disk: it names the path and the host.

    Notes
    -----
    Data in memory are sent to each worker once. Rows on disk (`stored_data`) are not sent: each worker opens
    them at the same path, or in the folder that its environment variable `PMA_STORE_ROOT` names.

    After Ctrl-C, or if the client is closed, the draws of finished chains are kept, and after Ctrl-C those of
    running ones so far.

    *Guarantee*: the draws are those of ``pm.sample(cores=1)`` with the same arguments and seed, bit for bit,
    on processors of one type with the same versions; statistics that are times differ. A chain that a dead
    worker loses is run again with its own seed, and makes the same draws.

    *When it fails*: a worker that joins later and is not fit ends the call when it is seen. Warnings of a
    chain arrive when it is over.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from distributed import Client
    >>> from pymc_austerity import TunaMH, sample_distributed
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, 1.0, observed=np.linspace(-1.0, 2.0, 5_000))
    >>> with model, Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
    ...     idata = sample_distributed(
    ...         500, chains=2, step=TunaMH(), client=client, random_seed=1, progressbar=False
    ...     )
    >>> idata.posterior.sizes["chain"]
    2
    """
    model = modelcontext(model)
    require_whole(0, tune=tune)
    require_whole(1, draws=draws, chains=chains)
    _require_step(step)
    require_client(client)
    inspection = Inspection(client, [file["path"] for file in files_of(model).values()], wait_for_workers)
    inspection.wait_for_one()
    inspection.require()
    to_run = _chains_to_run(model, step, draws, tune, chains, random_seed, initvals)
    content = cloudpickle.dumps(to_run)
    if len(content) > _LARGE:
        _LOG.warning(
            "%.0f MB of model and data are sent to each worker, once. Rows on disk are not: see stored_data.",
            len(content) / 1e6,
        )
    started = time.time()
    topic = f"pymc_austerity-{uuid.uuid4().hex}"
    running = Running(client, content, chains, topic, inspection)
    drawn = running.results(to_run.step, draws, tune, progressbar=progressbar)
    traces = _traces(model, to_run, chains, var_names)
    for chain, found in drawn.items():
        _record(traces[chain], found, chain, tune)
    result: DataTree = _sample_return(
        run=None,
        traces=traces,
        tune=tune,
        t_sampling=time.time() - started,
        discard_tuned_samples=discard_tuned_samples,
        compute_convergence_checks=compute_convergence_checks,
        return_inferencedata=True,
        keep_warning_stat=False,
        idata_kwargs=dict(idata_kwargs or {}),
        model=model,
    )
    return result


def _require_step(step: Any) -> None:
    if step is None:
        raise ValueError(
            "step is None: sample_distributed runs steps that you make, such as step=recommend() or "
            "step=pm.NUTS(). pm.sample chooses and starts its own NUTS in another way."
        )
    for one in flatten_steps(CompoundStep(step) if isinstance(step, list | tuple) else step):
        if isinstance(one, PopulationArrayStepShared):
            raise ValueError(
                f"{type(one).__name__} moves all chains together, and they are in different processes here. "
                "Use pm.sample."
            )


def _chains_to_run(
    model: pm.Model, step: Any, draws: int, tune: int, chains: int, random_seed: Any, initvals: Any
) -> ChainsToRun:
    """Steps, first states and generators, in the order in which `pm.sample` makes them."""
    rngs = get_random_generator(random_seed).spawn(chains)
    seeds = [rng.integers(2**30) for rng in rngs]
    given, chosen = assign_step_methods(model, step, methods=STEP_METHODS)
    makers = make_initial_point_fns_per_chain(
        model=model, overrides=initvals, jitter_rvs=set(), chains=chains
    )
    starts = [make(seed) for make, seed in zip(makers, seeds, strict=True)]
    steps = instantiate_steppers(
        model, steps=given, selected_steps=chosen, step_kwargs={}, initial_point=starts[0], compile_kwargs={}
    )
    return ChainsToRun(CompoundStep(steps) if isinstance(steps, list) else steps, starts, rngs, tune, draws)


def _traces(model: pm.Model, to_run: ChainsToRun, chains: int, var_names: Sequence[str] | None) -> Any:
    kept = None
    if var_names is not None:
        kept = [var for var in model.unobserved_RVs if var.name in var_names]
        unknown = set(var_names) - {var.name for var in kept}
        if unknown:
            raise ValueError(f"var_names: the model has no variable {sorted(unknown)[0]!r}.")
        kept = model.replace_rvs_by_values(kept)
    _, traces = init_traces(
        backend=None,
        chains=chains,
        expected_length=to_run.draws + to_run.tune,
        step=to_run.step,
        initial_point=to_run.starts[0],
        model=model,
        trace_vars=kept,
        tune=to_run.tune,
    )
    return traces


def _record(trace: Any, drawn: Drawn, chain: int, tune: int) -> None:
    """Write draws to a trace, and say what the chain has said."""
    for k in range(drawn.n):
        stats = [{name: values[k] for name, values in own.items()} for own in drawn.stats]
        point = {name: np.asarray(values[k]) for name, values in drawn.points.items()}
        trace.record(point, stats, in_warmup=k < tune)
        log_warning_stats(stats)
    trace.close()
    for category, text in dict.fromkeys(drawn.told):
        warnings.warn(f"Chain {chain}: {text}", category, stacklevel=3)
