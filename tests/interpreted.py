"""A pytest plugin: the fixture of tests of messages, states, types and pickles: nothing is compiled."""

import pytest

from pymc_austerity.model.compile import backend


def pytest_configure(config):
    config.addinivalue_line("markers", "compiled: it builds what is compiled, in a file that is interpreted")


@pytest.fixture
def interpreted(request):
    """Fixtures of a wider scope are set up before, and are compiled unless they say so themselves."""
    if request.node.get_closest_marker("compiled"):
        yield
    else:
        with backend.interpreted():
            yield
