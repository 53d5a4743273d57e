import signal

import pytest

pytest_plugins = ["tests.core_seconds"]


@pytest.fixture
def ctrl_c():
    """SIGINT raises KeyboardInterrupt, as in a program of its own: workers of pytest-xdist ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
