"""Parameters of a state-space model by `AusterityMH`, states by NUTS, beside NUTS on everything.

Model, data and settings are those of `examples/stochastic_volatility.py` (after Chen, Mansinghka & Ghahramani
2015). sigma is known ten times better given h than without, so that the chain moves slowly, and a small
error of each conditional draw adds up. If draws of log sigma given h are off by a shift s, and their sd is c,
the chain sees the posterior times exp(s log(sigma) / c^2): each sweep is a step of a random walk with
variance 2 c^2, and with drift s on top of what the posterior asks for.
"""

import runpy
from pathlib import Path

import arviz as az
import numpy as np
import pytest

from pymc_austerity import AusterityMH, RandomWalk
from tests.statistical.errors import LIMIT, error_of_mean

pytestmark = pytest.mark.slow("25,000 sweeps, and NUTS on 300 latent states")

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "stochastic_volatility.py"))
X, H = EXAMPLE["simulate"]()


def moments(draws):
    """Mean and sd with their Monte Carlo standard errors."""
    errors = [float(az.mcse(draws, method=method)) for method in ("mean", "sd")]
    return np.array([draws.mean(), draws.std()]), np.array(errors)


def draws_of(run):
    return {"phi": run["posterior"]["phi"], "log_sigma": np.log(run["posterior"]["sigma"])}


@pytest.fixture(scope="module")
def truth():
    draws = draws_of(EXAMPLE["sample"](EXAMPLE["non_centred_model"](X), 3000, 1000, 2))
    assert max(float(az.rhat(d)) for d in draws.values()) < 1.01
    return draws


def in_turns(epsilon, batch_size):
    run = EXAMPLE["sample_in_turns"](EXAMPLE["centred_model"](X), H, epsilon, batch_size, 25_000, 1000, 2)
    # Steps of NUTS that are too large where sigma is small would keep the chain where it is.
    of_nuts = run["stats"]["acceptance_rate"].values[..., 1]
    assert of_nuts.reshape(2, 50, 500).mean(axis=2).min() > 0.3
    return run


@pytest.mark.parametrize(("epsilon", "batch_size"), [(0.0, 500), (0.01, 500)])
def test_posterior(truth, epsilon, batch_size):
    run = in_turns(epsilon, batch_size)
    draws = draws_of(run)
    assert float(az.ess(draws["log_sigma"])) > 60
    for name in ("phi", "log_sigma"):
        values, errors = moments(draws[name])
        expected, own_errors = moments(truth[name])
        z = (values - expected) / np.hypot(errors, own_errors)
        assert np.abs(z).max() < LIMIT, (name, z)
    share = float(run["stats"]["fraction_used"].mean())
    assert share == 1 if epsilon == 0 else share < 0.95


def conditional_mean(h):
    """E[log sigma | h] and sd, on a grid of phi and log sigma."""
    after = h.reshape(EXAMPLE["SERIES"], EXAMPLE["LENGTH"])
    before = np.column_stack([np.zeros(len(after)), after[:, :-1]])
    phi = np.linspace(0.0005, 0.9995, 1000)[:, None]
    log_sigma = np.linspace(-2.7, -1.9, 801)[None, :]
    square = np.sum(after**2) - 2 * phi * np.sum(after * before) + phi**2 * np.sum(before**2)
    variance = np.exp(2 * log_sigma)
    log_weight = -0.5 * square / variance - h.size * log_sigma + 4 * np.log(phi)
    # sigma^2 is inverse gamma (5, 0.05); its density on log sigma has the Jacobian sigma^2.
    log_weight = log_weight - (5 + 1 - 1) * 2 * log_sigma - 0.05 / variance
    weight = np.exp(log_weight - log_weight.max()).sum(axis=0)
    weight /= weight.sum()
    assert max(weight[0], weight[-1]) < 1e-10
    mean = weight @ log_sigma[0]
    return mean, np.sqrt(weight @ (log_sigma[0] - mean) ** 2)


def shift_given_h(epsilon, batch_size, draws=60_000):
    """How far off is the mean of log sigma in a chain with h fixed, and its error."""
    model = EXAMPLE["centred_model"](X)
    step = AusterityMH(
        [model["phi"], model["sigma2"]], model=model, epsilon=epsilon, batch_size=batch_size, threshold=100,
        proposal=RandomWalk(scale=EXAMPLE["STEPS"]), steps_per_draw=EXAMPLE["TRANSITIONS"],
        rng=np.random.default_rng(1),
    )  # fmt: skip
    point = {"phi_logodds__": np.array(2.9), "sigma2_log__": np.array(2 * conditional_mean(H)[0]), "h": H}
    log_sigma = np.empty(draws)
    for k in range(draws):
        point, _ = step.step(point)
        log_sigma[k] = point["sigma2_log__"] / 2
    return log_sigma.mean() - conditional_mean(H)[0], error_of_mean(log_sigma)


def test_given_the_states_the_exact_chain_is_right():
    shift, error = shift_given_h(0.0, 500)
    assert error < 0.01 * conditional_mean(H)[1]
    assert abs(shift) < LIMIT * error


def test_small_batches_shift_sigma(truth):
    """Batches of 100 at epsilon = 0.01: a shift of 5 % of an sd given h becomes half a posterior sd."""
    shift, error = shift_given_h(0.01, 100)
    sd_given_h = conditional_mean(H)[1]
    assert -0.1 * sd_given_h < shift < -LIMIT * error

    def tilted(s):
        log_sigma = truth["log_sigma"]
        weight = np.exp(s / sd_given_h**2 * (log_sigma - log_sigma.mean()))
        return np.sum(weight * log_sigma) / np.sum(weight) - log_sigma.mean()

    expected, slope = tilted(shift), (tilted(shift + error) - tilted(shift - error)) / 2
    values, errors = moments(draws_of(in_turns(0.01, 100))["log_sigma"])
    own, own_errors = moments(truth["log_sigma"])
    measured, noise = values[0] - own[0], np.hypot(errors[0], own_errors[0])
    assert measured < -LIMIT * noise
    assert abs(measured - expected) < LIMIT * np.hypot(noise, slope)
