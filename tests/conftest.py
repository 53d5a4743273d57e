import gc
import signal

import pytensor
import pytest

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
