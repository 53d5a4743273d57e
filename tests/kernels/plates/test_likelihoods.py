"""Likelihoods of many forms: what the kernels compute is the model's own log density, bounded."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity.bounds.jets.points import BLOCK
from pymc_austerity.kernels.plates.evaluation import changes, moved, phi_at
from tests.kernels.plates.cases import case_of_model, rows_of
from tests.kernels.plates.test_coordinates import log_jacobian
from tests.kernels.plates.test_thinning import changes_and_bounds

N, G = 900, 30
DATA = rows_of(N, G)
RNG = np.random.default_rng(5)
ETA = DATA.x @ [-0.4, 0.6, -0.3] + RNG.normal(0.0, 0.6, G)[DATA.groups]
WEIGHTS, NOISE = RNG.gamma(2.0, size=N), RNG.normal(size=N)
PROBABILITIES = 1 / (1 + np.exp(-ETA))


def multiple(eta):
    pm.Normal("y", 2.0 * eta, pm.HalfNormal("sigma"), observed=2.0 * ETA + NOISE)


def multiple_by_row(eta):
    pm.Normal("y", WEIGHTS * eta, pm.HalfNormal("sigma"), observed=WEIGHTS * ETA + NOISE)


def curve(eta):
    pm.Normal("y", pm.math.exp(0.3 * eta), pm.HalfNormal("sigma"), observed=np.exp(0.3 * ETA) + 0.3 * NOISE)


def scale_by_row(eta):
    pm.Normal("y", eta, WEIGHTS * pm.HalfNormal("sigma"), observed=ETA + WEIGHTS * NOISE)


def negative(eta):
    pm.Normal("y", 3.0 - eta, tau=pm.Gamma("lambda", 1.0, 1.0), observed=3.0 - ETA + NOISE)


def gamma_with_exposures(eta):
    mu = WEIGHTS * pm.math.exp(eta)
    y = np.random.default_rng(6).gamma(3.0, WEIGHTS * np.exp(ETA) / 3.0)
    pm.Gamma("y", mu=mu, sigma=pm.HalfNormal("cv") * mu, observed=y)


def beta_regression(eta):
    y = np.random.default_rng(6).beta(8.0 * PROBABILITIES, 8.0 * (1.0 - PROBABILITIES))
    nu = pm.Gamma("nu", 2.0, 0.1)
    pm.Beta("y", mu=pm.math.sigmoid(eta), nu=nu, observed=np.clip(y, 1e-3, 1 - 1e-3))


def censored_weibull(eta):
    dist = pm.Weibull.dist(alpha=pm.Gamma("shape", 2.0, 1.0), beta=pm.math.exp(eta))
    y = np.exp(ETA) * np.random.default_rng(6).weibull(1.5, N)
    pm.Censored("y", dist, lower=None, upper=1.5, observed=np.minimum(y, 1.5))


LIKELIHOODS = {
    multiple: False,
    multiple_by_row: False,
    curve: False,
    scale_by_row: False,
    negative: True,
    gamma_with_exposures: False,
    beta_regression: False,
    censored_weibull: False,
}


def case_with(likelihood):
    """A case with one of them."""
    with pm.Model() as model:
        u = pm.Normal("u", pm.Normal("mu"), pm.HalfNormal("tau", 1.0), shape=G)
        likelihood(DATA.x @ pm.Normal("beta", 0.0, 2.0, shape=3) + u[DATA.groups])
    return case_of_model(model)


def changes_of(case, old, new):
    """D_i of all rows, as the kernels compute them."""
    arrays, n = case.arrays, len(case.arrays.rows.predictors)
    groups = np.repeat(np.arange(G), np.diff(arrays.rows.starts))
    result, index = np.empty(n), np.zeros(BLOCK, np.int64)
    t, t_new, found = np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK)
    for first in range(0, n, BLOCK):
        some = np.arange(first, min(first + BLOCK, n))
        m = len(some)
        index[BLOCK - m :] = some
        for state, at in ((old, t), (new, t_new)):
            levels = state.levels, state.displaced.means
            moved(arrays.rows, arrays.sums, (index, groups[some]), levels, state.d, at)
        states = (t, phi_at(arrays.sums, old.d)), (t_new, phi_at(arrays.sums, new.d))
        changes(arrays.rows, arrays.room, index, m, *states, found)
        result[some] = found[BLOCK - m :]
    return result


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda one: one.__name__)
@pytest.mark.covering(1)
def test_log_density_and_bounds(likelihood):
    case, rng = case_with(likelihood), np.random.default_rng(3)
    assert case.plate.is_normal == LIKELIHOODS[likelihood]
    (theta, eps), n = case.draw(rng, 0.5), 0
    old = case.state(theta, eps)
    for width in (0.5, 1.0, 1.5, 2.0):
        theta_new, eps_new = case.draw(rng, width)
        new = case.state(theta_new, eps_new)
        own = new.quadratic - old.quadratic - 0.5 * (eps_new @ eps_new - eps @ eps)
        own += case.target.global_log_ratio(theta_new, theta, case.args)
        if case.arrays.rule.has_remainders:
            change = changes_of(case, old, new)
            own += change.sum()
            _, bound, thinned = changes_and_bounds(case, old, new, change_of=None)
            assert (np.abs(change[thinned]) <= bound + 1e-12).all()
            n += len(thinned)
        model = case.log_density(theta_new, case.effects(theta_new, eps_new)) + log_jacobian(case, theta_new)
        model -= case.log_density(theta, case.effects(theta, eps)) + log_jacobian(case, theta)
        assert abs(model - own) < 1e-7
    assert n > 500 or not case.arrays.rule.has_remainders
