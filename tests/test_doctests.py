"""Every public name has an example, and the example runs as it stands: a reader can paste it."""

import doctest
import importlib
import inspect
import re
import sys

import pytest

MODULES = [
    "pymc_austerity",
    "pymc_austerity.acceptance",
    "pymc_austerity.design",
    "pymc_austerity.diagnostics",
    "pymc_austerity.plots",
    "pymc_austerity.report",
    "pymc_austerity.testing",
]
# Examples that compile for more than four seconds on an empty cache, but for three of them.
SLOW = {
    "AdaptiveRandomWalk",
    "Comparison",
    "Laplace",
    "MHSubLhd",
    "MetropolisHastings",
    "MinibatchBarker",
    "MinibatchCategoricalGibbs",
    "RandomWalk",
    "Surrogate",
    "Taylor",
    "TunaMH",
    "check_posterior",
    "check_proposal",
    "check_rule",
    "check_step",
    "compare",
    "recommend",
}
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


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in PUBLIC]
)
def test_example(name, monkeypatch, tmp_path):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)  # for examples that write a file
    report = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(examples(name), out=report.append)
    assert not runner.failures, "".join(report)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def test_a_wrong_example_fails():
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(wrong, out=lambda text: None)
    assert runner.failures == 1


def test_slow_examples_exist():
    assert set(PUBLIC) >= SLOW
