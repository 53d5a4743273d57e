"""The example on sparse Dirichlet distributions, with two seeds; more in tests/statistical."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "sparse_simplex.py"


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    main = runpy.run_path(str(SCRIPT))["main"]
    main.__globals__["FAST"].update(seeds=2)
    return main(output=tmp_path_factory.mktemp("sparse_simplex"))


def test_scir_is_nearer_where_the_posterior_is_sparse(result):
    mean = result["best"].groupby(["case", "method", "n"])["distance"].mean()
    assert (mean["sparse", "SGRLD"] > 3 * mean["sparse", "SCIR"]).all()
    assert mean["sparse", "SCIR"].is_monotonic_decreasing
    assert (mean["dense", "SGRLD"] < 2 * mean["dense", "SCIR"]).all()


def test_small_components(result):
    medians = result["medians"]
    assert medians["SGRLD"] > -5 > -5.5 > medians["SCIR"]


def test_figure_is_saved(result):
    assert result["figure"].stat().st_size > 10_000
