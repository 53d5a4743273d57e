"""Two factors, both written centred or both not: the same posterior, and states are the model's."""

from functools import cache

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import TunaMH
from tests.models import as_model
from tests.sampling import sampled
from tests.statistical.hierarchies.joint import p_of_means, p_of_variances

N, G, H = 6000, 40, 8
RNG = np.random.default_rng(51)
X, GROUPS, LEVELS = RNG.normal(size=N), RNG.integers(0, G, N), RNG.integers(0, H, N)
ETA = 0.3 - 0.5 * X + 0.6 * RNG.normal(size=G)[GROUPS] + 0.4 * RNG.normal(size=H)[LEVELS]
Y = (RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(int)
NAMES = ("a", "b", "tau", "tau_v", "v", "u")


@as_model
def model_of(*, is_centered):
    a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, 2)
    tau, tau_v = pm.HalfNormal("tau"), pm.HalfNormal("tau_v")
    if is_centered:
        u, v = pm.Normal("u", 0, tau, shape=G), pm.Normal("v", 0, tau_v, shape=H)
    else:
        u = pm.Deterministic("u", tau * pm.Normal("z", shape=G))
        v = pm.Deterministic("v", tau_v * pm.Normal("z_v", shape=H))
    pm.Bernoulli("y", logit_p=a + b * X + u[GROUPS] + v[LEVELS], observed=Y)


@cache
def built(is_centered):
    model = model_of(is_centered=is_centered)
    return model, TunaMH(model=model)


def draws_of(is_centered, n, seed):
    model, step = built(is_centered)
    idata = sampled(n, step, tune=100, chains=2, model=model, random_seed=seed)
    parts = [np.asarray(idata.posterior[name]).reshape(2, n, -1) for name in NAMES]
    return np.concatenate([*parts[:2], np.log(parts[2]), np.log(parts[3]), *parts[4:]], axis=-1)


@pytest.mark.slow("builds and compiles several steps")
def test_a_state_is_the_models():
    """What is scaled on the way in is scaled back on the way out."""
    model, step = built(False)
    point = {name: value + 0.3 for name, value in model.initial_point().items()}
    given = np.concatenate([np.ravel(point[name]) for name in step.factorisation.var_names])
    q = given.copy()
    outcome = step.engine.run(0, False, np.random.default_rng(1), q, point, step.engine.new_state())
    np.testing.assert_allclose(outcome.q, given, rtol=1e-12)


@pytest.mark.slow("24,000 draws of two models")
def test_spellings_are_one_posterior():
    centred, other = draws_of(True, 6000, 1), draws_of(False, 6000, 2)
    assert p_of_means(centred, other, 4 + H) > 0.001
    assert p_of_variances(centred, other, 4 + H) > 0.001
    # The planted fault: effects of the second factor in units of their scale.
    wrong = other.copy()
    wrong[..., 4 : 4 + H] /= np.exp(other[..., 3:4])
    assert p_of_means(centred, wrong, 4 + H) < 0.001
