"""Crossed factors: the coordinates of either turn, its bounds and proposals. Planted faults are noticed."""

import numpy as np
import pytest

from pymc_austerity.kernels.plates.coordinates import quadratic
from pymc_austerity.kernels.plates.crossed import gradient_of_quadratic
from pymc_austerity.kernels.plates.thinning import Pair, rates_of, shift_of
from pymc_austerity.mode.plates.theta_density import quadratic_derivatives
from pymc_austerity.model.compile.target import CompiledTarget
from tests.kernels.plates.cases import groups_of
from tests.kernels.plates.crossed_cases import (
    SPELLINGS,
    G,
    H,
    movements,
    remainders,
    turns_of,
)

CASES = [*(("bernoulli", one) for one in SPELLINGS), ("poisson", "centered"), ("normal", "located")]
BOTH = pytest.mark.parametrize("number", [0, 1])


def log_kernel(turn, theta, eps, point):
    """Of the coordinates, as the kernel has it."""
    state = turn.state(theta, eps, point)
    found = state.quadratic - 0.5 * eps @ eps
    if turn.arrays.rule.has_remainders:
        found += remainders(turn, movements(turn, state)[1]).sum()
    return found


def differences(turn, seed, *, jacobian=True):
    """Of model and kernel at some states, less that at the first."""
    rng = np.random.default_rng(seed)
    point = turn.point(rng)
    turn.displaced(rng)
    found, first = [], None
    for _ in range(3):
        theta, eps = turn.draw(rng)
        state = turn.state(theta, eps, point)
        first = state.theta.copy() if first is None else first
        own = log_kernel(turn, theta, eps, point) + turn.target.global_log_ratio(
            theta, first, CompiledTarget(turn.plate.shared).args(point)
        )
        own += 0.0 if jacobian else np.log(state.scales).sum()
        found.append(turn.log_density(theta, eps, point) - own)
    return np.array(found[1:]) - found[0]


@BOTH
@pytest.mark.parametrize(("likelihood", "spelling"), CASES)
@pytest.mark.covering(1)
def test_the_log_density_is_the_models(likelihood, spelling, number):
    turn = turns_of(likelihood, spelling)[number]
    np.testing.assert_allclose(differences(turn, 1), 0.0, atol=1e-8)
    # The planted faults: no Jacobian; c, which forgets the other factor.
    assert np.abs(differences(turn, 1, jacobian=False)).max() > 1e-3
    planted = turn._replace(
        arrays=turn.arrays._replace(
            crossing=turn.arrays.crossing._replace(cross=np.zeros_like(turn.arrays.crossing.cross))
        )
    )
    assert np.abs(differences(planted, 1)).max() > 1e-3


@BOTH
@pytest.mark.parametrize(("likelihood", "spelling"), [CASES[0], CASES[-1]])
def test_the_gradient_is_that_of_the_quadratic(likelihood, spelling, number):
    turn = turns_of(likelihood, spelling)[number]
    sums, crossing, rng = turn.arrays.sums, turn.arrays.crossing, np.random.default_rng(2)
    turn.displaced(rng)
    d = crossing.d + 0.1 * rng.standard_normal(len(crossing.d))
    found = gradient_of_quadratic(sums, d, 0.7, 0.2)
    np.testing.assert_allclose(found, quadratic_derivatives(sums, d, 2.0 * np.log(0.7), 0.2)[1], atol=1e-9)
    room, step = np.empty((3, len(sums.slopes))), 1e-5

    def value(at):
        return quadratic(sums, at[:-2], np.exp(0.5 * at[-2]), at[-1], *room)

    at = np.r_[d, 2.0 * np.log(0.7), 0.2]
    numeric = [(value(at + one) - value(at - one)) / (2 * step) for one in step * np.eye(len(at))]
    np.testing.assert_allclose(found, numeric, rtol=1e-5, atol=1e-5)


@BOTH
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.covering(2)
def test_proposals_follow_the_other_factor(spelling, number):
    """Their mean is the mode of the marginal but for drift, which is added at the center."""
    turn = turns_of("bernoulli", spelling)[number]
    crossing, mean = turn.arrays.crossing, turn.arrays.proposal.mean
    turn.given(np.zeros_like(crossing.displacements))
    np.testing.assert_allclose(mean, turn.fit.mean, atol=1e-10)
    turn.given(np.full_like(crossing.displacements, 0.2))
    moved = turn.fit.map.to_theta(mean, np.zeros(0)) - turn.fit.theta
    # A shift of all effects of the other factor is a shift of the intercept, but for its prior.
    assert -0.25 < moved[0] < -0.1 or (spelling == "located" and moved[0] < -0.1)


def pairs(turn, rng, widths=(0.3, 1.0, 1.5, 2.5)):
    """Pairs of states: other theta and eps, other theta alone, and other eps alone."""
    for width in widths:
        point = turn.point(rng)
        (theta, eps), (theta_new, eps_new) = turn.draw(rng, width), turn.draw(rng, width)
        for one in ((theta_new, eps_new), (theta_new, eps), (theta, eps_new)):
            yield turn.state(theta, eps, point), turn.state(*one, point)


def rates_and_shift(turn, old, new):
    pair = Pair(old.levels, new.levels, old.d, new.d, old.displaced, new.displaced)
    shift = shift_of(turn.arrays.bounds, old.d, new.d)
    return rates_of(turn.arrays.bounds, turn.arrays.sums.cells, pair, shift, 1.0), shift


def changes_and_bounds(turn, old, new, *, own=True):
    """D_i and B_i of rows that are drawn; without the `own` displacement of a row as a planted fault."""
    weights, groups = turn.arrays.weights, groups_of(turn)
    rates, shift = rates_and_shift(turn, old, new)
    (y, t), (y_new, t_new) = movements(turn, old), movements(turn, new)
    if not own:
        displaced = turn.arrays.crossing.displacements[turn.survey.levels[turn.number]]
        y, y_new = y - displaced, y_new - displaced
    change, tiers = remainders(turn, t_new) - remainders(turn, t), rates.tiers[groups]
    zeta = weights.lengths.astype(float)
    constants = weights.constants.astype(float)[np.maximum(tiers, 0), np.arange(len(groups))]
    spread = np.sqrt((y * y + y * y_new + y_new * y_new) / 3) + zeta * shift.size
    bound = constants * (np.abs(y_new - y) + zeta * shift.step) * spread**2
    return change[tiers >= 0], bound[tiers >= 0], np.flatnonzero(tiers >= 0)


@BOTH
@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
@pytest.mark.covering(1)
def test_changes_are_within_bounds_that_are_sharp(likelihood, number):
    """Planted fault: a row without its own displacement."""
    turn, rng, largest, wrong, n = (
        turns_of(likelihood, "centered")[number],
        np.random.default_rng(3),
        0.0,
        0,
        0,
    )
    turn.displaced(rng)
    for old, new in pairs(turn, rng):
        change, bound, _ = changes_and_bounds(turn, old, new)
        assert (np.abs(change) <= bound + 1e-12).all()
        n += len(change)
        largest = max(largest, (np.abs(change) / bound)[bound > 1e-8].max(initial=0.0))
        _, planted, _ = changes_and_bounds(turn, old, new, own=False)
        wrong += (np.abs(change) > planted + 1e-12).sum()
    assert n > 1000
    assert 0.3 < largest <= 1.0 + 1e-9
    assert wrong > 20


@BOTH
def test_rates_dominate_bounds_and_are_symmetric(number):
    """Planted fault: a group whose range is forgotten."""
    turn, rng = turns_of("bernoulli", "centered")[number], np.random.default_rng(4)
    turn.displaced(rng)
    groups, weights, seen, whole, planted = groups_of(turn), turn.arrays.weights, 0, 0, 0
    starts = turn.arrays.rows.starts
    for old, new in pairs(turn, rng, (0.5, 1.5, 5.0)):
        rates, shift = rates_and_shift(turn, old, new)
        np.testing.assert_equal(rates, rates_and_shift(turn, new, old)[0])
        _, bound, some = changes_and_bounds(turn, old, new)
        no_range = old.displaced._replace(farthest=np.zeros_like(old.displaced.farthest))
        no_range = no_range._replace(middles=np.zeros_like(no_range.middles))
        bare, _ = rates_and_shift(turn, old._replace(displaced=no_range), new._replace(displaced=no_range))
        for i, b in zip(some, bound, strict=True):
            g, tier = groups[i], rates.tiers[groups[i]]
            own = [
                float(sums[tier, i]) - (float(sums[tier, i - 1]) if i > starts[g] else 0.0)
                for sums in (weights.levels, weights.shared)
            ]
            assert rates.levels[g] * own[0] + rates.shared[g] * own[1] >= b * (1 - 1e-9)
            planted += bare.tiers[g] == tier and bare.levels[g] * own[0] + bare.shared[g] * own[1] < b
            seen += 1
        whole += (rates.tiers < 0).sum()
        assert shift.tier >= 0
    assert seen > 500
    assert whole > 20  # both kinds are seen
    assert planted > 20  # a group whose range is forgotten does not dominate


@BOTH
def test_a_group_beyond_its_reach_is_read(number):
    """Where a level of the other factor is far out, groups that have it are, too."""
    turn = turns_of("bernoulli", "centered")[number]
    displacements = np.zeros(H if number == 0 else G)
    displacements[3] = 5.0
    turn.given(displacements)
    rng = np.random.default_rng(5)
    point = turn.point(rng)
    (theta, eps), (_, eps_new) = turn.draw(rng, 0.3), turn.draw(rng, 0.3)
    rates, _ = rates_and_shift(turn, turn.state(theta, eps, point), turn.state(theta, eps_new, point))
    has_it = np.unique(groups_of(turn)[turn.survey.levels[number] == 3])
    assert (rates.tiers[has_it] == -1).all()
    sizes = turn.arrays.bounds.sizes
    others = np.setdiff1d(np.flatnonzero(sizes > 0), has_it)
    assert (rates.tiers[others] >= 0).mean() > 0.5
