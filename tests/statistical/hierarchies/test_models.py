"""The models that are sampled have the densities that the reference moves on."""

import numpy as np
import pytest

from tests.statistical.hierarchies.calibration import log_likelihood
from tests.statistical.hierarchies.models import SPELLINGS, model_of, reference_of, simulate
from tests.statistical.hierarchies.reference import FAMILIES, log_likelihoods

BETA_SD, TAU_SD, G = 1.5, 0.7, 6
pytestmark = pytest.mark.usefixtures("without_c")


def point_of(x, spelling, p):
    """The values of the model's variables where beta, log tau and the effects are x."""
    beta, log_tau, u = x[:p], x[p], x[p + 1 :]
    at_mu = spelling.endswith("at_mu")
    point = {"beta": beta[at_mu:], "tau_log__": np.array(log_tau)}
    if at_mu:
        point["mu"] = np.array(beta[0])
    if spelling.startswith("centred"):
        return {**point, "u": u + beta[0] if at_mu else u}
    return {**point, "z": u / np.exp(log_tau)}


def log_density(data, x, spelling):
    """Without constants."""
    p = data.X.shape[1]
    beta, log_tau, u = x[:p], x[p], x[p + 1 :]
    tau = np.exp(log_tau)
    prior = -0.5 * np.sum(beta**2) / BETA_SD**2 - 0.5 * (tau / TAU_SD) ** 2 + log_tau
    effects = -0.5 * np.sum(u**2) / tau**2 - (len(u) * log_tau if spelling.startswith("centred") else 0.0)
    return log_likelihood(data, x[None])[0] + prior + effects


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_densities(family, spelling):
    data = simulate(family, 40, G, p=3)
    logp = model_of(data, spelling, beta_sd=BETA_SD, tau_sd=TAU_SD).compile_logp(mode="FAST_COMPILE")
    points = np.random.default_rng(1).normal(0, 0.5, (2, 3 + 1 + G))
    a, b = (logp(point_of(x, spelling, 3)) - log_density(data, x, spelling) for x in points)
    assert a == pytest.approx(b, abs=1e-9)
    fits = log_likelihoods(reference_of(data), points)
    assert fits == pytest.approx(log_likelihood(data, points))
