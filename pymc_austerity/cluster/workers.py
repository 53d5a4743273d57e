"""Are workers fit to run chains? What is asked of them before anything is sent."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from pymc_austerity.data.files import path_here

# Draws depend on what these compute.
_PACKAGES = ("pymc_austerity", "pymc", "pytensor", "numba", "numpy")


def require_client(client: Any) -> None:
    """Refuse what is no client of a running scheduler.

    Raises
    ------
    TypeError, ValueError
    """
    if not hasattr(client, "submit") or not hasattr(client, "scheduler_info"):
        raise TypeError(
            f"client is a distributed.Client, not {client!r}: Client(n_workers=2), or Client('address')."
        )
    if client.status != "running":
        raise ValueError(f"The client is not connected to a scheduler: its status is {client.status!r}.")


def wait_for_one(client: Any, seconds: float) -> None:
    """Wait until there is a worker.

    Raises
    ------
    RuntimeError
    """
    try:
        client.wait_for_workers(1, timeout=seconds)
    except TimeoutError as error:
        raise no_worker(seconds) from error


def no_worker(seconds: float) -> RuntimeError:
    """Message for the user where there is no worker for too long."""
    return RuntimeError(
        f"The cluster has had no worker for {seconds:g} seconds. Start some first, or let "
        "sample_distributed wait longer by wait_for_workers=."
    )


class Inspection:
    """Are workers fit to run chains? Each is looked at once, those that join later too.

    Parameters
    ----------
    client : distributed.Client
    paths : sequence of str
        Of rows on disk that workers must see.
    """

    def __init__(self, client: Any, paths: Sequence[str]) -> None:
        self._client, self._paths = client, list(paths)
        self._fit: set[str] = set()

    def require(self) -> int:
        """Look at workers that are new, and say how many there are.

        Raises
        ------
        RuntimeError, FileNotFoundError
        """
        threads: dict[str, int] = self._client.nthreads()
        new = set(threads) - self._fit
        if new:
            require_one_thread({address: threads[address] for address in new})
            # A worker that dies while it is asked is asked again, should it come back.
            answered = require_same_versions(self._client)
            self._fit |= new & answered & require_stores(self._client, self._paths, sorted(new))
        return len(threads)


def require_one_thread(threads: Mapping[str, int]) -> None:
    """Refuse workers that would run several chains in one process.

    Raises
    ------
    RuntimeError
    """
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
    """Refuse workers with other versions than this process; the addresses of those that have answered.

    Raises
    ------
    RuntimeError
        It names the worker, the package and both versions.
    """
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
    """Refuse workers that cannot see rows on disk; the addresses of those that have answered.

    Raises
    ------
    FileNotFoundError
        It names the path and the host.
    """
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
