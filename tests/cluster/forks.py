"""Workers of Dask that are forks of one process, so that PyMC is imported once and not in each of them."""

from contextlib import contextmanager
from multiprocessing import forkserver

import dask
from distributed.utils import get_mp_context


@contextmanager
def workers_are_forks():
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["distributed", "pymc_austerity"])
        yield
    # It is waited for, as for any process that a test has started: so what its forks took is counted.
    forkserver._forkserver._stop()
