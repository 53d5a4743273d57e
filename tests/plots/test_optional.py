"""Plotting libraries are optional, and imported late."""

import inspect
import subprocess
import sys

import numpy as np
import pytest

from pymc_austerity import plots
from pymc_austerity.diagnostics import from_log_ratios


@pytest.mark.parametrize("name", plots.__all__)
def test_without_matplotlib_a_plot_says_what_to_install(name, run, monkeypatch):
    moves = type("Moves", (), {"mu": np.array([0.0, -1e-4]), "sigma_l": np.array([0.01, 0.01])})()
    one = run(np.full((2, 20), 500.0), 1000)
    arguments = {
        "plot_acceptance_error": ((moves,), {"N": 1000, "batch_size": 500, "epsilon": 0.1}),
        "plot_agreement": ((one, one), {}),
        "plot_batch_mean_qq": ((from_log_ratios(np.eye(30)[:2], batch_size=5, n_batches=20),), {}),
        "plot_design_curves": ((0.5,), {}),
        "plot_risk": (({"run": one}, {"a": (0.0, 1.0)}), {}),
        "plot_test_designs": ((moves, [0.2]), {"N": 1000, "batch_size": 500}),
        "plot_bound_schematic": ((), {}),
    }
    args, keywords = arguments.get(name, ((one,), {}))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'need matplotlib: pip install "pymc_austerity\[plots\]"'):
        getattr(plots, name)(*args, **keywords)


@pytest.mark.parametrize(
    ("name", "target", "function", "number"),
    [
        ("plot_data_usage", ("data_usage", {"sampler": 0}), "line", 2),
        ("plot_batch_sizes", ("n_used", {"sampler": 0}), "hist", 1),
        ("plot_agreement", ("a", {}), "line", 2),
        ("plot_batch_mean_qq", ("batch_t", {"pair": 0}), "scatter", 1),
    ],
)
def test_without_a_plotting_library(name, target, function, number, run):
    one = run(np.full((2, 50), 500.0), 10_000)
    terms = np.random.default_rng(5).normal(size=(3, 4000))
    moves = from_log_ratios(terms, batch_size=200, n_batches=100, random_seed=1)
    arguments = {"plot_agreement": (one, one), "plot_batch_mean_qq": (moves,)}.get(name, (one,))
    drawn = getattr(plots, name)(*arguments, backend="none").get_target(*target)
    assert [visual["function"] for visual in drawn].count(function) == number


@pytest.mark.slow("imports PyMC in a process of its own")
def test_importing_the_package_imports_nothing_optional():
    names = ("matplotlib", "jinja2", "statsmodels")
    code = f"import sys, pymc_austerity.plots; print([m for m in {names} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_room_has_functions_only():
    assert dir(plots) == sorted(plots.__all__)
    assert all(inspect.isfunction(getattr(plots, name)) for name in dir(plots))
