"""The skeletons of the developer pages work as they stand there, and their checks notice a bug."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.conjugacy.families import FAMILIES

PAGES = Path(__file__).parents[2] / "docs" / "developer"


def blocks(page):
    """The ``python`` blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", (PAGES / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """A function that writes modules to a temporary folder and imports the last one."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**sources):
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(source)
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        return importlib.import_module(list(sources)[-1])

    yield write
    for name in [n for n, m in sys.modules.items() if str(tmp_path) in (getattr(m, "__file__", None) or "")]:
        del sys.modules[name]


@pytest.fixture
def families():
    """The families of the package, without those that a test adds."""
    kept = list(FAMILIES)
    yield FAMILIES
    FAMILIES[:] = kept


@pytest.mark.slow("builds and compiles several steps")
def test_conjugate_family(imported, families):
    family, check = blocks("new_conjugate_family.md")
    imported(half_normal=family, check_half_normal=check).check()


def test_a_conjugate_family_with_a_wrong_rate_fails(imported, families):
    """Planted fault: twice the rate."""
    family, check = blocks("new_conjugate_family.md")
    wrong = family.replace("1.0 / (2.0 * sigma**2)", "1.0 / sigma**2")
    assert wrong != family
    with pytest.raises(SelfCheckError, match="prior of 'x'"):
        imported(half_normal=wrong, check_half_normal=check).check()


def test_a_conjugate_family_with_a_wrong_power_fails(imported, families):
    """Planted fault: twice the power."""
    family, check = blocks("new_conjugate_family.md")
    wrong = family.replace("power = 0.5", "power = 1.0")
    assert wrong != family
    with pytest.raises(SelfCheckError, match="prior of 'x'"):
        imported(half_normal=wrong, check_half_normal=check).check()
