"""Clusters of processes of one thread each, that tests of a file share."""

import dask
import pytest
from distributed import Client, LocalCluster

from .forks import workers_are_forks

OPTIONS = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}


@pytest.fixture(scope="module", autouse=True)
def patience():
    """A killed worker may take long to come back where tests run side by side; Dask waits 15 s."""
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "120s"}):
        yield


@pytest.fixture(scope="module", autouse=True)
def forks():
    with workers_are_forks():
        yield


@pytest.fixture(scope="module")
def client(forks):
    """Of two processes."""
    with LocalCluster(n_workers=2, **OPTIONS) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def small_cluster(forks):
    with LocalCluster(n_workers=1, **OPTIONS) as cluster:
        yield cluster


@pytest.fixture
def lone(small_cluster):
    """A client of a single process, which a test may take away."""
    small_cluster.scale(1)
    with Client(small_cluster) as client:
        client.wait_for_workers(1)
        yield client
