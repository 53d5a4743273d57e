"""The public surface: what `import pymc_austerity` offers, and that all of it is documented."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import pymc_austerity

# Which these are says `public_names.txt`.
PUBLIC = pymc_austerity.__all__
MODULES = ["design", "diagnostics", "distributions", "plots", "proposals", "testing"]
DOCUMENTED = [name for name in PUBLIC if name not in ["__version__", *MODULES]]
# What computes something that may be wrong has to say what it guarantees, and when it fails.
CANNOT_FAIL = {"FactorisationError", "SubsamplingWarning"}
WITH_GUARANTEE = [name for name in DOCUMENTED if name not in CANNOT_FAIL]


def test_exported_names_are_unique():
    assert len(PUBLIC) == len(set(PUBLIC))


def test_nothing_else_is_public():
    found = {
        name
        for name, value in vars(pymc_austerity).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert found == set(DOCUMENTED)


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", pymc_austerity.__version__)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented(name):
    doc = inspect.getdoc(getattr(pymc_austerity, name))
    assert doc
    summary = doc.splitlines()[0]
    assert summary.endswith(".")
    assert len(summary) <= 100
    # A docstring of its own, not that of a base class.
    assert doc != inspect.getdoc(getattr(pymc_austerity, name).__class__)


@pytest.mark.parametrize("name", WITH_GUARANTEE)
def test_says_what_it_guarantees(name):
    doc = inspect.getdoc(getattr(pymc_austerity, name))
    notes = section(doc, "Notes")
    assert "*Guarantee*" in notes
    assert "*When it fails*" in notes


@pytest.mark.parametrize("name", WITH_GUARANTEE)
def test_every_parameter_is_documented(name):
    """By name, and in the order of the signature."""
    public = getattr(pymc_austerity, name)
    documented = [
        parameter.strip().lstrip("*")
        for line in section(inspect.getdoc(public), "Parameters").splitlines()
        if line and not line.startswith(" ")
        for parameter in line.split(":")[0].split(",")
    ]
    # Keywords that a step hands on are documented where they end.
    function = public.__init__ if inspect.isclass(public) else public
    expected = [p for p in inspect.signature(function).parameters if p != "self"]
    assert documented == expected


@pytest.mark.parametrize("name", WITH_GUARANTEE)
def test_defaults_in_the_documentation_are_the_defaults(name):
    public = getattr(pymc_austerity, name)
    text = section(inspect.getdoc(public), "Parameters")
    for parameter in inspect.signature(public).parameters.values():
        stated = re.search(rf"^{parameter.name} :.*, default (.+)$", text, re.MULTILINE)
        if stated:
            assert stated[1].strip('"') == str(parameter.default)


def section(doc, title):
    """Body of a section of a numpydoc docstring."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=\n[A-Z][\w ]*\n-+\n|\Z)", doc, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title}"
    return found[1]


def test_numpydoc_sections_are_in_order():
    order = ["Parameters", "Attributes", "Returns", "Raises", "Warns", "Notes", "References", "Examples"]
    for name in DOCUMENTED:
        doc = inspect.getdoc(getattr(pymc_austerity, name))
        titles = re.findall(r"^([A-Z][\w ]*)\n-+$", doc, re.MULTILINE)
        assert [t for t in titles if t not in order] == []
        assert titles == sorted(titles, key=order.index)


# Importing it only says where it went.
GONE = "pymc_austerity.applications"


def modules():
    found = pkgutil.walk_packages(pymc_austerity.__path__, "pymc_austerity.")
    return [module.name for module in found if module.name != GONE]


@pytest.mark.parametrize("name", modules())
def test_every_module_has_a_docstring_and_true_exports(name):
    module = importlib.import_module(name)
    assert module.__doc__ or name.endswith("._version")
    for exported in getattr(module, "__all__", []):
        assert hasattr(module, exported)


@pytest.mark.parametrize(
    ("statement", "files"),
    [
        ("from pymc_austerity import SGRLD", ["sgrld"]),
        ("import pymc_austerity as pma; pma.SGRLD", ["sgrld"]),
        (f"import {GONE}", ["lda", "dirichlet_process"]),
        (f"from {GONE}.topics import lda", ["lda", "dirichlet_process"]),
        (
            f"from {GONE}.dirichlet_process.mixture import DirichletProcessMixture",
            ["lda", "dirichlet_process"],
        ),
    ],
)
def test_what_has_left_says_where_it_is(statement, files):
    with pytest.raises(ImportError, match="has left the package") as told:
        exec(statement, {})
    examples = Path(__file__).parents[1] / "examples"
    for file in files:
        assert f"examples/{file}.py" in str(told.value)
        assert (examples / f"{file}.py").exists()


def test_other_names_are_no_attributes():
    assert not hasattr(pymc_austerity, "SGRLDD")
    with pytest.raises(AttributeError, match="'pymc_austerity' has no attribute 'nothing'"):
        pymc_austerity.nothing  # noqa: B018


def test_errors_are_what_a_user_expects():
    assert issubclass(pymc_austerity.FactorisationError, ValueError)
    assert issubclass(pymc_austerity.SubsamplingWarning, UserWarning)
