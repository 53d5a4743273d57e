"""The example on stochastic volatility, in its fast mode."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logit

pytestmark = pytest.mark.slow("samples by NUTS, and by several steps in turn")

SCRIPT = Path(__file__).parents[2] / "examples" / "stochastic_volatility.py"

# Chains as short as these hardly know their own Monte Carlo error: some ten effective draws of sigma.
EFFECTIVE = 4


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def result(example, tmp_path_factory):
    return example["main"](output=tmp_path_factory.mktemp("volatility"))


def test_only_transitions_are_local(result):
    assert result["factorisation"].local_terms == [("h", 1000)]
    assert result["factorisation"].global_terms == ["phi", "sigma2"]


def test_parametrisations_agree(example):
    """Densities differ by the Jacobian of h(z), sigma for each state."""
    x, h = example["simulate"]()
    phi, sigma = 0.9, 0.2
    before = np.column_stack([np.zeros(200), h.reshape(200, 5)[:, :-1]])
    z = (h.reshape(200, 5) - phi * before) / sigma
    point = {"phi_logodds__": logit(phi), "sigma2_log__": 2 * np.log(sigma)}
    centred = example["centred_model"](x).compile_logp()({**point, "h": h})
    innovations = example["non_centred_model"](x).compile_logp()({**point, "z": z})
    assert innovations - centred == pytest.approx(1000 * np.log(sigma), abs=1e-6)


def test_means_agree_within_monte_carlo_error(result):
    table = result["table"]
    assert np.all(table.xs("truth", level="run")["rhat"] < 1.02)
    error = np.maximum(table["mcse  "], 1 / np.sqrt(EFFECTIVE))
    assert np.all(table["shift"].abs() < 4 * error), table


def test_share_of_data(result):
    runs = result["runs"]
    assert np.all(runs["epsilon 0 (exact)"]["stats"]["fraction_used"] == 1)
    assert 0.7 < float(runs["epsilon 0.01, batch 500"]["stats"]["fraction_used"].mean()) < 0.95


def test_autocorrelation_of_a_known_process(example):
    rng = np.random.default_rng(1)
    draws = np.zeros((2, 20_000))
    for t in range(1, draws.shape[1]):
        draws[:, t] = 0.8 * draws[:, t - 1] + rng.normal(size=2)
    assert example["autocorrelation"](draws, [0, 1, 3]) == pytest.approx([1, 0.8, 0.8**3], abs=0.03)


def test_figure_is_saved(result):
    assert result["figure"].stat().st_size > 10_000
