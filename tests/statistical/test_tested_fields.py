"""Sweeps over a field that are decided by tests on remainders, against exact ones."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import AusterityMH, MinibatchBarker, Taylor, TunaMH
from tests.mode.fields.fields import three_levels
from tests.sampling import sampled
from tests.statistical.hierarchies.test_tested import LIMIT, differences

N = 20_000


def drawn(n, make):
    """Draws of all variables (1, n, d), and the rows of a draw."""
    with three_levels(N, 10, 40, 200):
        step = make()
        assert step.recipe.fit[0].theta.size == 3
        idata = sampled(n, step, tune=100, chains=1, random_seed=3)
    found = idata["posterior"]
    draws = np.concatenate([np.asarray(found[name])[0].reshape(n, -1) for name in found.data_vars], axis=1)
    return draws[None], float(idata["sample_stats"]["n_used"].mean())


@pytest.mark.slow("7,000 draws of 260 coordinates")
def test_posterior():
    exact, _ = drawn(3000, lambda: TunaMH(switch_above=np.inf))
    tested, n_used = drawn(2500, lambda: AusterityMH(control_variate=Taylor(), epsilon=0.01))
    assert differences(tested, exact) < LIMIT
    assert n_used < 0.5 * 2 * N
    barker, _ = drawn(1500, lambda: MinibatchBarker(control_variate=Taylor()))
    assert differences(barker, exact) < LIMIT


@pytest.mark.parametrize("step", [AusterityMH, MinibatchBarker])
def test_slopes_are_tested_in_a_field(step):
    rng, n, groups = np.random.default_rng(4), 4000, 40
    group, x = np.arange(n) % groups, rng.normal(size=n)
    with pm.Model():
        tau, b = pm.HalfNormal("tau", shape=2), pm.Normal("b", shape=2)
        u = pm.Normal("u", b, tau, shape=(groups, 2))
        pm.Bernoulli("y", logit_p=u[group, 0] + u[group, 1] * x, observed=rng.random(n) < 0.4)
        made = step(control_variate=Taylor())
        assert made.recipe.fit[0].theta.size == 2
        idata = sampled(20, made, tune=10, chains=2, cores=2, random_seed=3)
    assert np.isfinite(idata["posterior"]["u"]).all()
