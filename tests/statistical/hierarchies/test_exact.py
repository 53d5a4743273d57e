"""Draws of grouped models against the independent reference, against all rows, and from both spellings."""

import numpy as np
import pytest

from tests.statistical.hierarchies.chains import agreement, reweighted, run
from tests.statistical.hierarchies.models import SPELLINGS, reference_of, simulate
from tests.statistical.hierarchies.reference import sample

# The second of two families is run at full size.
LONGER = pytest.mark.full_size("the same for counts, minutes more")
FAMILIES_IN_TURN = ["logistic", pytest.param("poisson", marks=LONGER)]
PRIORS = [
    ("logistic", "student", "centred"),
    pytest.param("poisson", "laplace", "non_centred", marks=LONGER),
]
DRAWS = 8000
SHORT = 500


@pytest.fixture(scope="module", params=FAMILIES_IN_TURN)
def small(request):
    """Ten rows a group, and draws of the reference: 50,000 sweeps."""
    data = simulate(request.param, 2000, 200)
    return data, sample(reference_of(data), 10_000, 1, thin=5)[None]


def assert_same_draws(some, all_):
    """Spellings are read into the same coordinates: with one seed only rounding tells draws apart.

    A density that differs in any way would soon change a decision, and all that follows.
    """
    n = some.draws.shape[1]
    np.testing.assert_allclose(some.draws, all_.draws[:, :n], rtol=1e-6, atol=1e-6)
    for name, values in some.statistics.items():
        np.testing.assert_allclose(values, all_.statistics[name][:, :n], rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.slow("50,000 sweeps of the reference, and 16,000 draws")
def test_posterior_is_that_of_the_reference(small):
    """Draws of other spellings are the same, as is shown below."""
    data, theirs = small
    ours = run(data, DRAWS, spelling="non_centred", switch_above=np.inf)
    found = agreement(ours.draws, theirs, data)
    print(data.family, found, ours)
    assert found
    # The planted fault: the Jacobian of log tau counts twice.
    planted = reweighted(ours.draws[:1], ours.draws[0, :, data.X.shape[1]])
    assert not agreement(planted, theirs, data)


@pytest.mark.full_size("75,000 sweeps of the reference, and 16,000 draws")
@pytest.mark.parametrize(("family", "prior", "spelling"), PRIORS)
def test_effects_that_are_not_normal(family, prior, spelling):
    data = simulate(family, 2000, 200, prior=prior)
    theirs = sample(reference_of(data), 15_000, 1, thin=5)[None]
    ours = run(data, DRAWS, spelling=spelling, switch_above=np.inf)
    found = agreement(ours.draws, theirs, data)
    print(family, prior, spelling, found, ours)
    assert found
    # The planted fault: effects of the reference are normal.
    wrong = sample(reference_of(data)._replace(prior=0), 5000, 1, thin=5)[None]
    assert not agreement(ours.draws, wrong, data)


@pytest.mark.slow("five steps on 4,000 rows, and 5,000 draws")
@pytest.mark.parametrize("family", FAMILIES_IN_TURN)
def test_spellings_are_one_model(family):
    data = simulate(family, 4000, 150, seed=3)
    centred = run(data, SHORT)
    assert_same_draws(run(data, SHORT, spelling="non_centred"), centred)
    at_mu = run(data, SHORT, spelling="centred_at_mu")  # whose intercept is a variable of its own
    assert_same_draws(run(data, SHORT, spelling="non_centred_at_mu"), at_mu)
    assert agreement(at_mu.draws, centred.draws, data)
    # The planted fault: another scale in the prior of tau, whose posterior sd it hardly changes.
    planted = run(data, SHORT, spelling=SPELLINGS[1], tau_sd=0.9)
    with pytest.raises(AssertionError):
        assert_same_draws(planted, centred)
