"""A pytest plugin: more slow tests than those that are marked one by one.

- Of a test with ``@pytest.mark.covering(n)``, `make test` runs n cases, evenly spread over those that are not
  marked themselves. The others are slow tests.
- In some folders all tests are slow, because whole chains are run. What these chains are made of has
  tests of its own, which `make test` runs.
"""

from collections import defaultdict
from pathlib import Path

import pytest

from tests.core_seconds import MARKS

OTHER_CASES = "other cases of this test are run by `make test`"
TESTS = Path(__file__).parent
FOLDERS = {
    TESTS / "conformance": "chains of all steps through the public harness",
    TESTS / "examples": "whole examples, at a small size, and chains of their models",
    TESTS / "statistical": "whole chains against independent references",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "covering(n): all but n cases, evenly spread, are slow tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if any(map(item.get_closest_marker, MARKS)):
            continue
        reason = next((FOLDERS[parent] for parent in item.path.parents if parent in FOLDERS), None)
        if reason:
            item.add_marker(pytest.mark.slow(reason))
        elif item.get_closest_marker("covering"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for several in cases.values():
        (n,) = several[0].get_closest_marker("covering").args
        kept = {k * len(several) // n for k in range(n)}
        for k, item in enumerate(several):
            if k not in kept:
                item.add_marker(pytest.mark.slow(OTHER_CASES))
