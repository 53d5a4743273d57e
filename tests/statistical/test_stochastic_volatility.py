"""Parameters of a state-space model by `AusterityMH`, states by `ParticleGibbs`, against quadrature.

Model and data are those of `examples/stochastic_volatility.py`: 50 series of 100.
"""

import runpy
from pathlib import Path

import arviz as az
import pytest

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "stochastic_volatility.py"))
LIMIT = 4.0
# Posterior sds that a decision from a subsample may shift a mean by.
TOLERANCE = 0.1

pytestmark = [
    pytest.mark.full_size("20,000 sweeps over 5,000 states"),
    pytest.mark.filterwarnings("ignore:Tuning ended"),
]


@pytest.mark.parametrize("epsilon", [0.0, 0.01])
def test_posterior(epsilon):
    x, states = EXAMPLE["simulate"]()
    mean, sd, _ = EXAMPLE["moments"](*EXAMPLE["quadrature"](x))
    run = EXAMPLE["sample"](EXAMPLE["volatility_model"](x), states, epsilon, 9000, 1000, 2)
    for name in ("phi", "sigma"):
        draws = run["posterior"][name]
        assert float(az.ess(draws)) > 100
        error = float(az.mcse(draws, method="mean"))
        assert abs(draws.mean() - mean[name]) < TOLERANCE * sd[name] + LIMIT * error
    share = float(run["stats"]["fraction_used"].values[..., 0].mean())
    assert share == 1 if epsilon == 0 else share < 0.9
