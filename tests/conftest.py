"""Tests that compile for long on an empty cache count as slow, and are run by `make test-all`.

`compile_heavy.txt` names them. Others test the same code on other cases within seconds.
"""

from pathlib import Path

import pytest

HEAVY = frozenset((Path(__file__).parent / "compile_heavy.txt").read_text().splitlines())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid in HEAVY:
            item.add_marker(pytest.mark.slow)
