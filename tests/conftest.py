import gc
import signal
from types import SimpleNamespace

import pytensor
import pytest

from pymc_austerity.model.graph import many

# The second looks at marks that the third adds: what is registered last is called first.
pytest_plugins = ["tests.interpreted", "tests.core_seconds", "tests.tiers"]


# Graphs are many objects, few of which are garbage: Python would look for it every 700 of them.
gc.set_threshold(50_000, 10, 100)


def pytest_collection_finish():
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _no_search_among_old_objects():
    """What other modules have left, millions of graphs, is no garbage: to look costs a third of the time."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _set_ups_do_not_count_frozen_objects():
    """Python counts them one by one: of those that other modules have left, for a second in each set-up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many, "gc", SimpleNamespace(get_freeze_count=lambda: many._FEW_OBJECTS))
        yield


@pytest.fixture
def without_c():
    """PyTensor's Python code for operations that it else compiles with gcc, for seconds on an empty cache."""
    with pytensor.config.change_flags(cxx=""):
        yield


@pytest.fixture
def ctrl_c():
    """SIGINT raises KeyboardInterrupt, as in a program of its own: workers of pytest-xdist ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
