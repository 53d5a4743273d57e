"""The whole files that the developer pages show pass their checks, as they stand on the page."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import RandomWalk
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.testing import check_proposal, check_rule

PAGES = Path(__file__).parents[2] / "docs" / "developer"


def cells(page):
    """The code cells of a page that it shows."""
    text = (PAGES / page).read_text()
    return re.findall(r"^```\{code-cell\} python\n(?!:tags:)(.*?)^```", text, re.DOTALL | re.MULTILINE)


def skeleton(page):
    """The code cell of a page that begins with the path of a file in the package."""
    (cell,) = (cell for cell in cells(page) if re.match(r"# pymc_austerity/\S+\.py\n", cell))
    return cell


def module_from(source, folder):
    """A skeleton, imported from a file of its own."""
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


def check_new_backend(module):
    """Run what the page runs after the skeleton."""
    page = cells("new_backend.md")
    for cell in page[page.index(skeleton("new_backend.md")) + 1 :]:
        exec(cell, vars(module))


@pytest.mark.parametrize(
    ("page", "check"),
    [
        ("new_acceptance_test.md", check_new_rule),
        ("new_proposal.md", check_new_proposal),
        ("new_backend.md", check_new_backend),
    ],
)
@pytest.mark.covering(1)
def test_the_skeleton_on_the_page_passes(page, check, tmp_path):
    check(module_from(skeleton(page), tmp_path))


@pytest.mark.parametrize(
    ("page", "names", "what"),
    [
        ("new_acceptance_test.md", {"check_rule": check_rule}, "accept"),
        ("new_proposal.md", {"check_proposal": check_proposal}, "mean|variance|distribution"),
    ],
)
def test_the_bug_on_the_page_is_noticed(page, names, what, tmp_path, capsys):
    (cell,) = (cell for cell in cells(page) if "class Wrong" in cell)
    exec(cell, {**vars(module_from(skeleton(page), tmp_path)), **names})
    assert re.search(what, capsys.readouterr().out)


@pytest.mark.slow("a planted fault, in steps of its own")
def test_a_backend_that_changes_signs_is_noticed(tmp_path):
    """Planted fault: a backend that changes signs."""
    source = skeleton("new_backend.md")
    wrong = source.replace("return function(*args)\n", "return [-x for x in function(*args)]\n")
    assert wrong != source
    with pytest.raises(AssertionError, match="draws depend on the backend"):
        check_new_backend(module_from(wrong, tmp_path))


def test_a_step_with_the_new_rule(tmp_path, capsys):
    page = "new_acceptance_test.md"
    (cell,) = (cell for cell in cells(page) if "(SubsampledStep)" in cell)
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1, observed=np.random.default_rng(1).normal(size=2000))
    module = module_from(skeleton(page), tmp_path)
    with interpreted():
        exec(cell, {**vars(module), "RandomWalk": RandomWalk, "model": model})
    assert capsys.readouterr().out.startswith("TwoLooksMH(mu)\n")


@pytest.mark.parametrize("page", ["new_acceptance_test.md", "new_proposal.md", "new_backend.md"])
def test_the_skeleton_lies_in_a_room_that_exists(page):
    file = Path(skeleton(page).splitlines()[0].removeprefix("# "))
    assert (PAGES.parents[1] / file.parent).is_dir()
