"""`pm.sample`, with its chains on a Dask cluster."""

import logging
import pickle
import queue
import time
import uuid
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import cloudpickle
import pymc as pm
from pymc.exceptions import SamplingError
from pymc.model import modelcontext
from xarray import DataTree

from pymc_austerity.cluster.workers import Calls, Inspection, lost, require_client
from pymc_austerity.exceptions import warn
from pymc_austerity.extras import imported
from pymc_austerity.model.stored_data import files_of
from pymc_austerity.sampling import pymc_names
from pymc_austerity.sampling.chains import (
    Block,
    Chains,
    Recorder,
    Results,
    blocks_of,
    chains_of,
    refuse_populations,
)
from pymc_austerity.validation import require_whole

# Seconds between two messages of a chain, and between two looks at chains.
_OFTEN, _LOOK = 0.5, 0.2
# Workers that may die with a chain; the last one is an error.
_MOST_DEATHS = 3


class Drawn(NamedTuple):
    """Draws of a chain, those of tuning first."""

    blocks: list[Block]
    told: list[tuple[type[Warning], str]]  # warnings, with their categories

    @property
    def n(self) -> int:
        """Number of draws."""
        return sum(block.n for block in self.blocks)

    def __reduce__(self) -> tuple[Any, ...]:
        # In one piece: else each array would be a message of its own.
        return _drawn, (cloudpickle.dumps(tuple(self)),)


def _drawn(content: bytes) -> Drawn:
    return Drawn(*pickle.loads(content))


class _StoppedError(Exception):
    """The chain was stopped from outside."""


class RunningChain:
    """A chain that runs, what it has drawn and said; it is told of under a topic."""

    def __init__(self, topic: str, chain: int) -> None:
        self._topic, self._chain, self._told_at = topic, chain, 0.0
        self._blocks: list[Block] = []
        self.told: list[Any] = []
        self.is_stopped = False

    def add(self, block: Block) -> None:
        """Keep some draws."""
        if self.is_stopped:
            raise _StoppedError
        self._blocks.append(block)
        now = time.monotonic()
        if now - self._told_at > _OFTEN:
            self._told_at = now
            message = {"chain": self._chain, "n": self.drawn().n, "stats": pickle.dumps(block.last)}
            distributed = imported("distributed", "Chains on a cluster", "cluster")
            distributed.get_worker().log_event(self._topic, message)

    def drawn(self) -> Drawn:
        """Draws that were made so far."""
        return Drawn(self._blocks.copy(), [(one.category, str(one.message)) for one in self.told])


# Chains that this process runs, by topic and number.
_RUNNING: dict[tuple[str, int], RunningChain] = {}


def run_chain(content: bytes, chain: int, topic: str) -> Drawn:
    """Run a chain from its first state: a chain that is run again makes the same draws."""
    chains: Chains = pickle.loads(content)
    running = _RUNNING[topic, chain] = RunningChain(topic, chain)
    try:
        with warnings.catch_warnings(record=True) as running.told:
            warnings.simplefilter("always")
            for block in blocks_of(chains, chain):
                running.add(block)
    finally:
        del _RUNNING[topic, chain]
    return running.drawn()


def stop_chains(topic: str) -> dict[int, Drawn]:
    """Stop the chains of this process, and hand over what they have drawn."""
    found = {}
    for (own, chain), running in list(_RUNNING.items()):
        if own == topic:
            running.is_stopped = True
            if (drawn := running.drawn()).n:
                found[chain] = drawn
    return found


class Running:
    """The chains of one call of `sample_distributed`, whose name is the topic."""

    def __init__(self, client: Any, content: bytes, chains: int, topic: str, inspection: Inspection) -> None:
        self._client, self._n, self._topic, self._inspection = client, chains, topic, inspection
        # Where a chain was last seen, and how many workers have died with it.
        self._last: dict[int, str] = {}
        self._deaths = [0] * chains
        self._calls = Calls(client, content, inspection, "Chain {}")
        self._calls.begin(run_chain, [(k, topic) for k in range(chains)])

    def results(self, step: Any, draws: int, tune: int, *, progressbar: bool) -> dict[int, Drawn]:
        """Draws of each chain, when all are over; after an interrupt what there is."""
        messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._client.subscribe_topic(self._topic, lambda event: messages.put(event[1]))
        bars = pymc_names.ProgressBars(
            step_method=step, chains=self._n, draws=draws, tune=tune, progressbar=progressbar
        )
        found = self._calls.results
        try:
            with bars:
                while len(found) < self._n and self._client.status == "running":
                    self._inspection.require()
                    self._show(messages, bars, tune)
                    self._collect(bars)
                    if self._client.status != "running":
                        break
                    self._count_deaths()
                    self._calls.go_on()
                    time.sleep(_LOOK)
        except KeyboardInterrupt:
            stopped = self._client.run(stop_chains, self._topic, on_error="ignore").values()
            self._collect(bars)  # what was over before it could be stopped
            for some in stopped:
                found = {**some, **found}
            warn(f"Interrupted: {len(found)} of {self._n} chains have draws, which are kept.")
        finally:
            if self._client.status == "running":
                self._client.unsubscribe_topic(self._topic)
                if len(found) < self._n:
                    self._client.run(stop_chains, self._topic, on_error="ignore")
            self._calls.cancel()
        if not found:
            raise SamplingError("No chain has any draws: the client was closed, or interrupted too early.")
        if self._client.status != "running":
            warn(f"The client was closed: {len(found)} of {self._n} chains had finished, and are kept.")
        return dict(sorted(found.items()))

    def _show(self, messages: Any, bars: Any, tune: int) -> None:
        while not messages.empty():
            told = messages.get()
            n, stats = told["n"], pickle.loads(told["stats"])
            bars.update(chain_idx=told["chain"], is_last=False, draw=n - 1, tuning=n <= tune, stats=stats)

    def _collect(self, bars: Any) -> None:
        """Take the draws of chains that have finished."""
        for k, drawn in self._calls.take().items():
            stats = drawn.blocks[-1].last
            bars.update(chain_idx=k, is_last=True, draw=drawn.n - 1, tuning=False, stats=stats)

    def _count_deaths(self) -> None:
        """Give up a chain that workers die of."""
        workers = self._client.nthreads()
        for k, address in list(self._last.items()):
            if address not in workers and k not in self._calls.results:
                del self._last[k]
                self._deaths[k] += 1
                if self._deaths[k] == _MOST_DEATHS:
                    raise lost(f"Chain {k}", address)
        numbers = {future.key: k for k, future in self._calls.futures.items()}
        for address, keys in self._client.processing().items():
            self._last |= {numbers[key]: address for key in keys if key in numbers}


# The call -----------------------------------------------------------------------------------------


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
    to_run = chains_of(
        model, step, draws=draws, tune=tune, chains=chains, random_seed=random_seed, initvals=initvals
    )
    results = Results(Recorder(model, to_run, var_names), to_run)
    content = cloudpickle.dumps(to_run)
    if len(content) > _LARGE:
        _LOG.warning(
            "%.0f MB of model and data are sent to each worker, once. Rows on disk are not: see stored_data.",
            len(content) / 1e6,
        )
    topic = f"pymc_austerity-{uuid.uuid4().hex}"
    running = Running(client, content, chains, topic, inspection)
    drawn = running.results(to_run.step, draws, tune, progressbar=progressbar)
    for chain, found in drawn.items():
        for block in found.blocks:
            results.add(chain, block)
        for category, text in dict.fromkeys(found.told):
            warnings.warn(f"Chain {chain}: {text}", category, stacklevel=2)
    return results.returned(
        discard_tuned_samples=discard_tuned_samples,
        compute_convergence_checks=compute_convergence_checks,
        idata_kwargs=idata_kwargs,
    )


def _require_step(step: Any) -> None:
    if step is None:
        raise ValueError(
            "step is None: sample_distributed runs steps that you make, such as step=recommend() or "
            "step=pm.NUTS(). pm.sample chooses and starts its own NUTS in another way."
        )
    refuse_populations(pymc_names.CompoundStep(step) if isinstance(step, list | tuple) else step)
