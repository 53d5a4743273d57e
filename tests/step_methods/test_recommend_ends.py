"""`recommend` ends in a step, with a reason, whatever rows look up and wherever they are in their support.

For models that are in public use see `tests/integration/test_public_models.py`.
"""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import TunaMH, recommend
from pymc_austerity.exceptions import UnsuitableError

pytestmark = pytest.mark.usefixtures("interpreted")

N, GROUPS = 1200, 210
RNG = np.random.default_rng(3)
X = RNG.normal(size=N)
GROUP = RNG.integers(0, GROUPS, N)
SOME = RNG.random(N) < 0.6
EXPOSURE = SOME * RNG.uniform(0.1, 1.0, N)
COUNTS = RNG.poisson(EXPOSURE)
BINARY = RNG.integers(0, 2, N)
OTHER = RNG.integers(0, GROUPS, N)
Y = RNG.normal(size=N)
SUCCESSES = RNG.binomial(5, 0.3, N)


def rates_of_users():
    theta = pm.Beta("theta", 2.0, pm.HalfNormal("k", 5.0), shape=N)
    pm.Binomial("y", n=5, p=theta, observed=SUCCESSES)


def rates_without_a_rule():
    theta = pm.Kumaraswamy("theta", 2.0, pm.HalfNormal("k", 5.0), shape=N)
    pm.Binomial("y", n=5, p=theta, observed=SUCCESSES)


def one_of_its_own_beside_groups():
    u = pm.Normal("u", 0.0, pm.HalfNormal("t"), shape=GROUPS)
    own = pm.Normal("own", 0.0, pm.HalfNormal("s"), shape=N)
    pm.Poisson("y", pm.math.exp(u[GROUP] + own), observed=COUNTS)


def two_matrices():
    a, b = (pm.Normal(n, 0.0, pm.HalfNormal(f"scale_{n}"), shape=(GROUPS, 2)) for n in "ab")
    z, sigma = np.c_[X, X**2], pm.HalfNormal("sigma")
    pm.Normal("y", (z * a[GROUP]).sum(-1) + (z * b[OTHER]).sum(-1), sigma, observed=Y)


def rate():
    return pm.math.exp(pm.Normal("a") + pm.Normal("b") * X)


def exposures_of_zero():
    pm.Poisson("y", EXPOSURE * rate(), observed=COUNTS)


def a_table_with_exposures_of_zero():
    pm.Poisson(
        "y", (EXPOSURE * rate())[:, None] * pm.Gamma("h", 1, 1, shape=2), observed=np.c_[COUNTS, COUNTS]
    )


def offsets_of_minus_infinity():
    with np.errstate(divide="ignore"):
        offset = np.log(EXPOSURE)
    pm.Poisson("y", pm.math.exp(offset + pm.Normal("a") + pm.Normal("b") * X), observed=COUNTS)


def unavailable_choices():
    open_ = np.c_[np.ones(N, dtype=bool), SOME, ~SOME]
    utility = pm.math.switch(open_, np.c_[X, X**2, -X] * pm.Normal("b"), -np.inf)
    y = np.where(BINARY, np.where(SOME, 1, 2), 0)
    pm.Categorical("y", p=pm.math.softmax(utility, axis=1), observed=y)


def no_trials_at_all():
    none = np.zeros(N, dtype=int)
    pm.Binomial("y", n=none, logit_p=pm.Normal("a") + pm.Normal("b") * X, observed=none)


FEW, NUTS, ALL_ROWS = "TunaMH()", "pm.NUTS()", "MetropolisHastings(control_variate=Taylor())"
CASES = {
    rates_of_users: (ALL_ROWS, "are a field of"),
    rates_without_a_rule: (NUTS, "whose prior has a rule"),
    # Both are exact, and so short a pilot run may choose either.
    one_of_its_own_beside_groups: ((FEW, ALL_ROWS), "are a field of 1,410 effects"),
    two_matrices: (FEW, "are a field of"),
    exposures_of_zero: (FEW, "few rows decide exactly"),
    a_table_with_exposures_of_zero: (FEW, "few rows decide exactly"),
    offsets_of_minus_infinity: (FEW, "few rows decide exactly"),
    unavailable_choices: (FEW, "few rows decide exactly"),
    no_trials_at_all: (FEW, "few rows decide exactly"),
}


TRIED_OUT = pytest.mark.slow("Python itself runs the sweeps that are tried out")
LONG = (one_of_its_own_beside_groups, rates_of_users)


@pytest.mark.parametrize(
    "make",
    [pytest.param(f, marks=TRIED_OUT) if f in LONG else f for f in CASES],
    ids=lambda make: make.__name__,
)
def test_a_step_and_a_reason(make, short_pilots):
    """Pilot runs are cut short: what they choose may not be the best."""
    with pm.Model():
        make()
        step = recommend(verbose=False)
    chosen, reason = CASES[make]
    assert step.recommendation.step in (chosen if isinstance(chosen, tuple) else (chosen,))
    assert reason in step.recommendation.reason


def test_a_step_of_its_own_refuses():
    with pm.Model():
        rates_without_a_rule()
        with pytest.raises(UnsuitableError, match="dimensions") as refusal:
            TunaMH()
    (note,) = refusal.value.__notes__
    assert "whose prior has a rule" in note
