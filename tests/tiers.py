"""A pytest plugin: more slow tests than those that are marked one by one.

- Of a test with ``@pytest.mark.covering(n)``, `make test` runs n cases, evenly spread over those that are not
  marked themselves. The others are slow tests; with ``slow=m`` m of them, and the rest are of full size.
- In some folders all tests are slow, because whole chains are run. What these chains are made of has
  tests of its own, which `make test` runs.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.core_seconds import MARKS

OTHER_CASES = "other cases of this test are run by `make test`"
MANY_CASES = "other cases of this test are run by `make test` and `make test-slow`"
TESTS = Path(__file__).parent
FOLDERS = {
    TESTS / "conformance": "chains of all steps through the public harness",
    TESTS / "examples": "whole examples, at a small size, and chains of their models",
    TESTS / "statistical": "whole chains against independent references",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "covering(n, slow=None): all but n cases, evenly spread, are slow tests, or m of these"
    )


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
        mark = several[0].get_closest_marker("covering")
        (n,) = mark.args
        fast = spread(range(len(several)), n)
        others = [k for k in range(len(several)) if k not in fast]
        slow = spread(others, mark.kwargs.get("slow", len(others)))
        for k in others:
            several[k].add_marker(
                pytest.mark.slow(OTHER_CASES) if k in slow else pytest.mark.full_size(MANY_CASES)
            )


def spread(places: Sequence[int], n: int) -> set[int]:
    """Some of the places, evenly spread."""
    return {places[k * len(places) // n] for k in range(n)} if len(places) > n else set(places)
