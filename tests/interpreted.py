"""A fixture for tests of messages, states, types and pickles: what they build is not compiled."""

import pytest

from pymc_austerity.model.compile import backend


@pytest.fixture
def interpreted():
    """Fixtures of a wider scope are set up before, and are compiled unless they say so themselves."""
    with backend.interpreted():
        yield
