"""Jumps find the probabilities of all sub-models that enumeration gives; wrong jumps do not."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pymc_austerity import RandomWalk, ReversibleJump
from pymc_austerity.acceptance import Barker, Concentration, TTest
from pymc_austerity.diagnostics.result import ess, mcse
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.proposals import jumps
from pymc_austerity.proposals.jumps import log_density
from pymc_austerity.testing import check_posterior
from tests.sampling import sampled
from tests.statistical.selection import (
    Selected,
    correlated_rows,
    independent,
    logistic_model,
    normal_model,
    normal_rows,
    normal_solved,
    probabilities,
    truncated_poisson,
)

P = 8
# Inclusion probabilities by enumeration of the 256 sub-models, by 1000 draws for each.
NORMAL = np.array([0.9997, 0.7929, 0.9635, 0.3164, 0.0989, 0.1008, 0.0338, 0.0320])
LAPLACE = np.array([0.9997, 0.7659, 0.9604, 0.3381, 0.1087, 0.1088, 0.0396, 0.0376])
POISSON = np.array([0.9992, 0.6980, 0.9429, 0.2691, 0.0755, 0.0755, 0.0250, 0.0235])


def run(model, draws, steps_per_draw=5, kind=ReversibleJump, **options):
    """Draws of the indicators, of shape (chain, draw, p)."""
    with model:
        step = kind(steps_per_draw=steps_per_draw, **options)
        idata = sampled(draws, step, tune=100, chains=2, random_seed=1)
    return idata["posterior"]["gamma"].to_numpy().astype(float)


def z_scores(gamma, expected):
    """How far probabilities are off, in Monte Carlo errors.

    A coefficient that was hardly ever moved has a small error by chance: errors are not below those of the
    true probability and the effective sample size of another coefficient.
    """
    sizes = np.array([ess(gamma[..., j]) if np.ptp(gamma[..., j]) else 0.0 for j in range(len(expected))])
    best = np.argsort(-expected * (1.0 - expected))
    scores = []
    for j, p in enumerate(expected):
        other = sizes[best[1] if j == best[0] else best[0]]
        own = mcse(gamma[..., j]) if sizes[j] else 0.0
        scores.append((gamma[..., j].mean() - p) / max(own, np.sqrt(p * (1.0 - p) / other)))
    return np.array(scores)


# Enumeration ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    return correlated_rows()


def test_probabilities_of_all_coefficients(rows):
    gamma = run(logistic_model(rows, chance=0.3), 2000)
    assert np.abs(z_scores(gamma, NORMAL)).max() < 4


OTHERS = {
    "Laplace slab": ({"slab": pm.Laplace, "chance": 0.3}, {}, LAPLACE),
    "truncated Poisson": ({"rate": 1.5}, {}, POISSON),
    "one coefficient": ({"chance": 0.3}, {"redraw": "one", "steps_per_draw": 10}, NORMAL),
    "a given proposal": ({"chance": 0.3}, {"proposal": RandomWalk(0.05)}, NORMAL),
}


@pytest.mark.slow("each is another model, or another engine")
@pytest.mark.parametrize("name", OTHERS)
def test_other_priors_and_moves(rows, name):
    of_model, options, expected = OTHERS[name]
    gamma = run(logistic_model(rows, **of_model), 1500, **options)
    assert np.abs(z_scores(gamma, expected)).max() < 4


# It calls nothing of the package.
CONSTANTS = pytest.mark.full_size("more numbers of this file by the same enumeration")


@pytest.mark.slow("the evidence of 256 sub-models")
@pytest.mark.parametrize(
    ("slab", "log_prior", "expected"),
    [
        (stats.norm(0, 1), independent(0.3, P), NORMAL),
        pytest.param(stats.laplace(0, 1), independent(0.3, P), LAPLACE, marks=CONSTANTS),
        pytest.param(stats.norm(0, 1), truncated_poisson(1.5, P), POISSON, marks=CONSTANTS),
    ],
)
def test_enumeration(rows, slab, log_prior, expected):
    """The numbers above, from other draws; and those that were found before, independently."""
    problem = Selected(rows.X, rows.y, slab, log_prior)
    _, _, found = probabilities(problem, np.random.default_rng(2))
    np.testing.assert_allclose(found, expected, atol=0.012)
    if expected is NORMAL:
        published = [0.9997, 0.792, 0.9635, 0.317, 0.099, 0.101, 0.034, 0.032]
        np.testing.assert_allclose(published, expected, atol=2e-3)


# Every decision rule, and a slab whose scale another step moves ---------------------------------------


RULES = {
    "t-test": (TTest(0.01), 0.2),
    "concentration": (Concentration(0.1), 0.05),
    "Barker": (Barker(), 0.1),
}


@pytest.mark.slow("three engines")
@pytest.mark.parametrize("name", RULES)
def test_decision_rules(name):
    rule, tolerance = RULES[name]
    solved = normal_solved(normal_rows(3000, 3, effect=0.03))
    step = ReversibleJump(acceptance=rule, steps_per_draw=5, model=solved.model)
    check_posterior(solved, step, tolerance=tolerance, draws=1500, tune=100)


def simulated(rng, n, p):
    """Draws of everything from the prior: the precision of the slab, indicators, coefficients, intercept."""
    precision = rng.gamma(3.0, 1.0 / 3.0, n)
    gamma = (rng.random((n, p)) < 0.4).astype(int)
    beta = rng.normal(size=(n, p)) / np.sqrt(precision)[:, None]
    return precision, gamma, beta, rng.normal(size=n)


def functionals(precision, gamma, beta, a):
    """What is compared, of shape (n, k)."""
    active = gamma * beta
    of_slab = [part for x in (beta, active) for part in (x, x**2 / (1 + x**2))]
    return np.column_stack([np.log(precision), gamma, *of_slab, a, a**2])


def test_joint_distribution():
    """Data and parameters in turn have the prior as their distribution (Geweke 2004).

    The data are a variable of the model, drawn anew after each jump; so is the scale of the slab, which the
    step follows.
    """
    n_rows, p, n_draws = 12, 3, 8000
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n_rows, p)) + rng.normal(size=(n_rows, 1))
    with pm.Model() as model:
        precision = pm.Gamma("precision", 3, 3)
        gamma = pm.Bernoulli("gamma", 0.4, shape=p)
        beta = pm.Normal("beta", 0, precision**-0.5, shape=p)
        a = pm.Normal("a", 0, 1)
        pm.Bernoulli("y", logit_p=a + X @ (gamma * beta), shape=n_rows)
        step = ReversibleJump([gamma, beta, a], threshold=10, rng=1)
    first = simulated(rng, 1, p)
    point = {**model.initial_point(), "precision_log__": np.log(first[0][0]), "a": np.array(first[3][0])}
    point |= {"gamma": first[1][0], "beta": first[2][0]}
    found = []
    for _ in range(n_draws):
        eta = point["a"] + X @ (point["gamma"] * point["beta"])
        point = {**point, "y": (rng.random(n_rows) * (1 + np.exp(-eta)) < 1).astype(int)}
        for _ in range(3):
            point, _ = step.step(point)
        # Given all coefficients, dummies included, the precision has a gamma distribution.
        rate = 3.0 + 0.5 * np.sum(point["beta"] ** 2)
        tau = rng.gamma(3.0 + 0.5 * p, 1.0 / rate)
        point = {**point, "precision_log__": np.array(np.log(tau))}
        found.append((tau, point["gamma"].copy(), point["beta"].copy(), float(point["a"])))
    chain = functionals(*(np.array(part) for part in zip(*found, strict=True)))
    exact = functionals(*simulated(rng, 100_000, p))
    for k in range(exact.shape[1]):
        error = np.hypot(mcse(chain[None, :, k]), exact[:, k].std() / np.sqrt(len(exact)))
        assert abs(chain[:, k].mean() - exact[:, k].mean()) < 4 * error, k


# Planted faults -----------------------------------------------------------------------------------------


def without_density(proposal, q, rng, args, target):
    """Without log q(old) - log q(new)."""
    q_new, base = jumps.jump_or_redraw(proposal, q, rng, args, target)
    state, p = proposal.state, len(q) - len(proposal.state.expansion.linear)
    if base == -np.inf:
        return q_new, base
    new, old = jumps.there_and_back(state, q, q_new[:p], rng, target.slab(state.expansion.center, args))
    return q_new, base - log_density(old, q[p + old.coordinates]) + log_density(
        new, q_new[p + new.coordinates]
    )


def flip_for_swap(proposal, q, rng, args, target):
    """A swap that is impossible becomes a flip."""
    q_new, base = jumps.jump_or_redraw(proposal, q, rng, args, target)
    if base > -np.inf:
        return q_new, base
    p = len(q) - len(proposal.state.expansion.linear)
    gamma, j = q[:p].copy(), int(rng.random() * p)
    gamma[j] = 1.0 - gamma[j]
    return jumps.redrawn(proposal.state, gamma, q, rng, args, target)


def dummies_twice(proposal, q, rng, args, target):
    """The slab of the dummies does not cancel, and is counted once more."""
    q_new, base = jumps.jump_or_redraw(proposal, q, rng, args, target)
    family = proposal.state.expansion.family
    new = jumps.log_slab_of_dummies(family, target.slab(q_new, args), q_new)
    return q_new, base + new - jumps.log_slab_of_dummies(family, target.slab(q, args), q)


class Planted(ReversibleJump):
    """Moves by another function."""

    move = staticmethod(jumps.jump_or_redraw)

    def _planned(self, point, recipe=None):
        plan = super()._planned(point, recipe)
        return replace(plan, bound=replace(plan.bound, move=self.move))


def worst(move, draws):
    """The largest error of a probability, in Monte Carlo errors."""
    solved = normal_solved(normal_rows(), chance=0.4)
    kind = type("Moved", (Planted,), {"move": staticmethod(move)})
    with interpreted():
        gamma = run(
            normal_model(normal_rows(), chance=0.4), draws, 1, kind=kind, swap=0.5, initial_point=solved.start
        )
    return np.abs(z_scores(gamma, solved.mean["gamma"])).max()


@pytest.mark.slow("interpreted, so that nothing wrong is compiled")
@pytest.mark.parametrize(
    ("move", "draws"), [(without_density, 2000), (flip_for_swap, 6000), (dummies_twice, 2000)]
)
def test_wrong_jumps_are_seen(move, draws):
    assert worst(move, draws) > 6


@pytest.mark.slow("interpreted, as the wrong ones")
def test_right_jumps_pass():
    assert worst(jumps.jump_or_redraw, 6000) < 4
