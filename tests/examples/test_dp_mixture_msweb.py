"""The example on Dirichlet-process mixtures, in its fast mode."""

import runpy
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow("compiles the slice sampler with two moves")

SCRIPT = Path(__file__).parents[2] / "examples" / "dp_mixture_msweb.py"


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    main = runpy.run_path(str(SCRIPT))["main"]
    main.__globals__["FAST"].update(seeds=1, sweeps=900, exact_sweeps=90)
    return main(output=tmp_path_factory.mktemp("dp_mixture"))


def test_scir_comes_near_the_exact_sampler(result):
    mean = result["table"].groupby("method").mean()
    predictive = mean["log predictive"]
    assert abs(predictive["SCIR"] - predictive["exact"]) < 0.1
    assert abs(mean.loc["SCIR", "components"] - mean.loc["exact", "components"]) < 5


def test_sgrld_has_more_components(result):
    components = result["table"].groupby("method")["components"].mean()
    assert components["SGRLD"] > 1.5 * components["SCIR"]


def test_traces_and_figure(result):
    assert np.all(np.isfinite(result["traces"].drop(columns="method")))
    assert result["figure"].stat().st_size > 10_000
