"""A cluster of two processes of one thread each, that tests of a file share."""

import pytest
from distributed import Client, LocalCluster


@pytest.fixture(scope="module")
def client():
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
    with LocalCluster(n_workers=2, **options) as cluster, Client(cluster) as client:
        yield client
