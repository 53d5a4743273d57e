"""Chains that run on workers, watched from here."""

from __future__ import annotations

import pickle
import queue
import time
from collections.abc import Iterable, Mapping
from typing import Any

from pymc.exceptions import SamplingError
from pymc.progress_bar import MCMCProgressBarManager

from pymc_austerity.cluster.chain_task import Drawn, run_chain, stop_chains
from pymc_austerity.cluster.workers import Inspection, no_worker
from pymc_austerity.exceptions import warn
from pymc_austerity.extras import imported

# Seconds between two looks.
_LOOK = 0.2
# How often what workers need is sent again, after it was lost with all of them.
_SENT_AGAIN = 3


class Running:
    """The chains of one call of `sample_distributed`.

    Parameters
    ----------
    client : distributed.Client
    content : bytes
        What workers need, sent once to each of them.
    chains : int
    topic : str
        The name of this call.
    inspection : Inspection
        Refuses workers that are not fit.
    wait : float
        Seconds for which there may be no worker.
    """

    def __init__(
        self, client: Any, content: bytes, chains: int, topic: str, inspection: Inspection, wait: float
    ) -> None:
        self._client, self._topic, self._inspection, self._wait = client, topic, inspection, wait
        self._killed = imported("distributed", "Chains on a cluster", "cluster").KilledWorker
        self._bytes, self._n_lost = content, 0
        self._last: dict[int, str] = {}
        self._futures: dict[int, Any] = {}
        self._submit(range(chains))
        self._alone_since: float | None = None

    def _submit(self, chains: Iterable[int]) -> None:
        self._content = self._client.scatter(self._bytes, broadcast=True, hash=False)
        for k in chains:
            key = f"chain-{k}-{self._n_lost}-{self._topic}"
            self._futures[k] = self._client.submit(
                run_chain, self._content, k, self._topic, pure=False, key=key
            )

    def results(self, step: Any, draws: int, tune: int, *, progressbar: bool) -> dict[int, Drawn]:
        """Draws of each chain, when all are over; after an interrupt what there is."""
        messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._client.subscribe_topic(self._topic, lambda event: messages.put(event[1]))
        bars = MCMCProgressBarManager(
            step_method=step, chains=len(self._futures), draws=draws, tune=tune, progressbar=progressbar
        )
        found: dict[int, Drawn] = {}
        try:
            with bars:
                while len(found) < len(self._futures):
                    self._require_workers()
                    self._show(messages, bars, tune)
                    self._collect(found, bars)
                    if self._client.status != "running":
                        break
                    self._require_no_error()
                    self._send_again(found)
                    time.sleep(_LOOK)
        except KeyboardInterrupt:
            stopped = self._client.run(stop_chains, self._topic, on_error="ignore").values()
            self._collect(found, bars)  # what was over before it could be stopped
            for some in stopped:
                found = {**some, **found}
            warn(f"Interrupted: {len(found)} of {len(self._futures)} chains have draws, which are kept.")
        finally:
            self._close(found)
        if not found:
            raise SamplingError("No chain has any draws: the client was closed, or interrupted too early.")
        if self._client.status != "running":
            n = len(self._futures)
            warn(f"The client was closed: {len(found)} of {n} chains had finished, and are kept.")
        return dict(sorted(found.items()))

    def _show(self, messages: Any, bars: Any, tune: int) -> None:
        while not messages.empty():
            told = messages.get()
            n, stats = told["n"], pickle.loads(told["stats"])
            bars.update(chain_idx=told["chain"], is_last=False, draw=n - 1, tuning=n <= tune, stats=stats)

    def _collect(self, found: dict[int, Drawn], bars: Any) -> None:
        """Take what is finished."""
        for k, future in self._futures.items():
            if k in found or future.status != "finished":
                continue
            found[k] = drawn = future.result()
            stats = [{name: values[-1] for name, values in own.items()} for own in drawn.stats]
            bars.update(chain_idx=k, is_last=True, draw=drawn.n - 1, tuning=False, stats=stats)

    def _require_no_error(self) -> None:
        """Raise what a chain has raised."""
        for k, future in self._futures.items():
            if future.status == "error":
                self._raise(k, future.exception())

    def _raise(self, chain: int, error: BaseException) -> None:
        if isinstance(error, self._killed):
            raise RuntimeError(
                f"Chain {chain} was lost with its worker again and again, the last time with "
                f"{error.last_worker.address}: too little memory there? See the worker's log."
            ) from error
        error.add_note(f"This was raised by chain {chain} on a worker.")
        raise error

    def _require_workers(self) -> None:
        """Wait for workers, but not for ever; refuse those that are not fit."""
        if self._inspection.require():
            self._alone_since = None
            return
        now = time.monotonic()
        self._alone_since = now if self._alone_since is None else self._alone_since
        if now - self._alone_since > self._wait:
            raise no_worker(self._wait)

    def _send_again(self, found: Mapping[int, Drawn]) -> None:
        """Begin chains again that were lost with all workers: Dask drops them without an error."""
        where = self._client.processing()
        self._last |= {
            k: address
            for address, keys in where.items()
            for k, one in self._futures.items()
            if one.key in keys
        }
        lost = [
            k for k, one in self._futures.items() if k not in found and one.status in ("cancelled", "lost")
        ]
        if not lost or not self._client.nthreads():
            return
        self._n_lost += 1
        if self._n_lost > _SENT_AGAIN:
            raise RuntimeError(
                f"All workers have died {self._n_lost} times while chain {lost[0]} ran, last seen on "
                f"{self._last.get(lost[0], 'no worker')}: too little memory there? See the worker's log."
            )
        self._submit(lost)

    def _close(self, found: dict[int, Drawn]) -> None:
        if self._client.status != "running":
            return
        self._client.unsubscribe_topic(self._topic)
        if len(found) < len(self._futures):
            self._client.run(stop_chains, self._topic, on_error="ignore")
        self._client.cancel(list(self._futures.values()))
