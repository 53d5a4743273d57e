"""Every public name has an example, and the example runs as it stands: a reader can paste it."""

import doctest
import importlib
import inspect
import re
import sys

import pytest

from pymc_austerity.model.compile.backend import interpreted

MODULES = [
    "pymc_austerity",
    "pymc_austerity.acceptance",
    "pymc_austerity.design",
    "pymc_austerity.diagnostics",
    "pymc_austerity.distributions",
    "pymc_austerity.model",
    "pymc_austerity.plots",
    "pymc_austerity.proposals",
    "pymc_austerity.report",
    "pymc_austerity.step_methods",
    "pymc_austerity.testing",
]
# Results, which users do not make themselves: their examples call the function.
MADE_BY = {"Comparison": "compare", "Design": "optimal_design", "Normality": "normality"}


def public():
    """Each public object once, by the first module that offers it."""
    found = {}
    for module in MODULES:
        namespace = importlib.import_module(module)
        for name in namespace.__all__:
            value = getattr(namespace, name)
            if callable(value) and not any(value is other for _, other in found.values()):
                found[name] = module, value
    return {name: module for name, (module, _) in found.items()}


PUBLIC = public()


def examples(name):
    value = getattr(sys.modules[PUBLIC[name]], name)
    return doctest.DocTestFinder(recurse=False).find(value, name, globs={})[0]


@pytest.mark.parametrize("name", PUBLIC)
def test_has_an_example_that_is_run(name):
    doc = inspect.getdoc(getattr(sys.modules[PUBLIC[name]], name))
    section = re.search(r"^Examples\n-+\n(.*)", doc, re.MULTILINE | re.DOTALL)
    assert section, f"{name} has no section Examples"
    assert ">>> " in section[1], f"the example of {name} is no doctest"
    assert "+SKIP" not in section[1], f"the example of {name} is not run"
    assert MADE_BY.get(name, name) in section[1], f"the example of {name} does not use it"
    assert "import" in section[1], f"the example of {name} cannot be pasted: it imports nothing"


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run an example in a folder of its own."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)

    def run(name):
        report = []
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(examples(name), out=report.append)
        assert not runner.failures, "".join(report)

    yield run
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


# Interpreted, these chains take longer than to compile and run them.
LONG_CHAINS = ("check_step", "probe", "MHSubLhd", "sbc")
# On a cluster, which tests of clusters have.
ELSEWHERE = ("sample_distributed",)


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - {*LONG_CHAINS, *ELSEWHERE}))
@pytest.mark.covering(2)
def test_example(run, name):
    with interpreted():  # the draws are those of compiled code, which other tests show
        run(name)


@pytest.mark.slow("compiles an engine for each")
@pytest.mark.parametrize("name", LONG_CHAINS)
def test_example_with_a_long_chain(run, name):
    run(name)


def test_a_wrong_example_fails():
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(wrong, out=lambda text: None)
    assert runner.failures == 1
