"""Coordinates of a plate against the model's own log density; without the Jacobian they differ."""

import numpy as np
import pytest

from tests.kernels.plates.cases import OTHER_PRIORS, case_of, log_remainders

SPELLINGS = ("centered", "non-centered", "crossed", "both non-centered")
# Spellings differ in the coordinates, likelihoods in what is summed over rows.
ALL = [
    *(("bernoulli", spelling) for spelling in SPELLINGS),
    ("poisson", "non-centered"),
    ("normal", "centered"),
    ("negative binomial", "centered"),
    ("zero inflation", "crossed"),
    ("poisson", "slopes non-centered"),
    ("normal", "slopes"),
    ("bernoulli", "two slopes"),
    ("bernoulli", "lkj"),
    ("poisson", "lkj transposed"),
]
OTHERS = [("normal" if k % 2 else "bernoulli", spelling) for k, spelling in enumerate(OTHER_PRIORS)]


def log_jacobian(case, theta):
    """Of the effects as the model has them, by eps."""
    _, tau, _ = case.given(theta)
    scales = case.state(theta, np.zeros(len(case.arrays.sums.slopes))).scales
    q = case.plate.n_effects
    if q > 1:
        factors = np.abs(np.linalg.det(scales.reshape(-1, q, q)))
        return np.log(factors if case.plate.is_centered else factors / np.prod(np.diag(tau))).sum()
    return np.log(scales if case.plate.is_centered else scales / tau).sum()


def difference(case, one, other, *, jacobian=True):
    """Of the two log densities: what the model has, less what the kernels have."""
    found = []
    for theta, eps in (one, other):
        model = case.log_density(theta, case.effects(theta, eps))
        if jacobian:
            model += log_jacobian(case, theta)
        own = case.quadratic(theta) - 0.5 * eps @ eps + case.state(theta, eps).excesses.sum()
        if case.arrays.rule.has_remainders:
            own += log_remainders(case, case.state(theta, eps))
        found.append(model - own)
    prior = case.target.global_log_ratio(one[0], other[0], case.args)
    return found[0] - found[1] - prior


@pytest.mark.parametrize(("likelihood", "spelling"), [*ALL, *OTHERS])
@pytest.mark.covering(1)
def test_log_density(likelihood, spelling):
    """And from coordinates to effects and back."""
    case, rng = case_of(likelihood, spelling, 400), np.random.default_rng(3)
    states = [case.draw(rng, width) for width in (0.5, 1.0, 1.5, 2.0)]
    states.append((states[0][0] + np.eye(len(states[0][0]))[-1] * 0.5, states[0][1]))
    for state in states[1:]:
        assert abs(difference(case, state, states[0])) < 1e-7
    theta, eps = case.draw(rng, 1.5)
    effects = case.effects(theta, eps)
    np.testing.assert_allclose(case.eps(theta, effects), eps, atol=1e-10)
    np.testing.assert_allclose(case.effects(theta, case.eps(theta, effects)), effects, atol=1e-12)


@pytest.mark.parametrize("spelling", ["centered", "two slopes"])
@pytest.mark.covering(1)
def test_without_the_jacobian_it_differs(spelling):
    """Planted fault: no Jacobian."""
    case, rng = case_of("bernoulli", spelling, 400), np.random.default_rng(4)
    assert abs(difference(case, case.draw(rng, 2.0), case.draw(rng), jacobian=False)) > 0.1


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_scale_near_zero(spelling):
    """Nothing of z is lost as tau goes to 0, and effects are then their location."""
    case, rng = case_of("bernoulli", spelling, 400), np.random.default_rng(6)
    theta, eps = case.draw(rng)
    place = next(
        k for k in range(len(theta)) if str(case.plate.factorisation.coordinate(k)[0]).startswith("tau")
    )
    theta[place] = np.log(1e-8)
    effects = case.effects(theta, eps)
    tolerance = 1e-6 if case.plate.is_centered else 1e-12
    np.testing.assert_allclose(case.eps(theta, effects), eps, atol=tolerance)
    state = case.state(theta, eps)
    assert np.isfinite(state.quadratic)
    z = (effects - effects.mean()) / 1e-8 if case.plate.is_centered else effects - effects.mean()
    np.testing.assert_allclose(z, eps - eps.mean(), atol=1e-5)


@pytest.mark.slow("long runs")
def test_empty_group_has_its_prior():
    case, rng = case_of("bernoulli", "non-centered", 400), np.random.default_rng(7)
    theta, eps = case.draw(rng)
    assert case.arrays.bounds.sizes[-1] == 0
    assert case.effects(theta, eps)[-1] == eps[-1]
