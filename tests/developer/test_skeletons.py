"""The whole files that the developer pages show pass the conformance suites, as they stand on the page."""

import importlib.util
import re
from pathlib import Path

import pytest

from pymc_austerity.testing import check_proposal, check_rule

PAGES = Path(__file__).parents[2] / "docs" / "developer"


def skeleton(page):
    """The code cell of a page that begins with the path of a file in the package."""
    text = (PAGES / page).read_text()
    pattern = r"^```\{code-cell\} python\n(# pymc_austerity/\S+\.py\n.*?)^```"
    cells = re.findall(pattern, text, re.DOTALL | re.MULTILINE)
    (cell,) = cells
    return cell


def module_from(page, folder):
    """The skeleton of a page, imported from a file of its own."""
    source = skeleton(page)
    path = folder / Path(source.splitlines()[0]).name
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_new_rule(module):
    check_rule(module.TwoLooks(epsilon=0.05, batch_size=200), n_draws=2000)


def check_new_proposal(module):
    check_proposal(module.StudentWalk(), n_dim=2, n_chains=2000)


@pytest.mark.parametrize(
    ("page", "check"),
    [
        ("new_acceptance_test.md", check_new_rule),
        ("new_proposal.md", check_new_proposal),
    ],
)
def test_the_skeleton_on_the_page_passes(page, check, tmp_path):
    check(module_from(page, tmp_path))


@pytest.mark.parametrize("page", ["new_acceptance_test.md", "new_proposal.md"])
def test_the_skeleton_lies_in_a_room_that_exists(page):
    file = Path(skeleton(page).splitlines()[0].removeprefix("# "))
    assert (PAGES.parents[1] / file.parent).is_dir()
