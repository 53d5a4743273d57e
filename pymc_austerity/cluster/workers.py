"""Workers of a cluster: whether they are fit, and calls of a function on them that are waited for."""

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn

from pymc_austerity.data.files import path_here
from pymc_austerity.extras import imported

# Seconds between two looks at results, and at workers.
_LOOK, _LOOK_AT_WORKERS = 0.002, 1.0
# Seconds for a result on its way here: if its worker has died, it is computed again.
_ARRIVES = 60.0
# How often what workers need is sent again, after it was lost with all of them.
_SENT_AGAIN = 3
# Draws depend on what these compute.
_PACKAGES = ("pymc_austerity", "pymc", "pytensor", "numba", "numpy")


def require_client(client: Any, or_executor: bool = False) -> None:
    """Refuse what is no client of a running scheduler, by a `TypeError` or a `ValueError`."""
    if or_executor and isinstance(client, Executor) and not isinstance(client, ThreadPoolExecutor):
        return
    if not hasattr(client, "submit") or not hasattr(client, "scheduler_info"):
        other = " or an executor of processes" if or_executor else ""
        raise TypeError(
            f"client is a distributed.Client{other}, not {client!r}: Client(n_workers=2), or "
            "Client('address')."
        )
    if client.status != "running":
        raise ValueError(f"The client is not connected to a scheduler: its status is {client.status!r}.")


class Inspection:
    """Are workers fit to run chains, and do they see the rows? For `wait` seconds there may be none."""

    def __init__(self, client: Any, paths: Sequence[str], wait: float) -> None:
        self._client, self._paths, self._wait = client, list(paths), wait
        self._fit: set[str] = set()
        self._alone_since: float | None = None

    def wait_for_one(self) -> None:
        """Wait until there is a worker; a `RuntimeError` if there is none in time."""
        try:
            self._client.wait_for_workers(1, timeout=self._wait)
        except TimeoutError as error:
            raise self._no_worker() from error
        self._alone_since = None

    def _no_worker(self) -> RuntimeError:
        return RuntimeError(
            f"The cluster has had no worker for {self._wait:g} seconds. Start some first, or let "
            "sample_distributed wait longer by wait_for_workers=."
        )

    def require(self, *, begins: bool = False) -> int:
        """How many workers there are; an error if a new one is not fit, or there is none for too long.

        Where a wait `begins`, time without workers before it does not count.
        """
        threads: dict[str, int] = self._client.nthreads()
        now = time.monotonic()
        if threads or begins:
            self._alone_since = None
        if not threads:
            self._alone_since = now if self._alone_since is None else self._alone_since
            if now - self._alone_since > self._wait:
                raise self._no_worker()
        new = set(threads) - self._fit
        if new:
            require_one_thread({address: threads[address] for address in new})
            # A worker that dies while it is asked is asked again, should it come back.
            answered = require_same_versions(self._client)
            self._fit |= new & answered & require_stores(self._client, self._paths, sorted(new))
        return len(threads)


def require_one_thread(threads: Mapping[str, int]) -> None:
    """Refuse workers that would run several chains in one process, by a `RuntimeError`."""
    for address, n in threads.items():
        if address.startswith("inproc://"):
            raise RuntimeError(
                f"The worker {address} is a thread of this process, and what is compiled is not made for "
                "several threads. Start processes: Client(n_workers=4, threads_per_worker=1)."
            )
        if n > 1:
            raise RuntimeError(
                f"The worker {address} has {n} threads. Chains of one process run in turn and share "
                "its warnings. Start workers with one thread each: Client(n_workers=4, "
                "threads_per_worker=1), or dask worker --nthreads 1."
            )


def require_same_versions(client: Any) -> set[str]:
    """Refuse workers with other versions than this process; the addresses of those that have answered."""
    found = client.get_versions(packages=list(_PACKAGES))
    own = found["client"]["packages"]
    for address, worker in found["workers"].items():
        theirs = worker["packages"]
        for name in ("python", *_PACKAGES):
            if theirs.get(name) != own.get(name):
                raise RuntimeError(
                    f"The worker {address} has {name} {theirs.get(name) or 'not installed'}, and this "
                    f"process has {own.get(name)}: draws would differ. Install the same versions there."
                )
    return set(found["workers"])


def require_stores(client: Any, paths: Sequence[str], workers: Sequence[str]) -> set[str]:
    """Refuse workers that cannot see rows on disk; the addresses of those that have answered."""
    answers = client.run(missing_paths, list(paths), workers=list(workers), on_error="ignore")
    for address, (host, missing) in answers.items():
        if missing:
            raise FileNotFoundError(
                f"{missing[0]} does not exist on the host {host} of the worker {address}. Put the rows "
                "there, or set PMA_STORE_ROOT on the worker to the folder that holds the folder of the store."
            )
    return set(answers)


def missing_paths(paths: Sequence[str]) -> tuple[str, list[str]]:
    """The name of this host, and paths of rows that it does not have."""
    return socket.gethostname(), [path for path in paths if not os.path.exists(path_here(path))]


class Calls:
    """Calls that all have the same content, which is sent to each worker once.

    A call that a dead worker loses is made again, on another one. Messages begin with `what` the calls
    compute; {} in it stands for the number of a call.
    """

    def __init__(self, client: Any, content: bytes, inspection: Inspection, what: str) -> None:
        self._client, self._bytes, self._inspection, self._what = client, content, inspection, what
        self._sent: Any = None
        self.futures: dict[int, Any] = {}
        self.results: dict[int, Any] = {}

    def __call__(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The results of ``function(content, *given)`` for each ``given`` of `arguments`."""
        self.begin(function, arguments)
        looked_at, begins = time.monotonic(), True
        try:
            while len(self.results) < len(arguments):
                time.sleep(_LOOK)
                if time.monotonic() - looked_at >= _LOOK_AT_WORKERS:
                    looked_at = time.monotonic()
                    self._inspection.require(begins=begins)
                    begins = False
                self.take()
                if self._lost() and self._n_sent > _SENT_AGAIN:
                    raise RuntimeError(
                        f"{self._what}: all workers have died {self._n_sent} times: too little memory there? "
                        "See their logs."
                    )
                self.go_on()
        finally:
            self.cancel()
        return [self.results[k] for k in range(len(arguments))]

    def begin(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Make calls, whose results are those of `__call__`, and wait for none."""
        self._function, self._arguments, self._n_sent = function, arguments, 0
        self.futures, self.results = {}, {}
        self._submit(range(len(arguments)))

    def _submit(self, numbers: Iterable[int]) -> None:
        if self._sent is None:
            self._inspection.wait_for_one()
            self._sent = self._client.scatter(self._bytes, broadcast=True, hash=False)
        self._n_sent += 1
        for k in numbers:
            self.futures[k] = self._client.submit(self._function, self._sent, *self._arguments[k], pure=False)

    def take(self) -> dict[int, Any]:
        """Results that have come since they were taken last. One may be lost on its way, with its worker."""
        new = {}
        for k, future in self.futures.items():
            if k not in self.results and future.status == "finished":
                with suppress(TimeoutError, CancelledError):
                    new[k] = future.result(timeout=_ARRIVES)
        self.results |= new
        return new

    def go_on(self) -> None:
        """Raise the error of a call, and make those again that were lost with all workers."""
        for k, future in self.futures.items():
            if future.status == "error":
                raise_from_worker(future.exception(), self._what.format(k))
        lost = self._lost()
        if lost and self._client.nthreads():
            self._sent = None
            self._submit(lost)

    def _lost(self) -> list[int]:
        """Calls that Dask has dropped without an error, because all that they need is lost."""
        gone = ("cancelled", "lost")
        return [k for k, one in self.futures.items() if k not in self.results and one.status in gone]

    def cancel(self) -> None:
        """Let the cluster drop all calls."""
        if self._client.status == "running":
            self._client.cancel(list(self.futures.values()))


def raise_from_worker(error: BaseException, what: str) -> NoReturn:
    """Raise what was raised on a worker while `what` was computed there, or that its workers have died."""
    killed = imported("distributed", "Work on a cluster", "cluster").KilledWorker
    if isinstance(error, killed):
        raise lost(what, error.last_worker.address) from error
    error.add_note(f"This was raised on a worker. {what}.")
    raise error


def lost(what: str, address: str) -> RuntimeError:
    """The error for what workers die of again and again."""
    return RuntimeError(
        f"{what}: lost with workers again and again, the last time with {address}: too little memory there? "
        "See the worker's log."
    )
