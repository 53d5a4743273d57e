"""The example on Dirichlet-process mixtures, in its fast mode."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow("compiles the slice sampler with two moves")

FAST = {"seeds": 1, "sweeps": 900, "exact_sweeps": 90}


def test_scir_comes_near_the_exact_sampler(result):
    mean = result["table"].groupby("method").mean()
    predictive = mean["log predictive"]
    assert abs(predictive["SCIR"] - predictive["exact"]) < 0.1
    assert abs(mean.loc["SCIR", "components"] - mean.loc["exact", "components"]) < 5


def test_sgrld_has_more_components(result):
    components = result["table"].groupby("method")["components"].mean()
    assert components["SGRLD"] > 1.5 * components["SCIR"]


def test_traces(result):
    assert np.all(np.isfinite(result["traces"].drop(columns="method")))
