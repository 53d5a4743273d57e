"""The examples of independent component analysis, in their fast mode, and their reference by quadrature."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from pymc_austerity import AusterityMH
from pymc_austerity.diagnostics import amari_distance
from pymc_austerity.proposals import StiefelWalk
from tests.statistical.errors import LIMIT, error_of_mean, sd_with_error

FOLDER = Path(__file__).parents[2] / "examples"
ICA = runpy.run_path(str(FOLDER / "ica.py"))
N = 3000


def by_angle(X, W0):
    """Mean and sd of the distance for D = 2, on a grid of angles: both determinants are alike."""
    angles = np.linspace(0, 2 * np.pi, 4000, endpoint=False)
    turned = np.array([[[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]] for t in angles])
    log = np.array([ICA["log_likelihood"](W, X) for W in turned])
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    distance = amari_distance(turned, W0)
    mean = weight @ distance
    return mean, np.sqrt(weight @ (distance - mean) ** 2)


def test_importance_sampling_is_quadrature_for_two_sources():
    X, W0 = ICA["white_mixture"](N, 2)
    truth = ICA["reference"](X, W0, 4000)
    mean, sd = by_angle(X, W0)
    assert truth["ess"] > 2000
    assert truth["mean"] == pytest.approx(mean, rel=0.02)
    assert truth["sd"] == pytest.approx(sd, rel=0.04)


@pytest.mark.slow("a long chain")
def test_an_exact_chain():
    """Check 5 at epsilon = 0, for two sources. The example has four, and tolerances."""
    X, W0 = ICA["white_mixture"](N, 2)
    truth = ICA["reference"](X, W0, 3000)
    with ICA["build"](X):
        step = AusterityMH(epsilon=0, proposal=StiefelWalk(), steps_per_draw=5)
    step.setup_chain(np.random.default_rng(3), 200, 2000)
    step.tune = True
    point, states = {"W": truth["mode"]}, np.empty((2000, 2, 2))
    for k in range(-200, 2000):
        if k == 0:
            step.stop_tuning()
        point, _ = step.step(point)
        if k >= 0:
            states[k] = point["W"]
    distance = amari_distance(states, W0)
    sd, error = sd_with_error(distance)
    spread = truth["sd"] / np.sqrt(truth["ess"])
    assert abs(distance.mean() - truth["mean"]) < LIMIT * np.hypot(error_of_mean(distance), spread)
    assert abs(sd - truth["sd"]) < LIMIT * np.hypot(error, spread)
    assert np.abs(np.swapaxes(states, 1, 2) @ states - np.eye(2)).max() < 1e-10


@pytest.mark.slow("chains on 5,000 rows for five tolerances")
def test_the_example(tmp_path, monkeypatch):
    """Check 5 for four sources: right at epsilon = 0, and within a tenth at .01."""
    monkeypatch.setitem(ICA["FAST"], "draws", 1000)
    result = ICA["main"](output=tmp_path)
    table, truth = result["table"], result["truth"]
    assert truth["ess"] > 1000
    assert abs(table.loc[0.0, "E / true"] - 1) < LIMIT * table.loc[0.0, "mc error"] / truth["mean"] + 0.02
    assert abs(table.loc[0.01, "E / true"] - 1) < 0.1
    assert table.loc[0.2, "E / true"] > 1.15
    assert np.all(np.diff(table["share read"]) < 0)
    assert 0.15 < table.loc[0.0, "acceptance"] < 0.4
    assert result["figure"].stat().st_size > 10_000


@pytest.mark.slow("probes two chains")
def test_the_example_of_designs(tmp_path):
    result = runpy.run_path(str(FOLDER / "ica_design.py"))["main"](output=tmp_path)
    table = result["designs"].set_index(["design", "target"])
    for target in (0.02, 0.05, 0.1):
        average, worst = table.loc[("average", target)], table.loc[("worst case", target)]
        assert 0.4 * target < average["test error"] < 1.5 * target
        assert worst["test error"] < 0.3 * target
        assert average["data usage"] < worst["data usage"] - 0.1
    assert np.all(np.diff(result["tests"]["wrong decisions"]) > 0)
    assert result["figure"].stat().st_size > 10_000


@pytest.mark.full_size("100,000 rows: five minutes")
def test_the_size_of_the_paper():
    """Check 5: acceptance, shares and wrong decisions with m = 600, on fresh moves."""
    script = runpy.run_path(str(FOLDER / "ica_design.py"))
    X, W0 = ICA["white_mixture"](100_000)
    settings = {**script["FULL"], "pairs": 250, "draws": 5000}
    moves = script["pairs_of"](ICA["build"](X), ICA["nearest_orthogonal"](W0), settings, 1)
    assert np.exp(np.minimum(0, moves.N * moves.mu)).mean() == pytest.approx(0.27, abs=0.05)
    found = script["tests"](moves, 600)
    # Those of the sources that these numbers come from; here they have other tails.
    np.testing.assert_allclose(found["share read"], [0.40, 0.19, 0.11, 0.03], atol=0.07)
    assert np.all(np.diff(found["wrong decisions"]) > 0)
