"""Calls of a function on workers, whose results are waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from pymc_austerity.cluster.workers import Inspection, no_worker, wait_for_one
from pymc_austerity.extras import imported

# Seconds between two looks at results, and at workers.
_LOOK, _LOOK_AT_WORKERS = 0.002, 1.0
# Seconds for a result on its way here: if its worker has died, it is computed again.
_ARRIVES = 60.0
# How often what workers need is sent again, after it was lost with all of them.
_SENT_AGAIN = 3


class Calls:
    """Calls that all have the same content, which is sent to each worker once.

    A call that a dead worker loses is made again, on another one.

    Parameters
    ----------
    client : distributed.Client
    content : bytes
    inspection : Inspection
        Refuses workers that are not fit.
    wait : float
        Seconds for which there may be no worker.
    what : str
        Begins messages: what the calls compute.
    """

    def __init__(self, client: Any, content: bytes, inspection: Inspection, wait: float, what: str) -> None:
        self._client, self._bytes, self._inspection = client, content, inspection
        self._wait, self._what = wait, what
        self._sent: Any = None
        self._killed = imported("distributed", "Work on a cluster", "cluster").KilledWorker

    def __call__(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The results of ``function(content, *given)`` for each ``given`` of `arguments`.

        Raises
        ------
        RuntimeError
            If there are no workers, or they die again and again. What a call raises is raised here.
        """
        results: dict[int, Any] = {}
        for _ in range(_SENT_AGAIN + 1):
            if self._sent is None:
                wait_for_one(self._client, self._wait)
                self._sent = self._client.scatter(self._bytes, broadcast=True, hash=False)
            futures = {
                k: self._client.submit(function, self._sent, *given, pure=False)
                for k, given in enumerate(arguments)
                if k not in results
            }
            try:
                while self._wait_for(futures):
                    self._collect(futures, results)
                    futures = {k: future for k, future in futures.items() if k not in results}
            finally:
                if self._client.status == "running":
                    self._client.cancel(list(futures.values()))
            if len(results) == len(arguments):
                return [results[k] for k in range(len(arguments))]
            self._sent = None  # Dask drops calls without an error if all that they need is lost
        raise RuntimeError(
            f"{self._what}: all workers have died {_SENT_AGAIN + 1} times: too little memory there? See "
            "their logs."
        )

    def _collect(self, futures: dict[int, Any], results: dict[int, Any]) -> None:
        """Take what is finished. A result may be lost on its way, with its worker."""
        for k, future in futures.items():
            if future.status == "error":
                self._raise(future.exception())
            if future.status == "finished":
                with suppress(TimeoutError, CancelledError):
                    results[k] = future.result(timeout=_ARRIVES)

    def _wait_for(self, futures: dict[int, Any]) -> bool:
        """Wait until none is pending; are there any that are not lost?"""
        looked_at = alone_since = time.monotonic()
        while any(future.status == "pending" for future in futures.values()):
            time.sleep(_LOOK)
            now = time.monotonic()
            if now - looked_at < _LOOK_AT_WORKERS:
                continue
            looked_at = now
            if self._inspection.require():
                alone_since = now
            elif now - alone_since > self._wait:
                raise no_worker(self._wait)
        return any(future.status in ("finished", "error") for future in futures.values())

    def _raise(self, error: BaseException) -> None:
        if isinstance(error, self._killed):
            raise RuntimeError(
                f"{self._what}: lost with workers again and again, the last time with "
                f"{error.last_worker.address}: too little memory there? See the worker's log."
            ) from error
        error.add_note(f"This was raised on a worker. {self._what}.")
        raise error
