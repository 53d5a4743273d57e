"""Are workers fit to run chains? What is asked of them before anything is sent."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from pymc_austerity.data.elsewhere import path_here

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


def require_same_versions(client: Any) -> None:
    """Refuse workers with other versions than this process.

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


def require_stores(client: Any, paths: Sequence[str]) -> None:
    """Refuse workers that cannot see rows on disk.

    Raises
    ------
    FileNotFoundError
        It names the path and the host.
    """
    for address, (host, missing) in client.run(missing_paths, list(paths)).items():
        if missing:
            raise FileNotFoundError(
                f"{missing[0]} does not exist on the host {host} of the worker {address}. Put the rows "
                "there, or set PMA_STORE_ROOT on the worker to the folder that holds the folder of the store."
            )


def missing_paths(paths: Sequence[str]) -> tuple[str, list[str]]:
    """The name of this host, and paths of rows that it does not have."""
    return socket.gethostname(), [path for path in paths if not os.path.exists(path_here(path))]
