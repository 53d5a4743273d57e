"""`TunaMH` on models with random slopes: odd groups and covariates, other data, what is refused."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from pymc_austerity import MetropolisHastings, Taylor, TunaMH
from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.testing.steps import require_same_path

from .test_plates import GROUPS, INTERPRETED, G, N, X, Y, drawn, mean
from .test_plates import short_pilots as short_pilots

COVARIATE = X[:, 1]
ODD_ROW = np.flatnonzero(GROUPS % 2)[0]


def model_of(groups=GROUPS, x=COVARIATE, y=Y, *, correlated=False):
    """A logistic model whose data may be changed."""
    with pm.Model() as model:
        groups, x, beta = pm.Data("groups", groups), pm.Data("x", x), pm.Normal("beta", 0.0, 2.0, shape=2)
        if correlated:
            scales = pm.HalfNormal.dist(1.0, shape=2)
            chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=scales)
            u = pm.MvNormal("u", np.zeros(2), chol=chol, shape=(G, 2))
            eta = u[groups, 0] + u[groups, 1] * x
        else:
            a, b = (pm.Normal(name, 0.0, pm.HalfNormal(f"tau_{name}"), shape=G) for name in "ab")
            eta = a[groups] + b[groups] * x
        pm.Bernoulli("y", logit_p=X @ beta + eta, observed=pm.Data("outcome", y), shape=N)
    return model


@INTERPRETED
@pytest.mark.parametrize(
    ("groups", "x"),
    [
        pytest.param(np.where(GROUPS % 4 == 0, 1, GROUPS), 1e-6 * COVARIATE, id="empty, small units"),
        pytest.param(
            np.r_[np.arange(G), np.full(N - G, 3)], 2000.0 + 5.0 * COVARIATE, id="one row each, far from zero"
        ),
        pytest.param(
            GROUPS,
            np.where(np.arange(N) == ODD_ROW, 100.0, np.where(GROUPS % 2 == 0, 1.0 + GROUPS, COVARIATE)),
            id="constant in some, one large in another",
        ),
    ],
)
@pytest.mark.slow("compiles a plate with slopes")
def test_odd_groups_and_covariates(groups, x):
    model = model_of(groups, x)
    _, found = drawn(TunaMH(model=model, rng=1), model)
    assert mean(found, "plate_acceptance") > 0.3


@INTERPRETED
@pytest.mark.slow("fits interpreted plates four times")
@pytest.mark.parametrize("correlated", [False, True])
def test_other_data(short_pilots, correlated):
    """A step that has run draws what a fresh step draws, also in another process."""
    model = model_of(correlated=correlated)
    step = TunaMH(model=model, rng=1)
    other = cloudpickle.loads(cloudpickle.dumps(step))
    before = drawn(step, model)
    require_same_path("A pickled step", drawn(other, model), before, "It has lost something.")
    with model:
        pm.set_data({"groups": (7 * GROUPS) % G, "x": COVARIATE[::-1].copy(), "outcome": 1 - Y})
    after, fresh = drawn(step, model), drawn(TunaMH(model=model, rng=1), model)
    require_same_path("A rebuilt step", after, fresh, "It has kept something of the old data.")


@INTERPRETED
@pytest.mark.slow("reads all rows, interpreted, hundreds of times")
def test_all_rows(short_pilots):
    model = model_of(correlated=True)
    _, found = drawn(MetropolisHastings(model=model, control_variate=Taylor(), rng=1), model)
    assert mean(found, "n_used") == 2 * N


@INTERPRETED
def test_a_covariate_of_groups_is_refused():
    model = model_of(x=np.linspace(-1.0, 1.0, G)[GROUPS])
    with pytest.raises(UnsuitableError, match="put the covariate of the groups into the location"):
        TunaMH(model=model)
